//! Purge list: numbers all purges and determines which responses they remove.
//!
//! Every purge has a number. Every response records the number of the newest purge before its fetch
//! started, so a response in flight when a purge arrives counts as older. A tag purge or a ban does
//! not touch any response on arrival, but is listed here. Each look-up tests the response it finds
//! against the purges listed since that response's last test; without new purges, the test costs
//! two loads. A sweep over all stored responses ([`Cache::sweep`](crate::Cache::sweep)) tests the
//! others, so that their memory is freed soon and the list stays short.
//!
//! - A key consists of host, path and query. An item derived from a response, such as a slice of
//!   its content, has a derived key: the base key, a space and a suffix. Derived keys are purged
//!   and banned together with the base key.
//! - A hard purge removes responses. A soft purge makes them stale from the moment of the purge.
//!
//! **Invariant:** a look-up that starts after a purge has returned finds no response removed by
//! that purge.
//! **Invariant:** a listed purge is dropped only after every older response has been tested against
//! it, including responses whose heads were awaited and responses that the disk scan had not found
//! yet.
//!
//! Lock order: an index shard, then this list.

mod state;

pub use state::Position;
pub(crate) use state::PurgeState;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use state::GONE;
use thalweg_http::Fields;

use crate::ban::{Predicate, Subject};
use crate::entry::Head;
use crate::tags::tags;

/// Maximum number of distinct tags, and of distinct URLs, listed between two sweeps.
pub const PURGES_MAX: usize = 65_536;
/// Maximum number of bans in force at a time.
pub const BANS_MAX: usize = 1024;

/// A purge, as stored in the journal.
#[derive(Debug, Clone)]
pub struct Purge {
    /// Position in the purge sequence, starting at 1.
    pub number: u64,
    /// Responses to which the purge applies.
    pub what: PurgeScope,
    /// Arrival time of a soft purge, in Unix milliseconds; `None` for a hard purge. Every ban is
    /// hard.
    pub soft_ms: Option<u64>,
}

/// Scope of a purge: the responses to which it applies.
#[derive(Debug, Clone)]
pub enum PurgeScope {
    /// Every variant under a key, and everything derived from the key.
    Url(Box<str>),
    /// Every response with a tag.
    Tag(Box<[u8]>),
    /// Every response that matches an expression.
    Ban(Arc<Ban>),
}

/// A ban: an expression and the time at which it came into force.
#[derive(Debug)]
pub struct Ban {
    /// The expression as written.
    pub text: Box<str>,
    /// When the ban came into force, in Unix milliseconds. The expression tests ages as of this
    /// time.
    pub made_ms: u64,
    /// The compiled expression; `None` for a ban from an earlier process until it is replayed.
    predicate: Option<Arc<dyn Predicate>>,
}

/// Error: too many purges are in force. A retry after a moment may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyPurges;

impl fmt::Display for TooManyPurges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too many purges are in force; try again in a moment")
    }
}

impl std::error::Error for TooManyPurges {}

/// Purges against which some responses may not have been tested.
#[derive(Default)]
pub(crate) struct Purges {
    /// Number of the newest purge.
    sequence: AtomicU64,
    /// Number of the newest listed purge.
    latest: AtomicU64,
    list: RwLock<List>,
    /// Whether any derived key has ever been seen.
    has_derived: AtomicBool,
    /// Whether there may be responses on disk that the index does not have.
    is_scanning: AtomicBool,
}

#[derive(Default)]
struct List {
    urls: HashMap<Box<str>, Marks>,
    tags: HashMap<Box<[u8]>, Marks>,
    /// Bans in force with their numbers, in ascending order.
    bans: VecDeque<(u64, Arc<Ban>)>,
    /// Number of the newest purge for which the list had no room. It removes all older derived
    /// responses and all older responses found on disk.
    unlisted: u64,
    /// All purges up to this number were dropped.
    forgotten: u64,
}

/// Numbers of the latest hard purge and the latest soft purge of one URL or tag; 0 before the
/// first.
#[derive(Debug, Default, Clone, Copy)]
struct Marks {
    hard: u64,
    soft: u64,
    soft_ms: u64,
}

