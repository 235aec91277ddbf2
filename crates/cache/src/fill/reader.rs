//! The reader: returns the bytes at its offset as soon as they have arrived.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, Waker};

use super::buffer::{Content, FillBuffer, Phase, Progress, Stored};
use super::failure::Failure;
use super::piece::Piece;
use super::trailer::Trailer;
#[cfg(not(loom))]
use crate::disk::content::{DiskCopy, Reading};
use crate::sync::lock;
use crate::waiters::Ticket;

/// Reads a fill from any offset.
pub struct Reader<H> {
    buffer: Arc<FillBuffer<H>>,
    offset: u64,
    first: bool,
    ticket: Option<Ticket>,
    #[cfg(not(loom))]
    disk: Reading,
}

impl<H> fmt::Debug for Reader<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader({} of {:?})", self.offset, self.buffer)
    }
}

impl<H: Clone> FillBuffer<H> {
    /// Creates a reader at `offset`, which may be beyond the content that has arrived.
    pub fn reader(self: &Arc<Self>, offset: u64) -> Reader<H> {
        Reader::at(self.clone(), offset)
    }
}

impl<H: Clone> Reader<H> {
    /// Returns how far the fill has progressed.
    pub fn progress(&self) -> Progress {
        self.buffer.progress()
    }

    /// Returns whether the fill is complete and was read to its end.
    pub fn is_at_end(&self) -> bool {
        matches!(self.buffer.progress(), Progress::Complete(bytes) if self.offset >= bytes)
    }

    /// Returns the trailer section; `None` before the fill is complete, or without a trailer.
    pub fn trailer(&self) -> Option<Arc<Trailer>> {
        let inner = lock(&self.buffer.inner);
        inner.trailer.clone().filter(|_| matches!(inner.phase, Phase::Complete(..)))
    }

    /// Waits for the head.
    ///
    /// # Errors
    ///
    /// Returns an error if the fill fails before its head arrives.
    pub async fn head(&mut self) -> Result<H, Failure> {
        poll_fn(|cx| self.poll_head(cx)).await
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<H, Failure>> {
        let mut inner = lock(&self.buffer.inner);
        match (inner.phase.head(), &inner.phase) {
            (Some(head), _) => Poll::Ready(Ok(head.clone())),
            (None, Phase::Failed(_, failure)) => Poll::Ready(Err(failure.clone())),
            (None, _) => {
                inner.waiters.register(&mut self.ticket, cx.waker());
                Poll::Pending
            }
        }
    }
}

impl<H> Reader<H> {
    /// Creates the reader that starts the fill, which may receive passed content.
    pub(super) fn first(buffer: Arc<FillBuffer<H>>) -> Self {
        let mut reader = Self::at(buffer, 0);
        reader.first = true;
        reader
    }

    pub(super) fn at(buffer: Arc<FillBuffer<H>>, offset: u64) -> Self {
        buffer.readers.fetch_add(1, SeqCst);
        Self {
            buffer,
            offset,
            first: false,
            ticket: None,
            #[cfg(not(loom))]
            disk: Reading::default(),
        }
    }

    /// Returns the offset of the next byte.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Moves to `offset`. Passed content cannot be read again once it was read or skipped.
    pub fn seek(&mut self, offset: u64) {
        self.offset = offset;
    }

    /// Waits for the next piece of content, of at most `max` bytes. Returns `None` at a clean end.
    ///
    /// # Errors
    ///
    /// Returns an error if the fill failed, once all content that had arrived has been read.
    pub async fn next(&mut self, max: usize) -> Result<Option<Piece>, Failure> {
        poll_fn(|cx| self.poll_next(cx, max)).await
    }

    /// Like [`Reader::next`], but returns `None` instead of waiting.
    pub fn try_next(&mut self, max: usize) -> Option<Result<Option<Piece>, Failure>> {
        match self.poll_next(&mut Context::from_waker(Waker::noop()), max) {
            Poll::Ready(next) => Some(next),
            Poll::Pending => None,
        }
    }

