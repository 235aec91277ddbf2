//! Incoming chunk: the bytes, times and flags that a channel uses.

use bytes::Bytes;
use std::hash::{DefaultHasher, Hasher};
use thalweg_media::chunk::Chunk;
use thalweg_media::prft::Prft;
use thalweg_media::retime;

/// A received chunk, with its times in the track's timescale.
#[derive(Debug, Clone)]
pub(crate) struct IncomingChunk {
    /// The complete chunk.
    pub(crate) bytes: Bytes,
    /// Decode time in the track's timescale.
    pub(crate) time: u64,
    /// Duration in the track's timescale.
    pub(crate) duration: u64,
    /// Whether the chunk begins with a sync sample.
    pub(crate) sync: bool,
    /// Duration of each sample, if all samples have the same duration.
    pub(crate) sample_duration: Option<u32>,
    /// Producer reference time.
    pub(crate) prft: Option<Prft>,
    /// Whether the source marked the chunk as the track's last.
    pub(crate) last: bool,
}

impl IncomingChunk {
    pub(super) fn end(&self) -> u64 {
        self.time + self.duration
    }

    pub(super) fn half(&self) -> u64 {
        self.duration / 2
    }

    /// Returns the chunk with its times shifted by `by` units; `None` if the shifted times would
    /// leave the valid range.
    pub(super) fn shifted(&self, by: i64, timescale: u32) -> Option<IncomingChunk> {
        let time = self.time.checked_add_signed(by)?;
        let bytes = retime::shifted(&self.bytes, by, timescale).ok()??;
        let moved = |p: Prft| Prft { media_time: p.media_time.wrapping_add_signed(by), ..p };
        Some(IncomingChunk { bytes, time, prft: self.prft.map(moved), ..self.clone() })
    }

    /// Returns the chunk's bytes with times shifted by `by` units; `None` if the shifted times
    /// would leave the valid range.
    pub(super) fn served(&self, by: i64, timescale: u32) -> Option<Bytes> {
        if by == 0 { Some(self.bytes.clone()) } else { retime::shifted(&self.bytes, by, timescale).ok()? }
    }

    /// Returns a fingerprint that distinguishes a repetition of the chunk from a different chunk
    /// with the same time.
    pub(super) fn fingerprint(&self) -> (u64, u64) {
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.bytes);
        (self.time, hasher.finish())
    }
}

impl From<Chunk> for IncomingChunk {
    fn from(chunk: Chunk) -> IncomingChunk {
        IncomingChunk {
            time: chunk.fragment.decode_time,
            duration: chunk.fragment.duration,
            sync: chunk.fragment.starts_with_sync,
            sample_duration: chunk.fragment.sample_duration,
            prft: chunk.prft,
            last: chunk.is_last(),
            bytes: chunk.bytes,
        }
    }
}
