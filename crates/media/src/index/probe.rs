//! The index of a file by its sidx, once a few references were looked at.
//!
//! A sidx is believed where it covers all of the file's fragments, counts in the track's timescale,
//! and the fragments looked at begin where and when it says, with a sync sample. Where anything is
//! amiss the moofs are read instead, and tell what is wrong with the file, if something is.
//!
//! Its times are those of presentation, so that only its durations are used, from the second reference
//! on: ffmpeg 5.1 takes the encoder's priming off the first of AAC.

use crate::error::Result;
use crate::fourcc::FourCc;
use crate::fragment::{Fragment, MOOF_BYTES_MAX};
use crate::index::Header;
use crate::index::grouping::{Grouping, Rule, Unit};
use crate::index::rate::Rate;
use crate::index::window::{Stop, Window};
use crate::sidx::{Reference, Sidx};
use crate::track::{Media, TrackIndex};

/// References of a video track that are looked at besides, spread over the file, where the sidx does
/// not know the type of its stream access points: ffmpeg 5.1 claims one at every reference, also where
/// a fragment begins between two sync samples.
const SPREAD_REFERENCES: usize = 6;

/// Boxes of a reference that are passed over on the way to its moof.
const PROBED_BOXES_MAX: u32 = 16;

#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) header: Header,
    references: Vec<Reference>,
    /// Where each reference begins, in the file and in time from the first.
    starts: Vec<(u64, u64)>,
    end: u64,
    end_checked: bool,
    /// References to look at, in order, and how far the first of them is read.
    left: Vec<usize>,
    pos: u64,
    boxes: u32,
    /// Presentation time of each reference looked at, and the first one's decode time.
    times: Vec<(usize, u64)>,
    decode_time: u64,
    sample_duration: u64,
    has_base_data_offset: bool,
    rate: Rate,
}

/// What has become of the sidx.
pub(crate) enum Verdict {
    Unsure,
    Sound(TrackIndex),
    Unsound,
}

impl Probe {
    /// What to look at, or `None` for a sidx that cannot be the index of this whole file.
    pub(crate) fn plan(header: &Header, sidx: &Sidx, sidx_end: u64, file_size: u64) -> Option<Self> {
        let references = &sidx.references;
        let plain = references.iter().all(|r| !r.is_index && r.size > 0);
        let start = sidx_end.checked_add(sidx.first_offset)?;
        let end = start.checked_add(sidx.referenced_bytes())?;
        if references.is_empty() || !plain || sidx.timescale != header.info.timescale || end > file_size {
            return None;
        }
        let mut starts = Vec::with_capacity(references.len());
        let (mut offset, mut time) = (start, 0);
        for reference in references {
            starts.push((offset, time));
            offset += u64::from(reference.size);
            time += u64::from(reference.duration);
        }
        Some(Self {
            header: header.clone(),
            references: references.clone(),
            starts,
            end,
            end_checked: end == file_size,
            left: to_look_at(references, &header.info.media),
            pos: start,
            boxes: 0,
            times: Vec::new(),
            decode_time: 0,
            sample_duration: 0,
            has_base_data_offset: false,
            rate: Rate::default(),
        })
    }

    /// Looks at one box.
    pub(crate) fn step(&mut self, window: &Window, segment_target_ms: u32) -> Result<Verdict, Stop> {
        let looked = if !self.end_checked {
            self.check_end(window)
        } else if let Some(index) = self.left.first().copied() {
            self.look(window, index)
        } else {
            return Ok(Verdict::Sound(self.index(segment_target_ms)));
        };
        match looked {
            Ok(true) => Ok(Verdict::Unsure),
            Ok(false) | Err(Stop::Fault(_)) => Ok(Verdict::Unsound),
            Err(want @ Stop::Want(_)) => Err(want),
        }
    }

    /// Whether no further fragment follows: a file of segments with a sidx each has one there.
    fn check_end(&mut self, window: &Window) -> Result<bool, Stop> {
        let kind = window.header(self.end)?.kind;
        self.end_checked = true;
        let more = [FourCc::SIDX, FourCc::STYP, FourCc::PRFT, FourCc::EMSG, FourCc::MOOF, FourCc::MDAT];
        Ok(!more.contains(&kind) && kind != FourCc::MOOV)
    }

