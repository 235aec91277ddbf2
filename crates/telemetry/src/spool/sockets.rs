//! What is saved of sockets, beside the records in which it is: as of which number, in which boot, and whole.
//!
//! ```text
//! DIR/sockets   number: 8 bytes | boot: 36 bytes | what was saved | XXH3 of all before: 8 bytes
//! ```
//!
//! **Invariant:** what is given back agrees with all records of the spool, or nothing is. A loss of power may take records and
//! leave the file: it is of another boot then.

use std::fs;
use std::io;
use std::path::Path;

use twox_hash::XxHash3_64;

use super::segment::{self, Segment};
use crate::collect::Saved;
use crate::disk;

const NUMBER_BYTES: usize = 8;
const BOOT_BYTES: usize = 36;
const CHECKSUM_BYTES: usize = 8;

/// Replaces the file.
pub(super) fn write(dir: &Path, next: u64, boot: &str, sockets: &[u8]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(NUMBER_BYTES + BOOT_BYTES + sockets.len() + CHECKSUM_BYTES);
    bytes.extend_from_slice(&next.to_le_bytes());
    bytes.extend_from_slice(boot.as_bytes());
    bytes.extend_from_slice(sockets);
    bytes.extend_from_slice(&XxHash3_64::oneshot(&bytes).to_le_bytes());
    let passing = dir.join("sockets.new");
    disk::write(&passing, &bytes)?;
    fs::rename(passing, dir.join("sockets"))
}

/// The number as of which something is saved in this boot, and that.
pub(super) fn read(dir: &Path, boot: &str) -> Option<(u64, Saved)> {
    let bytes = fs::read(dir.join("sockets")).ok()?;
    let (content, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
    let (next, content_left) = content.split_first_chunk::<NUMBER_BYTES>()?;
    let (of, sockets) = content_left.split_at_checked(BOOT_BYTES)?;
    let is_whole = XxHash3_64::oneshot(content) == u64::from_le_bytes(*checksum);
    (is_whole && of == boot.as_bytes()).then_some((u64::from_le_bytes(*next), Saved::decode(sockets)?))
}

/// Adds what the segments have from number `next` to `end`; nothing if something of that is gone.
pub(super) fn go_on(
    dir: &Path,
    segments: &[Segment],
    (next, end): (u64, u64),
    mut saved: Saved,
) -> Option<Saved> {
    let mut at = next;
    for segment in segments.iter().filter(|segment| segment.end > next) {
        segment::read_all(dir, segment, |batch| {
            batch.entries.retain(|entry| entry.number >= at);
            at += batch.entries.len() as u64;
            saved.add(batch);
        })
        .ok()?;
    }
    (at == end).then_some(saved)
}
