//! Progressive MP4: a file whose samples are listed in its moov (ISO/IEC 14496-12 §8.5), with any
//! number of tracks, and its presentation as CMAF tracks.
//!
//! Each track is presented as if it were a CMAF track file: a header, and segments of one fragment
//! each. Nothing of that file exists except its index. [`MovieTrack::header`] is the header, and
//! [`MovieTrack::segment`] yields a segment's boxes and the places of its media in the movie.
//! Offsets in the [`TrackIndex`] are those of the CMAF file.
//!
//! **Invariant:** the CMAF file depends only on the movie and the target duration, byte for byte. A
//! change to its form must change [`FORM`].
//!
//! **Invariant:** segments contain every sample once, in decoding order, and a segment has the size
//! stated in the index. Each video segment begins with a sync sample.

mod build;
mod column;
mod cut;
mod edits;
mod extents;
mod fragment;
mod header;
mod limits;
pub mod reads;
mod table;

use std::ops::Range;

use crate::boxes::Mp4Box;
use crate::error::{Error, Fault, Result};
use crate::fourcc::FourCc;
use crate::header::{self as cmaf_header, parse_trak};
use crate::track::{Media, Segment, TrackIndex};
use cut::{Boundaries, Cut, CutTrack, Uncut};
use fragment::Layout;
pub use limits::{
    MOVIE_MOOV_BYTES_MAX, MOVIE_SAMPLES_MAX, MOVIE_TRACKS_MAX, SAMPLES_MAX, SEGMENT_BYTES_MAX,
    SEGMENT_SAMPLES_MAX,
};
use table::SampleTable;

/// Version of the form of the CMAF file; part of URLs and entity tags.
pub const FORM: &str = "p1";

/// A progressive file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Movie {
    /// Tracks that can be served, in the file's order; at least one, or `faults` is not empty.
    pub tracks: Vec<MovieTrack>,
    /// Media tracks that cannot be served.
    pub faults: Vec<TrackFault>,
    /// Number of tracks in the file, including those that are not media.
    pub track_count: usize,
}

/// A media track that cannot be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackFault {
    /// Number of the track in the file, from 1.
    pub number: usize,
    /// The first fault of the track.
    pub error: Error,
}

/// A track of a progressive file, presented as a CMAF file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovieTrack {
    /// Number of the track in the file, from 1.
    pub number: usize,
    /// Index of the CMAF file. A delay by an empty edit is already in its times and in the
    /// segments, so [`TrackIndex::delay`] is 0.
    pub index: TrackIndex,
    header: Vec<u8>,
    table: SampleTable,
    cuts: Vec<Cut>,
}

/// A segment of a CMAF file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentParts {
    /// The boxes: moof, and the header of the mdat.
    pub head: Vec<u8>,
    /// Ranges of the movie that follow `head`, in order.
    pub data: Vec<Range<u64>>,
}

impl MovieTrack {
    /// Returns the CMAF header.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// Returns the parts of a segment of [`MovieTrack::index`]; `None` if the index has no such
    /// segment.
    #[must_use]
    pub fn segment(&self, segment: &Segment) -> Option<SegmentParts> {
        let number = self.index.segments.binary_search_by_key(&segment.offset, |s| s.offset).ok()?;
        let cut = self.cuts.get(number)?;
        let end = self.cuts.get(number + 1).map_or(self.table.count(), |next| next.first);
        let count = end - cut.first;
        let mut layout = Layout::default();
        self.table.samples_from(cut.first).take(count as usize).for_each(|sample| layout.add(sample));
        let sequence_number = u32::try_from(number + 1).unwrap_or(u32::MAX);
        let samples = self.table.samples_from(cut.first);
        let head = layout.write(self.index.info.track_id, sequence_number, cut.decode_time, samples);
        Some(SegmentParts { head, data: self.table.data(cut.first, count, cut.position) })
    }

