//! Playlist tests: the exact text, and its interpretation by an independent parser.

mod rules;
mod tracks;

use super::*;
use crate::presentation::tests::{audio, channel, ladder, track, video};
use crate::presentation::{NamedTrack, OnDemand};
use expect_test::{Expect, expect};
use quick_m3u8::config::ParsingOptionsBuilder;
use quick_m3u8::tag::KnownTag;
use quick_m3u8::tag::hls::Tag;
use quick_m3u8::{HlsLine, Reader};

/// Checks the text against `expect`, and parses it with a third-party parser: every line must be a
/// known tag or a URI.
pub(crate) fn check(playlist: &str, expect: Expect) {
    expect.assert_eq(playlist);
    rules::check(playlist);
    for line in parse(playlist) {
        assert!(matches!(line, HlsLine::KnownTag(_) | HlsLine::Uri(_)), "{line:?}");
    }
}

fn parse(playlist: &str) -> Vec<HlsLine<'_>> {
    let mut reader =
        Reader::from_str(playlist, ParsingOptionsBuilder::new().with_parsing_for_all_tags().build());
    std::iter::from_fn(|| reader.read_line().unwrap()).collect()
}

fn multivariant_of(tracks: Vec<NamedTrack>) -> String {
    multivariant(&OnDemand::new(tracks).unwrap().renditions())
}

