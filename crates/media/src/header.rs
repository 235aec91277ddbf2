//! CMAF header: ftyp and moov of a single-track file (ISO/IEC 23000-19 §7.3.2).

use crate::boxes::{Boxes, Mp4Box};
use crate::codec;
use crate::error::{Error, Fault, Result};
use crate::fourcc::FourCc;
use crate::fragment::MEDIA_TIME_MAX;
use crate::language;
use crate::properties::Properties;
use crate::protection;
use crate::purpose::ROLE_SCHEME;
use crate::track::{Media, SampleDefaults, TrackInfo};

/// Maximum length of the moov of an upload, in bytes. The moov of a fragmented file takes about 1
/// KiB.
pub const MOOV_BYTES_MAX: u64 = 16 << 20;

/// Reads a CMAF header at `offset` in its file or upload: ftyp, moov, and any boxes between them.
///
/// # Errors
///
/// Returns [`Fault::Progressive`] or [`Fault::ManyTracks`] if the file is valid MP4 but not a CMAF
/// track, and otherwise an error if a box is truncated, missing or invalid.
pub fn parse(bytes: &[u8], offset: u64) -> Result<TrackInfo> {
    let mut seen_ftyp = false;
    for found in Boxes::new(bytes, offset) {
        let found = found?;
        match found.kind {
            FourCc::FTYP => seen_ftyp = true,
            FourCc::MOOV if seen_ftyp => return parse_moov(&found),
            FourCc::MOOV => return Err(found.invalid(NO_FTYP)),
            _ => {}
        }
    }
    Err(Error::new(offset, FourCc::FTYP, Fault::Missing(FourCc::MOOV)))
}

pub(crate) const NO_FTYP: &str = "must follow an ftyp";

/// Reads the moov box of a track that no empty edit delays.
pub(crate) fn parse_moov(moov: &Mp4Box<'_>) -> Result<TrackInfo> {
    match parse_delayed_moov(moov)? {
        (info, 0) => Ok(info),
        _ => Err(moov.invalid(
            "an empty edit delays the track, which CMAF does not allow: put the delay into its timestamps, \
             with ffmpeg's -movflags +frag_discont",
        )),
    }
}

/// Reads a moov box. Also returns the delay by empty edits that exceeds the edit list's media_time,
/// in the track's timescale.
pub(crate) fn parse_delayed_moov(moov: &Mp4Box<'_>) -> Result<(TrackInfo, u64)> {
    let Some(mvex) = moov.find(FourCc::MVEX)? else { return Err(moov.fault(Fault::Progressive)) };
    let trak = only_trak(moov)?;
    let (mut info, delay) = parse_trak(moov, &trak)?;
    info.sample_defaults = sample_defaults(&mvex, info.track_id)?;
    Ok((info, delay))
}

/// Reads a track's description, without the defaults of fragments; also returns its delay, as
/// [`parse_delayed_moov`].
pub(crate) fn parse_trak(moov: &Mp4Box<'_>, trak: &Mp4Box<'_>) -> Result<(TrackInfo, u64)> {
    let tkhd = TrackHeader::parse(&trak.require(FourCc::TKHD)?)?;
    let mdia = trak.require(FourCc::MDIA)?;
    let (timescale, packed) = media_header(&mdia.require(FourCc::MDHD)?)?;
    let language = match mdia.find(FourCc::ELNG)? {
        Some(elng) => language::from_elng(elng.full()?.2.rest()),
        None => language::from_packed(packed),
    };
    let (codec, media, mut properties) = media(&mdia, &tkhd)?;
    add_kinds(trak, &mut properties)?;
    if let Some(protection) = &mut properties.protection {
        protection.systems = protection::systems(moov)?;
    }
    let movie_timescale = movie_timescale(&moov.require(FourCc::MVHD)?)?;
    let (edit_media_time, delay) = match trak.find(FourCc::EDTS)? {
        Some(edts) => match edts.find(FourCc::ELST)? {
            Some(elst) => edit(&elst, timescale, movie_timescale)?,
            None => (0, 0),
        },
        None => (0, 0),
    };
    let info = TrackInfo {
        track_id: tkhd.track_id,
        timescale,
        codec,
        language,
        media,
        properties: Box::new(properties),
        sample_defaults: SampleDefaults::default(),
        edit_media_time,
    };
    Ok((info, delay))
}

