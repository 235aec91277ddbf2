//! Uploads that wait for the header of their track: each track's go on in the order they came.
//!
//! **Invariant:** a [`Place`] is its upload's until the upload is over, so that what came first is all taken first.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// All that wait, of all channels.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Changes when a header was taken or a place is free: those who wait look again.
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    /// In the order they came; no more than there are connections.
    places: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    channel: String,
    track: String,
}

/// A place in the queue, free again when dropped.
#[derive(Debug)]
pub(super) struct Place<'a> {
    queue: &'a Queue,
    id: u64,
}

impl Queue {
    /// Whether an upload of the track waits, or has waited and is not over.
    pub(super) fn has(&self, channel: &str, track: &str) -> bool {
        self.lock().places.iter().any(|e| e.channel == channel && e.track == track)
    }

    /// A place behind all others of the track.
    pub(super) fn join(&self, channel: &str, track: &str) -> Place<'_> {
        let mut state = self.lock();
        let id = state.next_id;
        state.next_id += 1;
        state.places.push(Entry { id, channel: channel.to_owned(), track: track.to_owned() });
        Place { queue: self, id }
    }

    /// What says when to look again.
    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// A header was taken.
    pub(super) fn look_again(&self) {
        self.changed.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Whether no other of the track is before it.
    pub(super) fn is_first(&self) -> bool {
        let state = self.queue.lock();
        let Some(own) = state.places.iter().find(|e| e.id == self.id) else { return true };
        let first = state.places.iter().find(|e| e.channel == own.channel && e.track == own.track);
        first.is_some_and(|first| first.id == self.id)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.queue.lock().places.retain(|e| e.id != self.id);
        self.queue.look_again();
    }
}

#[cfg(test)]
mod tests {
    use super::{Place, Queue};

    #[test]
    fn the_first_of_each_track_goes_on() {
        let queue = Queue::default();
        let places = [("c", "v"), ("c", "v"), ("c", "a"), ("d", "v")].map(|(c, t)| queue.join(c, t));
        assert_eq!(places.each_ref().map(Place::is_first), [true, false, true, true]);
        let [first, second, ..] = places;
        let mut changed = queue.subscribe();
        assert!(queue.has("c", "v") && !changed.has_changed().unwrap());
        drop(first);
        assert!(second.is_first() && changed.has_changed().unwrap());
        changed.mark_unchanged();
        drop(second);
        assert!(!queue.has("c", "v") && changed.has_changed().unwrap());
    }
}