enum Verdict {
    Spared,
    Stale(u64),
    Gone,
}

impl Purges {
    /// Returns the number of the newest purge. A thread that sees this number also sees that purge
    /// in the list.
    pub(crate) fn number(&self) -> u64 {
        self.sequence.load(SeqCst)
    }

    /// Returns the purge number to record for a fetch of `key` that is about to start. The caller
    /// must have read `number` before its look-up.
    pub(crate) fn number_of_fetch(&self, key: &str, number: u64) -> u64 {
        if is_derived(key) && !self.has_derived.load(Relaxed) {
            // URL purges are listed from now on, and earlier ones precede this fetch. The lock
            // ensures that no purge has read the flag but not yet received its number.
            let _list = self.write();
            self.has_derived.store(true, SeqCst);
            return self.number();
        }
        number
    }

    /// Records the start of the disk scan. Until it finishes, responses on disk may be missing from
    /// the index, so every purge is listed.
    pub(crate) fn start_scan(&self) {
        self.is_scanning.store(true, SeqCst);
    }

    /// Records the end of the disk scan: all responses on disk are in the index and have been
    /// tested.
    pub(crate) fn finish_scan(&self) {
        let _list = self.write();
        self.is_scanning.store(false, SeqCst);
    }

    /// Returns whether the disk scan is complete, so that every stored response is in the index.
    pub(crate) fn is_scan_complete(&self) -> bool {
        !self.is_scanning.load(SeqCst)
    }

    /// Returns whether a response found on disk has not been purged. Call this before inserting the
    /// response into the index; after that, [`spares`](Self::spares) tests it again.
    pub(crate) fn spares_restored(&self, key: &str, head: &Head, purge_state: &PurgeState) -> bool {
        if is_derived(key) {
            self.has_derived.store(true, SeqCst);
        }
        purge_state.number >= self.read().unlisted && self.spares(key, head, purge_state, None)
    }

    /// Returns the number of the newest purge against which responses are tested.
    pub(crate) fn latest(&self) -> u64 {
        self.latest.load(Acquire)
    }

    /// Numbers a purge, and lists it if responses have to be tested against it.
    pub(crate) fn enter(&self, what: PurgeScope, soft_ms: Option<u64>) -> Result<Purge, TooManyPurges> {
        let mut list = self.write();
        let number = self.sequence.load(Relaxed) + 1;
        let purge = Purge { number, what, soft_ms };
        if !matches!(purge.what, PurgeScope::Url(_))
            || self.has_derived.load(SeqCst)
            || !self.is_scan_complete()
        {
            list.add(&purge)?;
            self.latest.store(number, Release);
        }
        self.sequence.store(number, SeqCst);
        Ok(purge)
    }

    /// Lists a purge from an earlier process. If the list has no room, all older responses found on
    /// disk count as purged.
    pub(crate) fn replay(&self, purge: &Purge) {
        if self.write().add(purge) == Err(TooManyPurges) {
            self.replay_unlisted(purge.number);
        }
        self.advance_to(purge.number);
    }

    /// Replays a purge from an earlier process whose scope is unknown. All older responses found on
    /// disk count as purged.
    pub(crate) fn replay_unlisted(&self, number: u64) {
        let mut list = self.write();
        list.unlisted = list.unlisted.max(number);
        drop(list);
        self.advance_to(number);
    }

    /// Continues the sequence after `number`.
    pub(crate) fn advance_to(&self, number: u64) {
        let _list = self.write();
        self.latest.fetch_max(number, Release);
        self.sequence.fetch_max(number, SeqCst);
    }

    /// Returns whether a response found for a request with the fields `request` has not been
    /// purged. Records a soft purge in the response's purge state. As in Varnish, the first look-up
    /// after a request-dependent ban decides whether the ban removes the response.
    pub(crate) fn spares(
        &self,
        key: &str,
        head: &Head,
        purge_state: &PurgeState,
        request: Option<&Fields>,
    ) -> bool {
        let checked = purge_state.checked.load(Acquire);
        if checked == GONE {
            return false;
        }
        checked >= self.latest() || self.test(key, head, purge_state, request)
    }

