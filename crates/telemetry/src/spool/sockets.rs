//! File of saved socket totals. It contains the totals, the record number and boot ID at which they
//! were saved, and a checksum.
//!
//! ```text
//! DIR/sockets   number: 8 bytes | boot: 36 bytes | totals | XXH3 of all preceding bytes: 8 bytes
//! ```
//!
//! **Invariant:** restored totals agree with all records in the spool; otherwise nothing is
//! restored. A power loss may destroy records but leave this file, but the boot ID then no longer
//! matches.

use std::fs;
use std::io;
use std::path::Path;

use twox_hash::XxHash3_64;

use super::segment::{self, Segment};
use crate::collect::saved::Saved;
use crate::disk;

const NUMBER_BYTES: usize = 8;
const BOOT_BYTES: usize = 36;
const CHECKSUM_BYTES: usize = 8;

/// Replaces the file of saved totals.
pub(super) fn write(dir: &Path, next: u64, boot: &str, sockets: &[u8]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(NUMBER_BYTES + BOOT_BYTES + sockets.len() + CHECKSUM_BYTES);
    bytes.extend_from_slice(&next.to_le_bytes());
    bytes.extend_from_slice(boot.as_bytes());
    bytes.extend_from_slice(sockets);
    bytes.extend_from_slice(&XxHash3_64::oneshot(&bytes).to_le_bytes());
    disk::replace_unsynced(&dir.join("sockets"), &bytes)
}

/// Reads the record number and the totals, if the file is intact and was saved in the boot with the
/// given ID.
pub(super) fn read(dir: &Path, boot: &str) -> Option<(u64, Saved)> {
    let bytes = fs::read(dir.join("sockets")).ok()?;
    let (content, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
    let (next, content_left) = content.split_first_chunk::<NUMBER_BYTES>()?;
    let (of, sockets) = content_left.split_at_checked(BOOT_BYTES)?;
    let is_whole = XxHash3_64::oneshot(content) == u64::from_le_bytes(*checksum);
    (is_whole && of == boot.as_bytes()).then_some((u64::from_le_bytes(*next), Saved::decode(sockets)?))
}

/// Adds the records in `next..end` to the totals. Returns `None` if any of these records is
/// missing.
pub(super) fn catch_up(
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
