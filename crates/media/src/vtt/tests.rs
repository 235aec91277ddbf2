//! WebVTT tests: indices and segments of small files.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;

const FILE: &str = "\u{feff}WEBVTT - title\r
X-TIMESTAMP-MAP=MPEGTS:900000,LOCAL:00:00:00.000\r
\r
STYLE\r
::cue { color: yellow }\r
\r
1\r
00:01.000 --> 00:02.500 align:start\r
Hello,\r
world\r
\r
NOTE about the text
above --> it is a greeting
\r
00:00:29.000 --> 00:00:31.000
across the border

01:05.000 --> 01:06.000
late

00:40.000 --> 00:41.000
out of order
";

fn segments(file: &str) -> String {
    let mut out = String::new();
    match index(file.as_bytes(), None) {
        Ok(index) => {
            for s in &index.segments {
                let at = |at: u64| usize::try_from(at).unwrap();
                let header = &file.as_bytes()[..at(index.header_size)];
                let cues = &file.as_bytes()[at(s.offset)..at(s.offset + s.size)];
                out += &segment(header, cues, &(s.time..s.time + s.duration), 900_000);
                out += "=====\n";
            }
        }
        Err(error) => out = error.to_string(),
    }
    out
}

fn check(file: &str, expect: Expect) {
    expect.assert_eq(&segments(file));
}

#[test]
fn segments_have_the_cues_shown_in_them() {
    check(
        FILE,
        expect![[r#"
        WEBVTT
        X-TIMESTAMP-MAP=MPEGTS:900000,LOCAL:00:00:00.000

        STYLE
        ::cue { color: yellow }


        1
        00:01.000 --> 00:02.500 align:start
        Hello,
        world

        00:00:29.000 --> 00:00:31.000
        across the border
        =====
        WEBVTT
        X-TIMESTAMP-MAP=MPEGTS:900000,LOCAL:00:00:00.000

        STYLE
        ::cue { color: yellow }


        00:00:29.000 --> 00:00:31.000
        across the border

        00:40.000 --> 00:41.000
        out of order
        =====
        WEBVTT
        X-TIMESTAMP-MAP=MPEGTS:900000,LOCAL:00:00:00.000

        STYLE
        ::cue { color: yellow }


        01:05.000 --> 01:06.000
        late
        =====
    "#]],
    );
}

#[test]
fn file_without_cues_has_one_empty_segment() {
    check(
        "WEBVTT",
        expect![[r#"
        WEBVTT
        X-TIMESTAMP-MAP=MPEGTS:900000,LOCAL:00:00:00.000
        =====
    "#]],
    );
    check(
        "WEBVTT\n\nNOTE nothing\n",
        expect![[r#"
        WEBVTT
        X-TIMESTAMP-MAP=MPEGTS:900000,LOCAL:00:00:00.000

        NOTE nothing
        =====
    "#]],
    );
}

#[test]
fn other_files_and_invalid_times_are_refused() {
    check("", expect!["offset 0: WebVTT: must begin with WEBVTT"]);
    check("WEBVTTX\n", expect!["offset 0: WebVTT: must begin with WEBVTT"]);
    check(
        "WEBVTT\n\n1\n00:01,000 --> 00:02,000\nSRT\n",
        expect!["offset 10: WebVTT: cue must have times such as 00:01:02.500"],
    );
    check(
        "WEBVTT\n\n100:00:00.000 --> 100:00:00.001\n",
        expect!["offset 0: WebVTT: 360000001 exceeds CUE_END_MS_MAX (360000000)"],
    );
    let long = "00:00.000 --> 99:00:00.000\nx\n\n".repeat(89);
    check(&format!("WEBVTT\n\n{long}"), expect!["offset 0: WebVTT: 1057320 exceeds SHOWN_MAX (1048576)"]);
}

#[test]
fn segments_fit_the_presentation() {
    let of = |presentation_ms| {
        let mut segments = index(FILE.as_bytes(), None).unwrap().segments;
        fit(&mut segments, presentation_ms);
        segments.iter().map(|s| (s.time, s.duration, s.size > 0)).collect::<Vec<_>>()
    };
    assert_eq!(of(6000), [(0, 6000, true)]);
    assert_eq!(of(60_000), [(0, 30_000, true), (30_000, 30_000, true)]);
    let long = of(95_000);
    assert_eq!(long[2..], [(60_000, 30_000, true), (90_000, 5000, false)]);
    assert_eq!(of(0), [(0, 1, true)]);
}

proptest! {
    #[test]
    fn any_text_is_survived(text in "(WEBVTT)?[\n\r0-9:.> a-]{0,200}") {
        let indexed = index(text.as_bytes(), None);
        if let Ok(index) = indexed {
            for s in &index.segments {
                prop_assert!(s.offset + s.size <= text.len() as u64);
            }
            let _ = segments(&text);
        }
    }
}