    #[cold]
    fn test(&self, key: &str, head: &Head, purge_state: &PurgeState, request: Option<&Fields>) -> bool {
        let list = self.read();
        let checked = purge_state.checked.load(Relaxed);
        let verdict = list.verdict(key, head, (purge_state.number, checked), request);
        // `latest` changes only under the lock.
        let latest = self.latest().min(list.testable(key, checked, request));
        drop(list);
        if let Verdict::Stale(since_ms) = verdict {
            purge_state.soften(since_ms);
        }
        let gone = matches!(verdict, Verdict::Gone);
        purge_state.checked.fetch_max(if gone { GONE } else { latest }, Release);
        !gone
    }

    /// Returns whether a response whose fetch started after purge `number` has since been purged,
    /// hard or soft. Also returns true if this is unknown, because purges that arrived after the
    /// response's head have been dropped from the list.
    pub(crate) fn has_purged(&self, key: &str, head: &Head, number: u64) -> bool {
        if number >= self.latest() {
            return false;
        }
        let list = self.read();
        number < list.forgotten
            || list.testable(key, number, None) < u64::MAX
            || !matches!(list.verdict(key, head, (number, number), None), Verdict::Spared)
    }

    /// Drops all purges up to `number`. Drops request-dependent bans only up to `looked_up`, the
    /// purge number up to which every response was tested, including against such bans.
    pub(crate) fn forget(&self, number: u64, looked_up: u64) {
        let mut list = self.write();
        list.forgotten = list.forgotten.max(number);
        list.urls.retain(|_, marks| marks.latest() > number);
        list.tags.retain(|_, marks| marks.latest() > number);
        list.bans.retain(|(of_ban, ban)| {
            *of_ban > if ban.needs_request() { number.min(looked_up) } else { number }
        });
    }

    /// Returns the bans in force, oldest first.
    pub(crate) fn bans(&self) -> Vec<Arc<Ban>> {
        self.read().bans.iter().map(|(_, ban)| ban.clone()).collect()
    }

    /// Returns the numbers of the bans in force.
    pub(crate) fn numbers_of_bans(&self) -> Vec<u64> {
        self.read().bans.iter().map(|(number, _)| *number).collect()
    }

    /// Returns the number of listed URLs, tags and bans.
    pub(crate) fn listed(&self) -> usize {
        let list = self.read();
        list.urls.len() + list.tags.len() + list.bans.len()
    }

    /// Prevents responses from being tested against purges while the guard is held.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Sized {
        self.write()
    }

    fn read(&self) -> RwLockReadGuard<'_, List> {
        self.list.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, List> {
        self.list.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Purges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Purges({}, {} listed)", self.number(), self.listed())
    }
}

impl List {
    fn add(&mut self, purge: &Purge) -> Result<(), TooManyPurges> {
        match &purge.what {
            PurgeScope::Url(key) => match marks(&mut self.urls, key) {
                Ok(marks) => marks.set(purge),
                // Remove too many derived responses rather than too few: they can be fetched again.
                Err(TooManyPurges) => self.unlisted = purge.number,
            },
            PurgeScope::Tag(name) => marks(&mut self.tags, name)?.set(purge),
            PurgeScope::Ban(ban) => {
                // A newer ban supersedes an identical older one, unless it tests age: each ban
                // tests ages as of its own creation.
                self.bans.retain(|(_, old)| old.has_age() || old.text != ban.text);
                if self.bans.len() >= BANS_MAX {
                    return Err(TooManyPurges);
                }
                self.bans.push_back((purge.number, ban.clone()));
            }
        }
        Ok(())
    }

