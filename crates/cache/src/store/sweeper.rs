//! Waking and pacing of the thread that sweeps the index after purges.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::sync::lock;

/// Pause between two sweeps, which bounds the CPU time spent on purges however many arrive.
const PAUSE: Duration = Duration::from_secs(1);

/// Wakes and pauses the sweeping thread.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default, Clone, Copy)]
struct State {
    is_sweep_due: bool,
    is_stopping: bool,
}

impl Sweeper {
    pub(super) fn wake(&self) {
        lock(&self.state).is_sweep_due = true;
        self.changed.notify_all();
    }

    pub(super) fn end(&self) {
        lock(&self.state).is_stopping = true;
        self.changed.notify_all();
    }

    pub(super) fn should_stop(&self) -> bool {
        lock(&self.state).is_stopping
    }

    /// Waits until a sweep is due; returns false once the sweeper is stopping.
    pub(super) fn wait(&self) -> bool {
        let idle = |state: &mut State| !state.is_sweep_due && !state.is_stopping;
        let mut state =
            self.changed.wait_while(lock(&self.state), idle).unwrap_or_else(PoisonError::into_inner);
        state.is_sweep_due = false;
        !state.is_stopping
    }

    pub(super) fn pause(&self) {
        let state: MutexGuard<'_, State> = lock(&self.state);
        // A poisoned lock or a spurious wake-up is harmless: the next wait checks again.
        drop(self.changed.wait_timeout_while(state, PAUSE, |state| !state.is_stopping));
    }
}
