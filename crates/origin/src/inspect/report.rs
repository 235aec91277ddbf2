//! The report, as Rust types and as the JSON of `thalweg origin inspect --json`.

use serde::Serialize;

/// What a presentation or file is, what an origin serves of it, and what is wrong.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Name of the presentation.
    pub name: String,
    /// Files, sorted by path.
    pub files: Vec<FileReport>,
    /// What an origin serves, if it can serve anything.
    pub served: Option<Served>,
    /// What keeps the presentation or a track of it from being served.
    pub faults: Vec<Finding>,
    /// What may spoil playback.
    pub warnings: Vec<Finding>,
}

/// A file.
#[derive(Debug, Clone, Serialize)]
pub struct FileReport {
    /// Path below the library's root.
    pub file: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Top-level boxes in order, with runs of equal boxes collapsed.
    pub boxes: Vec<BoxRun>,
    /// Whether further boxes were not read.
    pub has_more_boxes: bool,
    /// Whether samples are in fragments, if the file has a moov.
    pub is_fragmented: Option<bool>,
    /// Tracks in the moov.
    pub tracks: Vec<TrackReport>,
}

/// A run of equal groups of boxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BoxRun {
    /// Types of the boxes in one group, such as `moof mdat`.
    pub boxes: String,
    /// Number of groups.
    pub count: u64,
    /// Size of all groups in bytes.
    pub size_bytes: u64,
}

/// A track in a moov.
#[derive(Debug, Clone, Serialize)]
pub struct TrackReport {
    /// track_ID.
    pub id: u32,
    /// Handler, such as `vide`.
    pub handler: String,
    /// Sample entry, such as `avc1`.
    pub sample_entry: Option<String>,
    /// Units per second.
    pub timescale: u32,
    /// Duration of the samples outside fragments, in seconds.
    pub duration_s: f64,
    /// Edit list.
    pub edits: Vec<EditReport>,
}

/// An edit.
#[derive(Debug, Clone, Serialize)]
pub struct EditReport {
    /// Duration in seconds; 0 extends to the end of a fragmented track.
    pub duration_s: f64,
    /// Start in the media, in seconds; absent for an empty edit, which delays the track.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_time_s: Option<f64>,
}

/// What an origin serves.
#[derive(Debug, Clone, Serialize)]
pub struct Served {
    /// Path of the multivariant playlist.
    pub hls: String,
    /// Path of the MPD.
    pub dash: String,
    /// Duration in seconds.
    pub duration_s: f64,
    /// Tracks, in the order of their files.
    pub tracks: Vec<ServedTrack>,
    /// Groups between whose members players switch.
    pub groups: Vec<Group>,
    /// Entries of the playlist file, if the presentation joins others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<String>,
}

/// A served track.
#[derive(Debug, Clone, Serialize)]
pub struct ServedTrack {
    /// Name in URLs.
    pub name: String,
    /// File; absent if the track consists of several files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Path of the media playlist.
    pub playlist: String,
    /// `video`, `audio` or `text`.
    pub kind: &'static str,
    /// Whether the track is for fast forward and rewind only.
    pub is_trick_play: bool,
    /// Codec (RFC 6381).
    pub codec: String,
    /// Picture size and frame rate, or sample rate and channels.
    pub format: String,
    /// Language (BCP 47).
    pub language: Option<String>,
    /// Average bitrate.
    pub bits_per_s: u64,
    /// Peak bitrate, which manifests declare.
    pub bits_per_s_max: u64,
    /// Number of segments.
    pub segments: usize,
    /// Duration of the longest segment in seconds.
    pub segment_s_max: f64,
    /// Presentation time of the first sample in seconds.
    pub start_s: f64,
    /// Presentation time at the end in seconds.
    pub end_s: f64,
    /// Number of gaps and overlaps between segments.
    pub gaps: usize,
    /// Whether fragments are rewritten when they are served.
    pub is_rewritten: bool,
}

/// A group of tracks between which players switch: an AdaptationSet.
#[derive(Debug, Clone, Serialize)]
pub struct Group {
    /// `video`, `audio` or `text`.
    pub kind: &'static str,
    /// Language (BCP 47).
    pub language: Option<String>,
    /// Names of the tracks, in ascending order of bitrate.
    pub tracks: Vec<String>,
}

/// A fault or a warning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// File concerned, if it is only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What is wrong, and where.
    pub message: String,
    /// Commands that repair it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub repair: Vec<String>,
}
