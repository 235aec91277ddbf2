//! A fill and its place in the index: the right, and the duty, to fetch what was looked up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, fence};

use bytes::Bytes;
use thalweg_http::Fields;
use thalweg_http::cache_status::Forward;

use super::{Cache, Content, Head, Key, Lasting, PASS_WINDOW_BYTES, Private, Stored};
use crate::arena::NoRoom;
use crate::eviction::Frequency;
use crate::fill::{Failure, Keep, Room, Trailer, Writer};
use crate::purge::Standing;

/// Why content is passed that is larger than what is stored of one response.
const TOO_LARGE: &str = "too-large";

/// A fill under way. Dropped before it is complete, it has failed, and left the index.
#[derive(Debug)]
pub struct Fill {
    // In this order: on a drop the place is left before the writer tells its readers.
    place: Placed,
    writer: Writer<Arc<Head>>,
    forward: Forward,
}

/// Where in the index a fill stands; it leaves it when dropped.
#[derive(Debug)]
struct Placed {
    cache: Arc<Cache>,
    content: Arc<Content>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// Nowhere.
    Alone,
    /// Its head is awaited under this key, since the purge of this number.
    Pending(Key, u64),
    /// It is found, unless it was purged.
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

    /// The key whose head is awaited; `None` for a fetch that the index does not know of.
    pub fn key(&self) -> Option<&str> {
        match &self.place.place {
            Place::Pending(key, _) => Some(&key.text),
            Place::Alone | Place::Stored(..) => None,
        }
    }

    /// Why what was stored did not do (RFC 9211 §2.2); for a fetch that the index does not know of, that it was not asked.
    pub fn forward(&self) -> Forward {
        self.forward
    }

    /// The head came. If it may be shared and there is room, it is found from here on; else its content is for the
    /// client that started the fill.
    pub fn begin(&mut self, head: Head, now_ms: u64) {
        let (key, number) = match std::mem::replace(&mut self.place.place, Place::Alone) {
            Place::Pending(key, number) => (key, number),
            place => {
                self.place.place = place;
                return self.pass(head);
            }
        };
        let cache = self.place.cache.clone();
        let room = match head.private {
            Some(Private { lasting, .. }) => {
                cache.keep_mark(&key, &self.place.content, (lasting, &head.selection), now_ms);
                return self.pass(head);
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
                let stored = Arc::new(Stored {
                    head: head.clone(),
                    content: self.place.content.clone(),
                    key,
                    frequency: Frequency::default(),
                    hits: AtomicU64::new(0),
                    standing: Standing::new(number),
                });
                // Found by others from here on; they wait for the head below for an instant at most. If it was
                // purged meanwhile, those who waited for it still get it, and nobody else.
                cache.admit(&stored, &self.place.content, None);
                self.place.place = Place::Stored(stored, 0);
                self.writer.set_head(head, Keep::Store(room));
            }
            Err(reason) => {
                // Memory may be free again at once; what is too large will be so again.
                let lasting = if reason == TOO_LARGE { Lasting::Moment } else { Lasting::No };
                cache.keep_mark(&key, &self.place.content, (lasting, &head.selection), now_ms);
                self.pass(Head { private: Some(Private { reason, lasting }), ..head });
            }
        }
    }

    /// The head came, of content of `length` bytes that is kept in slices: it is found from here on, and all who waited
    /// for it go there. Only for what may be shared.
    pub fn complete_sliced(mut self, head: Head, length: u64) {
        let Place::Pending(key, number) = std::mem::replace(&mut self.place.place, Place::Alone) else {
            return self.writer.fail(Failure::NotShared);
        };
        let cache = self.place.cache.clone();
        cache.make_room(0);
        let head = Arc::new(Head { sliced: true, length: Some(length), ..head });
        let content = self.place.content.clone();
        let (standing, frequency) = (Standing::new(number), Frequency::default());
        let hits = AtomicU64::new(0);
        let stored = Stored { head: head.clone(), content: content.clone(), key, standing, frequency, hits };
        let stored = Arc::new(stored);
        cache.admit(&stored, &content, None);
        self.writer.complete_elsewhere(head, length);
        cache.offer(&stored);
    }