    /// Returns the purge number up to which a response, already tested up to `checked`, can be
    /// tested now. Request-dependent bans cannot be tested without a request, and do not apply to a
    /// derived response, which has no request of its own.
    fn testable(&self, key: &str, checked: u64, request: Option<&Fields>) -> u64 {
        if request.is_some() || is_derived(key) {
            return u64::MAX;
        }
        let untestable = self.bans.iter().find(|(number, ban)| *number > checked && ban.needs_request());
        untestable.map_or(u64::MAX, |(number, _)| number - 1)
    }

    /// Returns the verdict on a response. Its fetch started after purge `number`, and it was
    /// already tested against bans up to `checked`.
    fn verdict(
        &self,
        key: &str,
        head: &Head,
        (number, checked): (u64, u64),
        request: Option<&Fields>,
    ) -> Verdict {
        let mut stale_ms = None;
        let url_marks = (!self.urls.is_empty()).then(|| self.urls.get(url(key))).flatten();
        let tags = (!self.tags.is_empty()).then(|| tags([&head.surrogate, &head.fields]));
        let tag_marks = tags.into_iter().flatten().filter_map(|tag| self.tags.get(tag));
        for marks in url_marks.into_iter().chain(tag_marks) {
            if marks.hard > number {
                return Verdict::Gone;
            }
            if marks.soft > number {
                stale_ms = Some(stale_ms.unwrap_or(u64::MAX).min(marks.soft_ms));
            }
        }
        let newer = self.bans.iter().rev().take_while(|(ban, _)| *ban > checked);
        if (self.unlisted > number && is_derived(key))
            || newer.into_iter().any(|(_, ban)| ban.takes_away(key, head, request))
        {
            return Verdict::Gone;
        }
        stale_ms.map_or(Verdict::Spared, Verdict::Stale)
    }
}

/// Returns the marks of a URL or tag, which is added to the list if missing. Returns an error if
/// the list is full.
fn marks<'a, N: ?Sized + std::hash::Hash + Eq>(
    map: &'a mut HashMap<Box<N>, Marks>,
    name: &N,
) -> Result<&'a mut Marks, TooManyPurges>
where
    Box<N>: for<'b> From<&'b N>,
{
    if map.len() >= PURGES_MAX && !map.contains_key(name) {
        return Err(TooManyPurges);
    }
    Ok(map.entry(name.into()).or_default())
}

impl Marks {
    fn set(&mut self, purge: &Purge) {
        match purge.soft_ms {
            None => self.hard = purge.number,
            Some(soft_ms) => (self.soft, self.soft_ms) = (purge.number, soft_ms),
        }
    }

    fn latest(&self) -> u64 {
        self.hard.max(self.soft)
    }
}

impl Ban {
    /// Creates a ban from `predicate`, which was compiled from `text`.
    pub fn new(text: &str, predicate: Arc<dyn Predicate>, made_ms: u64) -> Self {
        Self { text: text.into(), made_ms, predicate: Some(predicate) }
    }

    /// Creates an uncompiled ban, as read from an earlier process's journal.
    pub(crate) fn read(text: &str, made_ms: u64) -> Self {
        Self { text: text.into(), made_ms, predicate: None }
    }

    fn has_age(&self) -> bool {
        self.predicate.as_ref().is_some_and(|predicate| predicate.has_age())
    }

    fn needs_request(&self) -> bool {
        self.predicate.as_ref().is_some_and(|predicate| predicate.needs_request())
    }

    /// Returns whether the ban matches a response under `key`, looked up for a request with the
    /// fields `request`.
    fn takes_away(&self, key: &str, head: &Head, request: Option<&Fields>) -> bool {
        let request = request.filter(|_| !is_derived(key));
        let Some(predicate) = self.predicate.as_ref().filter(|it| request.is_some() || !it.needs_request())
        else {
            return false;
        };
        let (host, url) = url(key).split_at(key.find('/').unwrap_or(0));
        let age_s = head.freshness.age_s(self.made_ms);
        let fields = [&head.fields, &head.surrogate];
        predicate.matches(&Subject { host, url, status: head.status, fields, age_s, request })
    }
}

/// Returns the base key of `key`, which may be `key` itself.
fn url(key: &str) -> &str {
    key.split(' ').next().unwrap_or_default()
}

