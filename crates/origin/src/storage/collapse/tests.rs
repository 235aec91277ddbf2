//! Tests of shared reads.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join;
use futures_util::future::poll_immediate;
use futures_util::{FutureExt, stream};
use tokio::sync::mpsc;

use super::*;

const PIECE_BYTES: usize = 128 << 10;

fn key(end: u64) -> ReadKey {
    ReadKey { key: "a".to_owned(), validator: "1".to_owned(), range: 0..end }
}

/// Returns a source of zeros in pieces, and the number of times it was opened.
fn zeros() -> (Open, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let open: Open = Arc::new(move |range: Range<u64>| {
        counted.fetch_add(1, Ordering::SeqCst);
        let pieces = (range.start..range.end).step_by(PIECE_BYTES).map(move |start| {
            Ok(Bytes::from(vec![0; usize::try_from(range.end - start).unwrap().min(PIECE_BYTES)]))
        });
        stream::iter(pieces).boxed()
    });
    (open, count)
}

async fn read_all(mut reader: SharedReader) -> u64 {
    let mut bytes = 0;
    while let Some(piece) = reader.next().await.unwrap() {
        bytes += piece.len() as u64;
    }
    bytes
}

#[tokio::test]
async fn equal_reads_share_a_source() {
    let (open, count) = zeros();
    let reads = Reads::default();
    let (a, _) = reads.join(key(1000), open.clone());
    let (b, has_joined) = reads.join(key(1000), open.clone());
    assert!(has_joined);
    let (other, has_joined) = reads.join(key(999), open.clone());
    assert!(!has_joined);
    assert_eq!((read_all(a).await, read_all(b).await, read_all(other).await), (1000, 1000, 999));
    assert_eq!((count.load(Ordering::SeqCst), reads.len()), (2, 0));
}

/// A reader that stops must not stop the others, nor hold more than the window in memory.
#[tokio::test]
async fn slow_reader_continues_on_its_own() {
    let (open, count) = zeros();
    let reads = Reads::default();
    let end = 4 * WINDOW_BYTES_MAX;
    let (mut slow, _) = reads.join(key(end), open.clone());
    let (fast, _) = reads.join(key(end), open.clone());
    slow.begin().await.unwrap();
    assert_eq!(read_all(fast).await, end);
    let kept: usize = lock(&slow.read.state).pieces.iter().map(Bytes::len).sum();
    assert!(kept as u64 <= WINDOW_BYTES_MAX + PIECE_BYTES as u64, "{kept}");
    // The first bytes have left the window, so nobody can join.
    assert!(!reads.join(key(end), open).1);
    assert_eq!(read_all(slow).await, end);
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

/// The reader that waits first can go away without stopping the one that waits second.
#[tokio::test]
async fn any_reader_drives_the_read() {
    let (sender, receiver) = mpsc::channel(1);
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let open: Open = Arc::new(move |_| {
        let receiver: mpsc::Receiver<Bytes> = lock(&receiver).take().unwrap();
        let next =
            |mut receiver: mpsc::Receiver<Bytes>| async { Some((Ok(receiver.recv().await?), receiver)) };
        stream::unfold(receiver, next).boxed()
    });
    let reads = Reads::default();
    let (mut first, _) = reads.join(key(8), open.clone());
    let (mut second, _) = reads.join(key(8), open);
    {
        let waiting = Box::pin(first.next());
        assert!(poll_immediate(waiting).await.is_none());
    }
    let send = async {
        tokio::task::yield_now().await;
        drop(first);
        sender.send(Bytes::from_static(b"12345678")).await.unwrap();
    };
    let (piece, ()) = join(second.next(), send).await;
    assert_eq!(piece.unwrap().unwrap(), "12345678");
}

#[tokio::test]
async fn failure_reaches_every_reader_and_is_not_joined() {
    let error = StorageError::Changed { key: "a".to_owned() };
    let failing = error.clone();
    let open: Open = Arc::new(move |_| stream::iter([Err(failing.clone())]).boxed());
    let reads = Reads::default();
    let (mut a, _) = reads.join(key(8), open.clone());
    let (mut b, _) = reads.join(key(8), open.clone());
    assert_eq!(a.begin().await.unwrap_err(), error);
    assert!(!reads.join(key(8), open).1);
    assert_eq!(b.next().await.unwrap_err(), error);
}

/// A read may fail and end on one thread while another joins it.
#[test]
fn failing_read_neither_blocks_nor_panics_those_that_join() {
    let reads = Reads::default();
    let join_and_leave = || {
        for _ in 0..20_000 {
            let open: Open = Arc::new(|_| {
                let error = StorageError::Changed { key: "a".to_owned() };
                stream::iter([Err(error)]).boxed()
            });
            let (mut reader, _) = reads.join(key(1000), open);
            assert!(reader.next().now_or_never().is_none_or(|next| next.is_err()));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(join_and_leave);
        }
    });
    assert_eq!(reads.len(), 0);
}
