//! Playlists of special tracks: purposes, encryption, key frames and WebVTT files.

use super::*;
use crate::dash::tests::tracks::{encrypted, rich, with_trick_play};
use crate::presentation::tests::protection;

fn surround(name: &str, language: &str) -> NamedTrack {
    let mut track = audio(name, Some(language), &[96_000]);
    track.index.info.codec = String::from("ac-3");
    track.index.info.media = Media::Audio { sample_rate: 48_000, channels: 6 };
    track
}

/// Every group must offer every language, or a player that chooses AC-3 loses the others.
#[test]
fn groups_are_completed_with_the_languages_of_others() {
    let mut tracks = vec![video("v", 180, &[25_600]), surround("en_surround", "en")];
    tracks.extend(["de", "en", "fr"].map(|language| audio(language, Some(language), &[96_000])));
    check(
        &multivariant_of(tracks),
        expect![[r##"
        #EXTM3U
        #EXT-X-VERSION:7
        #EXT-X-INDEPENDENT-SEGMENTS
        #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio-ac-3-6ch",NAME="en",LANGUAGE="en",DEFAULT=YES,AUTOSELECT=YES,CHANNELS="6",URI="en_surround/media.m3u8"
        #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio-ac-3-6ch",NAME="de",LANGUAGE="de",DEFAULT=NO,AUTOSELECT=YES,CHANNELS="2",URI="de/media.m3u8"
        #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio-ac-3-6ch",NAME="fr",LANGUAGE="fr",DEFAULT=NO,AUTOSELECT=YES,CHANNELS="2",URI="fr/media.m3u8"
        #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio-mp4a.40.2-2ch",NAME="en",LANGUAGE="en",DEFAULT=YES,AUTOSELECT=YES,CHANNELS="2",URI="en/media.m3u8"
        #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio-mp4a.40.2-2ch",NAME="de",LANGUAGE="de",DEFAULT=NO,AUTOSELECT=YES,CHANNELS="2",URI="de/media.m3u8"
        #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio-mp4a.40.2-2ch",NAME="fr",LANGUAGE="fr",DEFAULT=NO,AUTOSELECT=YES,CHANNELS="2",URI="fr/media.m3u8"
        #EXT-X-STREAM-INF:BANDWIDTH=16000,AVERAGE-BANDWIDTH=16000,CODECS="avc1.64001f,ac-3,mp4a.40.2",RESOLUTION=320x180,FRAME-RATE=25.000,AUDIO="audio-ac-3-6ch",CLOSED-CAPTIONS=NONE
        v/media.m3u8
        #EXT-X-STREAM-INF:BANDWIDTH=16000,AVERAGE-BANDWIDTH=16000,CODECS="avc1.64001f,mp4a.40.2",RESOLUTION=320x180,FRAME-RATE=25.000,AUDIO="audio-mp4a.40.2-2ch",CLOSED-CAPTIONS=NONE
        v/media.m3u8
    "##]],
    );
}

/// If AC-3 were in the group of AAC, browsers without AC-3 would drop every variant.
#[test]
fn group_of_aac_has_no_other_codec() {
    let tracks = vec![video("v", 180, &[25_600]), surround("en", "en"), audio("de", Some("de"), &[96_000])];
    let playlist = multivariant_of(tracks);
    let codecs: Vec<&str> =
        playlist.split("CODECS=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(codecs, ["avc1.64001f,ac-3,mp4a.40.2", "avc1.64001f,mp4a.40.2"]);
    assert!(playlist.contains("GROUP-ID=\"audio-mp4a.40.2-2ch\",NAME=\"de\""), "{playlist}");
}

#[test]
fn names_in_a_group_are_unique() {
    let text = |name: &str, language: Option<&str>| {
        let mut track = track(name, "wvtt", Media::Text, 1000, &[2000]);
        track.index.info.language = language.map(str::to_owned);
        track
    };
    let tracks =
        vec![video("v", 180, &[25_600]), text("x", Some("en")), text("en", None), text("en-2", Some("fr"))];
    let playlist = multivariant_of(tracks);
    let names: Vec<&str> =
        playlist.split("NAME=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(names, ["en", "en 2", "fr"]);
}

#[test]
fn purposes_and_dynamic_range_are_written() {
    check(
        &multivariant_of(rich()),
        expect![[r##"
            #EXTM3U
            #EXT-X-VERSION:7
            #EXT-X-INDEPENDENT-SEGMENTS
            #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio-mp4a.40.2-2ch",NAME="de",LANGUAGE="de",DEFAULT=YES,AUTOSELECT=YES,CHANNELS="2",URI="audio.de.default/media.m3u8"
            #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio-mp4a.40.2-2ch",NAME="en",LANGUAGE="en",DEFAULT=NO,AUTOSELECT=YES,CHANNELS="2",URI="audio.en/media.m3u8"
            #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio-mp4a.40.2-2ch",NAME="en (description)",LANGUAGE="en",DEFAULT=NO,AUTOSELECT=YES,CHARACTERISTICS="public.accessibility.describes-video",CHANNELS="2",URI="audio.en.description/media.m3u8"
            #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio-mp4a.40.2-2ch",NAME="en (commentary)",LANGUAGE="en",DEFAULT=NO,AUTOSELECT=NO,CHANNELS="2",URI="audio.en.commentary/media.m3u8"
            #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio-ec-3-6ch-joc",NAME="de",LANGUAGE="de",DEFAULT=YES,AUTOSELECT=YES,CHANNELS="2",URI="audio.de.default/media.m3u8"
            #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio-ec-3-6ch-joc",NAME="en",LANGUAGE="en",DEFAULT=NO,AUTOSELECT=YES,CHANNELS="16/JOC",URI="atmos.en/media.m3u8"
            #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio-ec-3-6ch-joc",NAME="en (description)",LANGUAGE="en",DEFAULT=NO,AUTOSELECT=YES,CHARACTERISTICS="public.accessibility.describes-video",CHANNELS="2",URI="audio.en.description/media.m3u8"
            #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio-ec-3-6ch-joc",NAME="en (commentary)",LANGUAGE="en",DEFAULT=NO,AUTOSELECT=NO,CHANNELS="2",URI="audio.en.commentary/media.m3u8"
            #EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID="subtitles",NAME="en",LANGUAGE="en",DEFAULT=NO,AUTOSELECT=YES,URI="subs.en/media.m3u8"
            #EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID="subtitles",NAME="en (forced subtitle)",LANGUAGE="en",DEFAULT=NO,AUTOSELECT=YES,FORCED=YES,URI="subs.en.forced/media.m3u8"
            #EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID="subtitles",NAME="en (caption)",LANGUAGE="en",DEFAULT=NO,AUTOSELECT=YES,CHARACTERISTICS="public.accessibility.transcribes-spoken-dialog,public.accessibility.describes-music-and-sound",URI="subs.en.sdh/media.m3u8"
            #EXT-X-STREAM-INF:BANDWIDTH=16000,AVERAGE-BANDWIDTH=16000,CODECS="avc1.64001f,mp4a.40.2,wvtt",RESOLUTION=640x360,VIDEO-RANGE=SDR,FRAME-RATE=25.000,AUDIO="audio-mp4a.40.2-2ch",SUBTITLES="subtitles",CLOSED-CAPTIONS=NONE
            sdr/media.m3u8
            #EXT-X-STREAM-INF:BANDWIDTH=16000,AVERAGE-BANDWIDTH=16000,CODECS="avc1.64001f,mp4a.40.2,ec-3,wvtt",RESOLUTION=640x360,VIDEO-RANGE=SDR,FRAME-RATE=25.000,AUDIO="audio-ec-3-6ch-joc",SUBTITLES="subtitles",CLOSED-CAPTIONS=NONE
            sdr/media.m3u8
            #EXT-X-STREAM-INF:BANDWIDTH=16000,AVERAGE-BANDWIDTH=16000,CODECS="hvc1.2.4.L93.90,mp4a.40.2,wvtt",RESOLUTION=1280x720,VIDEO-RANGE=PQ,FRAME-RATE=25.000,AUDIO="audio-mp4a.40.2-2ch",SUBTITLES="subtitles",CLOSED-CAPTIONS=NONE
            hdr/media.m3u8
            #EXT-X-STREAM-INF:BANDWIDTH=16000,AVERAGE-BANDWIDTH=16000,CODECS="hvc1.2.4.L93.90,mp4a.40.2,ec-3,wvtt",RESOLUTION=1280x720,VIDEO-RANGE=PQ,FRAME-RATE=25.000,AUDIO="audio-ec-3-6ch-joc",SUBTITLES="subtitles",CLOSED-CAPTIONS=NONE
            hdr/media.m3u8
        "##]],
    );
}

#[test]
fn keys_are_written_for_each_system() {
    let tracks = encrypted();
    check(
        &media::on_demand(&tracks[1]),
        expect![[r##"
        #EXTM3U
        #EXT-X-VERSION:7
        #EXT-X-TARGETDURATION:2
        #EXT-X-MEDIA-SEQUENCE:0
        #EXT-X-PLAYLIST-TYPE:VOD
        #EXT-X-MAP:URI="v1/init.mp4"
        #EXT-X-KEY:METHOD=SAMPLE-AES,URI="data:text/plain;base64,AAAAInBzc2gAAAAA7e+LqXnWSs6jyCfc1R0h7QAAAAIBCA==",KEYID=0x01010101010101010101010101010101,KEYFORMAT="urn:uuid:edef8ba9-79d6-4ace-a3c8-27dcd51d21ed",KEYFORMATVERSIONS="1"
        #EXT-X-KEY:METHOD=SAMPLE-AES,URI="data:text/plain;charset=UTF-16;base64,AQg=",KEYID=0x01010101010101010101010101010101,KEYFORMAT="com.microsoft.playready",KEYFORMATVERSIONS="1"
        #EXT-X-KEY:METHOD=SAMPLE-AES,URI="skd://01010101010101010101010101010101",KEYID=0x01010101010101010101010101010101,KEYFORMAT="com.apple.streamingkeydelivery",KEYFORMATVERSIONS="1"
        #EXTINF:2.000000,
        v1/0.m4s
        #EXTINF:2.000000,
        v1/25600.m4s
        #EXTINF:2.000000,
        v1/51200.m4s
        #EXT-X-ENDLIST
    "##]],
    );
    check(
        &multivariant_of(tracks),
        expect![[r##"
        #EXTM3U
        #EXT-X-VERSION:7
        #EXT-X-INDEPENDENT-SEGMENTS
        #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio-mp4a.40.2-2ch",NAME="en",LANGUAGE="en",DEFAULT=YES,AUTOSELECT=YES,CHANNELS="2",URI="audio/media.m3u8"
        #EXT-X-SESSION-KEY:METHOD=SAMPLE-AES,URI="data:text/plain;base64,AAAAInBzc2gAAAAA7e+LqXnWSs6jyCfc1R0h7QAAAAIACA==",KEYID=0x00000000000000000000000000000000,KEYFORMAT="urn:uuid:edef8ba9-79d6-4ace-a3c8-27dcd51d21ed",KEYFORMATVERSIONS="1"
        #EXT-X-SESSION-KEY:METHOD=SAMPLE-AES,URI="data:text/plain;charset=UTF-16;base64,AAg=",KEYID=0x00000000000000000000000000000000,KEYFORMAT="com.microsoft.playready",KEYFORMATVERSIONS="1"
        #EXT-X-SESSION-KEY:METHOD=SAMPLE-AES,URI="skd://00000000000000000000000000000000",KEYID=0x00000000000000000000000000000000,KEYFORMAT="com.apple.streamingkeydelivery",KEYFORMATVERSIONS="1"
        #EXT-X-SESSION-KEY:METHOD=SAMPLE-AES,URI="data:text/plain;base64,AAAAInBzc2gAAAAA7e+LqXnWSs6jyCfc1R0h7QAAAAIBCA==",KEYID=0x01010101010101010101010101010101,KEYFORMAT="urn:uuid:edef8ba9-79d6-4ace-a3c8-27dcd51d21ed",KEYFORMATVERSIONS="1"
        #EXT-X-SESSION-KEY:METHOD=SAMPLE-AES,URI="data:text/plain;charset=UTF-16;base64,AQg=",KEYID=0x01010101010101010101010101010101,KEYFORMAT="com.microsoft.playready",KEYFORMATVERSIONS="1"
        #EXT-X-SESSION-KEY:METHOD=SAMPLE-AES,URI="skd://01010101010101010101010101010101",KEYID=0x01010101010101010101010101010101,KEYFORMAT="com.apple.streamingkeydelivery",KEYFORMATVERSIONS="1"
        #EXT-X-SESSION-KEY:METHOD=SAMPLE-AES,URI="data:text/plain;base64,AAAAInBzc2gAAAAA7e+LqXnWSs6jyCfc1R0h7QAAAAICCA==",KEYID=0x02020202020202020202020202020202,KEYFORMAT="urn:uuid:edef8ba9-79d6-4ace-a3c8-27dcd51d21ed",KEYFORMATVERSIONS="1"
        #EXT-X-SESSION-KEY:METHOD=SAMPLE-AES,URI="data:text/plain;charset=UTF-16;base64,Agg=",KEYID=0x02020202020202020202020202020202,KEYFORMAT="com.microsoft.playready",KEYFORMATVERSIONS="1"
        #EXT-X-SESSION-KEY:METHOD=SAMPLE-AES,URI="skd://02020202020202020202020202020202",KEYID=0x02020202020202020202020202020202,KEYFORMAT="com.apple.streamingkeydelivery",KEYFORMATVERSIONS="1"
        #EXT-X-STREAM-INF:BANDWIDTH=16000,AVERAGE-BANDWIDTH=15999,CODECS="avc1.64001f,mp4a.40.2",RESOLUTION=640x360,FRAME-RATE=25.000,AUDIO="audio-mp4a.40.2-2ch",CLOSED-CAPTIONS=NONE
        video_360/media.m3u8
        #EXT-X-STREAM-INF:BANDWIDTH=16000,AVERAGE-BANDWIDTH=15999,CODECS="avc1.64001f,mp4a.40.2",RESOLUTION=320x180,FRAME-RATE=25.000,AUDIO="audio-mp4a.40.2-2ch",CLOSED-CAPTIONS=NONE
        video_180/media.m3u8
    "##]],
    );
}

#[test]
fn key_without_system_has_the_key_identifier() {
    let mut track = video("v", 180, &[25_600]);
    track.index.info.properties.protection = Some(Protection { systems: Vec::new(), ..protection(0) });
    check(
        &media::on_demand(&track),
        expect![[r##"
        #EXTM3U
        #EXT-X-VERSION:7
        #EXT-X-TARGETDURATION:2
        #EXT-X-MEDIA-SEQUENCE:0
        #EXT-X-PLAYLIST-TYPE:VOD
        #EXT-X-MAP:URI="v1/init.mp4"
        #EXT-X-KEY:METHOD=SAMPLE-AES,URI="data:text/plain;base64,AAAAAAAAAAAAAAAAAAAAAA==",KEYID=0x00000000000000000000000000000000,KEYFORMAT="identity",KEYFORMATVERSIONS="1"
        #EXTINF:2.000000,
        v1/0.m4s
        #EXT-X-ENDLIST
    "##]],
    );
}

#[test]
fn live_playlist_ends_encryption_with_its_epoch() {
    let mut channel = channel();
    let protection = Protection { systems: Vec::new(), ..protection(0) };
    channel.epochs[0].tracks[1].info.properties.protection = Some(protection);
    check(
        &media::live(&channel, "stream1", 8_000_000).unwrap(),
        expect![[r##"
        #EXTM3U
        #EXT-X-VERSION:7
        #EXT-X-TARGETDURATION:2
        #EXT-X-INDEPENDENT-SEGMENTS
        #EXT-X-MEDIA-SEQUENCE:29
        #EXT-X-DISCONTINUITY-SEQUENCE:0
        #EXT-X-MAP:URI="init-0.mp4"
        #EXT-X-KEY:METHOD=SAMPLE-AES,URI="data:text/plain;base64,AAAAAAAAAAAAAAAAAAAAAA==",KEYID=0x00000000000000000000000000000000,KEYFORMAT="identity",KEYFORMATVERSIONS="1"
        #EXT-X-PROGRAM-DATE-TIME:2026-11-20T23:36:16.250Z
        #EXTINF:2.000000,
        29.m4s
        #EXT-X-DISCONTINUITY
        #EXT-X-MAP:URI="init-30.mp4"
        #EXT-X-KEY:METHOD=NONE
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
fn captions_in_the_video_form_a_group() {
    let mut captioned = video("v", 180, &[25_600]);
    captioned.file = String::from("v.cc.mp4");
    let tracks = vec![captioned, video("w", 360, &[25_600]), video("w.sign", 360, &[25_600])];
    check(
        &multivariant_of(tracks),
        expect![[r##"
        #EXTM3U
        #EXT-X-VERSION:7
        #EXT-X-INDEPENDENT-SEGMENTS
        #EXT-X-MEDIA:TYPE=CLOSED-CAPTIONS,GROUP-ID="captions",NAME="CC1",DEFAULT=NO,AUTOSELECT=YES,INSTREAM-ID="CC1"
        #EXT-X-STREAM-INF:BANDWIDTH=8000,AVERAGE-BANDWIDTH=8000,CODECS="avc1.64001f",RESOLUTION=320x180,FRAME-RATE=25.000,CLOSED-CAPTIONS="captions"
        v/media.m3u8
        #EXT-X-STREAM-INF:BANDWIDTH=8000,AVERAGE-BANDWIDTH=8000,CODECS="avc1.64001f",RESOLUTION=640x360,FRAME-RATE=25.000,CLOSED-CAPTIONS="captions"
        w/media.m3u8
    "##]],
    );
}

#[test]
fn trick_play_track_has_an_i_frame_playlist() {
    let presentation = OnDemand::new(with_trick_play()).unwrap();
    let playlist = multivariant(&presentation.renditions());
    let lines: Vec<&str> = playlist.lines().filter(|line| line.contains("slow")).collect();
    expect![[r##"#EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=8000,AVERAGE-BANDWIDTH=8000,CODECS="avc1.64001f",RESOLUTION=320x180,URI="slow/iframes.m3u8""##]].assert_eq(&lines.join("\n"));
    check(
        &iframes::on_demand(presentation.track("slow").unwrap()).unwrap(),
        expect![[r##"
        #EXTM3U
        #EXT-X-VERSION:7
        #EXT-X-TARGETDURATION:1
        #EXT-X-MEDIA-SEQUENCE:0
        #EXT-X-PLAYLIST-TYPE:VOD
        #EXT-X-I-FRAMES-ONLY
        #EXT-X-MAP:URI="v1/init.mp4"
        #EXTINF:1.000000,
        #EXT-X-BYTERANGE:1000@0
        v1/0.m4s
        #EXTINF:1.000000,
        #EXT-X-BYTERANGE:1000@0
        v1/12800.m4s
        #EXTINF:1.000000,
        #EXT-X-BYTERANGE:1000@0
        v1/25600.m4s
        #EXTINF:1.000000,
        #EXT-X-BYTERANGE:1000@0
        v1/38400.m4s
        #EXTINF:1.000000,
        #EXT-X-BYTERANGE:1000@0
        v1/51200.m4s
        #EXTINF:1.000000,
        #EXT-X-BYTERANGE:1000@0
        v1/64000.m4s
        #EXT-X-ENDLIST
    "##]],
    );
    assert_eq!(iframes::on_demand(presentation.track("video_180").unwrap()), None, "sizes are unknown");
}

#[test]
fn ladder_has_i_frame_playlists_if_key_frames_are_known() {
    let mut tracks = ladder();
    tracks[2].index.key_sizes = vec![500, 400, 300];
    // The edit list skips the first segment.
    tracks[2].index.info.edit_media_time = 25_600;
    let presentation = OnDemand::new(vec![tracks.remove(2)]).unwrap();
    check(
        &multivariant(&presentation.renditions()),
        expect![[r##"
        #EXTM3U
        #EXT-X-VERSION:7
        #EXT-X-INDEPENDENT-SEGMENTS
        #EXT-X-STREAM-INF:BANDWIDTH=8000,AVERAGE-BANDWIDTH=8000,CODECS="avc1.64001f",RESOLUTION=320x180,FRAME-RATE=25.000,CLOSED-CAPTIONS=NONE
        video_180/media.m3u8
        #EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=1600,AVERAGE-BANDWIDTH=1400,CODECS="avc1.64001f",RESOLUTION=320x180,URI="video_180/iframes.m3u8"
    "##]],
    );
    check(
        &iframes::on_demand(&presentation.tracks()[0]).unwrap(),
        expect![[r##"
        #EXTM3U
        #EXT-X-VERSION:7
        #EXT-X-TARGETDURATION:2
        #EXT-X-MEDIA-SEQUENCE:0
        #EXT-X-PLAYLIST-TYPE:VOD
        #EXT-X-I-FRAMES-ONLY
        #EXT-X-MAP:URI="v1/init.mp4"
        #EXTINF:2.000000,
        #EXT-X-BYTERANGE:400@0
        v1/0.m4s
        #EXTINF:2.000000,
        #EXT-X-BYTERANGE:300@0
        v1/25600.m4s
        #EXT-X-ENDLIST
    "##]],
    );
}

/// Returns a film of 65 s that begins at 10 s, with a WebVTT file.
fn with_file() -> OnDemand {
    let mut tracks = vec![video("v", 180, &[25_600; 33])];
    tracks[0].index.segments.iter_mut().for_each(|s| s.time += 128_000);
    let file = b"WEBVTT\n\n00:01.000 --> 00:02.000\nHello\n";
    let index = crate::vtt::index(file, Some(String::from("en"))).unwrap();
    let (name, version, file) = ("film-en", "v2", "film.en.sdh.vtt");
    tracks.push(NamedTrack { name: name.into(), version: version.into(), file: file.into(), index });
    OnDemand::new(tracks).unwrap()
}

#[test]
fn webvtt_file_has_a_playlist() {
    let presentation = with_file();
    check(
        &media::on_demand(presentation.track("film-en").unwrap()),
        expect![[r#"
        #EXTM3U
        #EXT-X-VERSION:7
        #EXT-X-TARGETDURATION:30
        #EXT-X-MEDIA-SEQUENCE:0
        #EXT-X-PLAYLIST-TYPE:VOD
        #EXTINF:30.000000,
        v2-dbba0/0.vtt
        #EXTINF:30.000000,
        v2-dbba0/30000.vtt
        #EXTINF:6.000000,
        v2-dbba0/60000.vtt
        #EXT-X-ENDLIST
    "#]],
    );
    check(
        &multivariant(&presentation.renditions()),
        expect![[r##"
        #EXTM3U
        #EXT-X-VERSION:7
        #EXT-X-INDEPENDENT-SEGMENTS
        #EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID="subtitles",NAME="en (caption)",LANGUAGE="en",DEFAULT=NO,AUTOSELECT=YES,CHARACTERISTICS="public.accessibility.transcribes-spoken-dialog,public.accessibility.describes-music-and-sound",URI="film-en/media.m3u8"
        #EXT-X-STREAM-INF:BANDWIDTH=8000,AVERAGE-BANDWIDTH=8000,CODECS="avc1.64001f",RESOLUTION=320x180,FRAME-RATE=25.000,SUBTITLES="subtitles",CLOSED-CAPTIONS=NONE
        v/media.m3u8
    "##]],
    );
    let mpd = crate::dash::on_demand(&presentation);
    let set = &mpd[mpd.find("<AdaptationSet id=\"1\"").unwrap()..];
    expect![[r#"
        <AdaptationSet id="1" lang="en" contentType="text" mimeType="text/vtt">
              <Accessibility schemeIdUri="urn:tva:metadata:cs:AudioPurposeCS:2007" value="2"/>
              <Role schemeIdUri="urn:mpeg:dash:role:2011" value="caption"/>
              <Representation id="film-en" bandwidth="8">
                <BaseURL>film-en/v2-dbba0/subtitles.vtt</BaseURL>
              </Representation>
            </AdaptationSet>
          </Period>
        </MPD>
    "#]]
    .assert_eq(set);
    dash_mpd_core::parse(&mpd).unwrap();
}

#[test]
fn subtitles_form_a_group() {
    let tracks = vec![video("v", 180, &[25_600]), track("s", "wvtt", Media::Text, 1000, &[2000])];
    check(
        &multivariant_of(tracks),
        expect![[r##"
            #EXTM3U
            #EXT-X-VERSION:7
            #EXT-X-INDEPENDENT-SEGMENTS
            #EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID="subtitles",NAME="s",DEFAULT=NO,AUTOSELECT=YES,URI="s/media.m3u8"
            #EXT-X-STREAM-INF:BANDWIDTH=8000,AVERAGE-BANDWIDTH=8000,CODECS="avc1.64001f,wvtt",RESOLUTION=320x180,FRAME-RATE=25.000,SUBTITLES="subtitles",CLOSED-CAPTIONS=NONE
            v/media.m3u8
        "##]],
    );
}
