//! CMCD request fields (CTA-5004, version 1), in which players report their state with each
//! request.

use std::fmt::Write;
use std::time::Duration;

/// A player's report. Unknown values are 0, `None` or false, and are omitted.
#[derive(Debug, Clone, PartialEq)]
pub struct Report<'a> {
    /// `sid`: session id.
    pub session: &'a str,
    /// `cid`: content id.
    pub content: &'a str,
    /// `sf`: `d` for DASH, `h` for HLS.
    pub format: Option<char>,
    /// `st`: whether the presentation is live or on demand.
    pub is_live: Option<bool>,
    /// `ot`: type of the requested object.
    pub object: ObjectType,
    /// `br`: bitrate of the segment's track; 0 if unknown.
    pub bitrate_bits_per_s: u64,
    /// `tb`: highest bitrate available.
    pub top_bits_per_s: u64,
    /// `d`: duration of the segment.
    pub duration: Option<Duration>,
    /// `bl`: media buffered ahead of the playhead.
    pub buffered: Option<Duration>,
    /// `mtp`: measured throughput.
    pub throughput_bits_per_s: Option<f64>,
    /// `su`: whether the buffer must be filled urgently, at startup or after a stall.
    pub is_urgent: bool,
    /// `bs`: whether a stall occurred since the last request.
    pub has_starved: bool,
}

/// Object types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectType {
    /// An MPD or playlist.
    Manifest,
    /// Audio alone.
    Audio,
    /// Video alone.
    Video,
    /// Audio and video together.
    Muxed,
    /// A CMAF header.
    Init,
    /// Captions.
    Text,
    /// Anything else.
    Other,
}

impl ObjectType {
    /// Returns the token defined by CTA-5004.
    pub fn token(self) -> &'static str {
        match self {
            ObjectType::Manifest => "m",
            ObjectType::Audio => "a",
            ObjectType::Video => "v",
            ObjectType::Muxed => "av",
            ObjectType::Init => "i",
            ObjectType::Text => "tt",
            ObjectType::Other => "o",
        }
    }

    fn is_media(self) -> bool {
        matches!(self, ObjectType::Audio | ObjectType::Video | ObjectType::Muxed)
    }

    /// Guesses the type from the file name at the end of the path.
    pub fn of(target: &str) -> Self {
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        let file = path.rsplit_once('/').map_or(path, |(_, file)| file);
        match file.rsplit_once('.') {
            Some((_, "m3u8" | "mpd")) => ObjectType::Manifest,
            Some((name, "mp4" | "m4s" | "cmfv")) if name.starts_with("init") => ObjectType::Init,
            Some((_, "m4s" | "m4v" | "cmfv")) => ObjectType::Video,
            Some((_, "m4a" | "cmfa" | "aac")) => ObjectType::Audio,
            Some((_, "mp4" | "ts")) => ObjectType::Muxed,
            Some((_, "vtt" | "ttml" | "cmft")) => ObjectType::Text,
            _ => ObjectType::Other,
        }
    }
}

impl<'a> Report<'a> {
    /// Creates a report with only these values.
    #[must_use]
    pub fn new(session: &'a str, content: &'a str, object: ObjectType) -> Self {
        Self {
            session,
            content,
            object,
            format: None,
            is_live: None,
            bitrate_bits_per_s: 0,
            top_bits_per_s: 0,
            duration: None,
            buffered: None,
            throughput_bits_per_s: None,
            is_urgent: false,
            has_starved: false,
        }
    }

    /// Formats the field lines, each ending in CRLF. Keys are sorted and numbers are rounded as §3
    /// requires.
    #[must_use]
    pub fn fields(&self) -> String {
        fields(self)
    }
}

