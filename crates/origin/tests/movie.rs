//! Progressive files over HTTP: players receive the packets of the source file.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hyper::StatusCode;
use support::{Running, ffmpeg, ffprobe};
use thalweg_origin::Config;

/// A film with reordered frames at 29.97 frames per second and two languages.
const FILM: &str = "-f lavfi -i testsrc2=size=160x90:rate=30000/1001 -f lavfi -i sine=440:sample_rate=48000 \
                    -f lavfi -i sine=880:sample_rate=48000 -map 0 -map 1 -map 2 -t 7 -c:v libx264 -preset veryfast \
                    -bf 2 -force_key_frames expr:gte(t,n_forced*2) -pix_fmt yuv420p -c:a aac -b:a 64k \
                    -metadata:s:a:0 language=eng -metadata:s:a:1 language=deu";

fn start(media: PathBuf) -> Running {
    Running::start(Config { media: vec![media.into()], listing_max_age: Duration::ZERO, ..Config::default() })
}

/// Creates a media directory with `a/film.mp4`.
fn film(arguments: &str) -> (PathBuf, String) {
    let media = support::directory("media");
    fs::create_dir(media.join("a")).unwrap();
    let file = media.join("a/film.mp4");
    ffmpeg(arguments, &file);
    (media, file.to_str().unwrap().to_owned())
}

/// Returns one line for each packet of a stream: times in seconds, size, flags, and a hash of the
/// data. The flag D is left out: ffprobe 5.1 sets it on packets before the start of an edit list,
/// but only in progressive files.
async fn packets(input: &str, stream: &str) -> Vec<String> {
    let arguments = format!("-select_streams {stream} -show_packets -show_data_hash md5 -of compact=p=0");
    let wanted = ["pts_time=", "dts_time=", "size=", "flags=", "data_hash="];
    let mut lines: Vec<String> = Vec::new();
    for field in ffprobe(&arguments, input).await.split(['|', '\n']) {
        // The fields of a packet with side data are on two lines.
        if field.starts_with("codec_type=") {
            lines.push(String::new());
        }
        if let (Some(line), true) = (lines.last_mut(), wanted.iter().any(|name| field.starts_with(name))) {
            *line += &field.replace("KD", "K_");
            *line += " ";
        }
    }
    lines
}

#[track_caller]
fn assert_same(found: &[String], expected: &[String], what: &str) {
    for (number, (is, was)) in found.iter().zip(expected).enumerate() {
        assert_eq!(is, was, "{what}: packet {number}");
    }
    assert_eq!(found.len(), expected.len(), "{what}");
}

/// Runs ffmpeg as a player, and returns its warnings.
async fn play(input: &str) -> String {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-loglevel", "warning", "-i", input, "-map", "0", "-f", "null", "-"]);
    let run = tokio::task::spawn_blocking(move || command.output().expect("ffmpeg is installed"));
    String::from_utf8(run.await.unwrap().stderr).unwrap()
}

