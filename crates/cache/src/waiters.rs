//! Wakers of the readers that wait for a `FillBuffer` to change, one per reader. Each change
//! removes and calls all of them.

use std::task::Waker;

/// Wakers registered since the last change.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    change: u64,
    wakers: Vec<Option<Waker>>,
    /// Free positions in `wakers`, vacated by readers.
    free: Vec<usize>,
}

/// A reader's position among the waiters, valid until the next change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    change: u64,
    position: usize,
}

impl Waiters {
    /// Registers `waker`, at the reader's existing position if nothing has changed since.
    pub(crate) fn register(&mut self, ticket: &mut Option<Ticket>, waker: &Waker) {
        match ticket.filter(|ticket| ticket.change == self.change) {
            Some(Ticket { position, .. }) => match &mut self.wakers[position] {
                Some(old) => old.clone_from(waker),
                empty => *empty = Some(waker.clone()),
            },
            None => {
                let position = self.free.pop().unwrap_or(self.wakers.len());
                if position == self.wakers.len() {
                    self.wakers.push(None);
                }
                self.wakers[position] = Some(waker.clone());
                *ticket = Some(Ticket { change: self.change, position });
            }
        }
    }

    /// Removes a reader's waker and frees its position.
    pub(crate) fn forget(&mut self, ticket: &mut Option<Ticket>) {
        if let Some(Ticket { position, .. }) = ticket.take().filter(|ticket| ticket.change == self.change) {
            self.wakers[position] = None;
            self.free.push(position);
        }
    }

    /// Records a change and returns all wakers. The caller must call them once it has released the
    /// lock.
    pub(crate) fn take(&mut self) -> Woken {
        self.change += 1;
        self.free.clear();
        Woken(std::mem::take(&mut self.wakers))
    }
}

/// Wakers to call with no lock held.
#[must_use]
pub(crate) struct Woken(Vec<Option<Waker>>);

impl Woken {
    pub(crate) fn wake(self) {
        for waker in self.0.into_iter().flatten() {
            waker.wake();
        }
    }
}
