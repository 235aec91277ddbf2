//! Limits on progressive files and on the segments built from them.

use crate::fragment::{FRAGMENT_SAMPLES_MAX, MOOF_BYTES_MAX};

/// Maximum length of a progressive file's moov, in bytes. Ten hours of video at 60 frames per
/// second with two audio tracks take about 45 MiB.
pub const MOVIE_MOOV_BYTES_MAX: u64 = 64 << 20;
/// Maximum samples of one track: 19 hours at 60 frames per second.
pub const SAMPLES_MAX: u32 = 1 << 22;
/// Maximum samples of all tracks of a file. They take 64 MiB of memory at 4 bytes each.
pub const MOVIE_SAMPLES_MAX: u64 = 1 << 24;
/// Maximum segments of one track: 36 hours with segments of 2 s.
pub(super) const MOVIE_SEGMENTS_MAX: u64 = 1 << 16;
/// Maximum samples of one segment: 18 minutes at 60 frames per second.
pub const SEGMENT_SAMPLES_MAX: u32 = 1 << 16;
/// Maximum size of one segment, in bytes.
pub const SEGMENT_BYTES_MAX: u64 = 2 << 30;
/// Maximum tracks in a file.
pub const MOVIE_TRACKS_MAX: usize = 64;

// A written moof has at most 16 bytes per sample and 1 KiB besides.
const _: () = assert!(SEGMENT_SAMPLES_MAX as u64 * 16 + 1024 <= MOOF_BYTES_MAX);
const _: () = assert!(SEGMENT_SAMPLES_MAX as u64 <= FRAGMENT_SAMPLES_MAX);
const _: () = assert!(SEGMENT_BYTES_MAX < u32::MAX as u64, "an mdat has a 32-bit size");
