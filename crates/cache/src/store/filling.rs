//! A fill in progress and its place in the index.

use std::sync::Arc;
use std::sync::atomic::{Ordering::Acquire, fence};

use bytes::Bytes;
use thalweg_http::Fields;
use thalweg_http::cache_status::Forward;

use super::{Cache, PASS_WINDOW_BYTES};
use crate::arena::NoRoom;
use crate::entry::{Head, Key, PassMark, Unshareable};
use crate::fill::{Destination, Failure, Room, Trailer, Writer};
use crate::purge::PurgeState;
use crate::stored::{Content, Stored};

/// Reason for passing content larger than the limit per stored response.
const TOO_LARGE: &str = "too-large";

/// A fill in progress. Dropping an incomplete fill fails it and removes it from the index.
#[derive(Debug)]
pub struct Fill {
    // Declared in this order so that, on drop, the fill leaves the index before the writer notifies
    // its readers.
    place: Placed,
    writer: Writer<Arc<Head>>,
    forward: Forward,
}

/// A fill's place in the index, vacated on drop.
#[derive(Debug)]
struct Placed {
    cache: Arc<Cache>,
    content: Arc<Content>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// The fill is not in the index.
    Alone,
    /// The head is awaited under this key. The number is that of the newest purge before the fetch
    /// started.
    Pending(Key, u64),
    /// The response is visible to look-ups unless it was purged. The number is the content length
    /// so far, in bytes.
    Stored(Arc<Stored>, u64),
}

impl Fill {
    pub(super) fn pending(
        cache: Arc<Cache>,
        (key, number): (Key, u64),
        content: Arc<Content>,
        writer: Writer<Arc<Head>>,
        forward: Forward,
    ) -> Self {
        Self { place: Placed { cache, content, place: Place::Pending(key, number) }, writer, forward }
    }

    pub(super) fn alone(cache: Arc<Cache>, content: Arc<Content>, writer: Writer<Arc<Head>>) -> Self {
        Self { place: Placed { cache, content, place: Place::Alone }, writer, forward: Forward::Bypass }
    }

    /// Returns the key while the index awaits the head; otherwise `None`.
    pub fn key(&self) -> Option<&str> {
        match &self.place.place {
            Place::Pending(key, _) => Some(&key.text),
            Place::Alone | Place::Stored(..) => None,
        }
    }

    /// Returns why no stored response was used (RFC 9211 §2.2); `Forward::Bypass` for a fetch that
    /// is not in the index.
    pub fn forward(&self) -> Forward {
        self.forward
    }

    /// Sets the head. If the response may be shared and there is room, look-ups find it from now
    /// on; otherwise its content is passed to the client that started the fill.
    pub fn begin(&mut self, head: Head, now_ms: u64) {
        let (key, number) = match std::mem::replace(&mut self.place.place, Place::Alone) {
            Place::Pending(key, number) => (key, number),
            place => {
                self.place.place = place;
                return self.pass(head);
            }
        };
        let cache = self.place.cache.clone();
        let private = head.why_private();
        let room = match private {
            Some(Unshareable { mark, .. }) => {
                cache.keep_mark(&key, &self.place.content, (mark, &head.selection), now_ms);
                return self.pass(Head { private, ..head });
            }
            None if head.length.is_some_and(|length| length > cache.content_bytes_max()) => Err(TOO_LARGE),
            None => {
                cache.make_room(head.length.unwrap_or(0));
                Room::reserve(cache.arena(), head.length).map_err(|NoRoom| "no-room")
            }
        };
        match room {
            Ok(room) => {
                let head = Arc::new(head);
                let content = self.place.content.clone();
                let stored = Stored::new(key, head.clone(), content, PurgeState::new(number));
                // From now on, other requests find the response and wait only until its head is set
                // below. If the response was purged in the meantime, only requests already waiting
                // for it receive it.
                cache.admit(&stored, &self.place.content, None);
                self.place.place = Place::Stored(stored, 0);
                self.writer.set_head(head, Destination::Store(room));
            }
            Err(reason) => {
                // Memory may soon be free again, but a response that is too large stays too large.
                let mark = if reason == TOO_LARGE { PassMark::Moment } else { PassMark::No };
                cache.keep_mark(&key, &self.place.content, (mark, &head.selection), now_ms);
                self.pass(Head { private: Some(Unshareable { reason, mark }), ..head });
            }
        }
    }

    /// Sets the head of a response of `length` bytes whose content is stored in slices. Look-ups
    /// find it from now on, and all waiting requests receive it. If the response may not be shared,
    /// fails the fill instead.
    pub fn complete_sliced(mut self, head: Head, length: u64) {
        if head.why_private().is_some() {
            return self.fail(Failure::NotShared);
        }
        let Place::Pending(key, number) = std::mem::replace(&mut self.place.place, Place::Alone) else {
            return self.writer.fail(Failure::NotShared);
        };
        let cache = self.place.cache.clone();
        cache.make_room(0);
        let head = Arc::new(Head { sliced: true, length: Some(length), ..head });
        let content = self.place.content.clone();
        let stored = Stored::new(key, head.clone(), content.clone(), PurgeState::new(number));
        cache.admit(&stored, &content, None);
        self.writer.complete_elsewhere(head, length);
        cache.offer(&stored);
    }

