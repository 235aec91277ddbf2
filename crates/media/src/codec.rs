//! Sample entries: RFC 6381 codec strings (ISO/IEC 14496-15 Annex E for AVC and HEVC, and the AV1
//! and VP9 bindings), and audio parameters that only the codec configuration contains.
//!
//! mp4-atom decodes the configuration boxes. This module locates them itself, so unknown sibling
//! boxes are skipped without being decoded.

use mp4_atom::{
    Ac3SpecificBox, Av1c, Avcc, Decode, Dfla, Dops, Ec3SpecificBox, Esds, FlacMetadataBlock, Hvcc, VpcC,
};

use crate::boxes::Mp4Box;
use crate::error::{Fault, Result};
use crate::fourcc::FourCc;
use crate::properties::Colour;
use crate::protection::{self, Protection};

/// Size of a VisualSampleEntry's fields before its child boxes, in bytes (ISO/IEC 14496-12
/// §12.1.3).
const VISUAL_FIELD_BYTES: usize = 78;
/// Size of an AudioSampleEntry's fields before its child boxes, in bytes (§12.2.3).
const AUDIO_FIELD_BYTES: usize = 28;
/// Sizes of the additional fields in QuickTime sound descriptions of versions 1 and 2, in bytes.
const QUICKTIME_V1_BYTES: usize = 16;
const QUICKTIME_V2_BYTES: usize = 36;

/// Contents of an audio sample entry.
pub(crate) struct AudioEntry {
    pub(crate) codec: String,
    pub(crate) sample_rate: u32,
    pub(crate) channels: u32,
    /// Complexity index of audio objects in E-AC-3.
    pub(crate) objects: Option<u8>,
    pub(crate) protection: Option<Protection>,
}

/// Contents of a video sample entry.
pub(crate) struct VideoEntry {
    pub(crate) codec: String,
    /// Coded size, in pixels that need not be square.
    pub(crate) coded: (u32, u32),
    /// Width and height of one pixel (pasp, §12.1.4.3).
    pub(crate) pixel: (u32, u32),
    pub(crate) colour: Option<Colour>,
    pub(crate) protection: Option<Protection>,
}

/// Reads the sample entry of a video track.
pub(crate) fn video(entry: &Mp4Box<'_>) -> Result<VideoEntry> {
    let mut r = entry.reader();
    r.skip(24)?;
    let coded = (u32::from(r.u16()?), u32::from(r.u16()?));
    let inside = Inside { entry, skip: VISUAL_FIELD_BYTES };
    let pixel = match inside.find(FourCc(*b"pasp"))? {
        None => (1, 1),
        Some(pasp) => {
            let mut r = pasp.reader();
            (r.u32()?.max(1), r.u32()?.max(1))
        }
    };
    let (format, protection) = inside.format()?;
    let colour = colour(format, &inside)?;
    Ok(VideoEntry { codec: video_codec(format, &inside)?, coded, pixel, colour, protection })
}

/// Returns the colour in the first colr box of type nclx, or of QuickTime's type nclc, which has no
/// range flag.
fn colour(format: FourCc, inside: &Inside<'_, '_>) -> Result<Option<Colour>> {
    for colr in inside.all(FourCc(*b"colr"))? {
        let mut r = colr.reader();
        let kind = r.fourcc()?;
        if matches!(&kind.0, b"nclx" | b"nclc") {
            let (primaries, transfer, matrix) = (r.u16()?, r.u16()?, r.u16()?);
            let full_range = kind.0 == *b"nclx" && r.u8()? & 0x80 != 0;
            return Ok(Colour { primaries, transfer, matrix, full_range }.if_specified());
        }
    }
    // VP9 repeats the colour in its configuration (VP Codec ISO Media File Format Binding).
    if !matches!(&format.0, b"vp08" | b"vp09") {
        return Ok(None);
    }
    let c: VpcC = inside.decode(b"vpcC")?;
    let colour = Colour {
        primaries: u16::from(c.color_primaries),
        transfer: u16::from(c.transfer_characteristics),
        matrix: u16::from(c.matrix_coefficients),
        full_range: c.video_full_range_flag,
    };
    Ok(colour.if_specified())
}

