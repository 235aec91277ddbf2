//! Complete content moves from a slab that is dead for the most part to the one being filled.
//!
//! The bytes are copied with no lock held, and the run that holds them is changed for the copy under the lock: what a
//! reader gets next comes from there. Whoever holds a piece of the old run goes on holding it, so its bytes stay where
//! they are for as long as a socket may send them.

use std::fmt;
use std::sync::Arc;

use super::{Content, FillBuffer, Phase, Stored};
use crate::arena::{Arena, NoRoom, Resident, Run, SLAB_BYTES};
use crate::sync::{self, lock};

impl<H: Send + Sync + 'static> FillBuffer<H> {
    /// From now on the content, if it is complete, may be moved out of slabs that it shares.
    pub fn reside(self: &Arc<Self>) {
        let runs = match &lock(&self.inner).phase {
            Phase::Complete(_, Content::Stored(stored)) => stored.runs.clone(),
            _ => return,
        };
        self.reside_in(&runs);
    }

    fn reside_in(self: &Arc<Self>, runs: &[sync::Arc<Run>]) {
        for run in runs.iter().filter(|run| run.len() < SLAB_BYTES) {
            let resident: Arc<dyn Resident> = self.clone();
            run.arena().settle(run.slab(), Arc::downgrade(&resident));
        }
    }

    fn run_in(&self, slab: usize) -> Option<(sync::Arc<Run>, usize)> {
        match &lock(&self.inner).phase {
            Phase::Complete(_, Content::Stored(stored)) => stored.run_in(slab),
            _ => None,
        }
    }

    /// Puts `copies` in the place of `run`, if it is still there.
    fn exchange(&self, run: &sync::Arc<Run>, copies: &[sync::Arc<Run>]) -> bool {
        let mut inner = lock(&self.inner);
        if let Phase::Complete(_, Content::Stored(stored)) = &mut inner.phase
            && let Some(at) = stored.runs.iter().position(|at| sync::Arc::ptr_eq(at, run))
        {
            // `run` is held by the caller: none is dropped under the lock.
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
    fn leave(self: Arc<Self>, slab: usize) -> Result<(), NoRoom> {
        while let Some((run, used)) = self.run_in(slab) {
            let copies = copy(&run, used)?;
            if self.exchange(&run, &copies) {
                self.reside_in(&copies);
            }
        }
        Ok(())
    }
}

impl Stored {
    /// A run in `slab`, and how much of it is published.
    fn run_in(&self, slab: usize) -> Option<(sync::Arc<Run>, usize)> {
        let mut left = usize::try_from(self.len).expect("stored content fits the memory");
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

/// The first `used` bytes of `run`, once more.
fn copy(run: &Run, used: usize) -> Result<Vec<sync::Arc<Run>>, NoRoom> {
    let mut copies = Vec::new();
    let mut at = 0;
    while at < used {
        let copy = Arena::take(run.arena(), used - at)?;
        copy.copy_from(run, at);
        at += copy.len();
        copies.push(sync::Arc::new(copy));
    }
    Ok(copies)
}
