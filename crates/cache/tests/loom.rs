//! The `FillBuffer` under loom: every interleaving of a writer and its readers. The arena's bytes
//! are in cells, on which loom detects a read that races with a write or with a slab's recycling.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p thalweg-cache --release --test loom`
#![cfg(loom)]

use bytes::Bytes;
use loom::future::block_on;
use loom::thread;
use thalweg_cache::arena::Compaction;
use thalweg_cache::fill::{Destination, Room};
use thalweg_cache::{Arena, Failure, FillBuffer, Reader};

/// Maximum number of preemptions per explored interleaving: enough to find typical concurrency bugs
/// within seconds.
const PREEMPTIONS_MAX: usize = 2;

fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(check);
}

fn read_all(mut reader: Reader<()>) -> (Vec<u8>, Result<(), Failure>) {
    let mut content = Vec::new();
    loop {
        match block_on(reader.next(usize::MAX)) {
            Ok(Some(piece)) => content.extend(piece.to_vec()),
            Ok(None) => return (content, Ok(())),
            Err(failure) => return (content, Err(failure)),
        }
    }
}

fn stored(arena: &loom::sync::Arc<Arena>) -> Destination {
    Destination::Store(Room::growing(arena))
}

#[test]
fn every_reader_gets_every_byte_and_is_always_woken() {
    model(|| {
        let arena = Arena::new(8).unwrap();
        let (buffer, mut writer, reader) = FillBuffer::<()>::new();
        let late = buffer.reader(1);
        let filling = thread::spawn(move || {
            writer.set_head((), stored(&arena));
            writer.append(Bytes::from_static(b"ab")).unwrap();
            writer.append(Bytes::from_static(b"cde")).unwrap();
            writer.complete();
        });
        let first = thread::spawn(move || read_all(reader));
        assert_eq!(read_all(late), (b"bcde".to_vec(), Ok(())));
        assert_eq!(first.join().unwrap(), (b"abcde".to_vec(), Ok(())));
        filling.join().unwrap();
    });
}

#[test]
fn abandoned_fill_never_ends_cleanly() {
    model(|| {
        let arena = Arena::new(8).unwrap();
        let (_, mut writer, reader) = FillBuffer::<()>::new();
        let filling = thread::spawn(move || {
            writer.set_head((), stored(&arena));
            writer.append(Bytes::from_static(b"ab")).unwrap();
            drop(writer);
        });
        assert_eq!(read_all(reader), (b"ab".to_vec(), Err(Failure::Abandoned)));
        filling.join().unwrap();
    });
}

#[test]
fn readers_waiting_for_the_head_see_the_failure() {
    model(|| {
        let (buffer, writer, mut reader) = FillBuffer::<()>::new();
        let mut joined = buffer.reader(0);
        let filling = thread::spawn(move || writer.fail(Failure::Superseded));
        assert_eq!(block_on(joined.head()), Err(Failure::Superseded));
        assert_eq!(block_on(reader.head()), Err(Failure::Superseded));
        filling.join().unwrap();
    });
}

#[test]
fn passed_content_waits_for_its_reader() {
    model(|| {
        let (_, mut writer, reader) = FillBuffer::<()>::new();
        let filling = thread::spawn(move || {
            writer.set_head((), Destination::Pass { window_bytes: 1 });
            for byte in [b"a", b"b"] {
                block_on(writer.room()).unwrap();
                writer.append(Bytes::from_static(byte)).unwrap();
            }
            writer.complete();
        });
        assert_eq!(read_all(reader), (b"ab".to_vec(), Ok(())));
        filling.join().unwrap();
    });
}

#[test]
fn dropping_the_reader_ends_passed_content() {
    model(|| {
        let (_, mut writer, reader) = FillBuffer::<()>::new();
        let filling = thread::spawn(move || {
            writer.set_head((), Destination::Pass { window_bytes: 1 });
            while block_on(writer.room()).is_ok() {
                writer.append(Bytes::from_static(b"a")).unwrap();
            }
        });
        drop(reader);
        filling.join().unwrap();
    });
}

#[test]
fn held_piece_outlives_its_buffer_and_its_slab_is_not_reused() {
    model(|| {
        // Two slabs of four bytes. `ab` and `cd` fill the first, `ef` opens the second.
        let arena = Arena::new(8).unwrap();
        let [kept, gone, _open] = [b"ab", b"cd", b"ef"].map(|bytes| {
            let (buffer, mut writer) = FillBuffer::<()>::stored(&arena, ());
            writer.append(Bytes::from_static(bytes)).unwrap();
            writer.complete();
            buffer
        });
        let piece = block_on(kept.reader(0).next(2)).unwrap().unwrap();
        let refilling = thread::spawn(move || {
            drop(gone);
            let (_, mut writer) = FillBuffer::<()>::stored(&arena, ());
            // This content fits only into the held piece's slab, once the piece is dropped.
            let _ = writer.append(Bytes::from_static(b"WXYZ"));
        });
        drop(kept);
        assert_eq!(piece.to_vec(), b"ab");
        drop(piece);
        refilling.join().unwrap();
    });
}

#[test]
fn content_moves_under_its_readers() {
    model(|| {
        // `ab` is left alone in the first slab; `ef` opens the second and leaves room in it.
        let arena = Arena::new(8).unwrap();
        let [moved, gone, open] = [b"ab", b"cd", b"ef"].map(|bytes| {
            let (buffer, mut writer) = FillBuffer::<()>::stored(&arena, ());
            writer.append(Bytes::from_static(bytes)).unwrap();
            writer.complete();
            buffer.allow_moves();
            buffer
        });
        drop(gone);
        let reader = moved.reader(0);
        let reading = thread::spawn(move || read_all(reader));
        assert_eq!(arena.compact(), Compaction::Emptied);
        assert_eq!(reading.join().unwrap(), (b"ab".to_vec(), Ok(())));
        assert_eq!(read_all(moved.reader(0)), (b"ab".to_vec(), Ok(())));
        assert_eq!(read_all(open.reader(0)), (b"ef".to_vec(), Ok(())));
        assert_eq!(arena.free_slabs(), 1);
    });
}
