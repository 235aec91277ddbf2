//! Disk writes: complete responses, newer heads, and removals.
//!
//! A file is written under a temporary name, content first, then the header with the checksums, and
//! is renamed once complete. A process killed at any point thus leaves either a complete file or a
//! file that the next start removes.

use std::hash::Hasher;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fd::AsFd;
use twox_hash::xxhash3_64;

use super::content::{DiskCopy, size_bytes};
use super::files::{Name, write_at};
use super::index::Index;
use super::record::{BLOCK_BYTES, Record, blocks, name_hash};
use super::tier::{Tier, Write};
use crate::entry::Head;
use crate::fill::Backing;
use crate::purge::Position;
use crate::stored::Stored;

/// Maximum number of evictions per write.
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
                    self.left_queue(&stored, length);
                }
                Write::Head(copy) => {
                    copy.write_head(|head, position| self.write_head(&copy, head, position));
                }
                Write::Remove(name) => self.remove(name),
                Write::ShortenJournal { number, heads_left } => {
                    self.writes.wait_for_earlier();
                    if self.retry_cleanup(heads_left) {
                        self.journal.shorten(number);
                    }
                }
            }
            if self.is_past_deadline() {
                self.forget_writes();
            }
        }
    }

    /// Writes a response. Returns false if the disk has no copy of it afterwards.
    fn write_response(self: &Arc<Self>, stored: &Arc<Stored>, length: u64) -> bool {
        let Some(index) = self.index.upgrade().filter(|index| index.holds(stored)) else { return false };
        if self.is_paused() {
            self.skip();
            return false;
        }
        let number = self.next_number();
        let sums = vec![0; usize::try_from(blocks(length)).expect("the content fits in memory")];
        let key = stored.key().text().clone();
        let (head, position) = (stored.head.clone(), stored.position());
        let mut record = Record { number, key, head, position, content_bytes: length, sums };
        // The checksums are still unknown, but the header's length does not depend on their values.
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
            Ok(()) => self.write_succeeded(),
            Err(error) => {
                self.directory().discard(number);
                if !self.is_past_deadline() {
                    self.write_failed(&error);
                }
                return false;
            }
        }
        let copy = DiskCopy::new(self.clone(), stored.key().clone(), name, length, header_bytes);
        copy.set_position(position);
        self.attach_copy(&*index, stored, &copy, position)
    }

    /// Attaches a written file to its response. Returns false if the response has left the index in
    /// the meantime.
    fn attach_copy(
        &self,
        index: &dyn Index,
        stored: &Arc<Stored>,
        copy: &Arc<DiskCopy>,
        written: Position,
    ) -> bool {
        self.count(copy);
        copy.bind(&stored.content);
        let Some(current) = index.attach(stored, copy) else {
            self.drop_copy(copy);
            return false;
        };
        crate::sync::lock(&self.queue).push_new(copy);
        let position = current.position();
        if !Arc::ptr_eq(&current.head, &stored.head) || position != written {
            // Write the head at once, because a sweep that ran before the copy was attached could
            // not queue it.
            copy.note_head(&current.head, position);
            copy.write_head(|head, position| self.write_head(copy, head, position));
        }
        true
    }

    fn drop_copy(&self, copy: &DiskCopy) {
        if let Some(bytes) = copy.leave() {
            self.uncount(bytes);
        }
        self.remove(copy.name());
    }

    fn next_number(&self) -> u64 {
        self.number.fetch_add(1, Relaxed)
    }

    /// Evicts copies until `bytes` more bytes fit the budget. Returns whether they fit.
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
        let broken = || io::Error::other("content lost while being written");
        while reader.offset() < record.content_bytes {
            if self.is_past_deadline() {
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

    /// Writes a copy's newer head to a separate file. If that fails, the older head, which is also
    /// valid, is used after a restart. The journal keeps any soft purge that the older head lacks.
    ///
    /// If the copy is gone, removes its file at once, because the journal may be shortened before
    /// the queued removal runs.
    pub(super) fn write_head(&self, copy: &Arc<DiskCopy>, head: Arc<Head>, position: Position) {
        if copy.is_gone() {
            return self.remove(copy.name());
        }
        // Only a head that records a soft purge needs a retry.
        let must_retry = position.stale_ms.is_some();
        if self.is_paused() {
            if must_retry {
                self.retry_head(copy);
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
                    if must_retry {
                        self.retry_head(copy);
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
            self.failed("cannot remove a file from disk", &error);
            self.retry_removal(name);
        }
    }
}

/// Computes one checksum per block, from content in pieces of any length.
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
