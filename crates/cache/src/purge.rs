//! Purges: one sequence of them, and what each takes away.
//!
//! Every purge has a number, and every response has that of the newest purge before its fetch began: a response that
//! was under way when a purge came counts as older. A purge of a tag, or a ban, touches no response. It is written down
//! here, and whatever is found is tested against what was written down since it was last tested; where nothing was, that
//! costs two loads. A walk over all that is stored ([`Cache::sweep`](crate::Cache::sweep)) tests the rest, so that its
//! memory is free soon and this list is short.
//!
//! - A key is host, path and query. What is derived from it, such as a part of its content, has a key of its own that
//!   goes on after a space, and is purged and banned with it.
//! - Hard: gone. Soft: stale from the moment of the purge on.
//!
//! **Invariant:** no look-up that begins after a purge has returned is given a response that it took away.
//! **Invariant:** what is written down is forgotten only after everything older was tested against it, fetches whose head
//! was awaited meanwhile among it, and what a disk tier has still to find.
//!
//! Lock order: a shard of the index, then this list.

mod standing;

pub use standing::Position;
pub(crate) use standing::Standing;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use standing::GONE;

use crate::ban::{Expression, Subject};
use crate::store::Head;
use crate::tags::tags;

/// Tags, and URLs that others are derived from, that may be purged until a walk has come round, each.
pub const PURGES_MAX: usize = 65_536;
/// Bans that may be in force at a time.
pub const BANS_MAX: usize = 1024;

/// A purge, as it is kept in a journal.
#[derive(Debug, Clone)]
pub struct Purge {
    /// Its place in the sequence, from 1.
    pub number: u64,
    /// What it takes away.
    pub what: What,
    /// Soft: when it came, in unix milliseconds. `None`: hard, as every ban is.
    pub soft_ms: Option<u64>,
}

/// What a purge takes away.
#[derive(Debug, Clone)]
pub enum What {
    /// Every variant under a key, and what is derived from it.
    Url(Box<str>),
    /// Every response with a tag.
    Tag(Box<[u8]>),
    /// Every response that an expression holds for.
    Ban(Arc<Ban>),
}

/// An expression and when it was put in force.
#[derive(Debug)]
pub struct Ban {
    /// What is banned.
    pub expression: Expression,
    /// When, in unix milliseconds: what it says of ages is about then.
    pub made_ms: u64,
}

/// Too many purges are in force: another try after a moment may find room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany;

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too many purges are in force; try again in a moment")
    }
}

impl std::error::Error for TooMany {}

/// Every purge that not everything has been tested against.
#[derive(Default)]
pub(crate) struct Purges {
    /// The number of the newest purge.
    sequence: AtomicU64,
    /// The number of the newest one that was written down.
    latest: AtomicU64,
    list: RwLock<List>,
    /// Whether anything was ever derived from another key.
    has_derived: AtomicBool,
    /// Whether there may be more on disk than the index knows of.
    has_unknown: AtomicBool,
}

#[derive(Default)]
struct List {
    urls: HashMap<Box<str>, Marks>,
    tags: HashMap<Box<[u8]>, Marks>,
    /// By number.
    bans: VecDeque<(u64, Arc<Ban>)>,
    /// There was no room for a purge of this number: what is derived and older is gone, and what is found on disk.
    unlisted: u64,
    /// Up to this number all was forgotten.
    forgotten: u64,
}