fn only_trak<'a>(moov: &Mp4Box<'a>) -> Result<Mp4Box<'a>> {
    let mut only = None;
    let mut count = 0;
    for child in moov.children() {
        let child = child?;
        if child.kind == FourCc::TRAK {
            count += 1;
            only = Some(child);
        }
    }
    match only {
        Some(trak) if count == 1 => Ok(trak),
        Some(_) => Err(moov.fault(Fault::ManyTracks(count))),
        None => Err(moov.fault(Fault::Missing(FourCc::TRAK))),
    }
}

/// Adds the purposes in the kind boxes (§8.10.4) of a track's user data. Malformed user data is
/// ignored, because QuickTime ends it with four zero bytes.
fn add_kinds(trak: &Mp4Box<'_>, properties: &mut Properties) -> Result<()> {
    let Some(udta) = trak.find(FourCc::UDTA)? else { return Ok(()) };
    for kind in udta.children().map_while(Result::ok).filter(|child| child.kind == FourCc::KIND) {
        let Ok((_, _, fields)) = kind.full() else { continue };
        let mut strings = fields.rest().split(|byte| *byte == 0).map(std::str::from_utf8);
        if let (Some(Ok(ROLE_SCHEME)), Some(Ok(role))) = (strings.next(), strings.next()) {
            properties.purposes.add_role(role);
        }
    }
    Ok(())
}

/// The tkhd fields in use (§8.3.2).
struct TrackHeader {
    track_id: u32,
    /// Displayed size in square pixels; 0 if the muxer did not set it.
    width: u32,
    height: u32,
}

impl TrackHeader {
    fn parse(tkhd: &Mp4Box<'_>) -> Result<Self> {
        let (version, _, mut r) = tkhd.full()?;
        r.skip(if version == 1 { 16 } else { 8 })?;
        let track_id = r.u32()?;
        // Skip reserved, duration, reserved, layer, alternate group, volume and reserved.
        r.skip(4 + if version == 1 { 8 } else { 4 } + 16)?;
        let matrix: [u8; 36] = r.array()?;
        let mut pixels = || r.u32().map(|fixed| ((u64::from(fixed) + 0x8000) >> 16) as u32);
        let (width, height) = (pixels()?, pixels()?);
        // Matrix entries a and d are 0 if the frame is displayed rotated by 90°.
        let turned = matrix[..4] == [0; 4] && matrix[16..20] == [0; 4] && matrix[4..8] != [0; 4];
        let (width, height) = if turned { (height, width) } else { (width, height) };
        if track_id == 0 {
            return Err(tkhd.invalid("track_ID must not be 0"));
        }
        Ok(Self { track_id, width, height })
    }
}

/// Reads the timescale and the packed language.
fn media_header(mdhd: &Mp4Box<'_>) -> Result<(u32, u16)> {
    let (version, _, mut r) = mdhd.full()?;
    r.skip(if version == 1 { 16 } else { 8 })?;
    let timescale = r.u32()?;
    r.skip(if version == 1 { 8 } else { 4 })?;
    if timescale == 0 {
        return Err(mdhd.invalid("timescale must not be 0"));
    }
    Ok((timescale, r.u16()?))
}

/// Returns the timescale of the media box `mdia`.
pub(crate) fn timescale(mdia: &Mp4Box<'_>) -> Result<u32> {
    Ok(media_header(&mdia.require(FourCc::MDHD)?)?.0)
}

/// Returns the handler of the media box `mdia`.
pub(crate) fn handler(mdia: &Mp4Box<'_>) -> Result<FourCc> {
    let (_, _, mut r) = mdia.require(FourCc::HDLR)?.full()?;
    r.skip(4)?;
    r.fourcc()
}

pub(crate) fn movie_timescale(mvhd: &Mp4Box<'_>) -> Result<u32> {
    let (version, _, mut r) = mvhd.full()?;
    r.skip(if version == 1 { 16 } else { 8 })?;
    r.u32()
}

