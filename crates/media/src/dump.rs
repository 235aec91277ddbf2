//! Text dump of the boxes in a file or chunk, one line per box, for golden tests and for reading.
//!
//! ```text
//! moof 160
//!   mfhd 16 sequence_number=1
//! ```
//!
//! Unreadable parts are reported where they occur; the dump continues after them if possible.

use std::fmt::Write;

use crate::boxes::{BOX_DEPTH_MAX, Boxes, Mp4Box};
use crate::error::Result;
use crate::fourcc::FourCc;
use crate::prft::Prft;
use crate::reader::Reader;
use crate::sidx::Sidx;

/// Formats `bytes` as one line per box, indented by depth: type, size in bytes, main values.
#[must_use]
pub fn dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    dump_boxes(Boxes::new(bytes, 0), 0, &mut text);
    text
}

fn dump_boxes(boxes: Boxes<'_>, depth: usize, text: &mut String) {
    for found in boxes {
        let indent = 2 * depth;
        match found {
            Ok(found) => {
                let values = values(&found).unwrap_or_else(|error| format!(" [{error}]"));
                line(text, format_args!("{:indent$}{} {}{values}", "", found.kind, found.bytes.len()));
                if let Some(children) = children(&found)
                    && depth < BOX_DEPTH_MAX
                {
                    dump_boxes(children, depth + 1, text);
                }
            }
            Err(error) => line(text, format_args!("{:indent$}[{error}]", "")),
        }
    }
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("writing to a String cannot fail");
}

/// Returns the child boxes of a box type that the dump descends into; `None` for other types.
fn children<'a>(parent: &Mp4Box<'a>) -> Option<Boxes<'a>> {
    match &parent.kind.0 {
        b"moov" | b"trak" | b"edts" | b"mdia" | b"minf" | b"dinf" | b"stbl" | b"mvex" | b"moof" | b"traf"
        | b"mfra" => Some(parent.children()),
        b"stsd" => parent.children_after(8).ok(),
        _ => None,
    }
}

fn values(found: &Mp4Box<'_>) -> Result<String> {
    match found.kind {
        FourCc::FTYP | FourCc::STYP => brands(found),
        FourCc::PRFT => {
            let Prft { track_id, ntp, media_time, flags } = Prft::parse(found)?;
            Ok(format!(" flags={flags} track_id={track_id} ntp={ntp:#018x} media_time={media_time}"))
        }
        FourCc::SIDX => sidx(found),
        FourCc::HDLR => {
            let mut r = found.full()?.2;
            r.skip(4)?;
            Ok(format!(" handler={}", r.fourcc()?))
        }
        FourCc::MVHD | FourCc::MDHD => {
            let (version, _, mut r) = found.full()?;
            r.skip(if version == 1 { 16 } else { 8 })?;
            Ok(format!(" v{version} timescale={}", r.u32()?))
        }
        FourCc::TKHD | FourCc::TREX | FourCc::MFHD | FourCc::TFHD | FourCc::TFDT | FourCc::TRUN => {
            let (version, flags, mut r) = found.full()?;
            let mut fields = Fields { text: format!(" v{version} flags={flags:#x}"), r: &mut r, flags };
            full_values(found.kind, version, &mut fields)?;
            Ok(fields.text)
        }
        _ => Ok(String::new()),
    }
}

fn full_values(kind: FourCc, version: u8, f: &mut Fields<'_, '_>) -> Result<()> {
    match kind {
        FourCc::TKHD => {
            f.r.skip(if version == 1 { 16 } else { 8 })?;
            f.u32("track_id")?;
            f.r.skip(if version == 1 { 64 } else { 60 })?;
            let (width, height) = (f.r.u32()? >> 16, f.r.u32()? >> 16);
            f.add("size", format_args!("{width}x{height}"));
        }
        FourCc::TREX => {
            f.u32("track_id")?;
            f.r.skip(4)?;
            f.u32("duration")?;
            f.u32("size")?;
            f.hex("sample_flags")?;
        }
        FourCc::MFHD => f.u32("sequence_number")?,
        FourCc::TFHD => {
            f.u32("track_id")?;
            if f.flags & 1 != 0 {
                let offset = f.r.u64()?;
                f.add("base_data_offset", format_args!("{offset}"));
            }
            f.u32_if(0x2, "description")?;
            f.u32_if(0x8, "duration")?;
            f.u32_if(0x10, "size")?;
            f.hex_if(0x20, "sample_flags")?;
        }
        FourCc::TFDT => {
            let time = f.r.u32_or_u64(version == 1)?;
            f.add("decode_time", format_args!("{time}"));
        }
        _ => {
            f.u32("samples")?;
            if f.flags & 1 != 0 {
                let offset = f.r.i32()?;
                f.add("data_offset", format_args!("{offset}"));
            }
            f.hex_if(0x4, "first_sample_flags")?;
        }
    }
    Ok(())
}

/// Fields of a full box, formatted as they are read.
struct Fields<'r, 'a> {
    text: String,
    r: &'r mut Reader<'a>,
    flags: u32,
}

impl Fields<'_, '_> {
    fn add(&mut self, name: &str, value: std::fmt::Arguments<'_>) {
        write!(self.text, " {name}={value}").expect("writing to a String cannot fail");
    }

    fn u32(&mut self, name: &str) -> Result<()> {
        let value = self.r.u32()?;
        self.add(name, format_args!("{value}"));
        Ok(())
    }

    fn hex(&mut self, name: &str) -> Result<()> {
        let value = self.r.u32()?;
        self.add(name, format_args!("{value:#x}"));
        Ok(())
    }

    fn u32_if(&mut self, flag: u32, name: &str) -> Result<()> {
        if self.flags & flag == 0 { Ok(()) } else { self.u32(name) }
    }

    fn hex_if(&mut self, flag: u32, name: &str) -> Result<()> {
        if self.flags & flag == 0 { Ok(()) } else { self.hex(name) }
    }
}

fn brands(found: &Mp4Box<'_>) -> Result<String> {
    let mut r = found.reader();
    let (major, minor) = (r.fourcc()?, r.u32()?);
    let compatible = r.rest().as_chunks::<4>().0.iter().map(|brand| format!("+{}", FourCc(*brand)));
    Ok(format!(" {major}/{minor}{}", compatible.collect::<String>()))
}

fn sidx(found: &Mp4Box<'_>) -> Result<String> {
    let sidx = Sidx::parse(found.bytes, found.offset)?;
    let mut text = format!(
        " timescale={} time={} first_offset={}",
        sidx.timescale, sidx.earliest_presentation_time, sidx.first_offset
    );
    for r in &sidx.references {
        let kind = if r.is_index { "index" } else { "media" };
        let sap = if r.starts_with_sap { format!("/sap{}", r.sap_type) } else { String::new() };
        write!(text, " {kind}:{}/{}{sap}", r.size, r.duration).expect("writing to a String cannot fail");
    }
    Ok(text)
}