fn video_codec(kind: FourCc, inside: &Inside<'_, '_>) -> Result<String> {
    Ok(match &kind.0 {
        b"avc1" | b"avc3" => {
            let c: Avcc = inside.decode(b"avcC")?;
            let (profile, level) = (c.avc_profile_indication, c.avc_level_indication);
            format!("{kind}.{profile:02x}{:02x}{level:02x}", c.profile_compatibility)
        }
        b"hvc1" | b"hev1" => hevc(kind, &inside.decode(b"hvcC")?),
        b"av01" => av1(&inside.decode(b"av1C")?),
        b"vp08" | b"vp09" => {
            let c: VpcC = inside.decode(b"vpcC")?;
            format!("{kind}.{:02}.{:02}.{:02}", c.profile, c.level, c.bit_depth)
        }
        _ => return Err(inside.entry.fault(Fault::UnsupportedCodec(kind))),
    })
}

/// Formats an HEVC codec string (ISO/IEC 14496-15 §E.3).
fn hevc(kind: FourCc, c: &Hvcc) -> String {
    let space = ["", "A", "B", "C"][usize::from(c.general_profile_space & 3)];
    let compatibility = u32::from_be_bytes(c.general_profile_compatibility_flags).reverse_bits();
    let tier = if c.general_tier_flag { 'H' } else { 'L' };
    let (profile, level) = (c.general_profile_idc, c.general_level_idc);
    let mut codec = format!("{kind}.{space}{profile}.{compatibility:x}.{tier}{level}");
    let constraints = &c.general_constraint_indicator_flags;
    let used = constraints.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    for byte in &constraints[..used] {
        codec.push_str(&format!(".{byte:02x}"));
    }
    codec
}

/// Formats an AV1 codec string without the optional fields (AV1 Codec ISO Media File Format Binding
/// §5).
fn av1(c: &Av1c) -> String {
    let tier = if c.seq_tier_0 { 'H' } else { 'M' };
    let depth = match (c.high_bitdepth, c.twelve_bit) {
        (true, true) => 12,
        (true, false) => 10,
        (false, _) => 8,
    };
    format!("av01.{}.{:02}{tier}.{depth:02}", c.seq_profile, c.seq_level_idx_0)
}

/// Reads the sample entry of an audio track.
pub(crate) fn audio(entry: &Mp4Box<'_>) -> Result<AudioEntry> {
    let mut r = entry.reader();
    r.skip(8)?;
    let version = r.u16()?;
    r.skip(6)?;
    let channels = u32::from(r.u16()?);
    r.skip(6)?;
    let sample_rate = r.u32()? >> 16;
    // Version 1 adds no fields in ISO files. In QuickTime files, versions 1 and 2 do; they are
    // recognised because no box follows the ISO fields.
    let skip = AUDIO_FIELD_BYTES
        + match version {
            1 if !begins_with_box(entry, AUDIO_FIELD_BYTES) => QUICKTIME_V1_BYTES,
            2 if !begins_with_box(entry, AUDIO_FIELD_BYTES) => QUICKTIME_V2_BYTES,
            _ => 0,
        };
    let plain = AudioEntry { codec: String::new(), sample_rate, channels, objects: None, protection: None };
    let inside = Inside { entry, skip };
    let (format, protection) = inside.format()?;
    audio_codec(format, &inside, AudioEntry { protection, ..plain })
}

fn begins_with_box(entry: &Mp4Box<'_>, skip: usize) -> bool {
    let first = entry.children_after(skip).ok().and_then(|mut boxes| boxes.next());
    matches!(first, None | Some(Ok(Mp4Box { kind: FourCc([b'a'..=b'z' | b'A'..=b'Z', ..]), .. })))
}

