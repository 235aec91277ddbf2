//! Tests of manifests written by our origin and ffmpeg, and of invalid manifests.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

const LIVE_MPD: &str = include_str!("fixtures/live.mpd");
const ON_DEMAND_MPD: &str = include_str!("fixtures/on-demand.mpd");
const FFMPEG_LIVE_MPD: &str = include_str!("fixtures/ffmpeg-live.mpd");
const FFMPEG_TIMELINE_MPD: &str = include_str!("fixtures/ffmpeg-timeline.mpd");
const FFMPEG_LIST_MPD: &str = include_str!("fixtures/ffmpeg-list.mpd");
const MASTER: &str = include_str!("fixtures/master.m3u8");
const LIVE_PLAYLIST: &str = include_str!("fixtures/live.m3u8");
const FFMPEG_LIVE_PLAYLIST: &str = include_str!("fixtures/ffmpeg-live.m3u8");
const FFMPEG_ONE_FILE: &str = include_str!("fixtures/ffmpeg-one-file.m3u8");
const ALL: [&str; 9] = [
    LIVE_MPD,
    ON_DEMAND_MPD,
    FFMPEG_LIVE_MPD,
    FFMPEG_TIMELINE_MPD,
    FFMPEG_LIST_MPD,
    MASTER,
    LIVE_PLAYLIST,
    FFMPEG_LIVE_PLAYLIST,
    FFMPEG_ONE_FILE,
];

fn base() -> Base {
    Base { authority: Authority::parse(b"lab").unwrap(), target: Target::new("/c/manifest").unwrap() }
}

/// Formats the location and time of a segment, in seconds from `zero`.
fn describe(segment: &Segment, zero: Duration) -> String {
    let seconds = |time: Duration| time.as_secs_f64() - zero.as_secs_f64();
    let header = segment.header.as_ref().map_or(String::new(), |header| match header.range {
        Some((from, length)) => format!(" after {} {from}+{length}", header.target),
        None => format!(" after {}", header.target),
    });
    let range = segment.range.map_or(String::new(), |(from, length)| format!(" {from}+{length}"));
    let from = if segment.available.is_zero() {
        String::new()
    } else {
        format!(" from {:.3}", seconds(segment.available))
    };
    let duration = segment.duration.as_secs_f64();
    format!("{}{range} at {:.3} for {duration:.3}{from}{header}\n", segment.target, seconds(segment.start))
}

/// Checks a presentation, and up to three consecutive segments of its lowest track from `at` on,
/// against `expect`.
fn check(presentation: &Presentation, at: Duration, expect: Expect) {
    let mut out = String::new();
    if let Some(live) = &presentation.live {
        let Live { refresh, latency, window, clock, .. } = live;
        out +=
            &format!("live: refresh {refresh:?}, latency {latency:?}, window {window:?}, clock {clock:?}\n");
    }
    for period in &presentation.periods {
        let tracks: Vec<String> =
            period.tracks.iter().map(|track| format!("{} {}", track.name, track.bitrate)).collect();
        out += &format!("{:?}..{:?}: {}\n", period.start, period.end, tracks.join(", "));
    }
    let mut found = presentation.containing(0, at);
    for _ in 0..3 {
        let Found::Segment(segment) = &found else { break };
        out += &describe(segment, Duration::ZERO);
        found = presentation.following(0, segment.end());
    }
    if !matches!(found, Found::Segment(_)) {
        out += &format!("{found:?}\n");
    }
    expect.assert_eq(&out);
}

fn mpd(text: &str) -> Presentation {
    dash::read(text, &base()).unwrap()
}

fn media(text: &str) -> hls::Media {
    match hls::read(text, &base()).unwrap() {
        hls::Playlist::Media(media) => media,
        other @ hls::Playlist::Multivariant(_) => panic!("{other:?}"),
    }
}

