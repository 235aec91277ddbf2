//! Inspection of a presentation's directory or of one file: what it is, what an origin serves of
//! it, what is wrong, and how to repair it.
//!
//! It indexes files with the code that serves them ([`vod`](crate::vod)), so the report and the
//! origin cannot disagree.

mod file;
mod repair;
pub mod report;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thalweg_media::presentation::{
    Kind, NamedTrack, OnDemand, Rendition, Role, language, micros, switching_sets,
};
use thalweg_media::summary::Movie;
use thalweg_media::track::{Media, TRACK_EXTENSIONS_HELP, is_track_file};

use crate::storage::{Object, Storage};
use crate::vod::join::{self, PLAYLIST_FILE, Playlist};
use crate::vod::{Fault, Library, ListingAges, Presentation, encode, load};
use report::{FileReport, Finding, Group, Report, Served, ServedTrack};

/// How long the listing of an inspected directory is used: for the whole inspection.
const LISTING_MAX_AGE: Duration = Duration::from_secs(3600);
/// Longest video segment without a warning, in microseconds. Players switch between tracks only at
/// segment boundaries, and buffer several segments.
const SEGMENT_US_MAX: u64 = 10_000_000;
/// Shortest gap between segments that counts, in microseconds.
const GAP_US_MIN: u64 = 1_000;

/// Reasons why nothing can be inspected.
#[derive(Debug)]
pub enum InspectError {
    /// The location is not a local path.
    NotLocal(String),
    /// The path cannot be read.
    Path(PathBuf, io::Error),
}

impl fmt::Display for InspectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InspectError::NotLocal(location) => {
                write!(f, "cannot inspect {location}: only local files and directories can be inspected")
            }
            InspectError::Path(path, _) => write!(f, "cannot read {}", path.display()),
        }
    }
}

impl std::error::Error for InspectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            InspectError::NotLocal(_) => None,
            InspectError::Path(_, error) => Some(error),
        }
    }
}

/// Inspects a presentation's directory, or a file. `segment_target` is the origin's setting of that
/// name.
///
/// # Errors
///
/// Returns an error if there is no such file or directory.
pub async fn inspect(location: &str, segment_target: Duration) -> Result<Report, InspectError> {
    if location.contains("://") {
        return Err(InspectError::NotLocal(location.to_owned()));
    }
    let fault = |error| InspectError::Path(location.into(), error);
    let path = std::fs::canonicalize(location).map_err(fault)?;
    let is_directory = std::fs::metadata(&path).map_err(fault)?.is_dir();
    let directory = if is_directory { &path } else { path.parent().unwrap_or(&path) };
    let name = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let root = directory.parent().unwrap_or(directory);
    let storage = Storage::local(root).map_err(fault)?;
    let target_ms = u32::try_from(segment_target.as_millis()).unwrap_or(u32::MAX);
    let ages = ListingAges { local: LISTING_MAX_AGE, remote: LISTING_MAX_AGE };
    let library = Library::new(storage, target_ms, ages);
    // Commands name files as the operator did.
    let given = Path::new(location);
    let inspection = Inspection { library, name, given: given.to_owned(), is_directory, target_ms };
    if is_directory {
        return Ok(inspection.directory().await);
    }
    let key = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
    let object = Storage::local_object(&path, key).map_err(fault)?;
    Ok(inspection.file(object).await)
}

struct Inspection {
    library: Library,
    name: String,
    given: PathBuf,
    is_directory: bool,
    target_ms: u32,
}

impl Inspection {
    async fn directory(&self) -> Report {
        let mut report = self.report();
        let objects = match self.library.storage().tracks(&self.name).await {
            Ok(Some(objects)) => objects,
            Ok(None) => {
                let message = format!(
                    "{}: the origin skips directories whose names begin with a dot or are not UTF-8: rename it",
                    self.name
                );
                report.faults.push(Finding { file: None, message, repair: Vec::new() });
                return report;
            }
            Err(error) => {
                report.faults.push(Finding { file: None, message: error.to_string(), repair: Vec::new() });
                return report;
            }
        };
        if objects.is_empty() {
            self.joined(&mut report).await;
            return report;
        }
        let movies = self.files(&mut report, &objects).await;
        let loaded = self.library.get(&self.name).await;
        self.presentation(&mut report, loaded.as_deref(), &movies);
        report
    }

    async fn file(&self, object: Object) -> Report {
        let mut report = self.report();
        let file_name = object.key.rsplit('/').next().unwrap_or(&object.key);
        if !is_track_file(file_name) {
            let message =
                format!("{}: the origin does not serve this file: {TRACK_EXTENSIONS_HELP}", object.key);
            report.faults.push(Finding { file: Some(object.key.clone()), message, repair: Vec::new() });
        }
        let objects = vec![object];
        let movies = self.files(&mut report, &objects).await;
        let loaded = load(self.library.storage(), &self.name, objects, self.target_ms).await;
        self.presentation(&mut report, loaded.as_ref(), &movies);
        report
    }

