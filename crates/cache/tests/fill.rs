//! The `FillBuffer` against a naive model: random appends, joins at any offset, reads and ends.
#![cfg(not(loom))]

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use proptest::prelude::*;
use thalweg_cache::arena::{Compaction, SLAB_BYTES};
use thalweg_cache::fill::{Destination, Progress, Room};
use thalweg_cache::{Arena, Failure, FillBuffer, Reader};

#[derive(Debug, Clone)]
enum Step {
    Append(usize),
    Join(u64),
    Read { reader: usize, max: usize },
    Leave(usize),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Complete,
    Fail,
    Drop,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => prop_oneof![1..2000usize, 50_000..300_000usize].prop_map(Step::Append),
        2 => (0..700_000u64).prop_map(Step::Join),
        4 => (any::<usize>(), 1..400_000usize).prop_map(|(reader, max)| Step::Read { reader, max }),
        1 => any::<usize>().prop_map(Step::Leave),
    ];
    prop::collection::vec(step, 1..60)
}

/// Generates bytes that depend on their offset, so that misplaced bytes are detected.
fn content(from: u64, len: usize) -> Vec<u8> {
    (from..from + len as u64).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

fn poll(reader: &mut Reader<u8>, max: usize) -> Poll<Result<Option<Vec<u8>>, Failure>> {
    let mut next = pin!(reader.next(max));
    let polled = next.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    polled.map(|next| next.map(|piece| piece.map(|piece| piece.as_slice().expect("disk is unused").to_vec())))
}

/// Reads all available content. Returns whether the reader then waits, is at the end, or has
/// failed.
fn drain(reader: &mut Reader<u8>, published: u64) -> Poll<Result<(), Failure>> {
    loop {
        let at = reader.offset();
        match poll(reader, usize::MAX) {
            Poll::Ready(Ok(Some(bytes))) => {
                assert!(at + bytes.len() as u64 <= published);
                assert_eq!(bytes, content(at, bytes.len()));
            }
            Poll::Ready(Ok(None)) => return Poll::Ready(Ok(())),
            Poll::Ready(Err(failure)) => return Poll::Ready(Err(failure)),
            Poll::Pending => return Poll::Pending,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn readers_see_published_bytes_and_the_outcome(
        steps in steps(),
        end in prop_oneof![Just(End::Complete), Just(End::Fail), Just(End::Drop)],
        length_known in any::<bool>(),
    ) {
        let arena = Arena::new(16 * SLAB_BYTES as u64).unwrap();
        let total: u64 = steps.iter().map(|step| if let Step::Append(len) = step { *len as u64 } else { 0 }).sum();
        let (buffer, mut writer, first) = FillBuffer::new();
        let mut readers = vec![first];
        prop_assert_eq!(buffer.progress(), Progress::AwaitingHead);
        prop_assert!(poll(&mut readers[0], 1).is_pending());
        writer.set_head(7, Destination::Store(Room::reserve(&arena, length_known.then_some(total)).unwrap()));
        prop_assert_eq!(buffer.head(), Some(7));

        let mut published = 0;
        for step in steps {
            match step {
                Step::Append(len) => {
                    writer.append(Bytes::from(content(published, len))).unwrap();
                    published += len as u64;
                    prop_assert_eq!(buffer.progress(), Progress::Filling(published));
                }
                Step::Join(offset) => readers.push(buffer.reader(offset)),
                Step::Leave(reader) if !readers.is_empty() => drop(readers.swap_remove(reader % readers.len())),
                Step::Read { reader, max } if !readers.is_empty() => {
                    let at = reader % readers.len();
                    let offset = readers[at].offset();
                    match poll(&mut readers[at], max) {
                        Poll::Ready(Ok(Some(bytes))) => {
                            prop_assert!(!bytes.is_empty() && bytes.len() <= max);
                            prop_assert!(offset + bytes.len() as u64 <= published);
                            prop_assert_eq!(&bytes, &content(offset, bytes.len()));
                        }
                        Poll::Pending => prop_assert!(offset >= published),
                        other => prop_assert!(false, "{other:?} while filling"),
                    }
                }
                Step::Leave(_) | Step::Read { .. } => {}
            }
        }
        let (ended, expected) = match end {
            End::Complete => (Progress::Complete(published), Ok(())),
            End::Fail => (Progress::Failed(published), Err(Failure::Backend("reset".into()))),
            End::Drop => (Progress::Failed(published), Err(Failure::Abandoned)),
        };
        match end {
            End::Complete => writer.complete(),
            End::Fail => writer.fail(Failure::Backend("reset".into())),
            End::Drop => drop(writer),
        }
        prop_assert_eq!(buffer.progress(), ended);
        readers.push(buffer.reader(0));
        for reader in &mut readers {
            prop_assert_eq!(drain(reader, published), Poll::Ready(expected.clone()));
        }
        drop((readers, buffer));
        prop_assert!(arena.free_slabs() >= arena.slabs_max() - 2, "only open slabs are held");
    }

    #[test]
    fn window_stays_within_its_limit_and_loses_nothing(
        pieces in prop::collection::vec(1..500usize, 1..40),
        window_bytes in 1..1000usize,
        skip in 0..3000u64,
        max in 1..700usize,
    ) {
        let (_, mut writer, mut reader) = FillBuffer::<u8>::new();
        writer.set_head(7, Destination::Pass { window_bytes });
        reader.seek(skip);
        let mut published = 0;
        for len in pieces {
            loop {
                let mut room = pin!(writer.room());
                match room.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(room) => break room.unwrap(),
                    Poll::Pending => prop_assert!(published - reader.offset().min(published) > 0 || skip >= published),
                }
                let at = reader.offset();
                match poll(&mut reader, max) {
                    Poll::Ready(Ok(Some(bytes))) => prop_assert_eq!(&bytes, &content(at, bytes.len())),
                    Poll::Pending => {}
                    other => prop_assert!(false, "{other:?} while filling"),
                }
            }
            writer.append(Bytes::from(content(published, len))).unwrap();
            published += len as u64;
        }
        writer.complete();
        prop_assert_eq!(drain(&mut reader, published), Poll::Ready(Ok(())));
        prop_assert_eq!(reader.offset(), published.max(skip));
    }
}

#[test]
fn append_without_room_fails_and_keeps_bytes_that_fit() {
    let arena = Arena::new(2 * SLAB_BYTES as u64).unwrap();
    let (buffer, mut writer) = FillBuffer::stored(&arena, 7);
    writer.append(Bytes::from(content(0, 3 * SLAB_BYTES))).unwrap_err();
    writer.fail(Failure::NoRoom);
    let fitted = 2 * SLAB_BYTES as u64;
    assert_eq!(buffer.progress(), Progress::Failed(fitted));
    assert_eq!(drain(&mut buffer.reader(0), fitted), Poll::Ready(Err(Failure::NoRoom)));
}

#[test]
fn bytes_outlive_their_buffer_and_hold_their_slab() {
    let arena = Arena::new(2 * SLAB_BYTES as u64).unwrap();
    let (buffer, mut writer) = FillBuffer::stored(&arena, 7);
    writer.append(Bytes::from(content(0, SLAB_BYTES))).unwrap();
    writer.complete();
    let mut reader = buffer.reader(0);
    let Poll::Ready(Ok(Some(piece))) =
        pin!(reader.next(usize::MAX)).poll(&mut Context::from_waker(Waker::noop()))
    else {
        panic!("complete content is not readable")
    };
    let bytes = piece.into_bytes().unwrap();
    drop((reader, Arc::into_inner(buffer)));
    assert_eq!(arena.free_slabs(), 1);
    assert_eq!(bytes, content(0, SLAB_BYTES));
    drop(bytes);
    assert_eq!(arena.free_slabs(), 2);
}

#[test]
fn reserved_room_is_not_taken_by_another_fill() {
    let arena = Arena::new(4 * SLAB_BYTES as u64).unwrap();
    let length = 2 * SLAB_BYTES + 1000;
    let room = Room::reserve(&arena, Some(length as u64)).unwrap();
    assert!(Room::reserve(&arena, Some(2 * SLAB_BYTES as u64)).is_err());
    let (buffer, mut other) = FillBuffer::stored(&arena, 7);
    while other.append(Bytes::from(content(0, SLAB_BYTES))).is_ok() {}
    let (reserved, mut writer, _) = FillBuffer::new();
    writer.set_head(7, Destination::Store(room));
    writer.append(Bytes::from(content(0, length))).unwrap();
    writer.complete();
    assert_eq!(drain(&mut reserved.reader(0), length as u64), Poll::Ready(Ok(())));
    drop((other, buffer));
}

/// Creates complete content that may be moved to another slab.
fn movable(arena: &Arc<Arena>, len: usize) -> Arc<FillBuffer<u8>> {
    let (buffer, mut writer) = FillBuffer::stored(arena, 7);
    writer.append(Bytes::from(content(0, len))).expect("there is room");
    writer.complete();
    buffer.allow_moves();
    buffer
}

#[test]
fn sparse_slab_is_compacted_while_held_pieces_stay_in_place() {
    let arena = Arena::new(8 * SLAB_BYTES as u64).unwrap();
    // `left` fills a whole slab and a tail, which shares its slab with content that is dropped.
    let len = SLAB_BYTES + 300_000;
    let (left, gone) = (movable(&arena, len), movable(&arena, SLAB_BYTES - 400_000));
    let _open = movable(&arena, SLAB_BYTES / 2);
    assert_eq!(arena.compact(), Compaction::Nothing, "nothing is dead yet");
    drop(gone);
    let mut reader = left.reader(len as u64 - 1);
    let Some(Ok(Some(piece))) = reader.try_next(1) else { panic!("complete content is not readable") };
    let (free, live) = (arena.free_slabs(), arena.live_bytes());
    assert_eq!(arena.compact(), Compaction::Emptied);
    assert_eq!(
        (arena.free_slabs(), arena.live_bytes()),
        (free, live + 300_000),
        "the piece keeps the old run alive"
    );
    assert_eq!(piece.as_slice().unwrap(), content(len as u64 - 1, 1));
    drop(piece);
    assert_eq!((arena.free_slabs(), arena.live_bytes()), (free + 1, live));
    assert_eq!(drain(&mut left.reader(0), len as u64), Poll::Ready(Ok(())));
    assert_eq!(arena.compact(), Compaction::Nothing, "nothing is left to move");
}
