//! Kinds of tracks that users bring, over HTTP: codecs, languages and purposes, with what ffprobe
//! reads from the result.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use support::{Running, ffmpeg, ffprobe, make_audio, make_video};
use thalweg_origin::Config;

/// ffmpeg flags for one track with an edit list.
const TRACK: &str =
    "-f mp4 -movflags delay_moov+default_base_moof+frag_keyframe -frag_duration 500000 -strict -2";
const PICTURE: &str = "-f lavfi -i testsrc2=size=128x72:rate=25 -t 4 -g 50 -keyint_min 50";
const TONE: &str = "-f lavfi -i sine=440:sample_rate=48000 -t 4";

fn start(media: PathBuf) -> Running {
    Running::start(Config { media: vec![media.into()], listing_max_age: Duration::ZERO, ..Config::default() })
}

/// Creates a media directory with the empty presentation `a`; returns both paths.
fn empty() -> (PathBuf, PathBuf) {
    let media = support::directory("media");
    let a = media.join("a");
    std::fs::create_dir(&a).unwrap();
    (media, a)
}

/// Returns a line of `codec,packets` for each kind of stream.
async fn streams(input: &str) -> Vec<String> {
    let arguments = "-count_packets -show_entries stream=codec_name,nb_read_packets -of csv=p=0";
    let lines = ffprobe(arguments, input).await;
    let mut lines: Vec<String> = lines.lines().map(|l| l.trim_end_matches(',').to_owned()).collect();
    lines.retain(|line| !line.is_empty());
    // ffprobe lists a stream again for each program that contains it.
    lines.sort();
    lines.dedup();
    lines
}