    /// Reads one box of a reference; at its moof, goes on to the next reference.
    fn look(&mut self, window: &Window, index: usize) -> Result<bool, Stop> {
        let (start, _) = self.starts[index];
        let reference = self.references[index];
        let header = window.header(self.pos)?;
        if header.kind != FourCc::MOOF {
            self.pos += header.size_in(self.pos, window.file_size)?;
            self.boxes += 1;
            let inside = self.pos < start + u64::from(reference.size);
            return Ok(inside && header.kind != FourCc::MDAT && self.boxes < PROBED_BOXES_MAX);
        }
        let moof = window.whole(self.pos, &header, ("MOOF_BYTES_MAX", MOOF_BYTES_MAX))?;
        let fragment = Fragment::parse(moof, self.pos, &self.header.info)?;
        let synced = fragment.starts_with_sync || !reference.starts_with_sap && index > 0;
        self.sample_duration = fragment.duration / u64::from(fragment.sample_count);
        if index == 0 {
            self.decode_time = fragment.decode_time;
        }
        self.times.push((index, fragment.presentation_time));
        self.has_base_data_offset |= fragment.has_base_data_offset;
        self.rate.add(fragment.sample_duration);
        self.left.remove(0);
        self.boxes = 0;
        self.pos = self.left.first().map_or(self.end, |next| self.starts[*next].0);
        // But for the first, whose duration may be told without priming.
        let fits =
            index == 0 || fragment.duration <= u64::from(reference.duration) + self.sample_duration / 2;
        Ok(synced && fits && self.agrees())
    }

    /// Whether the last reference looked at begins when the sidx says, within half a sample: counted
    /// from the second. The first may begin earlier or later by half its duration.
    fn agrees(&self) -> bool {
        let (Some((index, time)), Some((_, first))) = (self.times.last(), self.times.first()) else {
            return true;
        };
        let told = |index: usize| i128::from(self.starts[index].1);
        let tolerance = match index {
            0 | 1 => u64::from(self.references[0].duration) / 2,
            _ => self.sample_duration / 2,
        };
        let (from, seen) = match self.times.get(1) {
            Some((second, seen)) if *index > 1 => (*second, seen),
            _ => (0, first),
        };
        let off = i128::from(*time) - i128::from(*seen) - (told(*index) - told(from));
        off.unsigned_abs() <= u128::from(tolerance)
    }

    /// Presentation time and duration of each reference: the first as it was seen, the others counted
    /// from the second.
    fn reference_times(&self) -> Vec<(u64, u64)> {
        let first = self.times.first().map_or(0, |(_, time)| *time);
        let second = self.times.get(1).map_or(first, |(_, time)| *time);
        let mut time = first;
        let mut times = Vec::with_capacity(self.references.len());
        for (index, reference) in self.references.iter().enumerate() {
            let duration = match index {
                0 if second > first => second - first,
                _ => u64::from(reference.duration),
            };
            times.push((time, duration));
            time += duration;
        }
        times
    }

    fn index(&self, segment_target_ms: u32) -> TrackIndex {
        let info = &self.header.info;
        let mut grouping = Grouping::new(self.rule(segment_target_ms), info, segment_target_ms);
        let knows_sap = self.references.iter().any(|r| r.starts_with_sap);
        let times = self.reference_times();
        for ((reference, (offset, _)), (time, duration)) in
            self.references.iter().zip(&self.starts).zip(&times)
        {
            grouping.push(&Unit {
                offset: *offset,
                end: offset + u64::from(reference.size),
                decode_time: self.decode_time + (time - times[0].0),
                presentation_time: *time,
                duration: *duration,
                sample_duration: self.sample_duration,
                sync: reference.starts_with_sap || !knows_sap,
            });
        }
        TrackIndex {
            info: info.clone(),
            header_size: self.header.size,
            frame_rate: self.rate.frame_rate(info),
            has_base_data_offset: self.has_base_data_offset,
            segments: grouping.finish(),
        }
    }

    /// References are segments, unless they are much shorter than one: then they are chunks.
    fn rule(&self, segment_target_ms: u32) -> Rule {
        let total: u128 = self.references.iter().map(|r| u128::from(r.duration)).sum();
        let target = u128::from(segment_target_ms) * u128::from(self.header.info.timescale);
        let mean_is_short = 2 * 1000 * total < target * self.references.len() as u128;
        if mean_is_short { Rule::of(&self.header.info.media) } else { Rule::Each }
    }
}

/// Which references to look at, the first, the second and the last always, for their times.
fn to_look_at(references: &[Reference], media: &Media) -> Vec<usize> {
    let last = references.len() - 1;
    let mut chosen = vec![0, 1.min(last), last];
    let claims = |r: &Reference| r.starts_with_sap && r.sap_type == 0;
    let unsure = references.iter().any(claims) || !references.iter().any(|r| r.starts_with_sap);
    if unsure && matches!(media, Media::Video { .. }) {
        chosen.extend((0..SPREAD_REFERENCES).map(|i| last * i / SPREAD_REFERENCES));
    }
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}
