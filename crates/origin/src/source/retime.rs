//! Chunk retiming for live: rewrites tfdt, mfhd and prft, and leaves the media data untouched.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use thalweg_media::boxes::Boxes;
use thalweg_media::error::Result;
use thalweg_media::fourcc::FourCc;
use thalweg_media::prft::{PRFT_BYTES, PRFT_CAPTURE, Prft, ntp_time};
use thalweg_media::retime::moof_at;

/// The times to write into a chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct LiveTime {
    pub(super) sequence_number: u32,
    /// Decode time of the first sample, in the track's timescale.
    pub(super) decode_time: u64,
    /// Wall-clock time at which the first sample was captured.
    pub(super) captured: SystemTime,
}

/// Writes new times into a chunk. Returns two parts to send in order: the boxes before the media
/// data, and the media data shared with `chunk`. Events (emsg) are dropped, because their times
/// apply only to the first pass.
///
/// # Errors
///
/// Returns an error if a box of the chunk is not valid CMAF.
pub(super) fn retime(chunk: &Bytes, track_id: u32, time: LiveTime) -> Result<[Bytes; 2]> {
    let mut head = Vec::new();
    let mut data = Bytes::new();
    for found in Boxes::new(chunk, 0) {
        let found = found?;
        match found.kind {
            FourCc::PRFT | FourCc::EMSG => {}
            FourCc::MOOF => {
                head.extend_from_slice(&prft(track_id, time));
                head.extend_from_slice(&moof_at(&found, time.decode_time, Some(time.sequence_number))?);
            }
            FourCc::MDAT => data = chunk.slice_ref(found.bytes),
            _ => head.extend_from_slice(found.bytes),
        }
    }
    Ok([head.into(), data])
}

fn prft(track_id: u32, time: LiveTime) -> [u8; PRFT_BYTES] {
    let captured = time.captured.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (ntp, media_time) = (ntp_time(captured), time.decode_time);
    Prft { track_id, ntp, media_time, flags: PRFT_CAPTURE }.to_bytes()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use thalweg_media::chunk::{Chunk, ChunkScanner, Event};
    use thalweg_media::track::TrackInfo;

    use super::*;

    fn full_box(kind: &[u8; 4], version_flags: u32, body: &[u8]) -> Vec<u8> {
        plain_box(kind, &[&version_flags.to_be_bytes()[..], body].concat())
    }

    fn plain_box(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
        [&(body.len() as u32 + 8).to_be_bytes()[..], kind, body].concat()
    }

    /// Builds a chunk of one sample, with tfdt version 1 if `wide` (otherwise 0) and a correct trun
    /// data offset.
    fn chunk(wide: bool, with_prft: bool) -> Vec<u8> {
        let tfdt = if wide { full_box(b"tfdt", 1 << 24, &[0; 8]) } else { full_box(b"tfdt", 0, &[0; 4]) };
        let tfhd = full_box(b"tfhd", 0x02_0000, &1u32.to_be_bytes());
        let build = |offset: u32| {
            let words: Vec<u8> = [1, offset, 7, 3].iter().flat_map(|word: &u32| word.to_be_bytes()).collect();
            let trun = full_box(b"trun", 0x301, &words);
            let traf = plain_box(b"traf", &[&tfhd[..], &tfdt, &trun].concat());
            plain_box(b"moof", &[full_box(b"mfhd", 0, &9u32.to_be_bytes()), traf].concat())
        };
        let moof = build(build(0).len() as u32 + 8);
        let prft = if with_prft { full_box(b"prft", 0, &[1; 16]) } else { Vec::new() };
        [plain_box(b"styp", b"cmfl\0\0\0\0"), prft, moof, plain_box(b"mdat", b"abc")].concat()
    }

    fn info() -> TrackInfo {
        let header = include_bytes!("../../../../assets/sample/audio.mp4");
        let mut scanner = ChunkScanner::new();
        scanner.push(&header[..4096]);
        match scanner.next_event() {
            Ok(Some(Event::Header(header))) => header.info,
            other => panic!("{other:?}"),
        }
    }

    fn scan(bytes: &[u8]) -> Chunk {
        let mut scanner = ChunkScanner::with_header(&info());
        scanner.push(bytes);
        match scanner.next_event() {
            Ok(Some(Event::Chunk(chunk))) => {
                scanner.finish().unwrap();
                chunk
            }
            other => panic!("{other:?}"),
        }
    }

    fn check(chunk: Vec<u8>, time: LiveTime) {
        let [head, data] = retime(&chunk.clone().into(), 1, time).unwrap();
        let (before, after) = (scan(&chunk), scan(&[head, data].concat()));
        assert_eq!(after.fragment.decode_time, time.decode_time);
        assert_eq!(after.fragment.sequence_number, time.sequence_number);
        let sample = |chunk: &Chunk| {
            let moof = chunk.bytes.windows(4).position(|kind| kind == b"moof").unwrap() - 4;
            let data = &chunk.fragment.data;
            chunk.bytes.slice(moof + data.start as usize..moof + data.end as usize)
        };
        assert_eq!(sample(&before), b"abc"[..]);
        assert_eq!(sample(&after), b"abc"[..]);
        assert_eq!(before.fragment.duration, after.fragment.duration);
        assert_eq!(before.styp, after.styp);
        let prft = after.prft.unwrap();
        assert_eq!((prft.track_id, prft.media_time, prft.flags), (1, time.decode_time, PRFT_CAPTURE));
        assert_eq!(prft.ntp, ntp_time(time.captured.duration_since(UNIX_EPOCH).unwrap()));
    }

    proptest! {
        #[test]
        fn retime_changes_times_and_keeps_samples(
            wide in any::<bool>(), with_prft in any::<bool>(), sequence_number in any::<u32>(),
            decode_time in 0u64..1 << 62, captured_ms in 0u64..2_000_000_000_000,
        ) {
            let captured = UNIX_EPOCH + Duration::from_millis(captured_ms);
            check(chunk(wide, with_prft), LiveTime { sequence_number, decode_time, captured });
        }
    }

    #[test]
    fn malformed_chunk_is_an_error() {
        let time = LiveTime { sequence_number: 0, decode_time: 0, captured: UNIX_EPOCH };
        let whole = chunk(false, false);
        for len in [9, 30, 60, whole.len() - 1] {
            assert!(retime(&Bytes::copy_from_slice(&whole[..len]), 1, time).is_err(), "{len}");
        }
        let no_tfdt = String::from_utf8_lossy(&whole).replace("tfdt", "free").into_bytes();
        assert!(retime(&no_tfdt.into(), 1, time).is_err());
    }
}
