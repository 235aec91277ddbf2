//! A fill with very many readers: each append wakes all of them, all read the same bytes, and the
//! bytes are stored once.
#![allow(clippy::unwrap_used)]
#![cfg(not(loom))]

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use thalweg_cache::arena::SLAB_BYTES;
use thalweg_cache::{Arena, FillBuffer, Reader};

const READERS: usize = 10_000;
const CHUNK_BYTES: usize = 40_000;

/// Counts wake-ups.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Reads the available content; returns true if the reader then waits for more, false at the end.
fn read_on(reader: &mut Reader<()>, waker: &Waker) -> bool {
    loop {
        let at = reader.offset();
        match pin!(reader.next(usize::MAX)).poll(&mut Context::from_waker(waker)) {
            Poll::Ready(Ok(Some(piece))) => {
                let first = u8::try_from(at / CHUNK_BYTES as u64).unwrap();
                assert_eq!((piece.as_slice().unwrap()[0], piece.in_file().is_some()), (first, true));
            }
            Poll::Ready(Ok(None)) => return false,
            Poll::Ready(Err(failure)) => panic!("{failure}"),
            Poll::Pending => return true,
        }
    }
}

#[test]
fn ten_thousand_readers_share_one_copy_and_wake_once_per_append() {
    let arena = Arena::new(4 * SLAB_BYTES as u64).unwrap();
    let (buffer, mut writer) = FillBuffer::stored(&arena, ());
    let woken: Vec<Arc<Woken>> = (0..READERS).map(|_| Arc::default()).collect();
    let wakers: Vec<Waker> = woken.iter().map(|woken| Waker::from(woken.clone())).collect();
    let mut readers: Vec<_> = (0..READERS).map(|_| buffer.reader(0)).collect();
    for chunk in 0..20 {
        for (reader, waker) in readers.iter_mut().zip(&wakers) {
            assert!(read_on(reader, waker));
        }
        writer.append(Bytes::from(vec![chunk; CHUNK_BYTES])).unwrap();
        assert!(woken.iter().all(|woken| woken.0.load(Relaxed) == usize::from(chunk) + 1));
    }
    // Half of the readers are dropped; the others are not affected.
    readers.truncate(READERS / 2);
    writer.complete();
    for (reader, waker) in readers.iter_mut().zip(&wakers) {
        assert!(!read_on(reader, waker));
        assert_eq!(reader.offset(), 20 * CHUNK_BYTES as u64);
    }
    assert_eq!(arena.free_slabs(), 3);
}