    /// Like [`Reader::next`], as a poll function.
    pub fn poll_next(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<Result<Option<Piece>, Failure>> {
        let mut inner = lock(&self.buffer.inner);
        let (piece, room) = match inner.phase.content_mut() {
            Some(Content::Stored(stored)) => (stored.piece(self.offset, max), None),
            Some(Content::Passed(_)) if !self.first => return Poll::Ready(Err(Failure::NotShared)),
            Some(Content::Passed(window)) => {
                let (bytes, room) = window.take(self.offset, max);
                (bytes.map(Piece::of_heap), room)
            }
            #[cfg(not(loom))]
            Some(Content::OnDisk(copy)) if self.offset < copy.length() => {
                let copy = copy.clone();
                drop(inner);
                return self.poll_on_disk(copy, cx, max);
            }
            #[cfg(not(loom))]
            Some(Content::OnDisk(_)) => (None, None),
            Some(Content::Elsewhere { .. }) | None => (None, None),
        };
        let next = match (piece, &inner.phase) {
            (Some(piece), _) => {
                self.offset += piece.len() as u64;
                Poll::Ready(Ok(Some(piece)))
            }
            (None, Phase::Complete(..)) => Poll::Ready(Ok(None)),
            (None, Phase::Failed(_, failure)) => Poll::Ready(Err(failure.clone())),
            (None, Phase::AwaitingHead | Phase::Filling(..)) => {
                inner.waiters.register(&mut self.ticket, cx.waker());
                Poll::Pending
            }
        };
        drop(inner);
        if let Some(writer) = room {
            writer.wake();
        }
        next
    }

    /// Polls for content on disk. The fill's lock is not held during system calls.
    #[cfg(not(loom))]
    fn poll_on_disk(
        &mut self,
        copy: Arc<DiskCopy>,
        cx: &mut Context<'_>,
        max: usize,
    ) -> Poll<Result<Option<Piece>, Failure>> {
        if let Some((open, len)) = copy.piece(self.offset, max, &mut self.disk) {
            self.disk.used();
            let piece = Piece::of_file(copy, open, self.offset, len);
            self.offset += len as u64;
            return Poll::Ready(Ok(Some(piece)));
        }
        if self.wait_for(&copy, cx) { Poll::Pending } else { self.poll_next(cx, max) }
    }

    /// Requests a read of the next byte and registers the reader to be woken. Returns false if the
    /// content has moved in the meantime.
    #[cfg(not(loom))]
    fn wait_for(&mut self, copy: &Arc<DiskCopy>, cx: &Context<'_>) -> bool {
        let mut inner = lock(&self.buffer.inner);
        let is_on_disk =
            matches!(inner.phase.content(), Some(Content::OnDisk(known)) if Arc::ptr_eq(known, copy));
        if is_on_disk {
            // Register before requesting the read: its completion wakes only registered readers.
            inner.waiters.register(&mut self.ticket, cx.waker());
            drop(inner);
            copy.ask(self.offset, &mut self.disk);
        }
        is_on_disk
    }

    /// Waits until the next byte can be read, if it is on disk.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Unreadable`] if the content cannot be read. The response has then left
    /// the index, so the caller can repeat its look-up.
    #[cfg(not(loom))]
    pub async fn ready(&mut self) -> Result<(), Failure> {
        poll_fn(|cx| {
            loop {
                // The loop terminates, because it repeats only if the content has moved.
                let copy = match &lock(&self.buffer.inner).phase {
                    Phase::Complete(_, Content::OnDisk(copy)) if self.offset < copy.length() => copy.clone(),
                    Phase::Failed(None, Failure::Unreadable) => return Poll::Ready(Err(Failure::Unreadable)),
                    _ => return Poll::Ready(Ok(())),
                };
                if copy.piece(self.offset, 1, &mut self.disk).is_some() {
                    return Poll::Ready(Ok(()));
                }
                if self.wait_for(&copy, cx) {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Waits until the next byte has been read again from `copy` and verified, even if the content
    /// has since moved to memory.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Unreadable`] if the byte cannot be read.
    #[cfg(not(loom))]
    pub(super) async fn read_again(&mut self, copy: &Arc<DiskCopy>) -> Result<(), Failure> {
        let mut is_requested = false;
        poll_fn(|cx| {
            // Register before requesting the read or checking its result: its completion wakes only
            // registered readers.
            lock(&self.buffer.inner).waiters.register(&mut self.ticket, cx.waker());
            if !is_requested {
                is_requested = true;
                copy.ask(self.offset, &mut self.disk);
            }
            copy.answer(self.offset)
        })
        .await
    }

    /// Waits until the fill is complete and returns its content length in bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the fill fails.
    pub async fn ended(&mut self) -> Result<u64, Failure> {
        poll_fn(|cx| {
            let mut inner = lock(&self.buffer.inner);
            match &inner.phase {
                Phase::Complete(_, content) => Poll::Ready(Ok(content.len())),
                Phase::Failed(_, failure) => Poll::Ready(Err(failure.clone())),
                Phase::AwaitingHead | Phase::Filling(..) => {
                    inner.waiters.register(&mut self.ticket, cx.waker());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl Stored {
    /// Returns up to `max` published bytes at `offset`.
    fn piece(&self, offset: u64, max: usize) -> Option<Piece> {
        let left = self.len.checked_sub(offset).filter(|left| *left > 0)?;
        let (run, at) = self.find(offset);
        let len = (run.len() - at).min(max).min(usize::try_from(left).unwrap_or(usize::MAX));
        Some(Piece::of_run(run.clone(), at, len))
    }
}

impl<H> Drop for Reader<H> {
    fn drop(&mut self) {
        let mut inner = lock(&self.buffer.inner);
        inner.waiters.forget(&mut self.ticket);
        let mut writer: Option<Waker> = None;
        // Done under the lock, so that a writer waiting for the last reader to leave either sees
        // the new count or is woken.
        let is_last = self.buffer.readers.fetch_sub(1, SeqCst) == 1;
        let deserted = inner.deserted.take_if(|_| is_last);
        if self.first {
            inner.first_reader = false;
            if let Some(Content::Passed(window)) = inner.phase.content_mut() {
                writer = window.abandon();
            }
        }
        drop(inner);
        for waker in [writer, deserted].into_iter().flatten() {
            waker.wake();
        }
    }
}