/// Numbers of the latest hard and the latest soft purge of one name, 0 for none.
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
    /// The number of the newest purge. Whoever sees it sees what was written down for it.
    pub(crate) fn number(&self) -> u64 {
        self.sequence.load(SeqCst)
    }

    /// The number of a fetch of `key` that is about to begin, by one who saw `number` before looking for it.
    pub(crate) fn number_of_fetch(&self, key: &str, number: u64) -> u64 {
        if is_derived(key) && !self.has_derived.load(Relaxed) {
            // Purges of URLs from here on are written down; those before were before it. Under the lock: none has looked
            // at the flag and not got its number yet.
            let _list = self.write();
            self.has_derived.store(true, SeqCst);
            return self.number();
        }
        number
    }

    /// There may be more on disk than the index knows of: what is purged meanwhile is written down.
    pub(crate) fn await_disk(&self) {
        self.has_unknown.store(true, SeqCst);
    }

    /// All that is on disk is in the index, and was tested.
    pub(crate) fn found_disk(&self) {
        let _list = self.write();
        self.has_unknown.store(false, SeqCst);
    }

    /// Whether everything that is stored is in the index.
    pub(crate) fn knows_all(&self) -> bool {
        !self.has_unknown.load(SeqCst)
    }

    /// Whether what was found on disk is still there; to be asked before it is in the index, and there again by
    /// [`spares`](Self::spares).
    pub(crate) fn spares_found(&self, key: &str, head: &Head, standing: &Standing) -> bool {
        if is_derived(key) {
            self.has_derived.store(true, SeqCst);
        }
        standing.number >= self.read().unlisted && self.spares(key, head, standing)
    }

    /// The number of the newest purge that responses are tested against.
    pub(crate) fn latest(&self) -> u64 {
        self.latest.load(Acquire)
    }

    /// Gives a purge its number, and writes it down where responses are to be tested against it.
    pub(crate) fn enter(&self, what: What, soft_ms: Option<u64>) -> Result<Purge, TooMany> {
        let mut list = self.write();
        let number = self.sequence.load(Relaxed) + 1;
        let purge = Purge { number, what, soft_ms };
        if !matches!(purge.what, What::Url(_)) || self.has_derived.load(SeqCst) || !self.knows_all() {
            list.write_down(&purge)?;
            self.latest.store(number, Release);
        }
        self.sequence.store(number, SeqCst);
        Ok(purge)
    }

    /// Writes down a purge of an earlier life of this cache. Where there is no room for it, all that is older is gone.
    pub(crate) fn replay(&self, purge: &Purge) {
        if self.write().write_down(purge) == Err(TooMany) {
            self.replay_unlisted(purge.number);
        }
        self.go_on_after(purge.number);
    }

    /// It is not known what the purge of an earlier life took away: what is found on disk and older is gone.
    pub(crate) fn replay_unlisted(&self, number: u64) {
        let mut list = self.write();
        list.unlisted = list.unlisted.max(number);
        drop(list);
        self.go_on_after(number);
    }

    /// The sequence goes on after `number`.
    pub(crate) fn go_on_after(&self, number: u64) {
        let _list = self.write();
        self.latest.fetch_max(number, Release);
        self.sequence.fetch_max(number, SeqCst);
    }

    /// Whether a response is still there; where it was purged softly, that is noted in its standing.
    pub(crate) fn spares(&self, key: &str, head: &Head, standing: &Standing) -> bool {
        let checked = standing.checked.load(Acquire);
        if checked == GONE {
            return false;
        }
        checked >= self.latest() || self.test(key, head, standing)
    }

    #[cold]
    fn test(&self, key: &str, head: &Head, standing: &Standing) -> bool {
        let list = self.read();
        // It moves under the lock alone.
        let latest = self.latest();
        let verdict = list.verdict(key, head, standing.number, standing.checked.load(Relaxed));
        drop(list);
        if let Verdict::Stale(since_ms) = verdict {
            standing.soften(since_ms);
        }
        let gone = matches!(verdict, Verdict::Gone);
        standing.checked.fetch_max(if gone { GONE } else { latest }, Release);
        !gone
    }

    /// Whether a response whose fetch began after purge `number` was purged since, hard or soft; true also where that
    /// was forgotten, as its head is no longer awaited.
    pub(crate) fn has_purged(&self, key: &str, head: &Head, number: u64) -> bool {
        if number >= self.latest() {
            return false;
        }
        let list = self.read();
        number < list.forgotten || !matches!(list.verdict(key, head, number, number), Verdict::Spared)
    }

    /// Forgets all up to `number`.
    pub(crate) fn forget(&self, number: u64) {
        let mut list = self.write();
        list.forgotten = list.forgotten.max(number);
        list.urls.retain(|_, marks| marks.latest() > number);
        list.tags.retain(|_, marks| marks.latest() > number);
        while list.bans.pop_front_if(|(ban, _)| *ban <= number).is_some() {}
    }

    /// Bans in force, the oldest first.
    pub(crate) fn bans(&self) -> Vec<Arc<Ban>> {
        self.read().bans.iter().map(|(_, ban)| ban.clone()).collect()
    }

    /// Names and expressions that are written down.
    pub(crate) fn written_down(&self) -> usize {
        let list = self.read();
        list.urls.len() + list.tags.len() + list.bans.len()
    }

    /// Has all who would test anything wait.
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
        write!(f, "Purges({}, {} written down)", self.number(), self.written_down())
    }
}

