//! Index built from a file's sidx, which is verified at a few references.
//!
//! A sidx is used if it covers all fragments of the file and has the track's timescale, and if each
//! probed fragment begins with a sync sample at the position and time stated by the sidx. Otherwise
//! every moof is read, which also reveals any fault in the file.
//!
//! Sidx times are presentation times, so only the sidx durations are used, and only from the second
//! reference on. ffmpeg 5.1 subtracts the encoder's priming from the first duration of an AAC
//! track.

use crate::error::Result;
use crate::fourcc::FourCc;
use crate::fragment::{Fragment, MOOF_BYTES_MAX};
use crate::index::front::Header;
use crate::index::grouping::{Grouping, Rule, Unit};
use crate::index::rate::Rate;
use crate::index::window::{Stop, Window};
use crate::sidx::{Reference, Sidx};
use crate::track::{Media, TrackIndex};

/// Number of additional references to probe in a video track, spread over the file, if the sidx
/// does not state the type of its stream access points. ffmpeg 5.1 claims an access point at every
/// reference, even if the fragment begins between two sync samples.
const SPREAD_REFERENCES: usize = 6;

/// Maximum boxes to skip before a reference's moof.
const PROBED_BOXES_MAX: u32 = 16;

#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) header: Header,
    references: Vec<Reference>,
    /// Start of each reference: file offset, and time since the first reference.
    starts: Vec<(u64, u64)>,
    end: u64,
    end_checked: bool,
    /// References still to probe, in order, and the position within the first of them.
    left: Vec<usize>,
    pos: u64,
    boxes: u32,
    /// Presentation time of each probed reference, and the decode time of the first.
    times: Vec<(usize, u64)>,
    decode_time: u64,
    sample_duration: u64,
    has_base_data_offset: bool,
    all_sync: bool,
    rate: Rate,
}

/// The result of checking a sidx.
pub(crate) enum Verdict {
    Unsure,
    Sound(TrackIndex),
    Unsound,
}

impl Probe {
    /// Plans the probe of a sidx; returns `None` if the sidx cannot index the whole file.
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
            left: references_to_probe(references, &header.info.media),
            pos: start,
            boxes: 0,
            times: Vec::new(),
            decode_time: 0,
            sample_duration: 0,
            has_base_data_offset: false,
            all_sync: true,
            rate: Rate::default(),
        })
    }

    /// Reads one box.
    pub(crate) fn step(&mut self, window: &Window, segment_target_ms: u32) -> Result<Verdict, Stop> {
        let outcome = if !self.end_checked {
            self.check_end(window)
        } else if let Some(index) = self.left.first().copied() {
            self.read_reference(window, index)
        } else {
            return Ok(Verdict::Sound(self.index(segment_target_ms)));
        };
        match outcome {
            Ok(true) => Ok(Verdict::Unsure),
            Ok(false) | Err(Stop::Fault(_)) => Ok(Verdict::Unsound),
            Err(want @ Stop::Want(_)) => Err(want),
        }
    }

    /// Returns whether the references extend to the last fragment. In a file with one sidx per
    /// segment, further fragments follow them.
    fn check_end(&mut self, window: &Window) -> Result<bool, Stop> {
        let kind = window.header(self.end)?.kind;
        self.end_checked = true;
        let more = [FourCc::SIDX, FourCc::STYP, FourCc::PRFT, FourCc::EMSG, FourCc::MOOF, FourCc::MDAT];
        Ok(!more.contains(&kind) && kind != FourCc::MOOV)
    }

    /// Reads one box of a reference; after its moof, advances to the next reference.
    fn read_reference(&mut self, window: &Window, index: usize) -> Result<bool, Stop> {
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
        self.all_sync &= fragment.all_sync;
        self.rate.add(fragment.sample_duration);
        self.left.remove(0);
        self.boxes = 0;
        self.pos = self.left.first().map_or(self.end, |next| self.starts[*next].0);
        // The first reference is exempt, because its duration may exclude priming.
        let fits =
            index == 0 || fragment.duration <= u64::from(reference.duration) + self.sample_duration / 2;
        Ok(synced && fits && self.agrees())
    }

    /// Returns whether the last probed reference begins at the time stated by the sidx. Times are
    /// relative to the second reference, with a tolerance of half a sample. The second itself is
    /// compared with the first, with a tolerance of half the first duration.
    fn agrees(&self) -> bool {
        let (Some((index, time)), Some((_, first))) = (self.times.last(), self.times.first()) else {
            return true;
        };
        let stated = |index: usize| i128::from(self.starts[index].1);
        let tolerance = match index {
            0 | 1 => u64::from(self.references[0].duration) / 2,
            _ => self.sample_duration / 2,
        };
        let (from, seen) = match self.times.get(1) {
            Some((second, seen)) if *index > 1 => (*second, seen),
            _ => (0, first),
        };
        let off = i128::from(*time) - i128::from(*seen) - (stated(*index) - stated(from));
        off.unsigned_abs() <= u128::from(tolerance)
    }

    /// Returns the presentation time and duration of each reference. The first two times are as
    /// probed; the others follow from the stated durations.
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
                // Known only to the moofs, which are not read.
                key_size: None,
            });
        }
        let (segments, key_sizes) = grouping.finish(self.header.delay);
        TrackIndex {
            info: info.clone(),
            header_size: self.header.size,
            frame_rate: self.rate.frame_rate(info),
            has_base_data_offset: self.has_base_data_offset,
            all_sync: self.all_sync,
            delay: self.header.delay,
            segments,
            key_sizes,
        }
    }

    /// Returns the grouping rule: references count as segments or, if they are much shorter than
    /// the target, as chunks.
    fn rule(&self, segment_target_ms: u32) -> Rule {
        let total: u128 = self.references.iter().map(|r| u128::from(r.duration)).sum();
        let target = u128::from(segment_target_ms) * u128::from(self.header.info.timescale);
        let mean_is_short = 2 * 1000 * total < target * self.references.len() as u128;
        if mean_is_short { Rule::of(&self.header.info.media) } else { Rule::Each }
    }
}

/// Returns the references to probe. These always include the first, the second and the last, whose
/// times are checked.
fn references_to_probe(references: &[Reference], media: &Media) -> Vec<usize> {
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