fn media(mdia: &Mp4Box<'_>, tkhd: &TrackHeader) -> Result<(String, Media, Properties)> {
    let hdlr = mdia.require(FourCc::HDLR)?;
    let (_, _, mut r) = hdlr.full()?;
    r.skip(4)?;
    let handler = r.fourcc()?;
    let stbl = mdia.require(FourCc::MINF)?.require(FourCc::STBL)?;
    let stsd = stbl.require(FourCc::STSD)?;
    // Skip version, flags and count, and read only the first entry. Further entries are parameter
    // changes within one codec.
    let Some(entry) = stsd.children_after(8)?.next().transpose()? else {
        return Err(stsd.invalid("has no sample entry"));
    };
    match handler {
        FourCc::VIDE => {
            let video = codec::video(&entry)?;
            let (width, height) = shown_size(&video, tkhd);
            let properties =
                Properties { colour: video.colour, protection: video.protection, ..Properties::default() };
            Ok((video.codec, Media::Video { width, height }, properties))
        }
        FourCc::SOUN => {
            let audio = codec::audio(&entry)?;
            let (sample_rate, channels) = (audio.sample_rate, audio.channels);
            let properties = Properties {
                audio_objects: audio.objects,
                protection: audio.protection,
                ..Properties::default()
            };
            Ok((audio.codec, Media::Audio { sample_rate, channels }, properties))
        }
        FourCc::TEXT | FourCc::SUBT => Ok((codec::text(&entry)?, Media::Text, Properties::default())),
        _ => Err(hdlr.invalid("handler must be video, audio or text")),
    }
}

fn shown_size(video: &codec::VideoEntry, tkhd: &TrackHeader) -> (u32, u32) {
    if tkhd.width > 0 && tkhd.height > 0 {
        return (tkhd.width, tkhd.height);
    }
    let (width, height) = video.coded;
    let (wide, high) = video.pixel;
    let stretched = (u64::from(width) * u64::from(wide) + u64::from(high) / 2) / u64::from(high);
    (u32::try_from(stretched).unwrap_or(width), height)
}

fn sample_defaults(mvex: &Mp4Box<'_>, track_id: u32) -> Result<SampleDefaults> {
    for child in mvex.children() {
        let child = child?;
        if child.kind != FourCc::TREX {
            continue;
        }
        let (_, _, mut r) = child.full()?;
        if r.u32()? == track_id {
            r.skip(4)?;
            return Ok(SampleDefaults { duration: r.u32()?, size: r.u32()?, flags: r.u32()? });
        }
    }
    Err(mvex.fault(Fault::Missing(FourCc::TREX)))
}

/// Returns the media time that is presented first, and the delay before it, one of which is 0. CMAF
/// allows one edit, which may only shift the track (ISO/IEC 23000-19 §7.5.13). The duration of
/// preceding empty edits is subtracted if possible.
fn edit(elst: &Mp4Box<'_>, timescale: u32, movie_timescale: u32) -> Result<(u64, u64)> {
    let (version, _, mut r) = elst.full()?;
    let wide = version == 1;
    let count = r.u32()?;
    let mut delay = 0u64;
    let mut shift = None;
    for _ in 0..count {
        let duration = r.u32_or_u64(wide)?;
        let media_time = if wide { r.u64()?.cast_signed() } else { i64::from(r.i32()?) };
        r.skip(4)?;
        match u64::try_from(media_time) {
            Ok(_) if shift.is_some() => return Err(elst.invalid("must have at most one edit")),
            Ok(time) => shift = Some(time),
            Err(_) if shift.is_some() => {
                return Err(elst.invalid("must not have an empty edit after the media"));
            }
            Err(_) => delay = delay.saturating_add(duration),
        }
    }
    let shift = shift.unwrap_or(0);
    let delay = u128::from(delay) * u128::from(timescale) / u128::from(movie_timescale.max(1));
    let delay = u64::try_from(delay).unwrap_or(u64::MAX).min(MEDIA_TIME_MAX);
    Ok((shift.saturating_sub(delay), delay.saturating_sub(shift)))
}
