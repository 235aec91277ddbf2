//! Which track an upload is of, by its path. Pure.
//!
//! Sources name uploads as they like; what belongs together has to come out as the same name. The path below the
//! channel is taken apart into words at `/`, `-`, `_`, `.` and other punctuation:
//!
//! 1. `Streams(NAME)` (DASH-IF Live Media Ingest §5.3): NAME without its ending is the track.
//! 2. A name with a word that says header (`init`, `header`, …): that word is left out.
//! 3. Any other: a last word that is a number, which is the segment's, is left out.
//! 4. Words that only say what kind of file it is (`chunk`, `segment`, …) are left out.
//!
//! What remains, joined by `-`, is the track:
//!
//! | source | header | segment | track |
//! |---|---|---|---|
//! | ffmpeg, DASH | `init-stream0.m4s` | `chunk-stream0-00001.m4s` | `stream0` |
//! | ffmpeg, long | `Streams(video.cmfv)` | the same | `video` |
//! | Shaka Packager | `h264_720p_init.mp4` | `h264_720p_12.m4s` | `h264-720p` |
//! | GPAC | `source_dashinit.mp4` | `source_dash12.m4s` | `source` |
//! | livesim2 | `video/init.cmfv` | `video/12.cmfv` | `video` |
//! | one directory a bitrate | `720/init.mp4` | `720/seg-12.m4s` | `720` |

/// What an upload is, by its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Upload {
    /// CMAF of the track of this name; empty if the path does not say which.
    Media(String),
    /// The source's own manifest.
    Manifest,
    /// Something that is not taken, by its ending.
    Other(String),
}

/// Longest name of a track.
const TRACK_NAME_BYTES_MAX: usize = 128;

const MANIFESTS: [&str; 2] = ["mpd", "m3u8"];
const MEDIA: [&str; 11] =
    ["mp4", "m4s", "m4v", "m4a", "m4f", "cmfv", "cmfa", "cmft", "cmfm", "init", "header"];
const HEADER_WORDS: [&str; 5] = ["init", "header", "initialization", "initialisation", "dashinit"];
const NOISE_WORDS: [&str; 6] = ["chunk", "segment", "seg", "frag", "fragment", "dash"];

/// What an upload to `path`, the parts below the channel, is.
pub(super) fn classify(path: &[String]) -> Upload {
    let Some((file, directories)) = path.split_last() else { return Upload::Media(String::new()) };
    if let Some(stream) = streams(file) {
        let (stem, _) = split_extension(stream);
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        return Upload::Media(shortened(stem.chars().map(|c| if allowed(c) { c } else { '-' }).collect()));
    }
    let (stem, extension) = split_extension(file);
    if MANIFESTS.contains(&extension.as_str()) {
        return Upload::Manifest;
    }
    if !extension.is_empty() && !MEDIA.contains(&extension.as_str()) {
        return Upload::Other(extension);
    }
    let mut all: Vec<String> = directories.iter().flat_map(|d| words(d)).collect();
    all.extend(without_number(words(stem)));
    all.retain(|w| !NOISE_WORDS.contains(&w.to_ascii_lowercase().as_str()));
    Upload::Media(shortened(all.join("-")))
}

/// NAME of `Streams(NAME)`.
fn streams(file: &str) -> Option<&str> {
    let (head, rest) = file.split_at_checked(8)?;
    let inner = rest.strip_suffix(')')?;
    head.eq_ignore_ascii_case("streams(").then_some(inner)
}

/// Stem and ending in lower case. `720` alone is a stem, `init` alone too.
fn split_extension(file: &str) -> (&str, String) {
    match file.rsplit_once('.') {
        Some((stem, extension)) => (stem, extension.to_ascii_lowercase()),
        None => (file, String::new()),
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_owned).collect()
}

/// Leaves out the word that says header or, without one, the segment's number.
fn without_number(mut words: Vec<String>) -> Vec<String> {
    let is_header = |w: &String| HEADER_WORDS.contains(&w.to_ascii_lowercase().as_str());
    if words.iter().any(is_header) {
        words.retain(|w| !is_header(w));
    } else if words.last().is_some_and(|w| is_number(w) || w.strip_prefix("dash").is_some_and(is_number)) {
        words.pop();
    }
    words
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit())
}

/// Names are made of ASCII, so any length is a border of characters.
fn shortened(mut name: String) -> String {
    name.truncate(TRACK_NAME_BYTES_MAX);
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn headers_and_segments_come_to_the_same_track() {
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
        ] {
            let path = |p: &str| p.split('/').map(str::to_owned).collect::<Vec<_>>();
            out += &format!(
                "{header}, {segment} → {:?}, {:?}\n",
                classify(&path(header)),
                classify(&path(segment))
            );
        }
        expect![[r#"
            init-stream0.m4s, chunk-stream0-00001.m4s → Media("stream0"), Media("stream0")
            Streams(video_360.cmfv), streams(video_360.cmfv) → Media("video_360"), Media("video_360")
            h264_720p_init.mp4, h264_720p_12.m4s → Media("h264-720p"), Media("h264-720p")
            video_720_init.mp4, video_720_1.m4s → Media("video-720"), Media("video-720")
            source_dashinit.mp4, source_dash12.m4s → Media("source"), Media("source")
            live_dash_track1_init.mp4, live_dash_track1_5.m4s → Media("live-track1"), Media("live-track1")
            video/init.cmfv, video/12.cmfv → Media("video"), Media("video")
            720/init.mp4, 720/seg-12.m4s → Media("720"), Media("720")
            audio/en/header.m4s, audio/en/seg-96000.m4s → Media("audio-en"), Media("audio-en")
            init.mp4, 1.m4s → Media(""), Media("")
            track2.cmfa, track2.cmfa → Media("track2"), Media("track2")
        "#]]
        .assert_eq(&out);
    }

    #[test]
    fn other_uploads() {
        let of = |file: &str| classify(&[file.to_owned()]);
        assert_eq!(of("live.mpd"), Upload::Manifest);
        assert_eq!(of("media_0.M3U8"), Upload::Manifest);
        assert_eq!(of("seg1.ts"), Upload::Other(String::from("ts")));
        assert_eq!(classify(&[]), Upload::Media(String::new()));
        assert_eq!(of("Streams("), Upload::Media(String::from("Streams")));
        assert_eq!(of("é"), Upload::Media(String::new()));
    }
}
