//! Request routing: parses request targets into routes, without I/O.
//!
//! Names in a route are percent-decoded, checked for path traversal, and used only for lookups.

use thalweg_http::target;
use thalweg_media::tiles::Format;

/// Maximum length of a request target, in bytes.
pub(crate) const TARGET_BYTES_MAX: usize = 2048;

/// The resource identified by a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// `/catalog.json`
    Catalog,
    /// `/time`
    Time,
    /// `/vod/NAME/…`, or `/vod/NAME/TRACK/VERSION/…` with a version.
    Vod { name: String, version: Option<String>, what: Item },
    /// `/live/CHANNEL/…`
    Live { channel: String, what: Item },
    /// `/ingest/CHANNEL/…`, with the path below the channel.
    Ingest { channel: String, path: Vec<String> },
}

/// An item of a presentation or channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    /// `master.m3u8`
    Multivariant,
    /// `manifest.mpd`
    Mpd,
    /// `TRACK/media.m3u8`
    MediaPlaylist { track: String },
    /// `TRACK/iframes.m3u8`
    IFramePlaylist { track: String },
    /// `TRACK/init.mp4` (on demand) or `TRACK/init-NUMBER.mp4` (live)
    Header { track: String, number: Option<u64> },
    /// `TRACK/NAME.m4s`: NAME is the time (on demand) or the number (live).
    Segment { track: String, name: u64 },
    /// `TRACK/TIME.vtt`, or `TRACK/subtitles.vtt`, the whole file.
    WebVtt { track: String, time: Option<u64> },
    /// `TRACK/images.m3u8`
    ImagePlaylist { track: String },
    /// `TRACK/NUMBER.jpg` or `TRACK/NUMBER.png`, from 1.
    Image { track: String, number: u64, format: Format },
}

impl Item {
    /// Returns whether the item is a manifest that lists only the tracks selected by the query.
    pub(crate) fn is_selective(&self) -> bool {
        matches!(self, Item::Multivariant | Item::Mpd)
    }
}

/// Reasons why a path has no route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteError {
    /// 400: the path is malformed or climbs above the root.
    Malformed,
    /// 404: no route has this form.
    Unknown,
    /// 414: the target is longer than [`TARGET_BYTES_MAX`].
    TooLong,
}

/// Parses a request target in origin-form.
pub(crate) fn route(target: &str) -> Result<Route, RouteError> {
    if target.len() > TARGET_BYTES_MAX {
        return Err(RouteError::TooLong);
    }
    let path_len = target::check(target).map_err(|_| RouteError::Malformed)?;
    let mut segments = Vec::new();
    for segment in target[1..path_len].split('/') {
        let decoded = target::decode(segment).and_then(|bytes| String::from_utf8(bytes).ok());
        segments.push(decoded.filter(|s| !s.contains('/')).ok_or(RouteError::Malformed)?);
    }
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["catalog.json"] => Ok(Route::Catalog),
        ["time"] => Ok(Route::Time),
        ["vod", name, track, version, file] if !version.is_empty() => {
            let what = item(&[*track, *file])?;
            let versioned = matches!(
                what,
                Item::Header { number: None, .. }
                    | Item::Segment { .. }
                    | Item::WebVtt { .. }
                    | Item::Image { .. }
            );
            let version = Some((*version).to_owned()).filter(|_| versioned).ok_or(RouteError::Unknown)?;
            Ok(Route::Vod { name: (*name).to_owned(), version: Some(version), what })
        }
        ["vod", name, rest @ ..] => {
            item(rest).map(|what| Route::Vod { name: (*name).to_owned(), version: None, what })
        }
        ["live", channel, rest @ ..] => {
            item(rest).map(|what| Route::Live { channel: (*channel).to_owned(), what })
        }
        ["ingest", channel, path @ ..] if !channel.is_empty() => {
            let path = path.iter().map(|&s| s.to_owned()).collect();
            Ok(Route::Ingest { channel: (*channel).to_owned(), path })
        }
        _ => Err(RouteError::Unknown),
    }
}

fn item(rest: &[&str]) -> Result<Item, RouteError> {
    let (track, file) = match rest {
        ["master.m3u8"] => return Ok(Item::Multivariant),
        ["manifest.mpd"] => return Ok(Item::Mpd),
        [track, file] if !track.is_empty() => ((*track).to_owned(), *file),
        _ => return Err(RouteError::Unknown),
    };
    if file == "media.m3u8" {
        return Ok(Item::MediaPlaylist { track });
    }
    if file == "images.m3u8" {
        return Ok(Item::ImagePlaylist { track });
    }
    for format in [Format::Jpeg, Format::Png] {
        let stem = file.strip_suffix(format.extension()).and_then(|stem| stem.strip_suffix('.'));
        if let Some(number) = stem.and_then(number) {
            return Ok(Item::Image { track, number, format });
        }
    }
    if file == "iframes.m3u8" {
        return Ok(Item::IFramePlaylist { track });
    }
    if file == "init.mp4" {
        return Ok(Item::Header { track, number: None });
    }
    if let Some(number) = file.strip_prefix("init-").and_then(|f| f.strip_suffix(".mp4")).and_then(number) {
        return Ok(Item::Header { track, number: Some(number) });
    }
    if file == "subtitles.vtt" {
        return Ok(Item::WebVtt { track, time: None });
    }
    if let Some(time) = file.strip_suffix(".vtt").and_then(number) {
        return Ok(Item::WebVtt { track, time: Some(time) });
    }
    let name = file.strip_suffix(".m4s").and_then(number).ok_or(RouteError::Unknown)?;
    Ok(Item::Segment { track, name })
}