    fn report(&self) -> Report {
        let name = self.name.clone();
        Report { name, files: Vec::new(), served: None, faults: Vec::new(), warnings: Vec::new() }
    }

    /// Describes the files; returns their moovs by key.
    async fn files(&self, report: &mut Report, objects: &[Object]) -> Vec<(String, Movie)> {
        let mut movies = Vec::new();
        for object in objects {
            let described: Result<(FileReport, Option<Movie>), _> = async {
                let reader = self.library.storage().open(object).await?;
                file::describe(&reader, object).await
            }
            .await;
            match described {
                Ok((file, movie)) => {
                    report.files.push(file);
                    movies.extend(movie.map(|movie| (object.key.clone(), movie)));
                }
                Err(error) => {
                    let (file, message) = (Some(object.key.clone()), error.to_string());
                    report.faults.push(Finding { file, message, repair: Vec::new() });
                }
            }
        }
        movies
    }

    fn presentation(
        &self,
        report: &mut Report,
        loaded: Result<&Presentation, &Fault>,
        movies: &[(String, Movie)],
    ) {
        let presentation = match loaded {
            Ok(presentation) => presentation,
            Err(Fault::Unusable(faults)) => {
                report.faults.extend(faults.iter().map(|fault| self.finding(fault, movies)));
                return;
            }
            Err(fault) => return report.faults.push(self.finding(fault, movies)),
        };
        report.faults.extend(presentation.faults.iter().map(|fault| self.finding(fault, movies)));
        let warning = |file: &str, message, repair| Finding { file: Some(file.to_owned()), message, repair };
        for found in presentation.media.warnings() {
            report.warnings.push(warning(found.file(), found.to_string(), Vec::new()));
        }
        for track in presentation.media.tracks() {
            let file = track.file.as_str();
            if let Some(message) = gaps(track).1 {
                report.warnings.push(warning(file, format!("{file}: {message}"), Vec::new()));
            }
            let longest_us = segment_us_max(track);
            if Kind::of(&track.index.info) == Kind::Video && longest_us > SEGMENT_US_MAX {
                let message = format!(
                    "{file}: the longest segment lasts {:.3} s, because key frames are too far apart: encode with a \
                     key frame every 2 s",
                    longest_us as f64 / 1e6
                );
                report.warnings.push(warning(file, message, vec![repair::encode(&self.path(file))]));
            }
        }
        report.served = Some(served(&self.name, &presentation.media));
    }

    /// Describes a presentation that joins others.
    async fn joined(&self, report: &mut Report) {
        let fault = |message: String| Finding { file: None, message, repair: Vec::new() };
        match join::load(&self.library, &self.name).await {
            Ok(Some(playlist)) => self.playlist(report, &playlist),
            Ok(None) => report.faults.push(fault(format!(
                "{}: no track and no {PLAYLIST_FILE}; {TRACK_EXTENSIONS_HELP}",
                self.name
            ))),
            Err(join_fault) => report.faults.push(fault(join_fault.to_string())),
        }
    }

    fn playlist(&self, report: &mut Report, playlist: &Playlist) {
        let fault = |message: String| {
            let file = Some(playlist.file().to_owned());
            Finding { file, message, repair: Vec::new() }
        };
        let joined = match playlist.joined() {
            Ok(joined) => joined,
            Err(join_fault) => return report.faults.push(fault(join_fault.to_string())),
        };
        let mut tracks = Vec::new();
        match joined.ladder() {
            Ok(rungs) => {
                let served = |r: &Rendition<'_>| served_rendition(&self.name, r);
                tracks.extend(rungs.iter().map(|rung| served(&rung.rendition())));
            }
            Err(unmatched) => report.faults.push(fault(playlist.unmatched(&unmatched).to_string())),
        }
        let (hls, dash) = urls(&self.name);
        let duration_s = joined.duration_us() as f64 / 1e6;
        let line = |entry: &thalweg_media::presentation::joined::Entry<'_>| {
            format!("{} {} s", entry.path, entry.duration_us() as f64 / 1e6)
        };
        let entries = joined.entries.iter().map(line).collect();
        report.served = Some(Served { hls, dash, duration_s, tracks, groups: Vec::new(), entries });
    }

    fn finding(&self, fault: &Fault, movies: &[(String, Movie)]) -> Finding {
        let movie = fault.file().and_then(|file| movies.iter().find(|(key, _)| key == file));
        let repair = repair::commands(fault, |key| self.path(key), movie.map(|(_, movie)| movie));
        Finding { file: fault.file().map(str::to_owned), message: fault.to_string(), repair }
    }

    /// Returns the path of a file, relative to the path that the operator gave.
    fn path(&self, key: &str) -> PathBuf {
        if !self.is_directory {
            return self.given.clone();
        }
        let below = key.strip_prefix(&self.name).unwrap_or(key).trim_start_matches('/');
        self.given.join(below)
    }
}

