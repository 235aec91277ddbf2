//! How fast a connection may send, `SO_MAX_PACING_RATE` in bytes/s (socket(7); tcp(7); in bytes of packets, with their
//! heads and what is sent again).
//!
//! [`of_cmcd`] is what a policy asks for that paces media by what the player says of itself (CTA-5004). Sending a segment
//! no faster than the player can use it leaves the queue of the bottleneck short: fewer losses and a lower delay, for the
//! player itself and for who shares its line. Too slow is worse than too fast, so there is a pace only if the player asks
//! for one (`rtp`), or says that its buffer is full enough to miss a segment.

use super::cmcd::{Cmcd, ObjectType};

/// The unit of a pace in VCL: vmod_tcp(3) of varnish-modules multiplies by it, and Fastly's reference says KiB.
const KIB_BYTES: u64 = 1024;
/// The lowest pace that Fastly's `client.socket.pace` can be set to.
pub const FASTLY_KB_PER_S_MIN: i64 = 128;
/// No pace for media is below this, whatever the player says: below it the head of a segment would wait for its packets.
pub const BYTES_PER_S_MIN: u64 = 128 * KIB_BYTES;

/// What `rtp` and bitrates leave out: heads of packets (40 of 1,500 bytes and more with options) and retransmissions.
const OVERHEAD_PERCENT: u64 = 110;
/// How much faster than the highest bitrate media is sent where the player gives no `rtp`. A player measures what it is
/// sent, and must still see enough to choose the next bitrate: rungs of a ladder are up to 2 apart, and hls.js wants 1/0.7
/// of a rung's rate before it climbs (`abrBandWidthUpFactor`). Sammy (Spang et al., SIGCOMM 2023), where player and pace
/// were made for each other, goes from 3 with an empty buffer down to 1.5 with a full one.
const BITRATE_FACTOR: u64 = 3;
/// The buffer from which a player can miss a segment: two of 4 s, and a retransmission timeout.
const BUFFER_MS_MIN: u64 = 10_000;

/// `tcp.set_socket_pace(kb_per_s)` in bytes/s; `None`, no pace, from 0 down.
pub fn of_kb_per_s(kb_per_s: i64) -> Option<u64> {
    let kb_per_s = u64::try_from(kb_per_s).ok().filter(|rate| *rate > 0)?;
    Some(kb_per_s.saturating_mul(KIB_BYTES))
}

/// `set client.socket.pace = kb_per_s` in bytes/s: held to [`FASTLY_KB_PER_S_MIN`]; `None`, no pace, from 0 down.
pub fn of_fastly(kb_per_s: i64) -> Option<u64> {
    of_kb_per_s(if kb_per_s > 0 { kb_per_s.max(FASTLY_KB_PER_S_MIN) } else { kb_per_s })
}

/// A pace in bytes/s as `client.socket.pace` reads it.
pub fn to_kb_per_s(bytes_per_s: u64) -> i64 {
    i64::try_from(bytes_per_s / KIB_BYTES).unwrap_or(i64::MAX)
}

/// The pace in bytes/s for a request with `cmcd`; `None` for as fast as it goes.
///
/// - None if the player starves (`bs`), starts or seeks (`su`), or asks for anything but media: there is only delay to win.
/// - `rtp`, the rate that the player takes to be enough, and the overhead of packets.
/// - Else, with a buffer (`bl`, or without it the time to the deadline, `dl`) of 10 s and more: three times the bitrate,
///   the highest that the player can choose (`tb`) or at least the one of this object (`br`), by the speed of playback
///   (`pr`), and the overhead.
pub fn of_cmcd(cmcd: &Cmcd) -> Option<u64> {
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

/// Three times what playback uses, if the buffer allows a pace.
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
    fn kilobytes_are_those_of_1024() {
        for (kb_per_s, tcp, fastly) in [
            (1000, Some(1_024_000), Some(1_024_000)),
            (1, Some(1024), Some(131_072)),
            (0, None, None),
            (-1, None, None),
            (i64::MAX, Some(u64::MAX), Some(u64::MAX)),
        ] {
            assert_eq!(of_kb_per_s(kb_per_s), tcp, "{kb_per_s}");
            assert_eq!(of_fastly(kb_per_s), fastly, "{kb_per_s}");
        }
        assert_eq!(to_kb_per_s(1_024_000), 1000);
    }

    #[test]
    fn players_are_paced_by_what_they_say() {
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
            assert_eq!(of_cmcd(&cmcd), bytes_per_s, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_pace_is_never_below_the_least(
            br_kbps: Option<u64>, tb_kbps: Option<u64>, rtp_kbps: Option<u64>, bl_ms: Option<u64>, pr: Option<f64>
        ) {
            let cmcd = Cmcd { br_kbps, tb_kbps, rtp_kbps, bl_ms, pr, ..Cmcd::default() };
            prop_assert!(of_cmcd(&cmcd).is_none_or(|pace| pace >= BYTES_PER_S_MIN));
        }
    }
}
