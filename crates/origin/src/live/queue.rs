//! Queue of uploads waiting for their track's header; uploads of one track resume in arrival order.
//!
//! **Invariant:** an upload keeps its [`Place`] until it ends, so earlier uploads of a track are
//! processed completely before later ones.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Waiting uploads of all channels.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Notified when a header is accepted or a place is freed, so that waiters check again.
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    /// Places in arrival order, at most one per connection.
    places: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    channel: String,
    track: String,
}

/// A place in the queue, freed when dropped.
#[derive(Debug)]
pub(super) struct Place<'a> {
    queue: &'a Queue,
    id: u64,
}

impl Queue {
    /// Returns whether an upload of the track holds a place: it is waiting, or waited and has not
    /// ended.
    pub(super) fn has(&self, channel: &str, track: &str) -> bool {
        self.lock().places.iter().any(|e| e.channel == channel && e.track == track)
    }

    /// Joins the queue behind all other uploads of the track.
    pub(super) fn join(&self, channel: &str, track: &str) -> Place<'_> {
        let mut state = self.lock();
        let id = state.next_id;
        state.next_id += 1;
        state.places.push(Entry { id, channel: channel.to_owned(), track: track.to_owned() });
        Place { queue: self, id }
    }

    /// Subscribes to changes after which waiters must check again.
    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Wakes all waiters after a header was accepted or a place was freed.
    pub(super) fn notify(&self) {
        self.changed.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Returns whether the upload is the first of its track in the queue.
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
        self.queue.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::{Place, Queue};

    #[test]
    fn first_upload_of_each_track_proceeds() {
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
