//! Moves complete content from a mostly dead slab to the slab being filled.
//!
//! The bytes are copied without a lock; then the copy replaces the old run under the lock, and
//! readers continue from the copy. A piece of the old run keeps that run alive, so its bytes stay
//! in place as long as a socket may send them.

use std::fmt;
use std::sync::Arc;

use super::buffer::{Content, FillBuffer, Phase, Stored};
use crate::arena::{Arena, NoRoom, Resident, Run, SLAB_BYTES};
use crate::sync::{self, lock};

impl<H: Send + Sync + 'static> FillBuffer<H> {
    /// Allows complete content to be moved out of slabs that it shares with other content.
    pub fn allow_moves(self: &Arc<Self>) {
        let runs = match &lock(&self.inner).phase {
            Phase::Complete(_, Content::Stored(stored)) => stored.runs.clone(),
            _ => return,
        };
        self.register_in(&runs);
    }

    fn register_in(self: &Arc<Self>, runs: &[sync::Arc<Run>]) {
        for run in runs.iter().filter(|run| run.len() < SLAB_BYTES) {
            let resident: Arc<dyn Resident> = self.clone();
            run.arena().register_resident(run.slab(), Arc::downgrade(&resident));
        }
    }

    fn run_in(&self, slab: usize) -> Option<(sync::Arc<Run>, usize)> {
        match &lock(&self.inner).phase {
            Phase::Complete(_, Content::Stored(stored)) => stored.run_in(slab),
            _ => None,
        }
    }

    /// Replaces `run` with `copies` if `run` is still in use.
    fn exchange(&self, run: &sync::Arc<Run>, copies: &[sync::Arc<Run>]) -> bool {
        let mut inner = lock(&self.inner);
        if let Phase::Complete(_, Content::Stored(stored)) = &mut inner.phase
            && let Some(at) = stored.runs.iter().position(|at| sync::Arc::ptr_eq(at, run))
        {
            // The caller also has a reference to `run`, so no run is dropped under the lock.
            stored.runs.splice(at..=at, copies.iter().cloned());
            return true;
        }
        false
    }
}

impl<H: Send + Sync + 'static> Resident for FillBuffer<H>
where
    Self: fmt::Debug,
{
    fn move_out_of(self: Arc<Self>, slab: usize) -> Result<(), NoRoom> {
        while let Some((run, used)) = self.run_in(slab) {
            let copies = copy(&run, used)?;
            if self.exchange(&run, &copies) {
                self.register_in(&copies);
            }
        }
        Ok(())
    }
}

impl Stored {
    /// Returns a run in `slab` and the number of its published bytes.
    fn run_in(&self, slab: usize) -> Option<(sync::Arc<Run>, usize)> {
        let mut left = usize::try_from(self.len).expect("stored content fits in memory");
        for run in &self.runs {
            let used = run.len().min(left);
            if run.slab() == slab {
                return Some((run.clone(), used));
            }
            left -= used;
        }
        None
    }
}

/// Copies the first `used` bytes of `run`.
fn copy(run: &Run, used: usize) -> Result<Vec<sync::Arc<Run>>, NoRoom> {
    let mut copies = Vec::new();
    let mut at = 0;
    while at < used {
        let copy = Arena::allocate(run.arena(), used - at)?;
        copy.copy_from(run, at);
        at += copy.len();
        copies.push(sync::Arc::new(copy));
    }
    Ok(copies)
}
