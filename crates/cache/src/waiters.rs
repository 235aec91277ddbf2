//! Wakers of readers that wait for a `FillBuffer` to change: one per reader. Each change takes all
//! of them.

use std::task::Waker;

/// Wakers registered since the last change.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    change: u64,
    wakers: Vec<Option<Waker>>,
    /// Positions in `wakers` that readers have left.
    free: Vec<usize>,
}

/// A reader's position among the waiters, valid until the next change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    change: u64,
    place: usize,
}

impl Waiters {
    /// Registers `waker`, at the reader's old position if there was no change since.
    pub(crate) fn register(&mut self, ticket: &mut Option<Ticket>, waker: &Waker) {
        match ticket.filter(|ticket| ticket.change == self.change) {
            Some(Ticket { place, .. }) => match &mut self.wakers[place] {
                Some(old) => old.clone_from(waker),
                empty => *empty = Some(waker.clone()),
            },
            None => {
                let place = self.free.pop().unwrap_or(self.wakers.len());
                if place == self.wakers.len() {
                    self.wakers.push(None);
                }
                self.wakers[place] = Some(waker.clone());
                *ticket = Some(Ticket { change: self.change, place });
            }
        }
    }

    /// Removes a reader's waker and frees its position.
    pub(crate) fn forget(&mut self, ticket: &mut Option<Ticket>) {
        if let Some(Ticket { place, .. }) = ticket.take().filter(|ticket| ticket.change == self.change) {
            self.wakers[place] = None;
            self.free.push(place);
        }
    }

    /// Records a change, and returns all wakers, to be called once the lock is released.
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