fn urls(name: &str) -> (String, String) {
    let name = encode(name);
    (format!("/vod/{name}/master.m3u8"), format!("/vod/{name}/manifest.mpd"))
}

fn served(name: &str, media: &OnDemand) -> Served {
    let renditions = media.renditions();
    let track = |(rendition, track): (&Rendition<'_>, &NamedTrack)| {
        let times = |time: u64| micros(time, track.index.info.timescale) as f64 / 1e6;
        let segments = || track.segments();
        ServedTrack {
            file: Some(track.file.clone()),
            segments: segments().count(),
            segment_s_max: segment_us_max(track) as f64 / 1e6,
            start_s: times(segments().next().map_or(0, |s| s.time)),
            end_s: times(segments().next_back().map_or(0, |s| s.time + s.duration)),
            gaps: gaps(track).0,
            is_rewritten: track.index.has_base_data_offset || track.index.delay > 0,
            ..served_rendition(name, rendition)
        }
    };
    let tracks = renditions.iter().zip(media.tracks()).map(track).collect();
    let group = |set: &thalweg_media::presentation::SwitchingSet| Group {
        kind: kind_name(renditions[set.members[0]].info),
        language: language(renditions[set.members[0]].info).map(str::to_owned),
        tracks: set.members.iter().map(|&member| renditions[member].name.to_owned()).collect(),
    };
    let groups = switching_sets(&renditions).iter().map(group).collect();
    let (hls, dash) = urls(name);
    let duration_s = media.duration_us() as f64 / 1e6;
    Served { hls, dash, duration_s, tracks, groups, entries: Vec::new() }
}

/// Describes a track without what depends on its segments.
fn served_rendition(name: &str, rendition: &Rendition<'_>) -> ServedTrack {
    let format = match (&rendition.info.media, rendition.frame_rate) {
        (Media::Video { width, height }, None) => format!("{width}x{height}"),
        (Media::Video { width, height }, Some((num, den))) => {
            let rate = format!("{:.3}", f64::from(num) / f64::from(den.max(1)));
            format!("{width}x{height}@{}", rate.trim_end_matches('0').trim_end_matches('.'))
        }
        (Media::Audio { sample_rate, channels }, _) => format!("{sample_rate}Hz/{channels}ch"),
        _ => String::from("-"),
    };
    ServedTrack {
        name: rendition.name.to_owned(),
        file: None,
        playlist: format!("/vod/{}/{}/media.m3u8", encode(name), rendition.name),
        kind: kind_name(rendition.info),
        is_trick_play: rendition.role == Role::TrickPlay,
        codec: rendition.info.codec.clone(),
        format,
        language: language(rendition.info).map(str::to_owned),
        bits_per_s: rendition.bitrate.average,
        bits_per_s_max: rendition.bitrate.peak,
        segments: 0,
        segment_s_max: 0.0,
        start_s: 0.0,
        end_s: 0.0,
        gaps: 0,
        is_rewritten: false,
    }
}

fn kind_name(info: &thalweg_media::track::TrackInfo) -> &'static str {
    match Kind::of(info) {
        Kind::Video => "video",
        Kind::Audio => "audio",
        Kind::Text => "text",
    }
}

fn segment_us_max(track: &NamedTrack) -> u64 {
    micros(track.segments().map(|s| s.duration).max().unwrap_or(0), track.index.info.timescale)
}

/// Returns the number of gaps and overlaps between segments, and a description of the first.
fn gaps(track: &NamedTrack) -> (usize, Option<String>) {
    let timescale = track.index.info.timescale;
    let (mut count, mut first, mut end_us) = (0, None, None);
    for segment in track.segments() {
        let start_us = micros(segment.time, timescale);
        if let Some(end_us) = end_us.filter(|end| start_us.abs_diff(*end) >= GAP_US_MIN) {
            count += 1;
            first.get_or_insert((end_us, start_us));
        }
        end_us = Some(micros(segment.time + segment.duration, timescale));
    }
    let message = first.map(|(end_us, start_us)| {
        let (what, length_us) = if start_us > end_us { ("gap", start_us - end_us) } else { ("overlap", end_us - start_us) };
        let (at, length) = (end_us as f64 / 1e6, length_us as f64 / 1e6);
        let others = if count > 1 { format!(" ({count} in all)") } else { String::new() };
        format!(
            "{what} of {length:.3} s between segments at {at:.3} s{others}: players may stall there; package the \
             track again from a source without it"
        )
    });
    (count, message)
}