/// Parses a number as written in manifests, without sign or leading zeros, so that each segment has
/// only one name.
fn number(text: &str) -> Option<u64> {
    let canonical = text == "0" || !text.starts_with('0');
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    if canonical && digits { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn targets_map_to_routes() {
        let mut out = String::new();
        for target in [
            "/catalog.json",
            "/time?x=1",
            "/vod/a%20b/master.m3u8",
            "/vod/a/video_360/0.m4s",
            "/vod/a/v/init.mp4",
            "/vod/a/v/1f/init.mp4",
            "/vod/a/v/1f/0.m4s",
            "/vod/a/v/iframes.m3u8",
            "/vod/a/t/images.m3u8",
            "/vod/a/t/1f/12.jpg",
            "/vod/a/t/1.png",
            "/vod/a/v/1f/subtitles.vtt",
            "/vod/a/v/30000.vtt",
            "/live/c/manifest.mpd",
            "/live/c/v/init-897608800.mp4",
            "/live/c/v/18446744073709551615.m4s",
            "/ingest/c/live.mpd",
            "/ingest/c/Streams(video.cmfv)",
            "/ingest/c",
            // Unknown forms.
            "/",
            "/vod/a",
            "/vod/a/",
            "/vod/a//0.m4s",
            "/vod/a/v//0.m4s",
            "/vod/a/v/1f/media.m3u8",
            "/live/c/v/1f/0.m4s",
            "/vod/a/v/00.m4s",
            "/vod/a/v/+1.m4s",
            "/vod/a/v/18446744073709551616.m4s",
            "/vod/a/v/1.mp4",
            "/ingest/",
            // Malformed targets.
            "/vod/../etc/passwd",
            "/vod/%2e%2e/v/0.m4s",
            "/vod/a%2Fb/master.m3u8",
            "/vod/a%00/master.m3u8",
            "/vod/%ff/master.m3u8",
            "/vod/%zz/master.m3u8",
            "vod",
        ] {
            out += &format!("{target} → {:?}\n", route(target));
        }
        expect![[r#"
            /catalog.json → Ok(Catalog)
            /time?x=1 → Ok(Time)
            /vod/a%20b/master.m3u8 → Ok(Vod { name: "a b", version: None, what: Multivariant })
            /vod/a/video_360/0.m4s → Ok(Vod { name: "a", version: None, what: Segment { track: "video_360", name: 0 } })
            /vod/a/v/init.mp4 → Ok(Vod { name: "a", version: None, what: Header { track: "v", number: None } })
            /vod/a/v/1f/init.mp4 → Ok(Vod { name: "a", version: Some("1f"), what: Header { track: "v", number: None } })
            /vod/a/v/1f/0.m4s → Ok(Vod { name: "a", version: Some("1f"), what: Segment { track: "v", name: 0 } })
            /vod/a/v/iframes.m3u8 → Ok(Vod { name: "a", version: None, what: IFramePlaylist { track: "v" } })
            /vod/a/t/images.m3u8 → Ok(Vod { name: "a", version: None, what: ImagePlaylist { track: "t" } })
            /vod/a/t/1f/12.jpg → Ok(Vod { name: "a", version: Some("1f"), what: Image { track: "t", number: 12, format: Jpeg } })
            /vod/a/t/1.png → Ok(Vod { name: "a", version: None, what: Image { track: "t", number: 1, format: Png } })
            /vod/a/v/1f/subtitles.vtt → Ok(Vod { name: "a", version: Some("1f"), what: WebVtt { track: "v", time: None } })
            /vod/a/v/30000.vtt → Ok(Vod { name: "a", version: None, what: WebVtt { track: "v", time: Some(30000) } })
            /live/c/manifest.mpd → Ok(Live { channel: "c", what: Mpd })
            /live/c/v/init-897608800.mp4 → Ok(Live { channel: "c", what: Header { track: "v", number: Some(897608800) } })
            /live/c/v/18446744073709551615.m4s → Ok(Live { channel: "c", what: Segment { track: "v", name: 18446744073709551615 } })
            /ingest/c/live.mpd → Ok(Ingest { channel: "c", path: ["live.mpd"] })
            /ingest/c/Streams(video.cmfv) → Ok(Ingest { channel: "c", path: ["Streams(video.cmfv)"] })
            /ingest/c → Ok(Ingest { channel: "c", path: [] })
            / → Err(Unknown)
            /vod/a → Err(Unknown)
            /vod/a/ → Err(Unknown)
            /vod/a//0.m4s → Err(Unknown)
            /vod/a/v//0.m4s → Err(Unknown)
            /vod/a/v/1f/media.m3u8 → Err(Unknown)
            /live/c/v/1f/0.m4s → Err(Unknown)
            /vod/a/v/00.m4s → Err(Unknown)
            /vod/a/v/+1.m4s → Err(Unknown)
            /vod/a/v/18446744073709551616.m4s → Err(Unknown)
            /vod/a/v/1.mp4 → Err(Unknown)
            /ingest/ → Err(Unknown)
            /vod/../etc/passwd → Err(Malformed)
            /vod/%2e%2e/v/0.m4s → Err(Malformed)
            /vod/a%2Fb/master.m3u8 → Err(Malformed)
            /vod/a%00/master.m3u8 → Err(Malformed)
            /vod/%ff/master.m3u8 → Err(Malformed)
            /vod/%zz/master.m3u8 → Err(Malformed)
            vod → Err(Malformed)
        "#]].assert_eq(&out);
    }

    #[test]
    fn overlong_target_is_refused() {
        let long = |n| route(&format!("/{}", "a".repeat(n)));
        assert_eq!(long(TARGET_BYTES_MAX - 1), Err(RouteError::Unknown));
        assert_eq!(long(TARGET_BYTES_MAX), Err(RouteError::TooLong));
    }
}