    /// Returns the memory that the track takes, in bytes: about 4 per video sample and 2 per audio
    /// sample, and 56 per segment.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let per_segment = size_of::<Segment>() + size_of::<Cut>();
        self.header.len() + self.table.memory_bytes() + per_segment * self.cuts.len()
    }
}

impl Movie {
    /// Reads the moov of a progressive file of `file_size` bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the moov is malformed, or describes no media track. A fault within one
    /// track only goes to [`Movie::faults`].
    pub(crate) fn parse(moov: &Mp4Box<'_>, file_size: u64, segment_target_ms: u32) -> Result<Self> {
        let mut traks = Vec::new();
        for child in moov.children() {
            let child = child?;
            if child.kind == FourCc::TRAK {
                traks.push(child);
            }
        }
        over(moov, "MOVIE_TRACKS_MAX", MOVIE_TRACKS_MAX as u64, traks.len() as u64)?;
        let (mut sources, mut faults, mut samples) = (Vec::new(), Vec::new(), 0);
        for (number, trak) in (1..).zip(&traks) {
            match Source::parse(moov, trak, number, file_size) {
                Ok(Some(source)) => {
                    samples += u64::from(source.table.count());
                    sources.push(source);
                }
                Ok(None) => {}
                Err(error) => faults.push(TrackFault { number, error }),
            }
            over(moov, "MOVIE_SAMPLES_MAX", MOVIE_SAMPLES_MAX, samples)?;
        }
        // Video first, because its boundaries are the others'.
        sources.sort_by_key(|source| (!source.is_video(), source.number));
        let (mut tracks, mut boundaries) = (Vec::new(), None);
        for source in sources {
            let number = source.number;
            match source.present(moov, segment_target_ms, &mut boundaries) {
                Ok(track) => tracks.push(track),
                Err(error) => faults.push(TrackFault { number, error }),
            }
        }
        if tracks.is_empty() && faults.is_empty() {
            return Err(moov.invalid("has no video, audio or text track"));
        }
        tracks.sort_by_key(|track| track.number);
        faults.sort_by_key(|fault| fault.number);
        Ok(Self { tracks, faults, track_count: traks.len() })
    }

    /// Returns the memory that the movie takes, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.tracks.iter().map(MovieTrack::memory_bytes).sum()
    }
}

/// A track as described by the file.
struct Source<'a> {
    number: usize,
    trak: Mp4Box<'a>,
    stbl: Mp4Box<'a>,
    info: crate::track::TrackInfo,
    delay: u64,
    table: SampleTable,
}

impl<'a> Source<'a> {
    /// Reads a track; returns `None` if it is not media, such as a timecode track.
    fn parse(moov: &Mp4Box<'a>, trak: &Mp4Box<'a>, number: usize, file_size: u64) -> Result<Option<Self>> {
        let mdia = trak.require(FourCc::MDIA)?;
        let minf = mdia.require(FourCc::MINF)?;
        let stbl = minf.require(FourCc::STBL)?;
        let stsd = stbl.require(FourCc::STSD)?;
        let entry = stsd.children_after(8)?.next().transpose()?;
        if !is_media(cmaf_header::handler(&mdia)?, entry.as_ref()) {
            return Ok(None);
        }
        if let Some(entry) = entry.filter(|entry| is_encrypted(entry.kind)) {
            return Err(entry.invalid(
                "the track is encrypted, which is supported only in fragmented files: fragment it with the packager that \
                 encrypted it",
            ));
        }
        if let Some(entry) = entry.filter(|entry| entry.kind == FourCc::TX3G) {
            return Err(entry.invalid(
                "3GPP timed text is not supported: subtitles must be WebVTT ('wvtt') or TTML ('stpp')",
            ));
        }
        is_self_contained(&minf)?;
        let timescale = cmaf_header::timescale(&mdia)?;
        let movie_timescale = cmaf_header::movie_timescale(&moov.require(FourCc::MVHD)?)?;
        let edit_end = edits::end(trak, timescale, movie_timescale)?;
        let (info, delay) = parse_trak(moov, trak)?;
        let mut table = SampleTable::parse(&stbl, file_size)?;
        if let Some(end) = edit_end {
            let whole = Uncut { table: &table, info: &info, delay, segment_target_ms: 0 };
            let count = whole.count_before(end);
            if count == 0 {
                return Err(trak.invalid("the edit list excludes all of the media"));
            }
            table.truncate(count);
        }
        let is_video = matches!(info.media, Media::Video { .. });
        if is_video && !table.samples_from(0).next().is_some_and(table::Sample::is_sync) {
            return Err(stbl.invalid(
                "the track's first sample must be a sync sample, so that playback can start: encode the file again",
            ));
        }
        Ok(Some(Self { number, trak: *trak, stbl, info, delay, table }))
    }

