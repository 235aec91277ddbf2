//! Producer reference time boxes: reading and writing (ISO/IEC 14496-12 §8.16.5).

use std::time::Duration;

use crate::boxes::Mp4Box;
use crate::error::Result;
use crate::fourcc::FourCc;

/// Size of a prft written by [`Prft::to_bytes`].
pub const PRFT_BYTES: usize = 32;

/// Flags stating that the NTP time is the capture time and is consistent within the track. ffmpeg
/// writes these flags with `-write_prft wallclock`.
pub const PRFT_CAPTURE: u32 = 24;

/// Seconds from the NTP epoch (1900) to the Unix epoch (1970), RFC 5905 §6.
const NTP_TO_UNIX_S: u64 = 2_208_988_800;

/// The wall clock at which a media time was captured or encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prft {
    /// reference_track_ID.
    pub track_id: u32,
    /// NTP time: seconds since 1900 in the upper 32 bits, fractions of a second in the lower 32.
    pub ntp: u64,
    /// Media time at `ntp`, in the track's timescale.
    pub media_time: u64,
    /// Event that `ntp` refers to: 0 encoder input, 1 encoder output, 2 moof finished, 4 moof
    /// written, 8 arbitrary, 24 captured.
    pub flags: u32,
}

impl Prft {
    /// Reads a prft.
    ///
    /// # Errors
    ///
    /// Returns an error if the box is truncated.
    pub fn parse(prft: &Mp4Box<'_>) -> Result<Self> {
        let (version, flags, mut r) = prft.full()?;
        Ok(Self { track_id: r.u32()?, ntp: r.u64()?, media_time: r.u32_or_u64(version == 1)?, flags })
    }

    /// Returns the whole box, version 1.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; PRFT_BYTES] {
        let mut bytes = [0; PRFT_BYTES];
        bytes[..4].copy_from_slice(&(PRFT_BYTES as u32).to_be_bytes());
        bytes[4..8].copy_from_slice(&FourCc::PRFT.0);
        bytes[8..12].copy_from_slice(&(1 << 24 | self.flags & 0x00ff_ffff).to_be_bytes());
        bytes[12..16].copy_from_slice(&self.track_id.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.ntp.to_be_bytes());
        bytes[24..].copy_from_slice(&self.media_time.to_be_bytes());
        bytes
    }

    /// Returns `ntp` as time since the Unix epoch, to the nanosecond; `None` if earlier than the
    /// epoch.
    #[must_use]
    pub fn unix_time(&self) -> Option<Duration> {
        let seconds = (self.ntp >> 32).checked_sub(NTP_TO_UNIX_S)?;
        let nanos = ((self.ntp & 0xffff_ffff) * 1_000_000_000) >> 32;
        Some(Duration::new(seconds, nanos as u32))
    }
}

/// Converts time since the Unix epoch to an NTP time of era 0, which wraps in 2036, as in RFC 5905
/// §6.
#[must_use]
pub fn ntp_time(unix: Duration) -> u64 {
    let fraction = (u64::from(unix.subsec_nanos()) << 32) / 1_000_000_000;
    unix.as_secs().wrapping_add(NTP_TO_UNIX_S) << 32 | fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prft_is_written_as_by_ffmpeg() {
        // As written by ffmpeg 5.1 with `-write_prft wallclock`.
        let bytes = *b"\0\0\0\x20prft\x01\0\0\x18\0\0\0\x01\xee\xab\x57\x92\x12\x6e\x97\x8d\
            \0\0\0\0\0\0\x1a\0";
        let read = Prft::parse(&Mp4Box::parse(&bytes, 0).unwrap()).unwrap();
        let want = Prft { track_id: 1, ntp: 0xeeab_5792_126e_978d, media_time: 0x1a00, flags: PRFT_CAPTURE };
        assert_eq!(read, want);
        assert_eq!(read.to_bytes(), bytes);
    }

    #[test]
    fn version_0_has_a_short_media_time() {
        let bytes = *b"\0\0\0\x1cprft\0\0\0\0\0\0\0\x02\x83\xaa\x7e\x80\x80\0\0\0\0\0\0\x07";
        let prft = Prft::parse(&Mp4Box::parse(&bytes, 0).unwrap()).unwrap();
        assert_eq!((prft.track_id, prft.media_time, prft.flags), (2, 7, 0));
        assert_eq!(prft.unix_time(), Some(Duration::from_millis(500)));
    }

    #[test]
    fn unix_time_round_trips() {
        for unix in [Duration::ZERO, Duration::new(1_790_000_000, 999_999_999)] {
            let prft = Prft { track_id: 1, ntp: ntp_time(unix), media_time: 0, flags: 0 };
            // The fraction is rounded down in both directions.
            assert!(unix - prft.unix_time().unwrap() <= Duration::from_nanos(1));
        }
    }
}