    /// Reports that the response with this head may not be shared. Each waiting request then
    /// fetches separately. Later requests are passed for a few seconds, or handled according to a
    /// policy verdict.
    pub fn not_shared(mut self, head: &Head, now_ms: u64) {
        if let Place::Pending(key, _) = std::mem::replace(&mut self.place.place, Place::Alone) {
            let mark = head.private.map(|private| private.mark).filter(|mark| mark.is_of_policy());
            let marked = (mark.unwrap_or(PassMark::Moment), &head.selection);
            self.place.cache.keep_mark(&key, &self.place.content, marked, now_ms);
        }
        self.writer.fail(Failure::NotShared);
    }

    fn pass(&mut self, head: Head) {
        self.writer.set_head(Arc::new(head), Destination::Pass { window_bytes: PASS_WINDOW_BYTES });
    }

    /// Reports that the backend validated `stored`; `head` is its updated head (RFC 9111 §4.3.4).
    /// Calls `notify` with the response for the requesting client before any other request can see
    /// it. If the new head may not be shared, that client is the last to receive the response.
    pub fn validated(mut self, stored: &Arc<Stored>, head: Head, notify: impl FnOnce(Arc<Stored>)) {
        let Place::Pending(_, number) = self.place.place else {
            unreachable!("a passed fill validates nothing")
        };
        let private = head.why_private();
        let head = Head { private, ..head };
        let updated = stored.with_head(head, PurgeState::new(number));
        if let Some(Unshareable { mark, .. }) = private {
            if mark.is_of_policy() {
                let marked = (mark, &updated.head.selection);
                // A policy verdict has its own expiry time.
                self.place.cache.keep_mark(stored.key(), &self.place.content, marked, 0);
            }
            self.place.cache.remove_stored(stored);
        } else {
            self.place.cache.make_room(0);
            if self.place.cache.admit(&updated, &self.place.content, Some(stored)) {
                self.place.cache.offer(&updated);
            }
        }
        self.place.leave();
        notify(updated);
        self.writer.fail(Failure::Superseded);
    }

    /// Waits until more content may be appended.
    ///
    /// # Errors
    ///
    /// Returns an error if the content is passed and its client is gone.
    pub async fn room(&mut self) -> Result<(), Failure> {
        self.writer.room().await
    }

    /// Returns the number of content bytes stored so far, and the content length if the head states
    /// it. Returns `None` for a passed fill and before the head is set.
    pub fn stored_bytes(&self) -> Option<(u64, Option<u64>)> {
        match &self.place.place {
            Place::Stored(stored, so_far) => Some((*so_far, stored.head.length)),
            Place::Alone | Place::Pending(..) => None,
        }
    }

    /// Returns whether there are readers.
    pub fn has_readers(&self) -> bool {
        self.readers() > 0
    }

    /// Returns the number of readers, including those that wait for the head.
    pub fn readers(&self) -> usize {
        self.place.content.readers()
    }

    /// Waits until there are no readers.
    pub async fn deserted(&self) {
        self.writer.deserted().await;
    }

    /// Removes a stored fill without readers from the index, so that no reader can join. Returns
    /// false if a reader joined in the meantime. The fill must then continue for that reader, and
    /// later requests start a new fetch.
    pub fn give_up(&self) -> bool {
        let Place::Stored(stored, _) = &self.place.place else { return false };
        self.place.cache.remove_stored(stored);
        // A request that has found the response but is not yet a reader holds another reference. A
        // request that has dropped its reference became a reader first, which the fence makes
        // visible.
        let alone = Arc::strong_count(stored) == 1;
        fence(Acquire);
        alone && !self.has_readers()
    }

    /// Publishes content.
    ///
    /// # Errors
    ///
    /// Returns an error if the arena has no room, or the content exceeds the limit per stored
    /// response. The key of a stored fill is then passed for a few seconds, so that the next
    /// request receives all of the content.
    pub fn append(&mut self, bytes: Bytes, now_ms: u64) -> Result<(), NoRoom> {
        let Place::Stored(stored, so_far) = &mut self.place.place else { return self.writer.append(bytes) };
        let cache = &self.place.cache;
        *so_far += bytes.len() as u64;
        let appended = if *so_far > cache.content_bytes_max() {
            Err(NoRoom)
        } else {
            if stored.head.length.is_none() {
                cache.make_room(0);
            }
            self.writer.append(bytes)
        };
        if appended.is_err() {
            let marked = (PassMark::Moment, &stored.head.selection);
            cache.keep_mark(stored.key(), &self.place.content, marked, now_ms);
        }
        appended
    }

    /// Sets the trailer, which counts towards the index bytes as long as it exists.
    pub fn set_trailer(&mut self, fields: Fields) {
        self.writer.set_trailer(Trailer::new(fields, &self.place.cache.index_bytes));
    }

    /// Completes the fill once all content has arrived.
    pub fn complete(mut self) {
        // A stored response stays in the index; a fill in any other state has already left it.
        let place = std::mem::replace(&mut self.place.place, Place::Alone);
        self.writer.complete();
        if let Place::Stored(stored, _) = place {
            if stored.head.length.is_none() {
                self.place.cache.enqueue(&stored, &[]);
            }
            stored.content.allow_moves();
            self.place.cache.offer(&stored);
        }
    }

    /// Fails the fill, whether or not its head has been set.
    pub fn fail(mut self, failure: Failure) {
        self.place.leave();
        self.writer.fail(failure);
    }
}

impl Placed {
    fn leave(&mut self) {
        match std::mem::replace(&mut self.place, Place::Alone) {
            Place::Alone => {}
            Place::Pending(key, _) => self.cache.remove_pending(&key, &self.content),
            Place::Stored(stored, _) => self.cache.remove_stored(&stored),
        }
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        self.leave();
    }
}
