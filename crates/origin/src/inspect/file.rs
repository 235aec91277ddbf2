//! Contents of one file: its top-level boxes and the tracks in its moov. The media is not read.

use thalweg_media::boxes::{BOX_HEADER_BYTES_MAX, BoxHeader, Mp4Box};
use thalweg_media::fourcc::FourCc;
use thalweg_media::header::MOOV_BYTES_MAX;
use thalweg_media::summary::{self, Movie};

use super::report::{BoxRun, EditReport, FileReport, TrackReport};
use crate::storage::{Object, ObjectReader, StorageError};

/// Maximum top-level boxes read per file.
const BOXES_MAX: usize = 4096;

/// Describes a file. Also returns its moov, if it is readable.
pub(super) async fn describe(
    reader: &ObjectReader,
    object: &Object,
) -> Result<(FileReport, Option<Movie>), StorageError> {
    let mut boxes: Vec<(FourCc, u64)> = Vec::new();
    let (mut pos, mut movie) = (0, None);
    while pos < object.size && boxes.len() < BOXES_MAX {
        let len = (object.size - pos).min(BOX_HEADER_BYTES_MAX as u64);
        let bytes = reader.read(pos, len).await?;
        let Ok(Some(header)) = BoxHeader::parse(&bytes, pos) else { break };
        if pos == 0 && !header.kind.can_begin() {
            break;
        }
        let size = header.size.unwrap_or(object.size - pos);
        if header.kind == FourCc::MOOV && size <= MOOV_BYTES_MAX.min(object.size - pos) {
            let bytes = reader.read(pos, size).await?;
            movie = Mp4Box::parse(&bytes, pos).and_then(|moov| summary::movie(&moov)).ok();
        }
        boxes.push((header.kind, size));
        pos = pos.saturating_add(size);
    }
    let report = FileReport {
        file: object.key.clone(),
        size_bytes: object.size,
        boxes: collapse(&boxes),
        has_more_boxes: boxes.len() == BOXES_MAX && pos < object.size,
        is_fragmented: movie.as_ref().map(|movie| movie.is_fragmented),
        tracks: movie.as_ref().map(tracks).unwrap_or_default(),
    };
    Ok((report, movie))
}

fn tracks(movie: &Movie) -> Vec<TrackReport> {
    let seconds = |value: u64, timescale: u32| value as f64 / f64::from(timescale.max(1));
    let track = |track: &summary::Track| TrackReport {
        id: track.id,
        handler: track.handler.to_string(),
        sample_entry: track.sample_entry.map(|entry| entry.to_string()),
        timescale: track.timescale,
        duration_s: seconds(track.duration, track.timescale),
        edits: track
            .edits
            .iter()
            .map(|edit| EditReport {
                duration_s: seconds(edit.duration, movie.timescale),
                media_time_s: edit.media_time.map(|time| seconds(time, track.timescale)),
            })
            .collect(),
    };
    movie.tracks.iter().map(track).collect()
}

/// Boxes that may precede a moof, which begins most fragments without them.
const LEADS: [FourCc; 3] = [FourCc::STYP, FourCc::PRFT, FourCc::EMSG];

/// Collapses boxes into runs of equal groups. A group ends with an mdat. Boxes that lead only some
/// groups of a run are in brackets.
fn collapse(boxes: &[(FourCc, u64)]) -> Vec<BoxRun> {
    let mut runs: Vec<BoxRun> = Vec::new();
    let begins_group = |kind: FourCc| LEADS.contains(&kind) || kind == FourCc::MOOF;
    let mut at = 0;
    while at < boxes.len() {
        let mut end = at + 1;
        if begins_group(boxes[at].0) {
            while end < boxes.len() && (begins_group(boxes[end].0) || boxes[end].0 == FourCc::MDAT) {
                end += 1;
                if boxes[end - 1].0 == FourCc::MDAT {
                    break;
                }
            }
        }
        let size = boxes[at..end].iter().fold(0, |sum: u64, b| sum.saturating_add(b.1));
        let (lead, rest) = split_lead(&boxes[at..end]);
        let whole = [&lead[..], &rest[..]].concat().join(" ");
        match runs.last_mut().and_then(|run| merged(&run.boxes, &lead, &rest).map(|boxes| (run, boxes))) {
            Some((run, boxes)) => {
                *run =
                    BoxRun { boxes, count: run.count + 1, size_bytes: run.size_bytes.saturating_add(size) };
            }
            None => runs.push(BoxRun { boxes: whole, count: 1, size_bytes: size }),
        }
        at = end;
    }
    runs
}

/// Returns the names of the boxes that lead a group, and of the others.
fn split_lead(group: &[(FourCc, u64)]) -> (Vec<String>, Vec<String>) {
    let names = |boxes: &[(FourCc, u64)]| boxes.iter().map(|(kind, _)| kind.to_string()).collect();
    let count = group.iter().take_while(|(kind, _)| LEADS.contains(kind)).count();
    (names(&group[..count]), names(&group[count..]))
}

/// Returns the boxes of a run after another group, or `None` if the group belongs to another run.
fn merged(run: &str, lead: &[String], rest: &[String]) -> Option<String> {
    let rest = rest.join(" ");
    let run_lead = run.strip_suffix(&rest).filter(|_| !rest.is_empty())?.trim_end();
    let lead = lead.join(" ");
    let optional = run_lead.strip_prefix('[').and_then(|l| l.strip_suffix(']'));
    match (optional, run_lead == lead) {
        (None, true) => Some(run.to_owned()),
        (None, false) if run_lead.is_empty() => Some(format!("[{lead}] {rest}")),
        (None, false) if lead.is_empty() => Some(format!("[{run_lead}] {rest}")),
        (Some(optional), _) if lead.is_empty() || lead == optional => Some(run.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_groups_are_collapsed() {
        let kinds = "ftyp moov sidx styp moof mdat styp moof mdat moof mdat prft moof mfra";
        let boxes: Vec<(FourCc, u64)> =
            kinds.split(' ').map(|k| (FourCc(k.as_bytes().try_into().unwrap()), 10)).collect();
        let runs: Vec<String> =
            collapse(&boxes).iter().map(|r| format!("{}×{}={}", r.count, r.boxes, r.size_bytes)).collect();
        let expected =
            ["1×ftyp=10", "1×moov=10", "1×sidx=10", "3×[styp] moof mdat=80", "1×prft moof=20", "1×mfra=10"];
        assert_eq!(runs, expected);
    }
}
