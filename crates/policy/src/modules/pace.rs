//! Pacing rates: limits on a connection's send rate (`SO_MAX_PACING_RATE`).
//!
//! Rates are in bytes/s (socket(7), tcp(7)) and include packet headers and retransmissions.
//!
//! [`from_cmcd`] derives a rate for media from the player's CMCD (CTA-5004). Sending a segment no
//! faster than the player can use it keeps the queue at the bottleneck short. A short queue reduces
//! loss and delay, both for the player and for others on the same link. Sending too slowly is worse
//! than sending too fast. Media is therefore paced only if the player requests a rate (`rtp`), or
//! if its buffer is long enough to survive a late segment.

use super::cmcd::{Cmcd, ObjectType};

/// Bytes per unit of a pace in VCL. vmod_tcp(3) of varnish-modules uses 1,024 bytes, and Fastly's
/// reference specifies KiB.
const KIB_BYTES: u64 = 1024;
/// Minimum of Fastly's `client.socket.pace`, in KiB/s.
pub const FASTLY_KB_PER_S_MIN: i64 = 128;
/// Minimum pace for media, regardless of the player's report. At a lower pace, the gaps between
/// packets would delay the start of a segment.
pub const BYTES_PER_S_MIN: u64 = 128 * KIB_BYTES;

/// Allowance for packet headers (40 of 1,500 bytes, more with options) and retransmissions, which
/// `rtp` and bitrates do not include.
const OVERHEAD_PERCENT: u64 = 110;
/// Ratio of the pace to the bitrate if the player sends no `rtp`.
///
/// A player estimates throughput from the rate at which data arrives, and switches to a higher
/// bitrate only if the estimate is high enough. Adjacent bitrates differ by a factor of up to 2,
/// and hls.js requires 1/0.7 times the next bitrate before it switches (`abrBandWidthUpFactor`). In
/// Sammy (Spang et al., SIGCOMM 2023), which designs player and pacing together, the factor falls
/// from 3 with an empty buffer to 1.5 with a full one.
const BITRATE_FACTOR: u64 = 3;
/// Buffer length at which a player can survive a late segment: two segments of 4 s, plus a
/// retransmission timeout.
const BUFFER_MS_MIN: u64 = 10_000;

/// Converts the argument of `tcp.set_socket_pace` to bytes/s; `None` (unpaced) for 0 or less.
pub fn from_kb_per_s(kb_per_s: i64) -> Option<u64> {
    let kb_per_s = u64::try_from(kb_per_s).ok().filter(|rate| *rate > 0)?;
    Some(kb_per_s.saturating_mul(KIB_BYTES))
}

/// Converts a value assigned to `client.socket.pace` to bytes/s, with a minimum of
/// [`FASTLY_KB_PER_S_MIN`]; `None` (unpaced) for 0 or less.
pub fn from_fastly(kb_per_s: i64) -> Option<u64> {
    from_kb_per_s(if kb_per_s > 0 { kb_per_s.max(FASTLY_KB_PER_S_MIN) } else { kb_per_s })
}

/// Converts a pace in bytes/s to the value read from `client.socket.pace`.
pub fn to_kb_per_s(bytes_per_s: u64) -> i64 {
    i64::try_from(bytes_per_s / KIB_BYTES).unwrap_or(i64::MAX)
}

