//! Chunk retiming: rewrites tfdt, mfhd, prft and emsg, and leaves the media data untouched.
//!
//! ISO/IEC 14496-12: mfhd §8.8.5, trun §8.8.8, tfdt §8.8.12, prft §8.16.5; ISO/IEC 23009-1
//! §5.10.3.3: emsg. A 32-bit tfdt would overflow in a long-running channel, so it is widened to 64
//! bits, and all later bytes move by four.

use bytes::{Bytes, BytesMut};

use crate::boxes::{Boxes, Mp4Box};
use crate::error::{Error, Fault, Result};
use crate::fourcc::FourCc;
use crate::prft::Prft;

/// trun tr_flags: data offset present.
const TRUN_DATA_OFFSET: u32 = 1;

/// Returns a copy of `chunk` with its times shifted by `by` units of `timescale`, the track's
/// timescale; `None` if the decode time would become negative or exceed 64 bits.
///
/// # Errors
///
/// Returns an error if a box of the chunk is not valid CMAF.
pub fn shifted(chunk: &Bytes, by: i64, timescale: u32) -> Result<Option<Bytes>> {
    let mut moved = BytesMut::with_capacity(chunk.len() + 16);
    for found in Boxes::new(chunk, 0) {
        let found = found?;
        match found.kind {
            FourCc::MOOF => {
                let Some(time) = decode_time(&found)?.checked_add_signed(by) else { return Ok(None) };
                moved.extend_from_slice(&moof_at(&found, time, None)?);
            }
            FourCc::PRFT => {
                // For a track that begins before time zero, ffmpeg writes wrapped times.
                let prft = Prft::parse(&found)?;
                let media_time = prft.media_time.wrapping_add_signed(by);
                moved.extend_from_slice(&Prft { media_time, ..prft }.to_bytes());
            }
            FourCc::EMSG => {
                // A malformed emsg does not invalidate the media, so it is forwarded unchanged.
                let event = emsg(&found, by, timescale);
                moved.extend_from_slice(event.as_deref().unwrap_or(found.bytes));
            }
            _ => moved.extend_from_slice(found.bytes),
        }
    }
    Ok(Some(moved.freeze()))
}

/// Returns a copy of a moof with another decode time and, if given, another sequence number.
///
/// # Errors
///
/// Returns an error if a box inside the moof is missing or not valid CMAF.
pub fn moof_at(moof: &Mp4Box<'_>, decode_time: u64, sequence_number: Option<u32>) -> Result<Vec<u8>> {
    let traf = moof.require(FourCc::TRAF)?;
    let tfdt = traf.require(FourCc::TFDT)?;
    let (version, _, mut fields) = tfdt.full()?;
    fields.u32_or_u64(version == 1)?;

    let at =
        |found: &Mp4Box<'_>, skip: usize| (found.offset - moof.offset) as usize + found.header_size + skip;
    let mut bytes = moof.bytes.to_vec();
    if let Some(number) = sequence_number {
        let mfhd = moof.require(FourCc::MFHD)?;
        mfhd.full()?.2.u32()?;
        write_at(&mut bytes, at(&mfhd, 4), number.to_be_bytes());
    }
    if version == 0 {
        const GROWTH: u32 = 4;
        for parent in [moof, &traf, &tfdt] {
            let size = parent.bytes.len() as u64 + u64::from(GROWTH);
            // Both the 32-bit and the 64-bit size field begin eight bytes before the header's end.
            let field = at(parent, 0) - 8;
            match u32::try_from(size) {
                _ if parent.header_size == 16 => write_at(&mut bytes, field, size.to_be_bytes()),
                Ok(size) => write_at(&mut bytes, field, size.to_be_bytes()),
                Err(_) => {
                    let fault = Fault::Invalid("size must not exceed 32 bits");
                    return Err(Error::new(parent.offset, parent.kind, fault));
                }
            }
        }
        for trun in traf.children() {
            let trun = trun?;
            if trun.kind == FourCc::TRUN {
                let (_, flags, mut fields) = trun.full()?;
                if flags & TRUN_DATA_OFFSET != 0 {
                    fields.u32()?;
                    write_at(&mut bytes, at(&trun, 8), (fields.u32()?.wrapping_add(GROWTH)).to_be_bytes());
                }
            }
        }
        bytes[at(&tfdt, 0)] = 1;
        bytes.splice(at(&tfdt, 4)..at(&tfdt, 4), [0; GROWTH as usize]);
    }
    write_at(&mut bytes, at(&tfdt, 4), decode_time.to_be_bytes());
    Ok(bytes)
}

fn decode_time(moof: &Mp4Box<'_>) -> Result<u64> {
    let (version, _, mut fields) = moof.require(FourCc::TRAF)?.require(FourCc::TFDT)?.full()?;
    fields.u32_or_u64(version == 1)
}

