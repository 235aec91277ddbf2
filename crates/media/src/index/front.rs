//! Start of a file, before the first fragment: the CMAF header, and possibly a sidx.

use crate::boxes::{BoxHeader, Mp4Box};
use crate::error::{Error, Fault, Result};
use crate::fourcc::FourCc;
use crate::header;
use crate::index::probe::Probe;
use crate::index::window::{Stop, Window};
use crate::progressive::{MOVIE_MOOV_BYTES_MAX, Movie};
use crate::sidx::{SIDX_BYTES_MAX, Sidx};
use crate::track::TrackInfo;

/// The CMAF header of the indexed file.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    pub(crate) info: TrackInfo,
    pub(crate) size: u64,
    /// Delay by empty edits, in the track's timescale.
    pub(crate) delay: u64,
}

/// The search for the moov of a file.
#[derive(Debug, Default)]
pub(crate) struct HeaderSearch {
    pos: u64,
    ftyp_seen: bool,
    /// Position of the first mdat, if media precedes the moov.
    mdat: Option<u64>,
}

/// The result of reading one box.
pub(crate) enum Found {
    /// The box is not a moov.
    Box,
    /// The moov of a track file.
    Header(Header),
    /// The moov of a progressive file.
    Movie(Movie),
}

impl HeaderSearch {
    /// Reads one box.
    pub(crate) fn step(&mut self, window: &Window, segment_target_ms: u32) -> Result<Found, Stop> {
        let at = self.pos;
        if at > 0 && window.ends_at(at)? {
            return Err(match self.mdat {
                Some(mdat) => Error::new(mdat, FourCc::MDAT, Fault::MissingMoov),
                None => Error::new(0, FourCc::FTYP, Fault::Missing(FourCc::MOOV)),
            }
            .into());
        }
        let box_header = match window.header(at) {
            Err(Stop::Fault(_)) if at == 0 => return Err(not_iso_bmff().into()),
            other => other?,
        };
        let kind = box_header.kind;
        if at == 0 && !kind.can_begin() {
            return Err(not_iso_bmff().into());
        }
        match kind {
            FourCc::FTYP => self.ftyp_seen = true,
            FourCc::MOOV if !self.ftyp_seen => {
                return Err(Error::invalid(at, kind, header::NO_FTYP).into());
            }
            FourCc::MOOV => return self.moov(window, &box_header, segment_target_ms),
            FourCc::MDAT if self.ftyp_seen => {
                self.mdat.get_or_insert(at);
            }
            FourCc::MOOF | FourCc::MDAT => return Err(Error::new(at, kind, Fault::MissingHeader).into()),
            _ => {}
        }
        self.pos = at + box_header.size_in(at, window.file_size)?;
        Ok(Found::Box)
    }

    fn moov(&self, window: &Window, box_header: &BoxHeader, target_ms: u32) -> Result<Found, Stop> {
        let limit = ("MOVIE_MOOV_BYTES_MAX", MOVIE_MOOV_BYTES_MAX);
        let bytes = window.whole(self.pos, box_header, limit)?;
        let moov = Mp4Box::parse(bytes, self.pos)?;
        if moov.find(FourCc::MVEX)?.is_none() {
            return Ok(Found::Movie(Movie::parse(&moov, window.file_size, target_ms)?));
        }
        if let Some(mdat) = self.mdat {
            let what = "media data before the moov of a fragmented file";
            return Err(Error::invalid(mdat, FourCc::MDAT, what).into());
        }
        let (max, found) = (header::MOOV_BYTES_MAX, bytes.len() as u64);
        if found > max {
            return Err(moov.fault(Fault::OverLimit { limit: "MOOV_BYTES_MAX", max, found }).into());
        }
        let (info, delay) = header::parse_delayed_moov(&moov)?;
        Ok(Found::Header(Header { info, size: self.pos + bytes.len() as u64, delay }))
    }
}

fn not_iso_bmff() -> Error {
    Error::new(0, FourCc::FTYP, Fault::NotIsoBmff)
}

/// A box between moov and the first fragment.
pub(crate) enum Front {
    /// The box is irrelevant.
    Box,
    /// The box is a sidx that may index the whole file.
    Index(Box<Probe>),
    /// The first fragment begins; the file has no usable sidx.
    Fragment,
}

/// Reads one box between moov and the first fragment.
pub(crate) fn front_step(window: &Window, header: &Header, pos: &mut u64) -> Result<Front, Stop> {
    let at = *pos;
    if window.ends_at(at)? {
        return Err(Error::new(0, FourCc::FTYP, Fault::Empty).into());
    }
    let box_header = window.header(at)?;
    match box_header.kind {
        FourCc::MOOF | FourCc::MDAT | FourCc::PRFT | FourCc::EMSG | FourCc::MOOV => Ok(Front::Fragment),
        FourCc::SIDX => {
            let bytes = window.whole(at, &box_header, ("SIDX_BYTES_MAX", SIDX_BYTES_MAX))?;
            let plan = Sidx::parse(bytes, at)
                .ok()
                .and_then(|sidx| Probe::plan(header, &sidx, at + bytes.len() as u64, window.file_size));
            Ok(plan.map_or(Front::Fragment, |probe| Front::Index(Box::new(probe))))
        }
        _ => {
            *pos = at + box_header.size_in(at, window.file_size)?;
            Ok(Front::Box)
        }
    }
}