#[test]
fn ladder_with_one_audio_track() {
    check(
        &multivariant_of(ladder()),
        expect![[r##"
            #EXTM3U
            #EXT-X-VERSION:7
            #EXT-X-INDEPENDENT-SEGMENTS
            #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio-mp4a.40.2-2ch",NAME="en",LANGUAGE="en",DEFAULT=YES,AUTOSELECT=YES,CHANNELS="2",URI="audio/media.m3u8"
            #EXT-X-STREAM-INF:BANDWIDTH=16000,AVERAGE-BANDWIDTH=15999,CODECS="avc1.64001f,mp4a.40.2",RESOLUTION=640x360,FRAME-RATE=25.000,AUDIO="audio-mp4a.40.2-2ch",CLOSED-CAPTIONS=NONE
            video_360/media.m3u8
            #EXT-X-STREAM-INF:BANDWIDTH=16000,AVERAGE-BANDWIDTH=15999,CODECS="avc1.64001f,mp4a.40.2",RESOLUTION=320x180,FRAME-RATE=25.000,AUDIO="audio-mp4a.40.2-2ch",CLOSED-CAPTIONS=NONE
            video_180/media.m3u8
        "##]],
    );
}

#[test]
fn video_alone_has_no_group() {
    check(
        &multivariant_of(vec![video("v", 180, &[25_600])]),
        expect![[r##"
            #EXTM3U
            #EXT-X-VERSION:7
            #EXT-X-INDEPENDENT-SEGMENTS
            #EXT-X-STREAM-INF:BANDWIDTH=8000,AVERAGE-BANDWIDTH=8000,CODECS="avc1.64001f",RESOLUTION=320x180,FRAME-RATE=25.000,CLOSED-CAPTIONS=NONE
            v/media.m3u8
        "##]],
    );
}

#[test]
fn audio_only_has_no_group() {
    check(
        &multivariant_of(vec![audio("a", Some("en"), &[96_000])]),
        expect![[r##"
        #EXTM3U
        #EXT-X-VERSION:7
        #EXT-X-INDEPENDENT-SEGMENTS
        #EXT-X-STREAM-INF:BANDWIDTH=8000,AVERAGE-BANDWIDTH=8000,CODECS="mp4a.40.2"
        a/media.m3u8
    "##]],
    );
}

#[test]
fn audio_only_in_two_languages_has_a_group() {
    let tracks = vec![audio("a", Some("en"), &[96_000]), audio("b", Some("fr"), &[96_000])];
    check(
        &multivariant_of(tracks),
        expect![[r##"
        #EXTM3U
        #EXT-X-VERSION:7
        #EXT-X-INDEPENDENT-SEGMENTS
        #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio-mp4a.40.2-2ch",NAME="en",LANGUAGE="en",DEFAULT=YES,AUTOSELECT=YES,CHANNELS="2",URI="a/media.m3u8"
        #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio-mp4a.40.2-2ch",NAME="fr",LANGUAGE="fr",DEFAULT=NO,AUTOSELECT=YES,CHANNELS="2",URI="b/media.m3u8"
        #EXT-X-STREAM-INF:BANDWIDTH=8000,AVERAGE-BANDWIDTH=8000,CODECS="mp4a.40.2",AUDIO="audio-mp4a.40.2-2ch"
        a/media.m3u8
    "##]],
    );
}

#[test]
fn two_languages_and_two_bitrates_make_two_groups() {
    let mut tracks = vec![video("v", 180, &[25_600])];
    for (name, language, size) in
        [("en_64", "en", 16_000), ("en_128", "en", 32_000), ("fr_64", "fr", 16_000), ("fr_128", "fr", 32_000)]
    {
        let mut track = audio(name, Some(language), &[96_000]);
        track.index.segments[0].size = size;
        tracks.push(track);
    }
    check(
        &multivariant_of(tracks),
        expect![[r##"
            #EXTM3U
            #EXT-X-VERSION:7
            #EXT-X-INDEPENDENT-SEGMENTS
            #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio-mp4a.40.2-2ch",NAME="en",LANGUAGE="en",DEFAULT=YES,AUTOSELECT=YES,CHANNELS="2",URI="en_128/media.m3u8"
            #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio-mp4a.40.2-2ch",NAME="fr",LANGUAGE="fr",DEFAULT=NO,AUTOSELECT=YES,CHANNELS="2",URI="fr_128/media.m3u8"
            #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio-mp4a.40.2-2ch-1",NAME="en",LANGUAGE="en",DEFAULT=YES,AUTOSELECT=YES,CHANNELS="2",URI="en_64/media.m3u8"
            #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio-mp4a.40.2-2ch-1",NAME="fr",LANGUAGE="fr",DEFAULT=NO,AUTOSELECT=YES,CHANNELS="2",URI="fr_64/media.m3u8"
            #EXT-X-STREAM-INF:BANDWIDTH=136000,AVERAGE-BANDWIDTH=136000,CODECS="avc1.64001f,mp4a.40.2",RESOLUTION=320x180,FRAME-RATE=25.000,AUDIO="audio-mp4a.40.2-2ch",CLOSED-CAPTIONS=NONE
            v/media.m3u8
            #EXT-X-STREAM-INF:BANDWIDTH=72000,AVERAGE-BANDWIDTH=72000,CODECS="avc1.64001f,mp4a.40.2",RESOLUTION=320x180,FRAME-RATE=25.000,AUDIO="audio-mp4a.40.2-2ch-1",CLOSED-CAPTIONS=NONE
            v/media.m3u8
        "##]],
    );
}

#[test]
fn on_demand_media_playlist_lists_every_segment() {
    check(
        &media::on_demand(&ladder()[0]),
        expect![[r##"
            #EXTM3U
            #EXT-X-VERSION:7
            #EXT-X-TARGETDURATION:2
            #EXT-X-MEDIA-SEQUENCE:0
            #EXT-X-PLAYLIST-TYPE:VOD
            #EXT-X-MAP:URI="v1/init.mp4"
            #EXTINF:1.984000,
            v1/0.m4s
            #EXTINF:1.984000,
            v1/95232.m4s
            #EXTINF:2.005333,
            v1/190464.m4s
            #EXTINF:0.021334,
            v1/286720.m4s
            #EXT-X-ENDLIST
        "##]],
    );
}

/// No EXTINF, rounded to the nearest second, may exceed the target duration (§4.4.3.1).
#[test]
fn target_duration_is_the_longest_segment_to_the_nearest_second() {
    let target = |lengths: &[u64]| {
        let playlist = media::on_demand(&track("v", "avc1.64001f", Media::Text, 1000, lengths));
        parse(&playlist)
            .iter()
            .find_map(|line| match line {
                HlsLine::KnownTag(KnownTag::Hls(Tag::Targetduration(target))) => {
                    Some(target.target_duration())
                }
                _ => None,
            })
            .unwrap()
    };
    assert_eq!(target(&[1400, 1600]), 2);
    assert_eq!(target(&[2499, 1000]), 2);
    assert_eq!(target(&[2500, 1000]), 3);
    assert_eq!(target(&[400]), 1);
}

/// EXT-X-INDEPENDENT-SEGMENTS must hold for every segment of the playlist (§4.4.2.1).
#[test]
fn live_playlist_is_independent_only_if_every_listed_segment_is() {
    let mut channel = channel();
    channel.epochs[0].tracks[0].segments[1].sync = false;
    let promises = |track, depth_us| media::live(&channel, track, depth_us).unwrap().contains(INDEPENDENT);
    assert!(!promises("stream0", 60_000_000));
    assert!(promises("stream1", 60_000_000));
    // The dependent segment has left the playlist.
    assert!(promises("stream0", 4_000_000));
    assert!(!multivariant_live(&channel.epochs[0]).contains(INDEPENDENT));
}

#[test]
fn durations_add_up_to_the_microsecond() {
    let track = track("v", "avc1.64001f", Media::Video { width: 16, height: 9 }, 30_000, &[1001; 300]);
    let sum: f64 = parse(&media::on_demand(&track))
        .iter()
        .filter_map(|line| match line {
            HlsLine::KnownTag(KnownTag::Hls(Tag::Inf(inf))) => Some(inf.duration()),
            _ => None,
        })
        .sum();
    assert_eq!((sum * 1e6).round(), 10_010_000.0);
}

#[test]
fn live_media_playlist_marks_the_discontinuity() {
    check(
        &media::live(&channel(), "stream1", 60_000_000).unwrap(),
        expect![[r##"
            #EXTM3U
            #EXT-X-VERSION:7
            #EXT-X-TARGETDURATION:2
            #EXT-X-INDEPENDENT-SEGMENTS
            #EXT-X-MEDIA-SEQUENCE:27
            #EXT-X-DISCONTINUITY-SEQUENCE:0
            #EXT-X-MAP:URI="init-0.mp4"
            #EXT-X-PROGRAM-DATE-TIME:2026-11-20T23:36:12.250Z
            #EXTINF:2.000000,
            27.m4s
            #EXT-X-PROGRAM-DATE-TIME:2026-11-20T23:36:14.250Z
            #EXTINF:2.000000,
            28.m4s
            #EXT-X-PROGRAM-DATE-TIME:2026-11-20T23:36:16.250Z
            #EXTINF:2.000000,
            29.m4s
            #EXT-X-DISCONTINUITY
            #EXT-X-MAP:URI="init-30.mp4"
            #EXT-X-PROGRAM-DATE-TIME:2026-11-20T23:36:19.450Z
            #EXTINF:2.000000,
            30.m4s
            #EXT-X-PROGRAM-DATE-TIME:2026-11-20T23:36:21.450Z
            #EXTINF:2.000000,
            31.m4s
            #EXT-X-PROGRAM-DATE-TIME:2026-11-20T23:36:23.450Z
            #EXTINF:2.000000,
            32.m4s
        "##]],
    );
}

#[test]
fn live_playlist_is_limited_to_its_depth() {
    check(
        &media::live(&channel(), "stream0", 4_000_000).unwrap(),
        expect![[r##"
            #EXTM3U
            #EXT-X-VERSION:7
            #EXT-X-TARGETDURATION:2
            #EXT-X-INDEPENDENT-SEGMENTS
            #EXT-X-MEDIA-SEQUENCE:31
            #EXT-X-DISCONTINUITY-SEQUENCE:1
            #EXT-X-MAP:URI="init-30.mp4"
            #EXT-X-PROGRAM-DATE-TIME:2026-11-20T23:36:21.450Z
            #EXTINF:2.000000,
            31.m4s
            #EXT-X-PROGRAM-DATE-TIME:2026-11-20T23:36:23.450Z
            #EXTINF:2.000000,
            32.m4s
        "##]],
    );
}

#[test]
fn track_missing_an_epoch_keeps_the_discontinuity_sequence() {
    let mut channel = channel();
    channel.epochs[1].id = 2;
    check(
        &media::live(&channel, "stream0", 8_000_000).unwrap(),
        expect![[r##"
            #EXTM3U
            #EXT-X-VERSION:7
            #EXT-X-TARGETDURATION:2
            #EXT-X-INDEPENDENT-SEGMENTS
            #EXT-X-MEDIA-SEQUENCE:29
            #EXT-X-DISCONTINUITY-SEQUENCE:0
            #EXT-X-MAP:URI="init-0.mp4"
            #EXT-X-PROGRAM-DATE-TIME:2026-11-20T23:36:16.250Z
            #EXTINF:2.000000,
            29.m4s
            #EXT-X-DISCONTINUITY
            #EXT-X-DISCONTINUITY
            #EXT-X-MAP:URI="init-30.mp4"
            #EXT-X-PROGRAM-DATE-TIME:2026-11-20T23:36:19.450Z
            #EXTINF:2.000000,
            30.m4s
            #EXT-X-PROGRAM-DATE-TIME:2026-11-20T23:36:21.450Z
            #EXTINF:2.000000,
            31.m4s
            #EXT-X-PROGRAM-DATE-TIME:2026-11-20T23:36:23.450Z
            #EXTINF:2.000000,
            32.m4s
        "##]],
    );
}

#[test]
fn unknown_track_has_no_playlist() {
    assert_eq!(media::live(&channel(), "stream2", 60_000_000), None);
}

#[test]
fn live_playlist_before_the_first_segment_is_empty() {
    let mut channel = channel();
    channel.epochs.truncate(1);
    channel.epochs[0].tracks[0].segments.clear();
    check(
        &media::live(&channel, "stream0", 60_000_000).unwrap(),
        expect![[r#"
            #EXTM3U
            #EXT-X-VERSION:7
            #EXT-X-TARGETDURATION:2
            #EXT-X-INDEPENDENT-SEGMENTS
            #EXT-X-MEDIA-SEQUENCE:0
            #EXT-X-DISCONTINUITY-SEQUENCE:0
        "#]],
    );
}