/// Returns a shifted emsg. Version 1 has an absolute time; the time of version 0 is relative to the
/// chunk and stays as is.
fn emsg(emsg: &Mp4Box<'_>, by: i64, timescale: u32) -> Result<Vec<u8>> {
    let mut bytes = emsg.bytes.to_vec();
    let (version, _, mut fields) = emsg.full()?;
    if version == 1 {
        let own = fields.u32()?;
        let by = i128::from(by) * i128::from(own) / i128::from(timescale.max(1));
        let time = fields.u64()?.saturating_add_signed(i64::try_from(by).unwrap_or(i64::MAX));
        write_at(&mut bytes, emsg.header_size + 8, time.to_be_bytes());
    }
    Ok(bytes)
}

fn write_at<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxed(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
        [&(body.len() as u32 + 8).to_be_bytes()[..], kind, body].concat()
    }

    fn full(kind: &[u8; 4], version: u8, words: &[u32]) -> Vec<u8> {
        let words: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
        boxed(kind, &[&[version, 0, 0, if kind == b"trun" { 1 } else { 0 }][..], &words].concat())
    }

    /// Builds a chunk with the given tfdt, whose trun points to the first byte of its mdat.
    fn chunk(media_time: u64, emsg_time: u32, tfdt: &[u8]) -> Bytes {
        let prft = Prft { track_id: 1, ntp: 7, media_time, flags: 24 }.to_bytes();
        let emsg = full(b"emsg", 1, &[10, 0, emsg_time, 0, 0]);
        let moof = |offset| {
            let trun = full(b"trun", 0, &[1, offset]);
            let traf = boxed(b"traf", &[tfdt, &trun].concat());
            boxed(b"moof", &[full(b"mfhd", 0, &[3]), traf].concat())
        };
        let offset = moof(0).len() as u32 + 8;
        Bytes::from([&prft[..], &emsg, &moof(offset), &boxed(b"mdat", b"media")].concat())
    }

    #[test]
    fn shift_moves_all_times_and_nothing_else() {
        let wide = |time| full(b"tfdt", 1, &[0, time]);
        let (here, there) = (chunk(900, 9, &wide(900)), chunk(1000, 10, &wide(1000)));
        assert_eq!(shifted(&here, 100, 1000).unwrap().unwrap(), there);
        assert_eq!(shifted(&there, -100, 1000).unwrap().unwrap(), here);
        // A 32-bit tfdt becomes 64-bit, and the trun still points to its data.
        assert_eq!(shifted(&chunk(900, 9, &full(b"tfdt", 0, &[900])), 100, 1000).unwrap().unwrap(), there);
        // The prft's media time is before zero, so ffmpeg writes it wrapped.
        let early = shifted(&chunk(u64::MAX - 99, 9, &wide(900)), 100, 1000).unwrap().unwrap();
        assert_eq!(early, chunk(0, 10, &wide(1000)));
    }

    /// Rewrites a box to have a 64-bit size.
    fn long(found: &[u8]) -> Vec<u8> {
        let size = found.len() as u64 + 8;
        [&[0, 0, 0, 1], &found[4..8], &size.to_be_bytes(), &found[8..]].concat()
    }

    #[test]
    fn short_tfdt_grows_in_boxes_with_64_bit_sizes() {
        let boxed_at = |time: u32, tfdt: &[u8]| {
            let traf = long(&boxed(b"traf", &[long(tfdt), full(b"trun", 0, &[1, time])].concat()));
            Bytes::from(long(&boxed(b"moof", &traf)))
        };
        let here = boxed_at(100, &full(b"tfdt", 0, &[900]));
        let there = boxed_at(104, &full(b"tfdt", 1, &[0, 1000]));
        assert_eq!(shifted(&here, 100, 1000).unwrap().unwrap(), there);
    }

    #[test]
    fn truncated_event_is_forwarded_unchanged() {
        let tfdt = |time| full(b"tfdt", 1, &[0, time]);
        let moof = |time| boxed(b"moof", &boxed(b"traf", &tfdt(time)));
        for event in [full(b"emsg", 1, &[10, 0]), boxed(b"emsg", &[1])] {
            let here = Bytes::from([event.clone(), moof(900)].concat());
            let there = Bytes::from([event, moof(1000)].concat());
            assert_eq!(shifted(&here, 100, 1000).unwrap().unwrap(), there);
        }
    }

    #[test]
    fn shift_beyond_the_valid_range_is_none() {
        let tfdt = full(b"tfdt", 0, &[900]);
        assert_eq!(shifted(&chunk(900, 9, &tfdt), -901, 1000).unwrap(), None);
        assert!(shifted(&Bytes::from(boxed(b"moof", &[])), 1, 1000).is_err());
    }
}