#[test]
fn live_mpd_by_number_is_parsed() {
    check(
        &mpd(LIVE_MPD),
        Duration::from_millis(4500),
        expect![[r#"
        live: refresh Some(2s), latency 2s, window 60s, clock Some("/time")
        0ns..None: video_180 125088, video_360 257496, video_540 457552
        /c/video_180/897639467.m4s at 4.000 for 2.000 from 4.512 after /c/video_180/init-897639465.mp4
        /c/video_180/897639468.m4s at 6.000 for 2.000 from 6.512 after /c/video_180/init-897639465.mp4
        /c/video_180/897639469.m4s at 8.000 for 2.000 from 8.512 after /c/video_180/init-897639465.mp4
    "#]],
    );
}

#[test]
fn on_demand_mpd_by_timeline_is_parsed() {
    check(
        &mpd(ON_DEMAND_MPD),
        Duration::from_secs(29),
        expect![[r#"
            0ns..Some(32s): video_180 113132, video_360 261304, video_540 523128
            /c/video_180/634bd334/344064.m4s at 28.000 for 2.000 after /c/video_180/634bd334/init.mp4
            /c/video_180/634bd334/368640.m4s at 30.000 for 2.000 after /c/video_180/634bd334/init.mp4
            End
        "#]],
    );
}

#[test]
fn ffmpegs_live_mpd_is_parsed() {
    check(
        &mpd(FFMPEG_LIVE_MPD),
        Duration::from_secs(3),
        expect![[r#"
        live: refresh Some(500s), latency 6s, window 18446744073709551615.999999999s, clock None
        0ns..None: 0 279016
        /c/chunk-stream0-00002.m4s at 2.000 for 2.000 from 2.500 after /c/init-stream0.m4s
        /c/chunk-stream0-00003.m4s at 4.000 for 2.000 from 4.500 after /c/init-stream0.m4s
        /c/chunk-stream0-00004.m4s at 6.000 for 2.000 from 6.500 after /c/init-stream0.m4s
    "#]],
    );
}

#[test]
fn ffmpegs_timeline_mpd_is_parsed() {
    check(
        &mpd(FFMPEG_TIMELINE_MPD),
        Duration::from_secs(4),
        expect![[r#"
            0ns..Some(7s): 0 297648
            /c/chunk-stream0-00003.m4s at 4.000 for 2.000 after /c/init-stream0.m4s
            /c/chunk-stream0-00004.m4s at 6.000 for 1.000 after /c/init-stream0.m4s
            End
        "#]],
    );
}

#[test]
fn ffmpegs_segment_list_mpd_is_parsed() {
    check(
        &mpd(FFMPEG_LIST_MPD),
        Duration::from_secs(4),
        expect![[r#"
            0ns..Some(7s): 0 297648
            /c/chunk-stream0-00003.m4s at 4.000 for 2.000 after /c/init-stream0.m4s
            /c/chunk-stream0-00004.m4s at 6.000 for 2.000 after /c/init-stream0.m4s
            End
        "#]],
    );
}

#[test]
fn multivariant_playlist_is_parsed() {
    let hls::Playlist::Multivariant(tracks) = hls::read(MASTER, &base()).unwrap() else {
        panic!("must have variants")
    };
    check(
        &hls::unread(tracks),
        Duration::ZERO,
        expect![[r#"
        0ns..None: /c/video_180/media.m3u8 184147, /c/video_360/media.m3u8 332319, /c/video_540/media.m3u8 594143
        Playlist("/c/video_180/media.m3u8")
    "#]],
    );
}

#[test]
fn dated_live_playlist_is_parsed() {
    let media = media(LIVE_PLAYLIST);
    let first = &media.segments[0];
    assert!(media.is_dated && media.segments.is_sorted_by_key(|segment| segment.start));
    let live = media.live().unwrap();
    assert_eq!((live.latency, live.refresh), (Duration::from_secs(6), Some(Duration::from_secs(2))));
    expect![[r#"
        /c/897640780.m4s at 0.000 for 2.000 after /c/init-897639465.mp4
    "#]]
    .assert_eq(&describe(first, first.start));
}

#[test]
fn playlist_of_ranges_in_one_file_is_parsed() {
    let media = media(FFMPEG_ONE_FILE);
    let found: String = media.segments.iter().map(|segment| describe(segment, Duration::ZERO)).collect();
    assert!(media.is_complete && media.live().is_none());
    expect![[r#"
        /c/m.m4s 808+69330 at 0.000 for 2.000 after /c/m.m4s 0+808
        /c/m.m4s 70138+76123 at 2.000 for 2.000 after /c/m.m4s 0+808
        /c/m.m4s 146261+74564 at 4.000 for 2.000 after /c/m.m4s 0+808
        /c/m.m4s 220825+39521 at 6.000 for 1.000 after /c/m.m4s 0+808
    "#]]
    .assert_eq(&found);
}

#[test]
fn undated_segments_keep_their_media_times() {
    let edge = Duration::from_secs(1000);
    let mut first = media(FFMPEG_LIVE_PLAYLIST);
    first.place(None, edge);
    assert_eq!(first.segments.last().unwrap().end(), edge);
    // Read the next version of the playlist. The time at which it is read does not matter.
    let mut text = FFMPEG_LIVE_PLAYLIST.replace(
        &format!("#EXT-X-MEDIA-SEQUENCE:{}", first.sequence),
        &format!("#EXT-X-MEDIA-SEQUENCE:{}", first.sequence + 1),
    );
    let gone = text.find("#EXTINF").unwrap()..text.rfind("#EXTINF").unwrap();
    let rest = text[gone.clone()].find(".ts\n").unwrap() + 4;
    text.replace_range(gone.start..gone.start + rest, "");
    text += "#EXTINF:2.000000,\nnew.ts\n";
    let mut next = media(&text);
    next.place([&first], edge * 2);
    assert_eq!(next.segments[0].start, first.segments[1].start);
    assert_eq!(next.segments.last().unwrap().start, edge);
    // After a long time on another track, segments continue after the latest playlist, with one
    // target duration per missed segment.
    let mut late = media(&FFMPEG_LIVE_PLAYLIST.replace(
        &format!("#EXT-X-MEDIA-SEQUENCE:{}", first.sequence),
        &format!("#EXT-X-MEDIA-SEQUENCE:{}", next.next() + 10),
    ));
    late.place([&next, &first], edge * 2);
    assert_eq!(late.segments[0].start, next.segments.last().unwrap().end() + next.target * 10);
    let mut last = media(
        "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:18446744073709551615\n#EXTINF:2,\na.ts\n",
    );
    last.place([&first], edge);
    assert!(last.segments[0].start > edge);
}

#[test]
fn short_mpd_cannot_list_millions_of_segments() {
    let times = |tracks: usize| {
        let timeline = "<SegmentTimeline><S t=\"0\" d=\"2\" r=\"59999\"/></SegmentTimeline>";
        let template =
            format!("<SegmentTemplate media=\"$Time$.m4s\" timescale=\"1\">{timeline}</SegmentTemplate>");
        let track = |id| format!("<Representation id=\"{id}\" bandwidth=\"1\">{template}</Representation>");
        let tracks: String = (0..tracks).map(track).collect();
        format!("<MPD><Period><AdaptationSet contentType=\"video\">{tracks}</AdaptationSet></Period></MPD>")
    };
    assert!(dash::read(&times(1), &base()).is_ok());
    expect!["MPD: lists more than 100000 segments"]
        .assert_eq(&dash::read(&times(2), &base()).unwrap_err().to_string());
}

#[test]
fn invalid_manifests_are_rejected() {
    let why = |text: &str| match text.starts_with('<') {
        true => dash::read(text, &base()).unwrap_err().to_string(),
        false => hls::read(text, &base()).unwrap_err().to_string(),
    };
    let cases = [
        "<MPD type=\"dynamic\"></MPD>",
        "<MPD></MPD>",
        "<MPD><Period><AdaptationSet contentType=\"video\"><Representation id=\"v\"/></AdaptationSet></Period></MPD>",
        "<MPD><BaseURL>http://elsewhere/</BaseURL></MPD>",
        "hello",
        "#EXTM3U\n",
        "#EXTM3U\n#EXT-X-TARGETDURATION:2\na.ts\n",
    ];
    expect![[r#"
        MPD: live, but without an availabilityStartTime after 1970
        MPD: no Period has an AdaptationSet of video or audio
        MPD: Representation has neither SegmentTemplate nor SegmentList (SegmentBase is not supported)
        "http://elsewhere/" is not on the server lab
        playlist: first line is not #EXTM3U
        playlist: has neither variants nor EXT-X-TARGETDURATION
        playlist: "a.ts" has no EXTINF"#]]
    .assert_eq(&cases.map(why).join("\n"));
}

/// Parses any manifest; looking up segments must terminate.
fn read_any(text: &str) {
    let presentation = match hls::read(text, &base()) {
        Ok(hls::Playlist::Media(mut media)) => {
            media.place(None, Duration::from_secs(1));
            let _ = media.live();
            return;
        }
        Ok(hls::Playlist::Multivariant(tracks)) => hls::unread(tracks),
        Err(_) => match dash::read(text, &base()) {
            Ok(presentation) => presentation,
            Err(_) => return,
        },
    };
    for at in [Duration::ZERO, Duration::from_millis(4100), Duration::from_secs(1 << 40), Duration::MAX] {
        for track in [0, 7] {
            let _ = presentation.containing(track, at);
            let _ = presentation.following(track, at);
        }
    }
}

/// Generates manifests with some bytes replaced.
fn broken() -> impl Strategy<Value = String> {
    let numbers = prop::sample::select(vec![
        "0",
        "-1",
        "99999999999999999999",
        "1e308",
        "NaN",
        "INF",
        "",
        "18446744073709551615",
    ]);
    let changes = prop::collection::vec((any::<prop::sample::Index>(), 0..40usize, numbers), 1..6);
    (prop::sample::select(ALL.to_vec()), changes).prop_map(|(text, changes)| {
        let mut text = text.to_owned();
        for (at, length, with) in changes {
            // Usually replace a number, which does the most harm.
            let from = at.index(text.len());
            let from = text[from..].find(|c: char| c.is_ascii_digit()).map_or(from, |digit| from + digit);
            let end = if length > 20 {
                (from + length).min(text.len())
            } else {
                text[from..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |other| from + other)
            };
            if text.is_char_boundary(from) && text.is_char_boundary(end) {
                text.replace_range(from..end, with);
            }
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn broken_manifest_never_panics(text in broken()) {
        read_any(&text);
    }

    #[test]
    fn segment_of_a_time_is_exact(
        length in 1..1_000_000u64,
        timescale in 1..100_000u64,
        start_s in 0..2_000_000_000u64,
        index in 0..1_000_000u64,
    ) {
        let start = Duration::from_secs(start_s);
        let mapping = TimeMapping { start, offset: Duration::ZERO };
        let numbered = Numbered {
            media: "/$Number$".to_owned(), header: None, first: 0, length, timescale, start, end: None,
            early: Duration::ZERO, mapping,
        };
        let segment = numbered.segment(index).unwrap();
        let tracks = vec![Track { name: String::new(), bitrate: 0, segments: Segments::Numbered(Box::new(numbered)) }];
        let presentation =
            Presentation { live: None, buffer: start, periods: vec![Period { start, end: None, tracks }] };
        prop_assume!(segment.duration > Duration::from_nanos(100));
        prop_assert_eq!(presentation.containing(0, segment.start), Found::Segment(segment.clone()));
        prop_assert_eq!(presentation.containing(0, segment.end() - Duration::from_nanos(1)), Found::Segment(segment.clone()));
        let Found::Segment(next) = presentation.following(0, segment.end()) else { panic!("a segment must follow") };
        prop_assert_eq!((next.start, next.target), (segment.end(), format!("/{}", index + 1)));
    }
}