fn fields(report: &Report<'_>) -> String {
    let is_media = report.object.is_media();
    let kbit = |bits_per_s: u64| bits_per_s.div_ceil(1000);
    let hundreds = |value: f64| (value / 100.0).round() as u64 * 100;
    let mut object = Vec::new();
    if is_media && report.bitrate_bits_per_s > 0 {
        object.push(format!("br={}", kbit(report.bitrate_bits_per_s)));
    }
    if let Some(duration) = report.duration.filter(|_| is_media) {
        object.push(format!("d={}", duration.as_millis()));
    }
    object.push(format!("ot={}", report.object.token()));
    if is_media && report.top_bits_per_s > 0 {
        object.push(format!("tb={}", kbit(report.top_bits_per_s)));
    }
    let mut request = Vec::new();
    if let Some(buffered) = report.buffered.filter(|_| is_media) {
        request.push(format!("bl={}", hundreds(buffered.as_secs_f64() * 1e3)));
    }
    if let Some(throughput) = report.throughput_bits_per_s {
        request.push(format!("mtp={}", hundreds(throughput / 1e3)));
    }
    if report.is_urgent {
        request.push("su".to_owned());
    }
    let mut out = format!("CMCD-Object: {}\r\n", object.join(","));
    if !request.is_empty() {
        let _ = write!(out, "CMCD-Request: {}\r\n", request.join(","));
    }
    let mut session = vec![format!("cid={}", quoted(report.content))];
    session.extend(report.format.map(|format| format!("sf={format}")));
    session.push(format!("sid={}", quoted(report.session)));
    session.extend(report.is_live.map(|is_live| format!("st={}", if is_live { 'l' } else { 'v' })));
    let _ = write!(out, "CMCD-Session: {}\r\n", session.join(","));
    let mut status = Vec::new();
    if report.has_starved {
        status.push("bs".to_owned());
    }
    if is_media && report.bitrate_bits_per_s > 0 && report.buffered.is_some() {
        // Request twice the bitrate, so that the buffer grows by one second of media per second.
        status.push(format!("rtp={}", hundreds(report.bitrate_bits_per_s as f64 * 2.0 / 1e3).max(100)));
    }
    if !status.is_empty() {
        let _ = write!(out, "CMCD-Status: {}\r\n", status.join(","));
    }
    out
}

/// Formats a quoted string of at most 64 characters, the limit in §3 for `cid` and `sid`.
fn quoted(text: &str) -> String {
    let clean: String =
        text.chars().filter(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\\')).take(64).collect();
    format!("\"{clean}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn fields_match_the_standard() {
        let mut report = Report {
            session: "6e2fb550-c457-11e9-bb97-0800200c9a66",
            content: "/live/demo\"\r\n",
            format: Some('d'),
            is_live: Some(true),
            object: ObjectType::Video,
            bitrate_bits_per_s: 3_200_001,
            top_bits_per_s: 6_000_000,
            duration: Some(Duration::from_millis(4004)),
            buffered: Some(Duration::from_millis(21_349)),
            throughput_bits_per_s: Some(25_449_000.0),
            is_urgent: true,
            has_starved: true,
        };
        expect![[r#"
            CMCD-Object: br=3201,d=4004,ot=v,tb=6000
            CMCD-Request: bl=21300,mtp=25400,su
            CMCD-Session: cid="/live/demo",sf=d,sid="6e2fb550-c457-11e9-bb97-0800200c9a66",st=l
            CMCD-Status: bs,rtp=6400
        "#]]
        .assert_eq(&report.fields().replace('\r', ""));
        report.object = ObjectType::Manifest;
        (report.is_urgent, report.has_starved, report.throughput_bits_per_s) = (false, false, None);
        expect![[r#"
            CMCD-Object: ot=m
            CMCD-Session: cid="/live/demo",sf=d,sid="6e2fb550-c457-11e9-bb97-0800200c9a66",st=l
        "#]]
        .assert_eq(&report.fields().replace('\r', ""));
    }

    #[test]
    fn unknown_values_are_omitted() {
        let object = ObjectType::of("/live/a/video/7.m4s?x=.mpd");
        let report = Report { bitrate_bits_per_s: 3_000_000, ..Report::new("5f", "a\"\\", object) };
        expect![[r#"
            CMCD-Object: br=3000,ot=v
            CMCD-Session: cid="a",sid="5f"
        "#]]
        .assert_eq(&report.fields().replace('\r', ""));
    }

    #[test]
    fn object_type_follows_from_the_file_name() {
        let kinds = ["/a/master.m3u8", "/init.mp4", "/a.m4a", "/a.mp4", "/a.vtt", "/a", "/a.b/c"]
            .map(|path| ObjectType::of(path).token());
        assert_eq!(kinds, ["m", "i", "a", "av", "tt", "o", "o"]);
    }
}
