//! The reader: the bytes at its offset, as soon as they are there.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, Waker};

use super::{Content, Failure, FillBuffer, Phase, Piece, Progress, Trailer};
#[cfg(not(loom))]
use crate::disk;
use crate::sync::lock;
use crate::waiters::Ticket;

/// One who reads a fill, from any offset on.
pub struct Reader<H> {
    buffer: Arc<FillBuffer<H>>,
    offset: u64,
    first: bool,
    ticket: Option<Ticket>,
    #[cfg(not(loom))]
    disk: disk::Reading,
}

impl<H> fmt::Debug for Reader<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader({} of {:?})", self.offset, self.buffer)
    }
}

impl<H: Clone> Reader<H> {
    /// How far the fill has come.
    pub fn progress(&self) -> Progress {
        self.buffer.progress()
    }

    /// Whether the fill is complete and all of it was read.
    pub fn is_at_end(&self) -> bool {
        matches!(self.buffer.progress(), Progress::Complete(bytes) if self.offset >= bytes)
    }

    /// The fields that came after the content; `None` if there were none, and before the fill is complete.
    pub fn trailer(&self) -> Option<Arc<Trailer>> {
        let inner = lock(&self.buffer.inner);
        inner.trailer.clone().filter(|_| matches!(inner.phase, Phase::Complete(..)))
    }

    /// The head, as soon as it has arrived.
    ///
    /// # Errors
    /// When the fill failed before.
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
    /// The reader that started the fill: the one to which content is passed.
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
            disk: disk::Reading::default(),
        }
    }

    /// Where the next byte comes from.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Goes to `offset`. What is passed, not stored, is gone once it was read or skipped.
    pub fn seek(&mut self, offset: u64) {
        self.offset = offset;
    }

    /// The next content: at least one byte and at most `max` of them, or `None` at the clean end.
    ///
    /// # Errors
    /// When the fill failed and all that had arrived was read.
    pub async fn next(&mut self, max: usize) -> Result<Option<Piece>, Failure> {
        poll_fn(|cx| self.poll_next(cx, max)).await
    }

    /// [`Reader::next`], if it need not wait.
    pub fn try_next(&mut self, max: usize) -> Option<Result<Option<Piece>, Failure>> {
        match self.poll_next(&mut Context::from_waker(Waker::noop()), max) {
            Poll::Ready(next) => Some(next),
            Poll::Pending => None,
        }
    }

    /// [`Reader::next`] as a poll.
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

    /// [`Reader::next`] of what the disk has. No lock of the fill's is held while the kernel is asked.
    #[cfg(not(loom))]
    fn poll_on_disk(
        &mut self,
        copy: Arc<disk::Copy>,
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

    /// Has the next byte read, and this reader woken then; false if the content has moved meanwhile.
    #[cfg(not(loom))]
    fn wait_for(&mut self, copy: &Arc<disk::Copy>, cx: &Context<'_>) -> bool {
        let mut inner = lock(&self.buffer.inner);
        let is_there =
            matches!(inner.phase.content(), Some(Content::OnDisk(known)) if Arc::ptr_eq(known, copy));
        if is_there {
            // Before it is asked for: the answer wakes who is registered then.
            inner.waiters.register(&mut self.ticket, cx.waker());
            drop(inner);
            copy.ask(self.offset, &mut self.disk);
        }
        is_there
    }

    /// Waits until content on disk can be read, if that is where the next byte lies.
    ///
    /// # Errors
    /// [`Failure::Unreadable`]: it has left the index, and another look-up finds something else.
    #[cfg(not(loom))]
    pub async fn ready(&mut self) -> Result<(), Failure> {
        poll_fn(|cx| {
            loop {
                // Ends: it goes on only if the content has moved.
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

    /// Waits until `copy`, the disk's, was read and verified once more where the next byte lies, wherever the content is
    /// now.
    ///
    /// # Errors
    /// [`Failure::Unreadable`].
    #[cfg(not(loom))]
    pub(super) async fn read_again(&mut self, copy: &Arc<disk::Copy>) -> Result<(), Failure> {
        let mut is_asked = false;
        poll_fn(|cx| {
            // Before it is asked for, or the answer looked for: that wakes who is registered then.
            lock(&self.buffer.inner).waiters.register(&mut self.ticket, cx.waker());
            if !is_asked {
                is_asked = true;
                copy.ask(self.offset, &mut self.disk);
            }
            copy.answer(self.offset)
        })
        .await
    }

    /// Waits for the end of the fill and says how many bytes it had.
    ///
    /// # Errors
    /// When it failed.
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

impl<H> Drop for Reader<H> {
    fn drop(&mut self) {
        let mut inner = lock(&self.buffer.inner);
        inner.waiters.forget(&mut self.ticket);
        let mut writer: Option<Waker> = None;
        // Under the lock: who waits for this has looked before, or is woken.
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
