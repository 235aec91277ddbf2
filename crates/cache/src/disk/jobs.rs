//! What the disk's threads have to do, first come, first served.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use crate::sync::lock;

/// A queue that threads wait at. Whoever puts something in bounds it.
#[derive(Debug)]
pub(super) struct Jobs<J> {
    state: Mutex<State<J>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<J> {
    waiting: VecDeque<J>,
    /// Nothing is given out yet.
    held: bool,
    /// Nothing more is taken in.
    closed: bool,
    /// Jobs given out so far.
    given: u64,
    /// Which of them each thread is about.
    running: HashMap<ThreadId, u64>,
    /// Threads that wait for others' jobs.
    waits: usize,
}

impl<J> Jobs<J> {
    /// A queue that keeps what is put in until it is let go.
    pub(super) fn held() -> Self {
        let state = State {
            waiting: VecDeque::new(),
            held: true,
            closed: false,
            given: 0,
            running: HashMap::new(),
            waits: 0,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn let_go(&self) {
        lock(&self.state).held = false;
        self.changed.notify_all();
    }

    /// False once it is closed: the job is dropped.
    pub(super) fn put(&self, job: J) -> bool {
        let mut state = lock(&self.state);
        if state.closed {
            return false;
        }
        state.waiting.push_back(job);
        drop(state);
        self.changed.notify_one();
        true
    }

    /// The next job, once there is one, for a thread that has done the one before; `None` once it is closed and empty.
    pub(super) fn next(&self) -> Option<J> {
        let this = thread::current().id();
        let mut state = lock(&self.state);
        if state.running.remove(&this).is_some() && state.waits > 0 {
            self.changed.notify_all();
        }
        let idle = |state: &mut State<J>| !state.closed && (state.held || state.waiting.is_empty());
        let waited: MutexGuard<'_, State<J>> =
            self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        let mut state = waited;
        let job = state.waiting.pop_front()?;
        state.given += 1;
        let given = state.given;
        state.running.insert(this, given);
        Some(job)
    }

    /// Waits, in a job, until all that were put in before it are done.
    pub(super) fn wait_for_earlier(&self) {
        let mut state = lock(&self.state);
        let Some(own) = state.running.get(&thread::current().id()).copied() else { return };
        state.waits += 1;
        let earlier = |state: &mut State<J>| state.running.values().any(|job| *job < own);
        let mut state = self.changed.wait_while(state, earlier).unwrap_or_else(PoisonError::into_inner);
        state.waits -= 1;
    }

    /// Takes nothing more in.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }

    /// Gives up what waits.
    pub(super) fn forget(&self) -> VecDeque<J> {
        std::mem::take(&mut lock(&self.state).waiting)
    }
}
