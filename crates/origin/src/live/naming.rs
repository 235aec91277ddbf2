//! Upload naming: maps an upload's path to its track, without I/O.
//!
//! Sources name uploads as they like, but a track's header and segments must map to the same name.
//! The path below the channel is split into words at `/`, `-`, `_`, `.` and other punctuation:
//!
//! 1. `Streams(NAME)` (DASH-IF Live Media Ingest §5.3): the track is NAME without its extension.
//! 2. A header word (`init`, `header`, …) is dropped.
//! 3. If the name has no header word, a trailing number is the segment number and is dropped.
//! 4. Words that only name the kind of file (`chunk`, `segment`, …) are dropped.
//!
//! The remaining words, joined by `-`, form the track name. An upload with both header and media is
//! a whole track rather than a segment, so it keeps its number: `video-180.cmfv` and
//! `video-90.cmfv` are two tracks.
//!
//! | source | header | segment | track |
//! |---|---|---|---|
//! | ffmpeg, DASH | `init-stream0.m4s` | `chunk-stream0-00001.m4s` | `stream0` |
//! | ffmpeg, long | `Streams(video.cmfv)` | the same | `video` |
//! | Shaka Packager | `h264_720p_init.mp4` | `h264_720p_12.m4s` | `h264-720p` |
//! | GPAC | `source_dashinit.mp4` | `source_dash12.m4s` | `source` |
//! | livesim2 | `video/init.cmfv` | `video/12.cmfv` | `video` |
//! | one directory per bitrate | `720/init.mp4` | `720/seg-12.m4s` | `720` |

/// Content of an upload, derived from its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Upload {
    /// CMAF of the track called `track`, or `long` if the upload is a whole track; both are empty
    /// if the path does not name the track.
    Media { track: String, long: String },
    /// The source's own manifest.
    Manifest,
    /// A file whose extension, given here, is not accepted.
    Other(String),
}

/// Maximum length of a track name, in bytes.
const TRACK_NAME_BYTES_MAX: usize = 128;

const MANIFESTS: [&str; 2] = ["mpd", "m3u8"];
const MEDIA: [&str; 11] =
    ["mp4", "m4s", "m4v", "m4a", "m4f", "cmfv", "cmfa", "cmft", "cmfm", "init", "header"];
const HEADER_WORDS: [&str; 5] = ["init", "header", "initialization", "initialisation", "dashinit"];
const NOISE_WORDS: [&str; 6] = ["chunk", "segment", "seg", "frag", "fragment", "dash"];

/// Classifies an upload by `path`, the path segments below the channel.
pub(super) fn classify(path: &[String]) -> Upload {
    let Some((file, directories)) = path.split_last() else { return media(String::new(), String::new()) };
    if let Some(stream) = streams(file) {
        let (stem, _) = split_extension(stream);
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let name: String = stem.chars().map(|c| if allowed(c) { c } else { '-' }).collect();
        return media(name.clone(), name);
    }
    let (stem, extension) = split_extension(file);
    if MANIFESTS.contains(&extension.as_str()) {
        return Upload::Manifest;
    }
    if !extension.is_empty() && !MEDIA.contains(&extension.as_str()) {
        return Upload::Other(extension);
    }
    let directories: Vec<String> = directories.iter().flat_map(|d| words(d)).collect();
    let joined = |words: Vec<String>| {
        let all = directories.iter().cloned().chain(words);
        all.filter(|w| !NOISE_WORDS.contains(&w.to_ascii_lowercase().as_str())).collect::<Vec<_>>().join("-")
    };
    media(joined(without_number(words(stem))), joined(without_header(words(stem))))
}

fn media(track: String, long: String) -> Upload {
    Upload::Media { track: shortened(track), long: shortened(long) }
}

/// Returns NAME from `Streams(NAME)`.
fn streams(file: &str) -> Option<&str> {
    let (head, rest) = file.split_at_checked(8)?;
    let inner = rest.strip_suffix(')')?;
    head.eq_ignore_ascii_case("streams(").then_some(inner)
}

