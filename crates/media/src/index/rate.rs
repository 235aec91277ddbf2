//! Frame rate of a track whose samples all have the same duration.

use crate::track::{Media, TrackInfo};

/// Compares the sample durations of fragments. The last fragment of a file may differ, because
/// muxers guess the duration of its last sample.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rate {
    first: Option<u32>,
    differs: bool,
    varies: bool,
}

impl Rate {
    /// Adds a fragment. `sample_duration` is the duration of its samples, if all are equal.
    pub(crate) fn add(&mut self, sample_duration: Option<u32>) {
        self.varies |= self.differs;
        match (self.first, sample_duration) {
            (None, Some(duration)) if !self.differs => self.first = Some(duration),
            (Some(first), Some(duration)) if first == duration => {}
            _ => self.differs = true,
        }
    }

    /// Returns a video track's frames per second as a reduced fraction; `None` if the duration
    /// varies.
    pub(crate) fn frame_rate(self, info: &TrackInfo) -> Option<(u32, u32)> {
        let duration = self.first.filter(|duration| *duration > 0 && !self.varies)?;
        matches!(info.media, Media::Video { .. }).then(|| reduced(info.timescale, duration))
    }
}

/// Returns the frames per second of samples with this `duration`, which is not 0, as a reduced
/// fraction.
pub(crate) fn reduced(timescale: u32, duration: u32) -> (u32, u32) {
    let divisor = gcd(timescale, duration);
    (timescale / divisor, duration / divisor)
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