    fn is_video(&self) -> bool {
        matches!(self.info.media, Media::Video { .. })
    }

    /// Cuts the track, at `boundaries` unless it is video; the first video track sets them.
    fn present(
        self,
        moov: &Mp4Box<'_>,
        segment_target_ms: u32,
        boundaries: &mut Option<Boundaries>,
    ) -> Result<MovieTrack> {
        let header = header::write(moov, &self.trak, &self.info)?;
        let header_size = header.len() as u64;
        let uncut = Uncut { table: &self.table, info: &self.info, delay: self.delay, segment_target_ms };
        let firsts = uncut.firsts(boundaries.as_ref());
        let CutTrack { segments, cuts, key_sizes } = uncut.segments(&self.stbl, &firsts, header_size)?;
        if self.is_video() && boundaries.is_none() {
            *boundaries = Some(Boundaries::of(&uncut, &segments));
        }
        let index = TrackIndex {
            header_size,
            frame_rate: uncut.frame_rate(),
            has_base_data_offset: false,
            delay: 0,
            all_sync: self.table.samples_from(0).all(table::Sample::is_sync),
            segments,
            key_sizes,
            info: self.info,
        };
        Ok(MovieTrack { number: self.number, index, header, table: self.table, cuts })
    }
}

/// Returns whether a track with this handler is media. Chapter titles, which are text samples of
/// QuickTime, are not.
fn is_media(handler: FourCc, entry: Option<&Mp4Box<'_>>) -> bool {
    match handler {
        FourCc::VIDE | FourCc::SOUN | FourCc::SUBT | FourCc::SBTL => true,
        FourCc::TEXT => entry.is_none_or(|entry| entry.kind != FourCc::TEXT),
        _ => false,
    }
}

/// Returns whether a sample entry is that of an encrypted track (ISO/IEC 14496-12 §8.12).
fn is_encrypted(entry: FourCc) -> bool {
    matches!(&entry.0, b"encv" | b"enca" | b"enct" | b"encs" | b"encm" | b"drms" | b"drmi")
}

fn over(moov: &Mp4Box<'_>, limit: &'static str, max: u64, found: u64) -> Result<()> {
    if found > max { Err(moov.fault(Fault::OverLimit { limit, max, found })) } else { Ok(()) }
}

/// Checks that the media is in the file itself (dref, §8.7.2).
fn is_self_contained(minf: &Mp4Box<'_>) -> Result<()> {
    let Some(dinf) = minf.find(FourCc::DINF)? else { return Ok(()) };
    let Some(dref) = dinf.find(FourCc::DREF)? else { return Ok(()) };
    for entry in dref.children_after(8)? {
        let entry = entry?;
        if entry.full()?.1 & 1 == 0 {
            return Err(entry.invalid(
                "the media is in another file, named by the data reference: copy it into this file with `ffmpeg -i IN.mp4 \
                 -map 0 -c copy OUT.mp4`",
            ));
        }
    }
    Ok(())
}