    /// The response, with this head, may not be shared: all who wait for it go their own way, and so do those who come in
    /// the next seconds, or for as long as a policy says.
    pub fn not_shared(mut self, head: &Head, now_ms: u64) {
        if let Place::Pending(key, _) = std::mem::replace(&mut self.place.place, Place::Alone) {
            let lasting =
                head.private.map(|private| private.lasting).filter(|lasting| lasting.is_of_policy());
            let marked = (lasting.unwrap_or(Lasting::Moment), &head.selection);
            self.place.cache.keep_mark(&key, &self.place.content, marked, now_ms);
        }
        self.writer.fail(Failure::NotShared);
    }

    fn pass(&mut self, head: Head) {
        self.writer.set_head(Arc::new(head), Keep::Pass { window_bytes: PASS_WINDOW_BYTES });
    }

    /// The backend said that `stored` is still good; `head` is its head brought up to date (RFC 9111 §4.3.4). Gives
    /// what answers the client that asked, to `tell` before anybody else hears of it. If the new head may not be
    /// shared, that client is the last to get it.
    pub fn validated(mut self, stored: &Arc<Stored>, head: Head, tell: impl FnOnce(Arc<Stored>)) {
        let Place::Pending(_, number) = self.place.place else {
            unreachable!("what is passed asks about nothing")
        };
        let private = head.private;
        let updated = stored.with_head(head, Standing::new(number));
        if let Some(Private { lasting, .. }) = private {
            if lasting.is_of_policy() {
                let marked = (lasting, &updated.head.selection);
                // It says by itself until when.
                self.place.cache.keep_mark(&stored.key, &self.place.content, marked, 0);
            }
            self.place.cache.remove_stored(stored);
        } else {
            self.place.cache.make_room(0);
            if self.place.cache.admit(&updated, &self.place.content, Some(stored)) {
                self.place.cache.offer(&updated);
            }
        }
        self.place.leave();
        tell(updated);
        self.writer.fail(Failure::Superseded);
    }

    /// Waits until more may be appended.
    ///
    /// # Errors
    /// When the content is passed and its client is gone.
    pub async fn room(&mut self) -> Result<(), Failure> {
        self.writer.room().await
    }

    /// Content bytes so far and in all, where the head says how many, of a fill that is stored; `None` for one that is
    /// passed and before the head.
    pub fn stored_bytes(&self) -> Option<(u64, Option<u64>)> {
        match &self.place.place {
            Place::Stored(stored, so_far) => Some((*so_far, stored.head.length)),
            Place::Alone | Place::Pending(..) => None,
        }
    }

    /// Whether anybody reads.
    pub fn has_readers(&self) -> bool {
        self.readers() > 0
    }

    /// Who reads, or waits for the head: whoever caused the fetch, and others.
    pub fn readers(&self) -> usize {
        self.place.content.readers()
    }

    /// Waits until nobody reads.
    pub async fn deserted(&self) {
        self.writer.deserted().await;
    }

    /// Takes a stored fill that nobody reads out of the index, so that nobody can join it any more. False if somebody
    /// has joined before: then it is to go on for them, and later requests start afresh.
    pub fn give_up(&self) -> bool {
        let Place::Stored(stored, _) = &self.place.place else { return false };
        self.place.cache.remove_stored(stored);
        // Who has looked it up and does not read it yet holds it beside this fill. Who does not hold it any more has
        // become a reader before: that is what the fence makes visible.
        let alone = Arc::strong_count(stored) == 1;
        fence(Acquire);
        alone && !self.has_readers()
    }

    /// Publishes content.
    ///
    /// # Errors
    /// When there is no room for it, or it exceeds what is stored of one response. Its key is passed then for a
    /// moment, so that the next request gets all of it.
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
            let marked = (Lasting::Moment, &stored.head.selection);
            cache.keep_mark(&stored.key, &self.place.content, marked, now_ms);
        }
        appended
    }

    /// Fields came after the content. They count as fields of the index, for as long as anybody has them.
    pub fn set_trailer(&mut self, fields: Fields) {
        self.writer.set_trailer(Trailer::new(fields, &self.place.cache.index_bytes));
    }

    /// All content came.
    pub fn complete(mut self) {
        // What is stored stays; nothing else is in the index any more.
        let place = std::mem::replace(&mut self.place.place, Place::Alone);
        self.writer.complete();
        if let Place::Stored(stored, _) = place {
            if stored.head.length.is_none() {
                self.place.cache.enqueue(&stored, &[]);
            }
            stored.content.reside();
            self.place.cache.offer(&stored);
        }
    }

    /// The fetch failed, before or after its head.
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
