//! Onto the disk: complete responses, newer heads, and what is to be removed.
//!
//! A file is written under a passing name, content first, then the header with the checksums, and gets its own name
//! when it is whole. So a process that is killed at any point leaves a whole file or one that the next start clears
//! away.

use std::hash::Hasher;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fd::AsFd;
use twox_hash::xxhash3_64;

use super::content::size_bytes;
use super::files::{Name, write_at};
use super::record::{BLOCK_BYTES, Record, blocks, name_hash};
use super::tier::Write;
use super::{Copy, Tier};
use crate::fill::Backing;
use crate::purge::Position;
use crate::store::{Cache, Head, Stored};

/// Evictions that one write may cause.
const EVICTIONS_MAX: usize = 4096;

impl Tier {
    pub(super) fn run_writes(self: &Arc<Self>) {
        while let Some(job) = self.writes.next() {
            match job {
                Write::Response(stored) => {
                    let Some(length) = stored.own_bytes() else { continue };
                    if !self.write_response(&stored, length) {
                        stored.content.set_backing(Backing::None);
                    }
                    self.waited(&stored, length);
                }
                Write::Head(copy) => {
                    copy.write_head(|head, position| self.write_head(&copy, head, position));
                }
                Write::Remove(name) => self.remove(name),
                Write::ShortenJournal { number, heads_left } => {
                    self.writes.wait_for_earlier();
                    if self.settle_owed(heads_left) {
                        self.journal.shorten(number);
                    }
                }
            }
            if self.is_over() {
                self.forget_writes();
            }
        }
    }

    /// False if the disk has nothing of it.
    fn write_response(self: &Arc<Self>, stored: &Arc<Stored>, length: u64) -> bool {
        let Some(cache) = self.cache.upgrade().filter(|cache| cache.holds(stored)) else { return false };
        if self.is_paused() {
            self.skip();
            return false;
        }
        let number = self.next_number();
        let sums = vec![0; usize::try_from(blocks(length)).expect("content of that length is in memory")];
        let key = stored.key().text().clone();
        let (head, position) = (stored.head.clone(), stored.position());
        let mut record = Record { number, key, head, position, content_bytes: length, sums };
        // Only the numbers in it are not known yet.
        let Ok(header_bytes) = record.encode().map(|header| header.len()) else {
            self.skip();
            return false;
        };
        if !self.make_room(size_bytes(length, header_bytes)) {
            self.skip();
            return false;
        }
        let name = Name { number, hash: name_hash(&record.key, &record.head.selection) };
        match self.write_file(&mut record, header_bytes, stored, name) {
            Ok(()) => self.wrote(),
            Err(error) => {
                self.directory().discard(number);
                if !self.is_over() {
                    self.write_failed(&error);
                }
                return false;
            }
        }
        let copy = Copy::new(self, stored.key().clone(), name, length, header_bytes);
        copy.set_position(position);
        self.take_in(&cache, stored, &copy, position)
    }

    /// Makes a file that was written the copy of its response, unless that has left the index meanwhile.
    fn take_in(&self, cache: &Cache, stored: &Arc<Stored>, copy: &Arc<Copy>, written: Position) -> bool {
        self.count(copy);
        copy.bind(&stored.content);
        let Some(current) = cache.attach(stored, copy) else {
            self.drop_copy(copy);
            return false;
        };
        crate::sync::lock(&self.queue).push_new(copy);
        let position = current.position();
        if !Arc::ptr_eq(&current.head, &stored.head) || position != written {
            // At once: a walk that came meanwhile could not ask for it.
            copy.note_head(&current.head, position);
            copy.write_head(|head, position| self.write_head(copy, head, position));
        }
        true
    }

    fn drop_copy(&self, copy: &Copy) {
        if let Some(bytes) = copy.leave() {
            self.uncount(bytes);
        }
        self.remove(copy.name());
    }

    fn next_number(&self) -> u64 {
        self.number.fetch_add(1, Relaxed)
    }

    /// Evicts until `bytes` are within the budget.
    fn make_room(&self, bytes: u64) -> bool {
        for _ in 0..EVICTIONS_MAX {
            let Some(victim) = self.evict_if(|| !self.has_room(bytes)) else { break };
            self.remove(victim.name());
        }
        self.has_room(bytes)
    }

    fn write_file(
        &self,
        record: &mut Record,
        header_bytes: usize,
        stored: &Stored,
        name: Name,
    ) -> io::Result<()> {
        let file = self.directory().create(record.number)?;
        let mut sums = Sums::default();
        let mut reader = stored.content.reader(0);
        let broken = || io::Error::other("the content went away");
        while reader.offset() < record.content_bytes {
            if self.is_over() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let at = header_bytes as u64 + reader.offset();
            let Some(Ok(Some(piece))) = reader.try_next(BLOCK_BYTES) else { return Err(broken()) };
            let bytes = piece.as_slice().ok_or_else(broken)?;
            sums.add(bytes);
            write_at(file.as_fd(), at, bytes)?;
        }
        record.sums = sums.finish();
        let header = record.encode().map_err(io::Error::other)?;
        write_at(file.as_fd(), 0, &header)?;
        self.directory().publish(record.number, name)
    }

    /// Writes a newer head beside a copy. Where that fails the older one counts after a start: it was true as well. A soft
    /// purge that it does not tell of the journal goes on telling. A copy that is gone is removed at once: the journal may
    /// be shortened before its removal, which was asked for, has its turn.
    pub(super) fn write_head(&self, copy: &Arc<Copy>, head: Arc<Head>, position: Position) {
        if copy.is_gone() {
            return self.remove(copy.name());
        }
        // Another need not be tried again.
        let is_owed = position.stale_ms.is_some();
        if self.is_paused() {
            if is_owed {
                self.owe_head(copy);
            }
            return;
        }
        let number = self.next_number();
        let written =
            self.directory().read(copy.name()).map_err(io::Error::other).and_then(|(_, base, _)| {
                let header = Record { head, position, ..base }.encode().map_err(io::Error::other)?;
                let file = self.directory().create(number)?;
                write_at(file.as_fd(), 0, &header)?;
                self.directory().publish_head(number, copy.name())?;
                Ok(header.len())
            });
        match written {
            Ok(header_bytes) => copy.set_head_bytes(header_bytes, |more| self.count_more(more)),
            Err(error) => {
                self.directory().discard(number);
                if !copy.is_gone() {
                    if is_owed {
                        self.owe_head(copy);
                    }
                    self.write_failed(&error);
                }
            }
        }
        if copy.is_gone() {
            self.remove(copy.name());
        }
    }

    pub(super) fn remove(&self, name: Name) {
        if let Err(error) = self.directory().remove(name) {
            self.failed("a file cannot be removed from the disk", &error);
            self.owe_removal(name);
        }
    }
}

/// Checksums of blocks, of content that comes in pieces of any length.
#[derive(Default)]
struct Sums {
    done: Vec<u64>,
    block: xxhash3_64::Hasher,
    len: usize,
}

impl Sums {
    fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.len));
            self.block.write(now);
            self.len += now.len();
            if self.len == BLOCK_BYTES {
                self.done.push(self.block.finish());
                (self.block, self.len) = (xxhash3_64::Hasher::new(), 0);
            }
            bytes = later;
        }
    }

    fn finish(mut self) -> Vec<u64> {
        if self.len > 0 {
            self.done.push(self.block.finish());
        }
        self.done
    }
}
