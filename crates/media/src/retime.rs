//! Moving a chunk in media time: its tfdt and prft are written over, all else stays as it came.
//!
//! **Invariant:** no byte moves: sizes and offsets hold, so a time goes in only if its field is wide enough.

use bytes::{Bytes, BytesMut};

use crate::boxes::{Boxes, Mp4Box};
use crate::error::Result;
use crate::fourcc::FourCc;

/// A copy of `chunk` whose times are `by` units of its track's timescale later; `None` where a time would not fit its
/// field (32 bits in version 0 of tfdt, ISO/IEC 14496-12 §8.8.12, and of prft, §8.16.5).
///
/// # Errors
/// A box of the chunk that is cut off or missing.
pub fn shifted(chunk: &Bytes, by: i64) -> Result<Option<Bytes>> {
    let mut fields = Vec::new();
    for found in Boxes::new(chunk, 0) {
        let found = found?;
        match found.kind {
            FourCc::MOOF => {
                let traf = found.require(FourCc::TRAF)?;
                fields.push(Field::read(&traf.require(FourCc::TFDT)?, 4)?);
            }
            // Version and flags, reference_track_ID and ntp_timestamp stand before it.
            FourCc::PRFT => fields.push(Field::read(&found, 16)?),
            _ => {}
        }
    }
    let mut bytes = BytesMut::from(&chunk[..]);
    for field in fields {
        let Some(time) = field.time.checked_add_signed(by) else { return Ok(None) };
        let narrow = u32::try_from(time);
        match (field.wide, narrow) {
            (true, _) => bytes[field.at..field.at + 8].copy_from_slice(&time.to_be_bytes()),
            (false, Ok(time)) => bytes[field.at..field.at + 4].copy_from_slice(&time.to_be_bytes()),
            (false, Err(_)) => return Ok(None),
        }
    }
    Ok(Some(bytes.freeze()))
}

/// Where a media time stands in a chunk.
struct Field {
    at: usize,
    wide: bool,
    time: u64,
}

impl Field {
    /// The time that stands `skip` bytes into the body of a box.
    fn read(found: &Mp4Box<'_>, skip: usize) -> Result<Field> {
        let (version, _, _) = found.full()?;
        let mut reader = found.reader();
        reader.skip(skip)?;
        let at = usize::try_from(found.body_offset()).expect("a chunk lies in memory") + skip;
        let wide = version == 1;
        Ok(Field { at, wide, time: reader.u32_or_u64(wide)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prft::Prft;

    fn made(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
        [&(body.len() as u32 + 8).to_be_bytes()[..], kind, body].concat()
    }

    fn chunk(tfdt: &[u8]) -> Bytes {
        let prft = Prft { track_id: 1, ntp: 7, media_time: 900, flags: 24 }.to_bytes();
        let moof = made(b"moof", &made(b"traf", &made(b"tfdt", tfdt)));
        Bytes::from([&prft[..], &moof, &made(b"mdat", b"media")].concat())
    }

    #[test]
    fn both_times_move_and_nothing_else() {
        let (narrow, wide) = ([0, 0, 0, 0, 0, 0, 3, 0x84], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0x84]);
        for tfdt in [&narrow[..], &wide] {
            let there = shifted(&chunk(tfdt), 100).unwrap().unwrap();
            assert_eq!(there[24..32], 1000u64.to_be_bytes());
            assert_eq!(there[32 + 16 + 8 + tfdt.len() - 4..][..4], 1000u32.to_be_bytes());
            assert_eq!(shifted(&there, -100).unwrap().unwrap(), chunk(tfdt));
        }
    }

    #[test]
    fn a_time_that_does_not_fit_its_field_is_told() {
        assert_eq!(shifted(&chunk(&[0, 0, 0, 0, 0, 0, 3, 0x84]), 1 << 32).unwrap(), None);
        assert_eq!(shifted(&chunk(&[0, 0, 0, 0, 0, 0, 3, 0x84]), -901).unwrap(), None);
        assert!(shifted(&Bytes::from(made(b"moof", &[])), 1).is_err());
    }
}