fn is_derived(key: &str) -> bool {
    key.contains(' ')
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::OnceLock;
    use std::thread;

    use thalweg_http::Fields;

    use super::*;
    use crate::freshness::Freshness;

    #[test]
    fn purge_list_is_bounded() {
        let purges = Purges::default();
        for number in 0..PURGES_MAX {
            purges.enter(PurgeScope::Tag(number.to_string().into_bytes().into()), None).unwrap();
        }
        let enter = |tag: &[u8]| purges.enter(PurgeScope::Tag(tag.into()), None).map(|purge| purge.number);
        assert_eq!(enter(b"one more"), Err(TooManyPurges));
        assert_eq!(enter(b"7"), Ok(PURGES_MAX as u64 + 1), "an already listed tag needs no room");
        purges.forget(PURGES_MAX as u64, 0);
        assert_eq!(purges.listed(), 1);
        enter(b"one more").unwrap();
    }

    #[test]
    fn unlisted_url_purge_removes_all_older_derived_responses() {
        let purges = Purges::default();
        let head = Head::new(200, Fields::new(), Freshness::default());
        let spares = |key: &str, number| purges.spares(key, &head, &PurgeState::new(number), None);
        purges.number_of_fetch("h/0 0", 0);
        let purge_url =
            |number: usize| purges.enter(PurgeScope::Url(format!("h/{number}").into()), None).unwrap();
        (0..PURGES_MAX).for_each(|number| drop(purge_url(number)));
        let before = purges.number();
        assert!(spares("h/another 0", 0) && !spares("h/0 0", 0));
        let number = purge_url(PURGES_MAX).number;
        assert_eq!(purges.listed(), PURGES_MAX);
        assert!(!spares(&format!("h/{PURGES_MAX} 0"), before) && !spares("h/another 0", before));
        assert!(spares("h/another", before), "the index itself removes the base key");
        // Another listed purge causes the responses to be tested again.
        purges.enter(PurgeScope::Tag(b"x".as_slice().into()), None).unwrap();
        assert!(spares("h/another 0", number));
    }

    #[test]
    fn purge_concurrent_with_first_derived_fetch_is_listed() {
        let purges = Purges::default();
        let task = OnceLock::new();
        thread::scope(|scope| {
            let held = purges.hold();
            let fetch = scope.spawn(|| {
                task.get_or_init(|| std::fs::read_link("/proc/thread-self").unwrap());
                purges.number_of_fetch("h/a x", 0)
            });
            let stat = || std::fs::read_to_string(Path::new("/proc").join(task.get()?).join("stat")).ok();
            // Wait until the thread blocks on the list, or finishes if it does not block.
            while !fetch.is_finished() && !stat().is_some_and(|stat| stat.contains(") S ")) {
                thread::yield_now();
            }
            // Simulate a purge that holds the list and has seen no derived key.
            assert!(!purges.has_derived.load(SeqCst));
            purges.sequence.store(1, SeqCst);
            drop(held);
            assert_eq!(fetch.join().unwrap(), 1, "the fetch is older than an unlisted purge");
        });
        purges.enter(PurgeScope::Url("h/a".into()), None).unwrap();
        assert_eq!(purges.listed(), 1);
    }

    #[test]
    fn equal_bans_are_merged_and_bans_are_bounded() {
        let purges = Purges::default();
        let ban = |text: &str| {
            let ban = crate::ban::tests::ban(text, 0);
            purges.enter(PurgeScope::Ban(Arc::new(ban)), None).map(|purge| purge.number)
        };
        for _ in 0..3 {
            ban("obj.status == 404").unwrap();
        }
        assert_eq!(purges.bans().len(), 1);
        for status in 1..BANS_MAX {
            ban(&format!("obj.age == {status}")).unwrap();
        }
        assert_eq!(ban("obj.age == 0"), Err(TooManyPurges));
        purges.forget(purges.number(), 0);
        assert_eq!(purges.bans().len(), 0);
    }
}