impl List {
    fn write_down(&mut self, purge: &Purge) -> Result<(), TooMany> {
        match &purge.what {
            What::Url(key) => match marks(&mut self.urls, key) {
                Ok(marks) => marks.set(purge),
                // What is derived can be had again: rather too much of it than a purge that is not done.
                Err(TooMany) => self.unlisted = purge.number,
            },
            What::Tag(name) => marks(&mut self.tags, name)?.set(purge),
            What::Ban(ban) => {
                // The newer one takes away all that the older one would; not where the age counts, as of each.
                let is_repeated = |old: &Ban| old.expression.as_str() == ban.expression.as_str();
                self.bans.retain(|(_, old)| old.expression.has_age() || !is_repeated(old));
                if self.bans.len() >= BANS_MAX {
                    return Err(TooMany);
                }
                self.bans.push_back((purge.number, ban.clone()));
            }
        }
        Ok(())
    }

    /// On a response whose fetch began after purge `number`, and that was tested against bans up to `checked`.
    fn verdict(&self, key: &str, head: &Head, number: u64, checked: u64) -> Verdict {
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
            || newer.into_iter().any(|(_, ban)| ban.takes_away(key, head))
        {
            return Verdict::Gone;
        }
        stale_ms.map_or(Verdict::Spared, Verdict::Stale)
    }
}

/// The marks of a name, if there is room for another.
fn marks<'a, N: ?Sized + std::hash::Hash + Eq>(
    map: &'a mut HashMap<Box<N>, Marks>,
    name: &N,
) -> Result<&'a mut Marks, TooMany>
where
    Box<N>: for<'b> From<&'b N>,
{
    if map.len() >= PURGES_MAX && !map.contains_key(name) {
        return Err(TooMany);
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
    /// Whether it is about a response under `key`.
    pub fn takes_away(&self, key: &str, head: &Head) -> bool {
        let (host, url) = url(key).split_at(key.find('/').unwrap_or(0));
        let age_s = head.freshness.age_s(self.made_ms);
        let fields = [&head.fields, &head.surrogate];
        self.expression.matches(&Subject { host, url, status: head.status, fields, age_s })
    }
}

/// The key that `key` is derived from, or that it is.
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

    use super::*;

    #[test]
    fn what_is_written_down_is_bounded() {
        let purges = Purges::default();
        for number in 0..PURGES_MAX {
            purges.enter(What::Tag(number.to_string().into_bytes().into()), None).unwrap();
        }
        let enter = |tag: &[u8]| purges.enter(What::Tag(tag.into()), None).map(|purge| purge.number);
        assert_eq!(enter(b"one more"), Err(TooMany));
        assert_eq!(enter(b"7"), Ok(PURGES_MAX as u64 + 1), "it is there already");
        purges.forget(PURGES_MAX as u64);
        assert_eq!(purges.written_down(), 1);
        enter(b"one more").unwrap();
    }

    #[test]
    fn a_purge_that_the_first_derived_fetch_may_be_older_than_is_written_down() {
        let purges = Purges::default();
        let task = OnceLock::new();
        thread::scope(|scope| {
            let held = purges.hold();
            let fetch = scope.spawn(|| {
                task.get_or_init(|| std::fs::read_link("/proc/thread-self").unwrap());
                purges.number_of_fetch("h/a x", 0)
            });
            let stat = || std::fs::read_to_string(Path::new("/proc").join(task.get()?).join("stat")).ok();
            // Until it waits for the list; one that went on without it has its number by then.
            while !fetch.is_finished() && !stat().is_some_and(|stat| stat.contains(") S ")) {
                thread::yield_now();
            }
            // As one does that has the list, and has seen nothing derived.
            assert!(!purges.has_derived.load(SeqCst));
            purges.sequence.store(1, SeqCst);
            drop(held);
            assert_eq!(fetch.join().unwrap(), 1, "older than a purge that is not written down");
        });
        purges.enter(What::Url("h/a".into()), None).unwrap();
        assert_eq!(purges.written_down(), 1);
    }

    #[test]
    fn bans_of_one_expression_are_one_and_all_are_bounded() {
        let purges = Purges::default();
        let ban = |text: &str| {
            let ban = Ban { expression: Expression::parse(text).unwrap(), made_ms: 0 };
            purges.enter(What::Ban(Arc::new(ban)), None).map(|purge| purge.number)
        };
        for _ in 0..3 {
            ban("obj.status == 404").unwrap();
        }
        assert_eq!(purges.bans().len(), 1);
        for status in 1..BANS_MAX {
            ban(&format!("obj.age == {status}")).unwrap();
        }
        assert_eq!(ban("obj.age == 0"), Err(TooMany));
        purges.forget(purges.number());
        assert_eq!(purges.bans().len(), 0);
    }
}