fn audio_codec(kind: FourCc, inside: &Inside<'_, '_>, plain: AudioEntry) -> Result<AudioEntry> {
    let named = |codec: &str| codec.to_owned();
    Ok(match &kind.0 {
        b"mp4a" => mpeg4_audio(inside, plain)?,
        b"Opus" => {
            let c: Dops = inside.decode(b"dOps")?;
            // Opus always decodes to 48 kHz (RFC 7845 §5.1).
            AudioEntry {
                codec: named("opus"),
                sample_rate: 48_000,
                channels: u32::from(c.output_channel_count),
                ..plain
            }
        }
        b"ac-3" => {
            let c: Ac3SpecificBox = inside.decode(b"dac3")?;
            AudioEntry { codec: named("ac-3"), channels: dolby_channels(c.acmod, c.lfeon), ..plain }
        }
        b"ec-3" => {
            let c: Ec3SpecificBox = inside.decode(b"dec3")?;
            let main = c.substreams.first().map_or(0, |s| {
                dolby_channels(s.acmod, s.lfeon) + dependent_channels(s.chan_loc.unwrap_or(0))
            });
            let objects = audio_objects(&c, inside)?;
            AudioEntry { codec: named("ec-3"), channels: plain.channels.max(main), objects, ..plain }
        }
        b"fLaC" => {
            let c: Dfla = inside.decode(b"dfLa")?;
            let info = c.blocks.iter().find_map(|block| match block {
                FlacMetadataBlock::StreamInfo { sample_rate, num_channels_minus_one, .. } => {
                    Some((*sample_rate, u32::from(*num_channels_minus_one) + 1))
                }
                _ => None,
            });
            let (sample_rate, channels) = info.unwrap_or((plain.sample_rate, plain.channels));
            AudioEntry { codec: named("fLaC"), sample_rate, channels, ..plain }
        }
        _ => return Err(inside.entry.fault(Fault::UnsupportedCodec(kind))),
    })
}

/// Returns the number of channels for an acmod (ETSI TS 102 366 §4.4.2.3), plus the LFE channel if
/// present.
fn dolby_channels(acmod: u8, lfe: bool) -> u32 {
    [2, 1, 2, 3, 3, 4, 4, 5][usize::from(acmod & 7)] + u32::from(lfe)
}

/// Returns the number of channels in dependent substreams, from chan_loc (ETSI TS 102 366 §F.6.2.12):
/// a bit for each location, which is a pair of channels in five of nine cases.
fn dependent_channels(chan_loc: u16) -> u32 {
    const PAIRS: u16 = 0b0_0111_0011;
    chan_loc.count_ones() + (chan_loc & PAIRS).count_ones()
}

/// Returns the complexity index of audio objects, which follows the substreams in dec3 if the stream
/// has joint object coding (ETSI TS 103 420 §8.3.2).
fn audio_objects(c: &Ec3SpecificBox, inside: &Inside<'_, '_>) -> Result<Option<u8>> {
    let Some(dec3) = inside.find(FourCc(*b"dec3"))? else { return Ok(None) };
    let substreams: usize = c.substreams.iter().map(|s| if s.num_dep_sub > 0 { 4 } else { 3 }).sum();
    Ok(match dec3.body().get(2 + substreams..) {
        Some([flags, index, ..]) if flags & 1 == 1 => Some(*index),
        _ => None,
    })
}

/// objectTypeIndication of ISO/IEC 14496-3 audio.
const OTI_MPEG4_AUDIO: u8 = 0x40;

/// Sampling frequencies by index, ISO/IEC 14496-3 table 1.18.
const AAC_SAMPLE_RATES: [u32; 13] =
    [96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000, 7_350];

fn mpeg4_audio(inside: &Inside<'_, '_>, plain: AudioEntry) -> Result<AudioEntry> {
    let esds: Esds = inside.decode(b"esds")?;
    let config = esds.es_desc.dec_config;
    let oti = config.object_type_indication;
    if oti != OTI_MPEG4_AUDIO {
        return Ok(AudioEntry { codec: format!("mp4a.{oti:02x}"), ..plain });
    }
    let specific = config.dec_specific.unwrap_or_default();
    if specific.profile == 0 {
        let what = "esds must have an AudioSpecificConfig";
        return Err(inside.entry.fault(Fault::CodecConfiguration(what.to_owned())));
    }
    // Channel counts are from ISO/IEC 14496-3 table 1.19. Configuration 0 defers to a program
    // config element, so the sample entry's count is used.
    let channels = match specific.chan_conf {
        count @ 1..=6 => u32::from(count),
        7 | 12 | 14 => 8,
        11 => 7,
        _ => plain.channels,
    };
    // The sample entry's 16-bit field is 0 for 88.2 and 96 kHz, which it cannot represent.
    let sample_rate = match AAC_SAMPLE_RATES.get(usize::from(specific.freq_index)) {
        Some(rate) if plain.sample_rate == 0 => *rate,
        _ => plain.sample_rate,
    };
    Ok(AudioEntry { codec: format!("mp4a.40.{}", specific.profile), sample_rate, channels, ..plain })
}

