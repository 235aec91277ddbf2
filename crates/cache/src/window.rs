//! The bounded window of passed (not stored) content between a fill's writer and its only reader.

use bytes::Bytes;
use std::collections::VecDeque;
use std::task::Waker;

/// The part `start..end` of the content, and the waker of a writer waiting for room.
#[derive(Debug)]
pub(crate) struct Window {
    pieces: VecDeque<Bytes>,
    start: u64,
    end: u64,
    bytes_max: usize,
    writer: Option<Waker>,
}

impl Window {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { pieces: VecDeque::new(), start: 0, end: 0, bytes_max, writer: None }
    }

    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn has_room(&self) -> bool {
        self.end - self.start < self.bytes_max as u64
    }

    /// Registers the writer, to be woken when the reader takes content.
    pub(crate) fn wait_for_room(&mut self, waker: &Waker) {
        self.writer = Some(waker.clone());
    }

    pub(crate) fn push(&mut self, bytes: Bytes) {
        self.end += bytes.len() as u64;
        self.pieces.push_back(bytes);
    }

    /// Takes up to `max` bytes at `offset`, which must be in the window or at its end, and drops
    /// all content before them. Also returns the writer's waker, to be called because there is
    /// room.
    pub(crate) fn take(&mut self, offset: u64, max: usize) -> (Option<Bytes>, Option<Waker>) {
        while let Some(first) = self.pieces.front_mut() {
            let skip = offset.saturating_sub(self.start);
            if skip < first.len() as u64 {
                let mut rest = first.split_off(usize::try_from(skip).expect("piece offsets fit in usize"));
                let taken = rest.split_to(max.min(rest.len()));
                self.start += skip + taken.len() as u64;
                if rest.is_empty() {
                    self.pieces.pop_front();
                } else {
                    *first = rest;
                }
                return (Some(taken), self.writer.take());
            }
            self.start += first.len() as u64;
            self.pieces.pop_front();
        }
        (None, self.writer.take())
    }

    /// Drops the content after the reader has been dropped, and returns the writer's waker.
    pub(crate) fn abandon(&mut self) -> Option<Waker> {
        self.pieces.clear();
        self.start = self.end;
        self.writer.take()
    }
}
