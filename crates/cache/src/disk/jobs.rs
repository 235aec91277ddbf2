//! First-in, first-out job queue of the disk threads.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use crate::sync::lock;

/// A queue on which threads wait for jobs. The callers that add jobs must bound its size.
#[derive(Debug)]
pub(super) struct Jobs<J> {
    state: Mutex<State<J>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<J> {
    waiting: VecDeque<J>,
    /// Whether waiting jobs are withheld from threads.
    paused: bool,
    /// Whether new jobs are refused.
    closed: bool,
    /// Number of jobs handed out so far.
    given: u64,
    /// Number of the job that each thread is running.
    running: HashMap<ThreadId, u64>,
    /// Number of threads waiting for earlier jobs.
    waits: usize,
}

impl<J> Jobs<J> {
    /// Creates a queue that withholds its jobs until it is released.
    pub(super) fn paused() -> Self {
        let state = State {
            waiting: VecDeque::new(),
            paused: true,
            closed: false,
            given: 0,
            running: HashMap::new(),
            waits: 0,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn release(&self) {
        lock(&self.state).paused = false;
        self.changed.notify_all();
    }

    /// Adds a job. Returns false, and drops the job, once the queue is closed.
    pub(super) fn push(&self, job: J) -> bool {
        let mut state = lock(&self.state);
        if state.closed {
            return false;
        }
        state.waiting.push_back(job);
        drop(state);
        self.changed.notify_one();
        true
    }

    /// Waits for the next job; the calling thread must have finished its previous one. Returns
    /// `None` once the queue is closed and empty.
    pub(super) fn next(&self) -> Option<J> {
        let this = thread::current().id();
        let mut state = lock(&self.state);
        if state.running.remove(&this).is_some() && state.waits > 0 {
            self.changed.notify_all();
        }
        let idle = |state: &mut State<J>| !state.closed && (state.paused || state.waiting.is_empty());
        let waited: MutexGuard<'_, State<J>> =
            self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        let mut state = waited;
        let job = state.waiting.pop_front()?;
        state.given += 1;
        let given = state.given;
        state.running.insert(this, given);
        Some(job)
    }

    /// Waits until all jobs added before the calling thread's job are done.
    pub(super) fn wait_for_earlier(&self) {
        let mut state = lock(&self.state);
        let Some(own) = state.running.get(&thread::current().id()).copied() else { return };
        state.waits += 1;
        let earlier = |state: &mut State<J>| state.running.values().any(|job| *job < own);
        let mut state = self.changed.wait_while(state, earlier).unwrap_or_else(PoisonError::into_inner);
        state.waits -= 1;
    }

    /// Refuses new jobs from now on.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }

    /// Removes and returns all waiting jobs.
    pub(super) fn forget(&self) -> VecDeque<J> {
        std::mem::take(&mut lock(&self.state).waiting)
    }
}