/// Returns the pace in bytes/s for a request with `cmcd`; `None` if the response is not to be
/// paced.
///
/// - Unpaced if the buffer ran dry (`bs`), at startup or after a seek (`su`), and for anything
///   other than media, because pacing would only add delay.
/// - If the player requests a maximum rate (`rtp`): that rate plus packet overhead.
/// - Otherwise, if the buffer (`bl`, or without it the deadline, `dl`) is at least 10 s: three
///   times the bitrate, times the playback rate (`pr`), plus packet overhead. The bitrate is the
///   larger of the highest available bitrate (`tb`) and this object's bitrate (`br`).
pub fn from_cmcd(cmcd: &Cmcd) -> Option<u64> {
    let is_media = match cmcd.ot {
        None | Some(ObjectType::Audio | ObjectType::Video | ObjectType::Muxed) => true,
        Some(_) => false,
    };
    if cmcd.bs || cmcd.su || !is_media {
        return None;
    }
    let kbit_per_s = match cmcd.rtp_kbps {
        Some(0) | None => buffered_kbit_per_s(cmcd)?,
        Some(rtp_kbps) => rtp_kbps,
    };
    let bytes_per_s = kbit_per_s.saturating_mul(1000 / 8).saturating_mul(OVERHEAD_PERCENT) / 100;
    Some(bytes_per_s.max(BYTES_PER_S_MIN))
}

/// Returns [`BITRATE_FACTOR`] times the rate at which playback consumes content; `None` if the
/// buffer is too short or the bitrate is unknown.
fn buffered_kbit_per_s(cmcd: &Cmcd) -> Option<u64> {
    cmcd.bl_ms.or(cmcd.dl_ms).filter(|buffer_ms| *buffer_ms >= BUFFER_MS_MIN)?;
    let bitrate_kbps = cmcd.br_kbps.max(cmcd.tb_kbps).filter(|rate| *rate > 0)?;
    // The cast saturates.
    let played_kbps = (bitrate_kbps as f64 * cmcd.pr.unwrap_or(1.0).max(1.0)) as u64;
    Some(played_kbps.saturating_mul(BITRATE_FACTOR))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn kilobytes_have_1024_bytes() {
        for (kb_per_s, tcp, fastly) in [
            (1000, Some(1_024_000), Some(1_024_000)),
            (1, Some(1024), Some(131_072)),
            (0, None, None),
            (-1, None, None),
            (i64::MAX, Some(u64::MAX), Some(u64::MAX)),
        ] {
            assert_eq!(from_kb_per_s(kb_per_s), tcp, "{kb_per_s}");
            assert_eq!(from_fastly(kb_per_s), fastly, "{kb_per_s}");
        }
        assert_eq!(to_kb_per_s(1_024_000), 1000);
    }

    #[test]
    fn pace_follows_the_players_report() {
        for (text, bytes_per_s) in [
            ("", None),
            ("rtp=8000", Some(1_100_000)),
            ("rtp=8000,ot=v", Some(1_100_000)),
            ("rtp=8000,bs", None),
            ("rtp=8000,su", None),
            ("rtp=8000,ot=m", None),
            ("rtp=100", Some(BYTES_PER_S_MIN)),
            ("br=4000,bl=20000", Some(1_650_000)),
            ("br=4000,dl=20000", Some(1_650_000)),
            ("br=4000,bl=9900,dl=20000", None),
            ("br=4000", None),
            ("bl=20000", None),
            ("br=4000,tb=8000,bl=20000", Some(3_300_000)),
            ("br=4000,pr=2,bl=20000", Some(3_300_000)),
            ("br=4000,pr=0,bl=20000", Some(1_650_000)),
            ("br=4000,bl=20000,rtp=0", Some(1_650_000)),
        ] {
            let mut cmcd = Cmcd::default();
            cmcd.read(text.as_bytes());
            assert_eq!(from_cmcd(&cmcd), bytes_per_s, "{text}");
        }
    }

    proptest! {
        #[test]
        fn pace_is_never_below_the_minimum(
            br_kbps: Option<u64>, tb_kbps: Option<u64>, rtp_kbps: Option<u64>, bl_ms: Option<u64>, pr: Option<f64>
        ) {
            let cmcd = Cmcd { br_kbps, tb_kbps, rtp_kbps, bl_ms, pr, ..Cmcd::default() };
            prop_assert!(from_cmcd(&cmcd).is_none_or(|pace| pace >= BYTES_PER_S_MIN));
        }
    }
}
