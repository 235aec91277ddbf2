//! Start of a file, before the first fragment: the CMAF header, and possibly a sidx.

use crate::boxes::Mp4Box;
use crate::error::{Error, Fault, Result};
use crate::fourcc::FourCc;
use crate::header::{self, MOOV_BYTES_MAX};
use crate::index::probe::Probe;
use crate::index::window::{Stop, Window};
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

/// Reads one box; returns the header once the box is the moov.
pub(crate) fn header_step(
    window: &Window,
    pos: &mut u64,
    ftyp_seen: &mut bool,
) -> Result<Option<Header>, Stop> {
    let at = *pos;
    if at > 0 && window.ends_at(at)? {
        return Err(Error::new(0, FourCc::FTYP, Fault::Missing(FourCc::MOOV)).into());
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
        FourCc::FTYP => *ftyp_seen = true,
        FourCc::MOOV if !*ftyp_seen => return Err(Error::invalid(at, kind, header::NO_FTYP).into()),
        FourCc::MOOV => {
            let moov = window.whole(at, &box_header, ("MOOV_BYTES_MAX", MOOV_BYTES_MAX))?;
            let (info, delay) = header::parse_delayed_moov(&Mp4Box::parse(moov, at)?)?;
            return Ok(Some(Header { info, size: at + moov.len() as u64, delay }));
        }
        // A fragmented file has its moov first. Media before the moov means that the file is
        // progressive.
        FourCc::MDAT if *ftyp_seen => return Err(Error::new(at, kind, Fault::Progressive).into()),
        FourCc::MOOF | FourCc::MDAT => return Err(Error::new(at, kind, Fault::MissingHeader).into()),
        _ => {}
    }
    *pos = at + box_header.size_in(at, window.file_size)?;
    Ok(None)
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
