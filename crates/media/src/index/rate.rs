//! The frame rate of a track, where its samples all last as long.

use crate::track::{Media, TrackInfo};

/// Compares the sample durations of the fragments seen. The last fragment of a file may differ:
/// muxers guess how long its last sample lasts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rate {
    first: Option<u32>,
    differs: bool,
    varies: bool,
}

impl Rate {
    /// Adds a fragment: the duration of every sample where all have the same.
    pub(crate) fn add(&mut self, sample_duration: Option<u32>) {
        self.varies |= self.differs;
        match (self.first, sample_duration) {
            (None, Some(duration)) if !self.differs => self.first = Some(duration),
            (Some(first), Some(duration)) if first == duration => {}
            _ => self.differs = true,
        }
    }

    /// Frames per second as a reduced fraction, for video.
    pub(crate) fn frame_rate(self, info: &TrackInfo) -> Option<(u32, u32)> {
        let duration = self.first.filter(|duration| *duration > 0 && !self.varies)?;
        matches!(info.media, Media::Video { .. }).then(|| {
            let divisor = gcd(info.timescale, duration);
            (info.timescale / divisor, duration / divisor)
        })
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
