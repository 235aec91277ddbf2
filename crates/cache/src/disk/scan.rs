//! Startup scan: finds the responses on disk, newest first, reading only their headers.
//!
//! File names are listed before any file is written, so that new files are not mistaken for old
//! ones and file numbers continue after the highest. Incomplete files and files of another version
//! are removed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use thalweg_http::validators::has_validator;

use super::content::{CopyHost as _, DiskCopy};
use super::files::{Name, SPREAD, Unreadable};
use super::record::Record;
use super::tier::Tier;
use crate::entry::{Head, Key};
use crate::sync::lock;

/// Number of threads that read headers.
const SCAN_THREADS: usize = 4;

impl Tier {
    pub(super) fn scan(self: &Arc<Self>) {
        let mut files = self.list();
        files.sort_unstable_by(|a, b| b.cmp(a));
        let highest = files.first().map_or(0, |(name, _)| name.number);
        self.number.store(highest + 1, Relaxed);
        self.writes.release();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((name, has_head)) = files.get(next.fetch_add(1, Relaxed))
                && !self.is_stopping()
            {
                self.restore_file(*name, *has_head);
            }
        };
        thread::scope(|scope| {
            for number in 1..SCAN_THREADS {
                // If a thread cannot be started, the other threads do its work.
                let _ = thread::Builder::new().name(format!("disk-scan-{number}")).spawn_scoped(scope, work);
            }
            work();
        });
        if !self.is_stopping()
            && let Some(index) = self.index.upgrade()
        {
            index.finish_scan();
        }
        self.set_scanned();
        let stats = self.stats();
        tracing::info!(responses = stats.responses, bytes = stats.bytes, "disk scan complete");
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
                    self.failed("cannot read directory of stored responses", &error);
                }
            }
        }
        files
    }

    /// Reads one header and inserts the response into the index.
    fn restore_file(self: &Arc<Self>, name: Name, has_head: bool) {
        let (base, header_bytes) = match self.directory().read(name) {
            Ok((_, record, header_bytes)) => (record, header_bytes),
            Err(Unreadable::Io(error)) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => {
                self.failed("invalid file in the disk tier", &error);
                return self.remove(name);
            }
        };
        let newer = if has_head { self.directory().read_head(name, &base).ok() } else { None };
        let Record { head, position, .. } = newer.as_ref().map_or(&base, |(record, _)| record);
        let Some(index) = self.index.upgrade() else { return };
        // A purge number above the journal's highest shows that the journal lacks a purge.
        if !is_of_use(head, now_ms()) || position.number > self.start.highest {
            return self.remove(name);
        }
        let key: Key = index.key(&base.key);
        let copy = DiskCopy::new(self.clone(), key, name, base.content_bytes, header_bytes);
        if let Some((_, bytes)) = &newer {
            copy.set_head_bytes(*bytes, drop);
        }
        copy.set_position(*position);
        self.count(&copy);
        if !index.restore(head.clone(), *position, &copy) {
            return self.discard(&copy);
        }
        lock(&self.queue).push_old(&copy);
        // Evict the excess, in case the budget was lowered.
        while let Some(victim) = self.evict_if(|| !self.has_room(0) || index.is_full()) {
            self.remove(victim.name());
        }
    }
}

/// Returns whether a response may still be served or validated.
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