/// Returns the codec string of a subtitle track.
pub(crate) fn text(entry: &Mp4Box<'_>) -> Result<String> {
    match &entry.kind.0 {
        b"wvtt" => Ok(entry.kind.to_string()),
        b"stpp" => Ok(ttml(entry)),
        _ => Err(entry.fault(Fault::UnsupportedCodec(entry.kind))),
    }
}

/// Returns `stpp.ttml.PROFILE`, by which players check support: Apple's HLS accepts only
/// `stpp.ttml.im1t` (HLS Authoring Specification, 5.16). The profile is from the mime box, if any
/// (W3C TTML Profile Registry: `im1t`, `im1i`, …). Most muxers write none, so the default is
/// IMSC1's image profile if the sample entry mentions images, and otherwise its text profile, to
/// which EBU-TT-D documents conform too (IMSC 1.0.1 §5.3).
fn ttml(entry: &Mp4Box<'_>) -> String {
    // Three strings, namespace, schema_location and auxiliary_mime_types, then optional boxes
    // (ISO/IEC 14496-12 §12.6.3.2).
    let body = entry.body().get(8..).unwrap_or_default();
    let strings = body.split_inclusive(|&b| b == 0).take(3).map(<[u8]>::len).sum::<usize>();
    let text = String::from_utf8_lossy(&body[..strings]);
    let is_image = text.contains("/imsc1/image") || text.contains("image/");
    let default = if is_image { "im1i" } else { "im1t" };
    let profile = ttml_profile(entry, 8 + strings);
    format!("stpp.ttml.{}", profile.as_deref().unwrap_or(default))
}

/// Returns the profile in the mime box, which is one of the boxes after the first `skip` bytes.
fn ttml_profile(entry: &Mp4Box<'_>, skip: usize) -> Option<String> {
    let mime = Inside { entry, skip }.find(FourCc(*b"mime")).ok()??;
    let content_type = std::str::from_utf8(mime.bytes.get(mime.header_size + 4..)?).ok()?;
    let (_, codecs) = content_type.trim_end_matches('\0').split_once("codecs=")?;
    let first = codecs.trim_matches('"').split(['|', '+', ',', ';']).next()?;
    let plain = !first.is_empty() && first.len() <= 8 && first.bytes().all(|b| b.is_ascii_alphanumeric());
    plain.then(|| first.to_owned())
}

/// The child boxes of a sample entry, after its fields.
struct Inside<'a, 'b> {
    entry: &'b Mp4Box<'a>,
    skip: usize,
}

impl<'a> Inside<'a, '_> {
    /// Returns the format of the samples: the entry's type or, if the entry is encrypted, the type
    /// that it had before. Also returns the encryption.
    fn format(&self) -> Result<(FourCc, Option<Protection>)> {
        if !matches!(&self.entry.kind.0, b"encv" | b"enca") {
            return Ok((self.entry.kind, None));
        }
        let sinf = self.find(FourCc(*b"sinf"))?;
        let sinf = sinf.ok_or_else(|| self.entry.invalid("the track is encrypted, but has no 'sinf' box"))?;
        let (format, protection) = protection::parse(&sinf)?;
        Ok((format, Some(protection)))
    }

    fn find(&self, kind: FourCc) -> Result<Option<Mp4Box<'a>>> {
        Ok(self.all(kind)?.next())
    }

    /// Iterates over all child boxes of type `kind`, up to a malformed one: QuickTime ends an entry
    /// with four zero bytes.
    fn all(&self, kind: FourCc) -> Result<impl Iterator<Item = Mp4Box<'a>>> {
        let children = self.entry.children_after(self.skip)?.map_while(Result::ok);
        Ok(children.filter(move |child| child.kind == kind))
    }

    fn decode<T: Decode>(&self, kind: &[u8; 4]) -> Result<T> {
        let kind = FourCc(*kind);
        let config = self.find(kind)?.ok_or_else(|| self.entry.fault(Fault::Missing(kind)))?;
        T::decode(&mut &*config.bytes).map_err(|error| match error {
            // ffmpeg writes an empty av1C unless it delays the moov until the first packet.
            mp4_atom::Error::OverDecode(_) => config.invalid("codec configuration is truncated"),
            other => config.fault(Fault::CodecConfiguration(other.to_string())),
        })
    }
}
