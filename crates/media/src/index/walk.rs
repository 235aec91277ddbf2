//! Index built from all moofs of a file: reads box by box and skips every mdat.
//!
//! **Invariant:** the position advances with every box, and only once all needed bytes of the box
//! are available.

use crate::boxes::BoxHeader;
use crate::error::{Error, Fault, Result};
use crate::fourcc::FourCc;
use crate::fragment::{Fragment, MOOF_BYTES_MAX};
use crate::index::front::Header;
use crate::index::grouping::{Grouping, Rule, Unit};
use crate::index::rate::Rate;
use crate::index::window::{Stop, Window};
use crate::track::Media;
use crate::track::TrackIndex;

/// Maximum top-level boxes in a file. A day of 0.5 s chunks has about 700,000.
pub const TOP_LEVEL_BOXES_MAX: u64 = 1 << 22;

#[derive(Debug)]
pub(crate) struct Walk {
    header: Header,
    pos: u64,
    boxes: u64,
    /// Start of the boxes that lead the next moof (styp, prft, emsg).
    lead: Option<u64>,
    /// A moof whose mdat has not been reached yet.
    open: Option<OpenFragment>,
    decode_time: Option<u64>,
    has_base_data_offset: bool,
    all_sync: bool,
    grouping: Grouping,
    rate: Rate,
}

#[derive(Debug)]
struct OpenFragment {
    start: u64,
    moof_offset: u64,
    fragment: Fragment,
}

impl Walk {
    pub(crate) fn new(header: &Header, segment_target_ms: u32) -> Self {
        let rule = Rule::of(&header.info.media);
        Self {
            header: header.clone(),
            pos: header.size,
            boxes: 0,
            lead: None,
            open: None,
            decode_time: None,
            has_base_data_offset: false,
            all_sync: true,
            grouping: Grouping::new(rule, &header.info, segment_target_ms),
            rate: Rate::default(),
        }
    }

    /// Reads one box; at the end of the file, returns the index.
    pub(crate) fn step(&mut self, window: &mut Window) -> Result<Option<TrackIndex>, Stop> {
        if window.ends_at(self.pos)? {
            return Ok(Some(self.finish()?));
        }
        let at = self.pos;
        let header = window.header(at)?;
        let size = match header.kind {
            FourCc::MOOF => self.moof(window, &header)?,
            FourCc::MDAT => self.mdat(window, &header)?,
            FourCc::MOOV => {
                return Err(
                    Error::invalid(at, header.kind, "must be the only CMAF header in the file").into()
                );
            }
            kind => {
                if matches!(kind, FourCc::STYP | FourCc::PRFT | FourCc::EMSG) {
                    self.lead.get_or_insert(at);
                }
                header.size_in(at, window.file_size)?
            }
        };
        self.boxes += 1;
        if self.boxes > TOP_LEVEL_BOXES_MAX {
            let (limit, max, found) = ("TOP_LEVEL_BOXES_MAX", TOP_LEVEL_BOXES_MAX, self.boxes);
            return Err(Error::new(at, header.kind, Fault::OverLimit { limit, max, found }).into());
        }
        self.pos = at + size;
        Ok(None)
    }

    fn moof(&mut self, window: &mut Window, header: &BoxHeader) -> Result<u64, Stop> {
        let at = self.pos;
        self.no_open_fragment()?;
        let bytes = window.whole(at, header, ("MOOF_BYTES_MAX", MOOF_BYTES_MAX))?;
        let size = bytes.len() as u64;
        let fragment = Fragment::parse(bytes, at, &self.header.info)?;
        match self.decode_time {
            Some(before) if fragment.decode_time < before => {
                let what = "decode time (tfdt) must not be before the previous fragment's";
                return Err(Error::invalid(at, header.kind, what).into());
            }
            None if self.is_video() && !fragment.starts_with_sync => {
                let what = "the track's first sample must be a sync sample, so that playback can start";
                return Err(Error::invalid(at, header.kind, what).into());
            }
            _ => {}
        }
        self.decode_time = Some(fragment.decode_time);
        self.has_base_data_offset |= fragment.has_base_data_offset;
        self.all_sync &= fragment.all_sync;
        let start = self.lead.take().unwrap_or(at);
        window.learn(at + size - start);
        self.open = Some(OpenFragment { start, moof_offset: at, fragment });
        Ok(size)
    }

    fn mdat(&mut self, window: &Window, header: &BoxHeader) -> Result<u64, Stop> {
        let at = self.pos;
        let size = header.size_in(at, window.file_size)?;
        let Some(open) = self.open.take() else {
            if size == u64::from(header.header_size) {
                return Ok(size);
            }
            let what = "media data without a moof: create the file with ffmpeg's -movflags +empty_moov";
            return Err(Error::invalid(at, header.kind, what).into());
        };
        let fragment = open.fragment;
        fragment.check_data(open.moof_offset, at, header)?;
        self.rate.add(fragment.sample_duration);
        let is_video = self.is_video();
        self.grouping.push(&Unit {
            offset: open.start,
            end: at + size,
            decode_time: fragment.decode_time,
            presentation_time: fragment.presentation_time,
            duration: fragment.duration,
            sample_duration: fragment.duration / u64::from(fragment.sample_count),
            sync: fragment.starts_with_sync,
            key_size: u32::try_from(open.moof_offset + fragment.first_sample_end - open.start)
                .ok()
                .filter(|_| is_video && fragment.starts_with_sync),
        });
        Ok(size)
    }

    fn finish(&mut self) -> Result<TrackIndex> {
        self.no_open_fragment()?;
        if self.decode_time.is_none() {
            return Err(Error::new(0, FourCc::FTYP, Fault::Empty));
        }
        let (segments, key_sizes) = self.grouping.clone().finish(self.header.delay);
        Ok(TrackIndex {
            info: self.header.info.clone(),
            header_size: self.header.size,
            frame_rate: self.rate.frame_rate(&self.header.info),
            has_base_data_offset: self.has_base_data_offset,
            all_sync: self.all_sync,
            delay: self.header.delay,
            segments,
            key_sizes,
        })
    }

    fn no_open_fragment(&self) -> Result<()> {
        match &self.open {
            Some(open) => Err(Error::invalid(open.moof_offset, FourCc::MOOF, "must be followed by an mdat")),
            None => Ok(()),
        }
    }

    fn is_video(&self) -> bool {
        matches!(self.header.info.media, Media::Video { .. })
    }
}
