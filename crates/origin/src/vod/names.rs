//! Names in URLs, without I/O: track names derived from file names, and encoded presentation names.

use thalweg_media::presentation::{Kind, language};
use thalweg_media::track::TrackInfo;

/// Derives a track name for each key from the key's path below the presentation's directory `name`.
/// Names are unique and contain only unreserved characters (RFC 3986): `sample/hd/video.mp4`
/// becomes `hd-video`.
pub(super) fn track_names<'a>(name: &str, keys: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for key in keys {
        let below = key.strip_prefix(name).unwrap_or(key).trim_start_matches('/');
        let stem = below.rsplit_once('.').map_or(below, |(stem, _)| stem);
        names.push(unique(&safe(stem), &names));
    }
    names
}

/// Returns the name of a track in a file with several tracks: the file's name, the kind, and the
/// language if known. `taken` has all names in use.
pub(super) fn movie_track_name(file: &str, info: &TrackInfo, taken: &[String]) -> String {
    let kind = match Kind::of(info) {
        Kind::Video => "video",
        Kind::Audio => "audio",
        Kind::Text => "text",
    };
    let name = match language(info) {
        Some(language) => format!("{file}-{kind}-{language}"),
        None => format!("{file}-{kind}"),
    };
    unique(&name, taken)
}

/// Appends the first number from 2 that makes `name` differ from all in `taken`, if necessary.
fn unique(name: &str, taken: &[String]) -> String {
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut candidates = std::iter::once(name.to_owned()).chain(numbered);
    candidates.find(|candidate| !taken.contains(candidate)).expect("the candidates are endless")
}

/// Replaces all characters except ASCII letters, digits, `_` and `-` with `-`. Returns `track` for
/// an empty stem.
fn safe(stem: &str) -> String {
    let mapped: String = stem
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '-' })
        .collect();
    if mapped.is_empty() { String::from("track") } else { mapped }
}

/// Percent-encodes a path segment, except for unreserved characters (RFC 3986 §2.3).
pub(crate) fn encode(name: &str) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::track_names;

    #[test]
    fn names_are_safe_and_unique() {
        let keys =
            ["a/video.mp4", "a/video.m4a", "a/hd/video.mp4", "a/hd-video.mp4", "a/é $Time$.mp4", "a/.mp4"];
        assert_eq!(
            track_names("a", keys.into_iter()),
            ["video", "video-2", "hd-video", "hd-video-2", "---Time-", "track"]
        );
    }
}