/// Splits a file name into stem and lower-case extension. A name without an extension, such as
/// `720` or `init`, is all stem.
fn split_extension(file: &str) -> (&str, String) {
    match file.rsplit_once('.') {
        Some((stem, extension)) => (stem, extension.to_ascii_lowercase()),
        None => (file, String::new()),
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_owned).collect()
}

/// Drops the header word or, if absent, the segment number.
fn without_number(words: Vec<String>) -> Vec<String> {
    let count = words.len();
    let mut words = without_header(words);
    if words.len() == count
        && words.last().is_some_and(|w| is_number(w) || w.strip_prefix("dash").is_some_and(is_number))
    {
        words.pop();
    }
    words
}

fn without_header(mut words: Vec<String>) -> Vec<String> {
    words.retain(|w| !HEADER_WORDS.contains(&w.to_ascii_lowercase().as_str()));
    words
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit())
}

/// Truncates a name at a byte offset, which is safe because names are ASCII.
fn shortened(mut name: String) -> String {
    name.truncate(TRACK_NAME_BYTES_MAX);
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn header_and_segments_map_to_the_same_track() {
        let mut out = String::new();
        for (header, segment) in [
            ("init-stream0.m4s", "chunk-stream0-00001.m4s"),
            ("Streams(video_360.cmfv)", "streams(video_360.cmfv)"),
            ("h264_720p_init.mp4", "h264_720p_12.m4s"),
            ("video_720_init.mp4", "video_720_1.m4s"),
            ("source_dashinit.mp4", "source_dash12.m4s"),
            ("live_dash_track1_init.mp4", "live_dash_track1_5.m4s"),
            ("video/init.cmfv", "video/12.cmfv"),
            ("720/init.mp4", "720/seg-12.m4s"),
            ("audio/en/header.m4s", "audio/en/seg-96000.m4s"),
            ("init.mp4", "1.m4s"),
            ("track2.cmfa", "track2.cmfa"),
            ("video_init.cmfv", "video-180.cmfv"),
        ] {
            let path = |p: &str| p.split('/').map(str::to_owned).collect::<Vec<_>>();
            let of = |p: &str| match classify(&path(p)) {
                Upload::Media { track, long } => (track, long),
                other => panic!("{other:?}"),
            };
            let ((header_track, _), (track, long)) = (of(header), of(segment));
            out += &format!("{header}, {segment} → {header_track}, {track}, long {long}\n");
        }
        expect![[r#"
            init-stream0.m4s, chunk-stream0-00001.m4s → stream0, stream0, long stream0-00001
            Streams(video_360.cmfv), streams(video_360.cmfv) → video_360, video_360, long video_360
            h264_720p_init.mp4, h264_720p_12.m4s → h264-720p, h264-720p, long h264-720p-12
            video_720_init.mp4, video_720_1.m4s → video-720, video-720, long video-720-1
            source_dashinit.mp4, source_dash12.m4s → source, source, long source-dash12
            live_dash_track1_init.mp4, live_dash_track1_5.m4s → live-track1, live-track1, long live-track1-5
            video/init.cmfv, video/12.cmfv → video, video, long video-12
            720/init.mp4, 720/seg-12.m4s → 720, 720, long 720-12
            audio/en/header.m4s, audio/en/seg-96000.m4s → audio-en, audio-en, long audio-en-96000
            init.mp4, 1.m4s → , , long 1
            track2.cmfa, track2.cmfa → track2, track2, long track2
            video_init.cmfv, video-180.cmfv → video, video, long video-180
        "#]]
        .assert_eq(&out);
    }

    #[test]
    fn manifests_and_unknown_extensions_are_classified() {
        let of = |file: &str| classify(&[file.to_owned()]);
        assert_eq!(of("live.mpd"), Upload::Manifest);
        assert_eq!(of("media_0.M3U8"), Upload::Manifest);
        assert_eq!(of("seg1.ts"), Upload::Other(String::from("ts")));
        assert_eq!(classify(&[]), media(String::new(), String::new()));
        assert_eq!(of("Streams("), media(String::from("Streams"), String::from("Streams")));
        assert_eq!(of("é"), media(String::new(), String::new()));
    }
}
