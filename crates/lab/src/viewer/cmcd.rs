//! CMCD, what players tell of themselves with each request (CTA-5004, version 1), as request header fields. Pure.

use std::fmt::Write;
use std::time::Duration;

/// What a viewer tells.
#[derive(Debug, Clone, PartialEq)]
pub struct Report<'a> {
    /// `sid`: the session.
    pub session: &'a str,
    /// `cid`: what is watched.
    pub content: &'a str,
    /// `sf`: `d` for DASH, `h` for HLS.
    pub format: char,
    /// `st`: live, or on demand.
    pub is_live: bool,
    /// `ot`: `m` a manifest, `i` a header, `v` video.
    pub object: char,
    /// `br`: of the segment's track; 0 where that is unknown.
    pub bitrate_bits_per_s: u64,
    /// `tb`: the highest there is.
    pub top_bits_per_s: u64,
    /// `d`: of the segment.
    pub duration: Option<Duration>,
    /// `bl`: media before the playhead.
    pub buffered: Duration,
    /// `mtp`: what was measured.
    pub throughput_bits_per_s: Option<f64>,
    /// `su`: the buffer has to be filled at once, to start or after a stall.
    pub is_urgent: bool,
    /// `bs`: there was a stall since the last request.
    pub has_starved: bool,
}

/// The fields, each with its line's end. Keys are in alphabetical order, numbers rounded, as §3 has them.
#[must_use]
pub fn fields(report: &Report<'_>) -> String {
    let is_media = report.object == 'v';
    let kbit = |bits_per_s: u64| bits_per_s.div_ceil(1000);
    let hundreds = |value: f64| (value / 100.0).round() as u64 * 100;
    let mut object = Vec::new();
    if is_media && report.bitrate_bits_per_s > 0 {
        object.push(format!("br={}", kbit(report.bitrate_bits_per_s)));
    }
    if let Some(duration) = report.duration.filter(|_| is_media) {
        object.push(format!("d={}", duration.as_millis()));
    }
    object.push(format!("ot={}", report.object));
    if is_media && report.top_bits_per_s > 0 {
        object.push(format!("tb={}", kbit(report.top_bits_per_s)));
    }
    let mut request = Vec::new();
    if is_media {
        request.push(format!("bl={}", hundreds(report.buffered.as_secs_f64() * 1e3)));
    }
    if let Some(throughput) = report.throughput_bits_per_s {
        request.push(format!("mtp={}", hundreds(throughput / 1e3)));
    }
    if report.is_urgent {
        request.push("su".to_owned());
    }
    let stream = if report.is_live { 'l' } else { 'v' };
    let mut out = format!("CMCD-Object: {}\r\n", object.join(","));
    if !request.is_empty() {
        let _ = write!(out, "CMCD-Request: {}\r\n", request.join(","));
    }
    let (content, format, session) = (quoted(report.content), report.format, quoted(report.session));
    let _ = write!(out, "CMCD-Session: cid={content},sf={format},sid={session},st={stream}\r\n");
    let mut status = Vec::new();
    if report.has_starved {
        status.push("bs".to_owned());
    }
    if is_media && report.bitrate_bits_per_s > 0 {
        // Twice the bitrate is enough: what the buffer needs to grow as fast as it is played.
        status.push(format!("rtp={}", hundreds(report.bitrate_bits_per_s as f64 * 2.0 / 1e3).max(100)));
    }
    if !status.is_empty() {
        let _ = write!(out, "CMCD-Status: {}\r\n", status.join(","));
    }
    out
}

/// A string of at most 64 characters, as §3 limits both.
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
    fn as_the_standard_writes_them() {
        let mut report = Report {
            session: "6e2fb550-c457-11e9-bb97-0800200c9a66",
            content: "/live/demo\"\r\n",
            format: 'd',
            is_live: true,
            object: 'v',
            bitrate_bits_per_s: 3_200_001,
            top_bits_per_s: 6_000_000,
            duration: Some(Duration::from_millis(4004)),
            buffered: Duration::from_millis(21_349),
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
        .assert_eq(&fields(&report).replace('\r', ""));
        report.object = 'm';
        (report.is_urgent, report.has_starved, report.throughput_bits_per_s) = (false, false, None);
        expect![[r#"
            CMCD-Object: ot=m
            CMCD-Session: cid="/live/demo",sf=d,sid="6e2fb550-c457-11e9-bb97-0800200c9a66",st=l
        "#]]
        .assert_eq(&fields(&report).replace('\r', ""));
    }
}
