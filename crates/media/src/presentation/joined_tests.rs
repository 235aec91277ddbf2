//! Tests of joined presentations: matched ladders, MPD and playlists.

use super::*;
use crate::presentation::tests::{audio, ladder, track, video};
use expect_test::{Expect, expect};

const SECOND: u64 = 1_000_000;

fn presentation(tracks: Vec<NamedTrack>) -> OnDemand {
    OnDemand::new(tracks).unwrap()
}

fn join<'a>(entries: &[(&str, &'a OnDemand, Option<Clip>)]) -> Joined<'a> {
    let entry = |(path, media, clip): &(&str, &'a OnDemand, Option<Clip>)| {
        Entry::new((*path).to_owned(), media, *clip).unwrap()
    };
    Joined { entries: entries.iter().map(entry).collect() }
}

/// Checks the renditions: the name, and the track of each entry.
fn check(entries: &[(&str, &OnDemand)], expected: Expect) {
    let entries: Vec<_> = entries.iter().map(|(path, media)| (*path, *media, None)).collect();
    let joined = join(&entries);
    let text = match joined.ladder() {
        Err(unmatched) => format!("{unmatched}\n"),
        Ok(rungs) => {
            let line = |rung: &Rung| {
                let of = |(entry, &track): (&Entry<'_>, &usize)| entry.media().tracks()[track].name.clone();
                let tracks: Vec<String> = joined.entries.iter().zip(&rung.tracks).map(of).collect();
                format!("{}: {} [{}]\n", rung.name, tracks.join(" "), rung.info.codec)
            };
            rungs.iter().map(line).collect()
        }
    };
    expected.assert_eq(&text);
}

#[test]
fn ladders_match_by_position() {
    let rung = |name: &str, height: u32, size: u64| {
        let mut track = video(name, height, &[25_600; 3]);
        track.index.segments.iter_mut().for_each(|s| s.size = size);
        track
    };
    let film = presentation(vec![rung("low", 180, 1), rung("mid", 360, 2), rung("high", 720, 3)]);
    let mut advert = rung("only", 480, 2);
    advert.index.info.codec = String::from("avc1.640020");
    let advert = presentation(vec![advert]);
    let two = presentation(vec![rung("b", 720, 9), rung("a", 360, 5)]);
    check(
        &[("film", &film), ("advert", &advert), ("two", &two)],
        expect![[r#"
            video-1: low only a [avc1.640020,avc1.64001f]
            video-2: mid only a [avc1.640020,avc1.64001f]
            video-3: high only b [avc1.64001f,avc1.640020]
        "#]],
    );
}

#[test]
fn missing_language_is_continued_by_another() {
    let picture = || video("v", 180, &[25_600; 3]);
    let sound = |name: &str, tag: Option<&str>| audio(name, tag, &[96_000; 3]);
    let text = |tag: &str| {
        let mut text = track(&format!("text_{tag}"), "wvtt", Media::Text, 1000, &[2000; 3]);
        text.index.info.language = Some(tag.to_owned());
        text
    };
    let advert = presentation(vec![picture(), sound("a", None), text("en")]);
    let film = presentation(vec![
        picture(),
        sound("de", Some("de")),
        sound("en", Some("en")),
        text("en"),
        text("de"),
    ]);
    check(
        &[("advert", &advert), ("film", &film)],
        expect![[r#"
            video-1: v v [avc1.64001f]
            audio-1: a de [mp4a.40.2]
            audio-2: a de [mp4a.40.2]
            audio-3: a en [mp4a.40.2]
            text-1: text_en text_en [wvtt]
        "#]],
    );
}

#[test]
fn ladders_that_do_not_match_are_refused() {
    let avc = presentation(vec![video("v", 180, &[25_600; 3]), audio("a", None, &[96_000; 3])]);
    let silent = presentation(vec![video("v", 180, &[25_600; 3])]);
    let media = Media::Video { width: 320, height: 180 };
    let hevc = presentation(vec![track("h", "hvc1.1.6.L93.B0", media, 12_800, &[25_600; 3])]);
    check(
        &[("a", &avc), ("b", &silent)],
        expect![[r#"
        entry 2 has no mp4a audio track, but entry 1 has
    "#]],
    );
    check(
        &[("b", &silent), ("a", &avc)],
        expect![[r#"
        entry 1 has no mp4a audio track, but entry 2 has
    "#]],
    );
    check(
        &[("b", &silent), ("h", &hevc)],
        expect![[r#"
        entry 2 has no avc1 video track, but entry 1 has
    "#]],
    );
}

#[test]
fn mpd_has_a_period_for_each_entry() {
    let film = presentation(ladder());
    let clip = Clip { start_us: 2 * SECOND, end_us: Some(4 * SECOND) };
    let joined = join(&[("film", &film, None), ("a%20b", &film, Some(clip))]);
    let mpd = crate::dash::joined(&joined);
    let parsed: dash_mpd_core::MPD = crate::dash::tests::check(
        &mpd,
        expect![[r#"
            <?xml version="1.0" encoding="UTF-8"?>
            <MPD xmlns="urn:mpeg:dash:schema:mpd:2011" profiles="urn:mpeg:dash:profile:isoff-live:2011,urn:mpeg:dash:profile:cmaf:2019" type="static" mediaPresentationDuration="PT8S" maxSegmentDuration="PT2.005334S" minBufferTime="PT2.005334S">
              <Period id="0" start="PT0S" duration="PT6S">
                <BaseURL>../film/</BaseURL>
                <AdaptationSet id="0" contentType="video" segmentAlignment="true" mimeType="video/mp4" startWithSAP="2">
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="main"/>
                  <SegmentTemplate timescale="12800" media="$Time$.m4s" initialization="init.mp4">
                    <SegmentTimeline>
                      <S t="0" d="25600" r="2"/>
                    </SegmentTimeline>
                  </SegmentTemplate>
                  <Representation id="video_360" bandwidth="8000" width="640" height="360" sar="1:1" frameRate="25" codecs="avc1.64001f">
                    <BaseURL>video_360/v1/</BaseURL>
                  </Representation>
                  <Representation id="video_180" bandwidth="8000" width="320" height="180" sar="1:1" frameRate="25" codecs="avc1.64001f">
                    <BaseURL>video_180/v1/</BaseURL>
                  </Representation>
                </AdaptationSet>
                <AdaptationSet id="1" lang="en" contentType="audio" segmentAlignment="true" mimeType="audio/mp4" startWithSAP="1">
                  <AudioChannelConfiguration schemeIdUri="urn:mpeg:mpegB:cicp:ChannelConfiguration" value="2"/>
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="main"/>
                  <SegmentTemplate timescale="48000" media="$Time$.m4s" initialization="init.mp4">
                    <SegmentTimeline>
                      <S t="0" d="95232" r="1"/>
                      <S d="96256"/>
                      <S d="1024"/>
                    </SegmentTimeline>
                  </SegmentTemplate>
                  <Representation id="audio" bandwidth="8000" audioSamplingRate="48000" codecs="mp4a.40.2">
                    <BaseURL>audio/v1/</BaseURL>
                  </Representation>
                </AdaptationSet>
              </Period>
              <Period id="1" start="PT6S" duration="PT2S">
                <BaseURL>../a%20b/</BaseURL>
                <AdaptationSet id="0" contentType="video" segmentAlignment="true" mimeType="video/mp4" startWithSAP="2">
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="main"/>
                  <SegmentTemplate timescale="12800" presentationTimeOffset="25600" media="$Time$.m4s" initialization="init.mp4">
                    <SegmentTimeline>
                      <S t="25600" d="25600"/>
                    </SegmentTimeline>
                  </SegmentTemplate>
                  <Representation id="video_360" bandwidth="8000" width="640" height="360" sar="1:1" frameRate="25" codecs="avc1.64001f">
                    <BaseURL>video_360/v1/</BaseURL>
                  </Representation>
                  <Representation id="video_180" bandwidth="8000" width="320" height="180" sar="1:1" frameRate="25" codecs="avc1.64001f">
                    <BaseURL>video_180/v1/</BaseURL>
                  </Representation>
                </AdaptationSet>
                <AdaptationSet id="1" lang="en" contentType="audio" segmentAlignment="true" mimeType="audio/mp4" startWithSAP="1">
                  <AudioChannelConfiguration schemeIdUri="urn:mpeg:mpegB:cicp:ChannelConfiguration" value="2"/>
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="main"/>
                  <SegmentTemplate timescale="48000" presentationTimeOffset="96000" media="$Time$.m4s" initialization="init.mp4">
                    <SegmentTimeline>
                      <S t="95232" d="95232"/>
                      <S d="96256"/>
                    </SegmentTimeline>
                  </SegmentTemplate>
                  <Representation id="audio" bandwidth="8000" audioSamplingRate="48000" codecs="mp4a.40.2">
                    <BaseURL>audio/v1/</BaseURL>
                  </Representation>
                </AdaptationSet>
              </Period>
            </MPD>
        "#]],
    );
    assert_eq!(parsed.periods.len(), 2);
}

#[test]
fn playlist_has_a_discontinuity_between_entries() {
    let film = presentation(ladder());
    let clip = Clip { start_us: 2 * SECOND, end_us: Some(4 * SECOND) };
    let joined = join(&[("film", &film, None), ("a%20b", &film, Some(clip))]);
    let rungs = joined.ladder().unwrap();
    let playlist = |name: &str| {
        let rung = rungs.iter().find(|rung| rung.name == name).unwrap();
        crate::hls::joined::media(&joined, rung)
    };
    crate::hls::tests::check(
        &playlist("video-1"),
        expect![[r##"
            #EXTM3U
            #EXT-X-VERSION:7
            #EXT-X-TARGETDURATION:2
            #EXT-X-MEDIA-SEQUENCE:0
            #EXT-X-PLAYLIST-TYPE:VOD
            #EXT-X-MAP:URI="../../film/video_360/v1/init.mp4"
            #EXTINF:2.000000,
            ../../film/video_360/v1/0.m4s
            #EXTINF:2.000000,
            ../../film/video_360/v1/25600.m4s
            #EXTINF:2.000000,
            ../../film/video_360/v1/51200.m4s
            #EXT-X-DISCONTINUITY
            #EXT-X-MAP:URI="../../a%20b/video_360/v1/init.mp4"
            #EXTINF:2.000000,
            ../../a%20b/video_360/v1/25600.m4s
            #EXT-X-ENDLIST
        "##]],
    );
    // The audio segments begin 0.016 s before the clip's boundaries: one is listed, not two.
    let audio = playlist("audio-1");
    let clipped: Vec<&str> = audio.lines().filter(|line| line.starts_with("../../a%20b")).collect();
    assert_eq!(clipped, ["../../a%20b/audio/v1/95232.m4s"]);
    crate::hls::tests::check(
        &crate::hls::multivariant(&rungs.iter().map(Rung::rendition).collect::<Vec<_>>()),
        expect![[r##"
            #EXTM3U
            #EXT-X-VERSION:7
            #EXT-X-INDEPENDENT-SEGMENTS
            #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio-mp4a.40.2-2ch",NAME="en",LANGUAGE="en",DEFAULT=YES,AUTOSELECT=YES,CHANNELS="2",URI="audio-1/media.m3u8"
            #EXT-X-STREAM-INF:BANDWIDTH=16000,AVERAGE-BANDWIDTH=16000,CODECS="avc1.64001f,mp4a.40.2",RESOLUTION=640x360,FRAME-RATE=25.000,AUDIO="audio-mp4a.40.2-2ch",CLOSED-CAPTIONS=NONE
            video-1/media.m3u8
            #EXT-X-STREAM-INF:BANDWIDTH=16000,AVERAGE-BANDWIDTH=16000,CODECS="avc1.64001f,mp4a.40.2",RESOLUTION=320x180,FRAME-RATE=25.000,AUDIO="audio-mp4a.40.2-2ch",CLOSED-CAPTIONS=NONE
            video-2/media.m3u8
        "##]],
    );
}

#[test]
fn selection_applies_to_every_entry() {
    let film = presentation(ladder());
    let joined = || join(&[("a", &film, None), ("b", &film, None)]);
    let low = Selection::from_parameters([("max_height", "180")]).unwrap();
    let mpd = crate::dash::joined(&joined().select(&low).unwrap());
    assert_eq!((mpd.matches("video_180/v1/").count(), mpd.contains("video_360")), (2, false));
    let none = Selection::from_parameters([("lang", "ja")]).unwrap();
    assert!(joined().select(&none).unwrap_err().to_string().starts_with("?lang=ja selects no audio"));
}
