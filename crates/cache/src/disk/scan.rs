//! The start: what lies on disk is found again, the newest first, by its headers alone.
//!
//! Names are listed before anything is written, so that nothing written now is mistaken for what was there, and
//! numbers go on after the highest. What is not whole, or of another version, is removed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use thalweg_http::validators::has_validator;

use super::files::{Name, SPREAD, Unreadable};
use super::record::Record;
use super::{Copy, Tier};
use crate::store::{Head, Key};
use crate::sync::lock;

/// Threads that read headers.
const SCAN_THREADS: usize = 4;

impl Tier {
    pub(super) fn scan(self: &Arc<Self>) {
        let mut files = self.list();
        files.sort_unstable_by(|a, b| b.cmp(a));
        let highest = files.first().map_or(0, |(name, _)| name.number);
        self.number.store(highest + 1, Relaxed);
        self.writes.let_go();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((name, has_head)) = files.get(next.fetch_add(1, Relaxed))
                && !self.is_stopping()
            {
                self.find(*name, *has_head);
            }
        };
        thread::scope(|scope| {
            for number in 1..SCAN_THREADS {
                // One that cannot be had leaves more for the others.
                let _ = thread::Builder::new().name(format!("disk-scan-{number}")).spawn_scoped(scope, work);
            }
            work();
        });
        if !self.is_stopping()
            && let Some(cache) = self.cache.upgrade()
        {
            cache.found_disk();
        }
        self.set_scanned();
        let stats = self.stats();
        tracing::info!(responses = stats.responses, bytes = stats.bytes, "the disk's responses are found");
    }

    fn list(&self) -> Vec<(Name, bool)> {
        let mut files = Vec::new();
        for directory in 0..SPREAD {
            match self.directory().list(directory) {
                Ok(listed) => {
                    files.extend(listed.files);
                    listed.unknown.iter().for_each(|path| self.directory().remove_unknown(path));
                }
                Err(error) => {
                    self.keep_journal();
                    self.failed("a directory of stored responses cannot be read", &error);
                }
            }
        }
        files
    }

    /// Reads one header and puts the response into the index.
    fn find(self: &Arc<Self>, name: Name, has_head: bool) {
        let (base, header_bytes) = match self.directory().read(name) {
            Ok((_, record, header_bytes)) => (record, header_bytes),
            Err(Unreadable::Io(error)) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => {
                self.failed("a file of the disk is no stored response", &error);
                return self.remove(name);
            }
        };
        let newer = if has_head { self.directory().read_head(name, &base).ok() } else { None };
        let Record { head, position, .. } = newer.as_ref().map_or(&base, |(record, _)| record);
        let Some(cache) = self.cache.upgrade() else { return };
        // What is newer than the journal came after a purge that it does not tell of.
        if !is_of_use(head, now_ms()) || position.number > self.start.highest {
            return self.remove(name);
        }
        let key: Key = cache.key(&base.key);
        let copy = Copy::new(self, key, name, base.content_bytes, header_bytes);
        if let Some((_, bytes)) = &newer {
            copy.set_head_bytes(*bytes, drop);
        }
        copy.set_position(*position);
        self.count(&copy);
        if !cache.restore(head.clone(), *position, &copy) {
            return self.discard(&copy);
        }
        lock(&self.queue).push_old(&copy);
        // More than there may be now: the budget was lowered.
        while let Some(victim) = self.evict_if(|| !self.has_room(0) || cache.is_index_full()) {
            self.remove(victim.name());
        }
    }
}

/// Whether it may still be served, or asked about.
fn is_of_use(head: &Head, now_ms: u64) -> bool {
    let freshness = &head.freshness;
    let longest_ms =
        freshness.while_revalidate_ms.max(freshness.if_error_ms).saturating_add(freshness.lifetime_ms);
    has_validator(&head.fields) || longest_ms > freshness.age_ms(now_ms)
}

fn now_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}