/// Checks the packets of tracks, given as the name, the stream of the file, and that of the MPD,
/// whose ladder ascends.
async fn check(arguments: &str, streams: &[(&str, &str, &str)]) {
    let (media, file) = film(arguments);
    let origin = start(media);
    for (track, stream, in_mpd) in streams {
        let expected = packets(&file, stream).await;
        assert!(expected.len() > 100);
        let playlist = origin.url(&format!("/vod/a/{track}/media.m3u8"));
        assert_same(&packets(&playlist, "0").await, &expected, &format!("HLS {track}"));
        let mpd = origin.url("/vod/a/manifest.mpd");
        assert_same(&packets(&mpd, in_mpd).await, &expected, &format!("DASH {track}"));
    }
    assert_eq!(play(&origin.url("/vod/a/master.m3u8")).await, "");
    let catalog: serde_json::Value = serde_json::from_str(&origin.text("/catalog.json").await).unwrap();
    assert_eq!(catalog["faults"], serde_json::json!([]));
    origin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_of_a_film_with_two_languages_are_served() {
    let streams =
        [("film-video", "v:0", "v:0"), ("film-audio-en", "a:0", "a:0"), ("film-audio-de", "a:1", "a:1")];
    check(FILM, &streams).await;
    check(&format!("{FILM} -movflags +faststart"), &streams).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_of_long_groups_of_pictures_are_served() {
    let arguments = "-f lavfi -i testsrc2=size=160x90:rate=25 -f lavfi -i sine -t 12 -c:v libx264 -preset ultrafast \
                     -g 125 -keyint_min 125 -sc_threshold 0 -pix_fmt yuv420p -c:a aac";
    check(arguments, &[("film-video", "v:0", "v:0"), ("film-audio", "a:0", "a:0")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_of_a_ladder_in_one_file_are_served() {
    let arguments = "-f lavfi -i testsrc2=size=160x90:rate=25 -f lavfi -i sine -map 0 -map 0 -map 1 -t 5 -c:v libx264 \
                     -s:v:1 80x46 -preset ultrafast -g 50 -keyint_min 50 -sc_threshold 0 -pix_fmt yuv420p -c:a aac";
    check(
        arguments,
        &[("film-video", "v:0", "v:1"), ("film-video-2", "v:1", "v:0"), ("film-audio", "a:0", "a:0")],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn single_track_has_the_name_of_its_file() {
    let video = format!("-f lavfi -i testsrc2=size=160x90:rate=25 -t 5 {}", support::VIDEO);
    check(&video, &[("film", "v:0", "v:0")]).await;
}

/// Returns the content of all headers and segments in the media playlists, by URL.
async fn resources(origin: &Running, tracks: &[&str]) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for track in tracks {
        let playlist = origin.text(&format!("/vod/a/{track}/media.m3u8")).await;
        let header = playlist.split("EXT-X-MAP:URI=\"").nth(1).unwrap().split('"').next().unwrap();
        for uri in playlist.lines().filter(|line| line.ends_with(".m4s")).chain([header]) {
            let path = format!("/vod/a/{track}/{uri}");
            let answer = origin.get(&path).await;
            assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
            assert_eq!(answer.field("content-length"), answer.content.len().to_string());
            assert_eq!(answer.field("cache-control"), "public, max-age=31536000, immutable");
            all.insert(path, answer.content.to_vec());
        }
    }
    all
}

const TRACKS: [&str; 3] = ["film-video", "film-audio-en", "film-audio-de"];

#[tokio::test]
async fn output_is_the_same_at_every_origin() {
    let (media, _) = film(FILM);
    let (first, second) = (start(media.clone()), start(media.clone()));
    let all = resources(&first, &TRACKS).await;
    assert_eq!(all.len(), 3 * 5, "four segments and a header for each track");
    assert_eq!(resources(&second, &TRACKS).await, all);
    // Another target duration makes other segments, which must have other URLs.
    let config =
        Config { media: vec![media.into()], segment_target: Duration::from_secs(4), ..Config::default() };
    let third = Running::start(config);
    let others = resources(&third, &TRACKS).await;
    assert_eq!(others.len(), 3 * 3);
    assert!(others.keys().all(|path| !all.contains_key(path)));
    for origin in [first, second, third] {
        origin.stop().await;
    }
}

#[tokio::test]
async fn segments_support_ranges_and_validators() {
    let (media, file) = film(&format!("{FILM} -movflags +faststart"));
    let origin = start(media);
    for path in resources(&origin, &TRACKS).await.into_keys() {
        let whole = origin.get(&path).await;
        let size = whole.content.len();
        let mdat = whole.content.windows(4).position(|w| w == b"mdat").map_or(size / 2, |at| at + 4);
        for (from, to) in [(0, 0), (10, mdat), (mdat - 2, mdat + 1), (mdat, size - 1), (size - 3, size - 1)] {
            let range = format!("bytes={from}-{to}");
            let part = origin.request("GET", &path, &[("range", &range)]).await;
            assert_eq!(part.status, StatusCode::PARTIAL_CONTENT, "{path} {range}");
            let to = to.min(size - 1);
            assert!(part.content == whole.content.slice(from..=to), "{path} {range}");
            assert_eq!(part.field("content-range"), format!("bytes {from}-{to}/{size}"));
        }
        let head = origin.request("HEAD", &path, &[]).await;
        assert_eq!((head.field("content-length"), head.content.len()), (&*size.to_string(), 0));
        let again = origin.request("GET", &path, &[("if-none-match", whole.field("etag"))]).await;
        assert_eq!(again.status, StatusCode::NOT_MODIFIED);
    }
    let before = origin.get("/vod/a/film-video/0.m4s").await;
    ffmpeg(&FILM.replace("440", "441"), &file);
    let fields = [("if-none-match", before.field("etag"))];
    assert_eq!(origin.request("GET", "/vod/a/film-video/0.m4s", &fields).await.status, StatusCode::OK);
    origin.stop().await;
}

/// A timecode track is not media, and is ignored; tracks with other codecs are reported.
#[tokio::test]
async fn tracks_that_cannot_be_served_are_reported() {
    let subtitles = support::directory("subtitles").join("a.srt");
    fs::write(&subtitles, "1\n00:00:00,000 --> 00:00:02,000\nHello\n").unwrap();
    let arguments = format!(
        "-f lavfi -i testsrc2=size=160x90:rate=25 -f lavfi -i sine -i {} -map 0 -map 1 -map 1 -map 2 -t 4 -c:v libx264 \
         -preset ultrafast -g 50 -pix_fmt yuv420p -timecode 01:00:00:00 -c:a:0 aac -c:a:1 alac -c:s mov_text",
        subtitles.display()
    );
    let (media, _) = film(&arguments);
    let path = media.join("a/film.mp4");
    let file = fs::read(&path).unwrap();
    assert!(file.windows(4).any(|w| w == b"tmcd"));
    let origin = start(media);
    let catalog: serde_json::Value = serde_json::from_str(&origin.text("/catalog.json").await).unwrap();
    let faults = catalog["faults"].as_array().unwrap();
    let faults: Vec<[&str; 2]> =
        faults.iter().map(|f| ["file", "message"].map(|name| f[name].as_str().unwrap())).collect();
    assert_eq!(
        faults.iter().map(|[file, _]| *file).collect::<Vec<_>>(),
        ["a/film.mp4 track 3", "a/film.mp4 track 4"]
    );
    assert!(faults[0][1].ends_with("box 'alac': codec 'alac' is not supported"), "{faults:?}");
    assert!(faults[1][1].contains("box 'tx3g': 3GPP timed text is not supported"), "{faults:?}");
    assert_eq!(catalog["vod"].as_array().unwrap().len(), 1);
    assert!(origin.text("/vod/a/master.m3u8").await.contains("film-audio/media.m3u8"));
    origin.stop().await;
}

#[tokio::test]
async fn interrupted_recording_is_reported() {
    let (media, file) = film(FILM);
    let path = Path::new(&file);
    let content = fs::read(path).unwrap();
    let moov = content.windows(4).rposition(|w| w == b"moov").unwrap() - 4;
    fs::write(path, &content[..moov]).unwrap();
    let origin = start(media);
    let answer = origin.get("/vod/a/master.m3u8").await;
    assert_eq!(
        answer.text(),
        "a/film.mp4: offset 40: box 'mdat': media data without a 'moov' box in the file: the file is incomplete, because \
         the recording or the copy was interrupted"
    );
    origin.stop().await;
}