fn file(directory: &Path, name: &str) -> String {
    directory.join(format!("{name}.mp4")).to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_codec_is_served_as_itself() {
    let (media, a) = empty();
    let hdr10 = "-pix_fmt yuv420p10 -color_primaries bt2020 -color_trc smpte2084 -colorspace bt2020nc";
    let videos = [
        ("hevc", format!("-c:v libx265 -preset ultrafast -x265-params log-level=none -tag:v hvc1 {hdr10}")),
        ("av1", String::from("-c:v libaom-av1 -cpu-used 8 -row-mt 1 -pix_fmt yuv420p")),
        ("vp9", String::from("-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -pix_fmt yuv420p")),
    ];
    for (name, codec) in &videos {
        ffmpeg(&format!("{PICTURE} {codec} {TRACK}"), file(&a, name));
    }
    let audios =
        [("aac", "aac"), ("opus", "libopus"), ("flac", "flac"), ("ac3", "ac3 -ac 6"), ("eac3", "eac3 -ac 6")];
    for (name, codec) in audios {
        ffmpeg(&format!("{TONE} -c:a {codec} -metadata:s:a language=eng {TRACK}"), file(&a, name));
    }
    let origin = start(media);
    let tracks = videos.iter().map(|(name, _)| *name).chain(audios.map(|(name, _)| name));
    for track in tracks.clone() {
        let source = streams(&file(&a, track)).await;
        assert!(source[0].starts_with(track), "{source:?}");
        assert_eq!(streams(&origin.url(&format!("/vod/a/{track}/media.m3u8"))).await, source, "HLS");
    }
    // ffprobe 5.1 stops reading an MPD once its shortest track ends, so only the codecs are
    // compared.
    let codec = |line: &String| line.split(',').next().unwrap().to_owned();
    let mut sources = Vec::new();
    for track in tracks {
        sources.extend(streams(&file(&a, track)).await.iter().map(codec));
    }
    sources.sort();
    let served = streams(&origin.url("/vod/a/manifest.mpd")).await;
    assert_eq!(served.iter().map(codec).collect::<Vec<_>>(), sources, "DASH");
    let master = origin.text("/vod/a/master.m3u8").await;
    assert!(master.contains("VIDEO-RANGE=PQ") && master.contains("VIDEO-RANGE=SDR"), "{master}");
    for codecs in ["hvc1.2.4.L30.90,mp4a.40.2", "av01.0.00M.08,ec-3", "vp09.00.10.08,fLaC"] {
        assert!(master.contains(codecs), "{master}");
    }
    let mpd = origin.text("/vod/a/manifest.mpd").await;
    let pq = "EssentialProperty schemeIdUri=\"urn:mpeg:mpegB:cicp:TransferCharacteristics\" value=\"16\"";
    assert!(mpd.contains(pq), "{mpd}");
    dash_mpd_core::parse(&mpd).unwrap();
    origin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn purposes_come_from_ffmpeg_and_from_file_names() {
    let (media, a) = empty();
    make_video(&a.join("video.mp4"), "128x72", 4.0);
    make_audio(&a.join("audio.mp4"), 4.0);
    make_audio(&a.join("audio.commentary.mp4"), 4.0);
    let described = format!("{TONE} -c:a aac -disposition:a:0 visual_impaired+descriptions {TRACK}");
    ffmpeg(&described, file(&a, "other"));
    let origin = start(media);
    let master = origin.text("/vod/a/master.m3u8").await;
    let of = |track: &str| {
        let uri = format!("URI=\"{track}/media.m3u8\"");
        master.lines().find(|l| l.contains(&uri)).unwrap_or_else(|| panic!("{master}")).to_owned()
    };
    assert!(of("audio").contains("DEFAULT=YES"), "{master}");
    assert!(of("audio-commentary").contains("AUTOSELECT=NO"), "{master}");
    assert!(of("other").contains("CHARACTERISTICS=\"public.accessibility.describes-video\""), "{master}");
    let mpd = dash_mpd_core::parse(&origin.text("/vod/a/manifest.mpd").await).unwrap();
    let roles: Vec<String> = mpd.periods[0]
        .adaptations
        .iter()
        .map(|set| set.Role.iter().filter_map(|role| role.value.clone()).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(roles, ["main", "main", "commentary", "description"]);
    origin.stop().await;
}

/// Encrypted files are served as they are: with the key, a player sees every frame.
#[tokio::test(flavor = "multi_thread")]
async fn encrypted_tracks_are_served_with_their_key_identifier() {
    const KEY: &str = "00112233445566778899aabbccddeeff";
    let encryption = format!(
        "-encryption_scheme cenc-aes-ctr -encryption_key {KEY} -encryption_kid 0123456789abcdef0123456789abcdef"
    );
    // ffmpeg 5.1 encrypts only the first fragment correctly, so each file has one.
    let one = "-f mp4 -movflags delay_moov+default_base_moof -frag_duration 9000000";
    let (media, a) = empty();
    ffmpeg(&format!("{PICTURE} {} {one} {encryption}", support::VIDEO), file(&a, "video"));
    ffmpeg(&format!("{TONE} -c:a aac {one} {encryption}"), file(&a, "audio"));
    let origin = start(media);
    let playlist = origin.text("/vod/a/video/media.m3u8").await;
    let key = "#EXT-X-KEY:METHOD=SAMPLE-AES-CTR,URI=\"data:text/plain;base64,ASNFZ4mrze8BI0VniavN7w==\",\
               KEYID=0x0123456789abcdef0123456789abcdef,KEYFORMAT=\"identity\"";
    assert!(playlist.contains(key), "{playlist}");
    let mpd = origin.text("/vod/a/manifest.mpd").await;
    assert_eq!(mpd.matches("cenc:default_KID=\"01234567-89ab-cdef-0123-456789abcdef\"").count(), 2, "{mpd}");
    let parsed = dash_mpd_core::parse(&mpd).unwrap();
    let protection = &parsed.periods[0].adaptations[0].ContentProtection[0];
    assert_eq!(protection.value.as_deref(), Some("cenc"));
    // A wrong key yields packets, but no picture.
    let frames = async |stream: &str, key: &str| {
        let entries = "-show_entries stream=codec_name,nb_read_frames -of csv=p=0";
        let arguments =
            format!("-cenc_decryption_key {key} -select_streams {stream} -count_frames {entries}");
        let url = origin.url("/vod/a/manifest.mpd");
        ffprobe(&arguments, &url).await.lines().next().unwrap().to_owned()
    };
    assert_eq!(frames("v:0", KEY).await, "h264,100");
    assert!(frames("a:0", KEY).await.starts_with("aac,18"));
    assert_ne!(frames("v:0", "ffffffffffffffffffffffffffffffff").await, "h264,100");
    origin.stop().await;
}

/// ffprobe reads every cue of a WebVTT file from both manifests, at the times in the file, even if
/// the film begins later than 0.
#[tokio::test(flavor = "multi_thread")]
async fn webvtt_file_is_served_in_both_forms() {
    let (media, a) = empty();
    let video =
        format!("-f lavfi -i testsrc2=size=128x72:rate=5 -t 75 -vf setpts=PTS+10/TB {}", support::VIDEO);
    ffmpeg(&format!("{video} -movflags +frag_discont -f mp4 -movflags +cmaf"), file(&a, "video"));
    let text = "WEBVTT\n\n00:01.000 --> 00:02.000\nOne\n\n00:29.500 --> 00:30.500\nTwo\n\n\
                01:01.000 --> 01:02.000\nThree\n";
    std::fs::write(a.join("film.de.forced.vtt"), text).unwrap();
    let origin = start(media);
    let master = origin.text("/vod/a/master.m3u8").await;
    let subtitles = "NAME=\"de (forced subtitle)\",LANGUAGE=\"de\",DEFAULT=NO,AUTOSELECT=YES,FORCED=YES";
    assert!(master.contains(subtitles), "{master}");
    let playlist = origin.text("/vod/a/film-de-forced/media.m3u8").await;
    let segments: Vec<&str> = playlist.lines().filter(|line| line.ends_with(".vtt")).collect();
    assert_eq!(segments.len(), 3, "{playlist}");
    let mut shown = Vec::new();
    for segment in &segments {
        let answer = origin.get(&format!("/vod/a/film-de-forced/{segment}")).await;
        assert_eq!(answer.field("content-type"), "text/vtt; charset=utf-8");
        assert!(answer.field("cache-control").contains("immutable"));
        let text = answer.text();
        assert!(text.contains("X-TIMESTAMP-MAP=MPEGTS:900000,LOCAL:00:00:00.000"), "{text}");
        shown.push(["One", "Two", "Three"].map(|cue| text.contains(cue)));
    }
    assert_eq!(shown, [[true, true, false], [false, true, false], [false, false, true]]);
    let mpd = dash_mpd_core::parse(&origin.text("/vod/a/manifest.mpd").await).unwrap();
    let set = &mpd.periods[0].adaptations[1];
    assert_eq!((set.mimeType.as_deref(), set.lang.as_deref()), (Some("text/vtt"), Some("de")));
    let url = format!("/vod/a/{}", set.representations[0].BaseURL[0].base);
    assert_eq!(origin.text(&url).await, text.trim_end());
    let part = origin.request("GET", &url, &[("range", "bytes=0-5")]).await;
    assert_eq!(part.text(), "WEBVTT");
    let cues = ffprobe("-show_entries packet=pts_time -of csv=p=0", &origin.url(&url)).await;
    assert_eq!(cues.split_whitespace().collect::<Vec<_>>(), ["1.000000", "29.500000", "61.000000"]);
    for missing in ["video/0.vtt", "film-de-forced/init.mp4", "film-de-forced/0.m4s"] {
        assert_eq!(origin.get(&format!("/vod/a/{missing}")).await.status, 404, "{missing}");
    }
    assert_eq!(origin.get("/vod/a/film-de-forced/1.vtt").await.status, 404);
    origin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_webvtt_file_is_left_out() {
    let (media, a) = empty();
    make_video(&a.join("video.mp4"), "128x72", 4.0);
    std::fs::write(a.join("broken.vtt"), "1\n00:00:01,000 --> 00:00:02,000\nSubRip\n").unwrap();
    let origin = start(media);
    let catalog = origin.text("/catalog.json").await;
    assert!(catalog.contains("a/broken.vtt: offset 0: WebVTT: must begin with WEBVTT"), "{catalog}");
    assert!(!origin.text("/vod/a/master.m3u8").await.contains("SUBTITLES"));
    origin.stop().await;
}

/// Each byte range of an I-frame playlist is one frame that a player can decode.
#[tokio::test(flavor = "multi_thread")]
async fn i_frame_playlists_name_single_frames() {
    let (media, a) = empty();
    make_video(&a.join("video.mp4"), "128x72", 7.0);
    let origin = start(media);
    let master = origin.text("/vod/a/master.m3u8").await;
    assert!(master.contains("#EXT-X-I-FRAME-STREAM-INF") && master.contains("URI=\"video/iframes.m3u8\""));
    let playlist = origin.text("/vod/a/video/iframes.m3u8").await;
    let header = origin.get("/vod/a/video/init.mp4").await.content;
    let lines: Vec<&str> = playlist.lines().collect();
    let mut frames = Vec::new();
    for pair in lines.windows(2) {
        let Some(range) = pair[0].strip_prefix("#EXT-X-BYTERANGE:") else { continue };
        let size: u64 = range.strip_suffix("@0").unwrap().parse().unwrap();
        let range = format!("bytes=0-{}", size - 1);
        let part = origin.request("GET", &format!("/vod/a/video/{}", pair[1]), &[("range", &range)]).await;
        assert_eq!(part.status, 206);
        let file = a.with_file_name(format!("{}.mp4", frames.len()));
        std::fs::write(&file, [&header[..], &part.content].concat()).unwrap();
        frames.push(ffprobe("-show_entries frame=pict_type -of csv=p=0", file.to_str().unwrap()).await);
    }
    let frames: Vec<&str> = frames.iter().map(|lines| lines.trim().trim_end_matches(',')).collect();
    assert_eq!(frames, ["I"; 4], "{playlist}");
    origin.stop().await;
}

/// A track for fast forward is neither in the ladder nor lost.
#[tokio::test(flavor = "multi_thread")]
async fn trick_play_track_is_offered_to_both() {
    let (media, a) = empty();
    make_video(&a.join("video.mp4"), "128x72", 6.0);
    let slow =
        "-f lavfi -i testsrc2=size=128x72:rate=1 -t 6 -c:v libx264 -preset ultrafast -g 1 -pix_fmt yuv420p";
    ffmpeg(&format!("{slow} {TRACK}"), file(&a, "fast-forward"));
    let origin = start(media);
    let master = origin.text("/vod/a/master.m3u8").await;
    assert_eq!(master.matches("iframes.m3u8").count(), 1, "{master}");
    assert!(master.contains("URI=\"fast-forward/iframes.m3u8\""), "{master}");
    let mpd = dash_mpd_core::parse(&origin.text("/vod/a/manifest.mpd").await).unwrap();
    let set = &mpd.periods[0].adaptations[1];
    assert_eq!(set.essential_property[0].schemeIdUri, "http://dashif.org/guidelines/trickmode");
    assert_eq!(set.maxPlayoutRate, Some(25.0));
    origin.stop().await;
}

/// Images of tiles, as ffmpeg's tile filter writes them, are offered to players of both formats.
#[tokio::test(flavor = "multi_thread")]
async fn thumbnails_are_served() {
    let (media, a) = empty();
    make_video(&a.join("video.mp4"), "128x72", 7.0);
    let input = "-f lavfi -i testsrc2=size=128x72:rate=25 -t 7 -vf fps=1,scale=64:-2,tile=2x2";
    ffmpeg(input, a.join("thumbs.2x2.1s.%03d.jpg"));
    std::fs::write(a.join("gap.2x2.1s.2.jpg"), "").unwrap();
    std::fs::write(a.join("poster.jpg"), "").unwrap();
    let origin = start(media);
    let catalog = origin.text("/catalog.json").await;
    assert!(catalog.contains("a/gap.2x2.1s.2.jpg: images of tiles must be numbered from 1"), "{catalog}");
    assert_eq!(catalog.matches("\"file\"").count(), 1, "{catalog}");
    let master = origin.text("/vod/a/master.m3u8").await;
    let stream = "RESOLUTION=64x36,CODECS=\"jpeg\",URI=\"thumbs/images.m3u8\"";
    assert!(master.contains(stream), "{master}");
    let playlist = origin.text("/vod/a/thumbs/images.m3u8").await;
    let images: Vec<&str> = playlist.lines().filter(|line| line.ends_with(".jpg")).collect();
    assert_eq!(images.len(), 2, "{playlist}");
    let mpd = dash_mpd_core::parse(&origin.text("/vod/a/manifest.mpd").await).unwrap();
    let set = mpd.periods[0].adaptations.last().unwrap();
    let template = set.SegmentTemplate.as_ref().unwrap();
    assert_eq!((template.duration, template.endNumber), (Some(4.0), Some(2)));
    let base = &set.representations[0].BaseURL[0].base;
    assert_eq!(format!("{base}2.jpg"), format!("thumbs/{}", images[1]));
    let answer = origin.get(&format!("/vod/a/{base}2.jpg")).await;
    assert_eq!(answer.field("content-type"), "image/jpeg");
    let entries = "-show_entries stream=codec_name,width,height -of csv=p=0";
    assert_eq!(ffprobe(entries, &origin.url(&format!("/vod/a/{base}1.jpg"))).await.trim(), "mjpeg,128,72");
    for missing in ["thumbs/3.jpg", "thumbs/0.jpg", "thumbs/1.png", "thumbs/0badf00d/1.jpg", "video/1.jpg"] {
        assert_eq!(origin.get(&format!("/vod/a/{missing}")).await.status, 404, "{missing}");
    }
    origin.stop().await;
}
