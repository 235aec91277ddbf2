//! Joined presentations: playlist files, their manifests, and what players make of them.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use hyper::StatusCode;
use quick_m3u8::config::ParsingOptionsBuilder;
use quick_m3u8::{HlsLine, Reader};
use support::{Running, ffmpeg, ffprobe, make_audio, make_media, make_video};
use thalweg_origin::Config;

fn start(media: PathBuf) -> Running {
    Running::start(Config { media: vec![media.into()], listing_max_age: Duration::ZERO, ..Config::default() })
}

/// Presentations `a` (7 s) and `my b` (4 s), and playlist `all` of the given lines.
fn library(lines: &str) -> PathBuf {
    let media = make_media(7.0);
    let b = media.join("my b");
    fs::create_dir(&b).unwrap();
    make_video(&b.join("low.mp4"), "160x90", 4.0);
    make_video(&b.join("high.mp4"), "320x180", 4.0);
    make_audio(&b.join("sound.mp4"), 4.0);
    write(&media, "all", lines);
    media
}

fn write(media: &Path, name: &str, lines: &str) {
    fs::create_dir_all(media.join(name)).unwrap();
    fs::write(media.join(name).join("playlist.txt"), lines).unwrap();
}

/// Decodes a stream to the end; returns the number of frames and the time from the first to the
/// end of the last in seconds.
async fn decode(input: &str, stream: &str) -> (usize, f64) {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-loglevel", "error", "-dts_delta_threshold", "0.5"]);
    command.args([
        "-protocol_whitelist",
        "file,http,tcp",
        "-i",
        input,
        "-map",
        stream,
        "-f",
        "framecrc",
        "-",
    ]);
    let run = tokio::task::spawn_blocking(move || command.stdin(Stdio::null()).output().unwrap());
    let run = run.await.unwrap();
    let (out, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success() && errors.is_empty(), "{input}: {errors}");
    let timescale = out.lines().find_map(|line| line.strip_prefix("#tb 0: 1/")).unwrap();
    let timescale: f64 = timescale.trim().parse().unwrap();
    let frames: Vec<&str> = out.lines().filter(|line| !line.starts_with('#')).collect();
    let field = |line: &str, n: usize| line.split(',').nth(n).unwrap().trim().parse::<f64>().unwrap();
    let (first, last) = (frames[0], frames.last().unwrap());
    (frames.len(), (field(last, 2) + field(last, 3) - field(first, 2)) / timescale)
}

/// Returns the sum of a playlist's EXTINF durations; every line must be a known tag or a URI.
fn seconds(playlist: &str) -> f64 {
    let options = ParsingOptionsBuilder::new().with_parsing_for_all_tags().build();
    let mut reader = Reader::from_str(playlist, options);
    while let Some(line) = reader.read_line().unwrap() {
        assert!(matches!(line, HlsLine::KnownTag(_) | HlsLine::Uri(_)), "{line:?}");
    }
    let lengths = playlist.lines().filter_map(|line| line.strip_prefix("#EXTINF:"));
    lengths.map(|length| length.trim_end_matches(',').parse::<f64>().unwrap()).sum()
}

/// Returns the sizes of a stream's packets.
async fn packet_sizes(input: &str, stream: &str) -> Vec<u32> {
    let arguments = format!("-select_streams {stream} -show_entries packet=size -of csv=p=0");
    let lines = ffprobe(&arguments, input).await;
    lines.lines().filter_map(|line| line.trim_end_matches(',').parse().ok()).collect()
}

/// ffmpeg 5.1 decodes the last frame at the summed duration. Its demuxer reads every packet, but
/// marks those of the first fragment after a step back in time to be discarded, so frames cannot be
/// counted.
#[tokio::test(flavor = "multi_thread")]
async fn ffmpeg_plays_all_entries_of_a_playlist() {
    let media = library("# two films and a clip\na\n\"my b\"\na 2-4\n");
    let source = |file: &str| media.join(file).to_str().unwrap().to_owned();
    let origin = start(media.clone());
    for (track, a, b) in [
        ("video-1", "a/video_90.mp4", "my b/low.mp4"),
        ("video-2", "a/video_180.mp4", "my b/high.mp4"),
        ("audio-1", "a/audio.mp4", "my b/sound.mp4"),
    ] {
        let path = format!("/vod/all/{track}/media.m3u8");
        let playlist = origin.text(&path).await;
        assert_eq!(playlist.matches("#EXT-X-DISCONTINUITY\n").count(), 2);
        let listed = seconds(&playlist);
        let stream = if track == "audio-1" { "a:0" } else { "v:0" };
        let a = packet_sizes(&source(a), stream).await;
        let b = packet_sizes(&source(b), stream).await;
        let served = packet_sizes(&origin.url(&path), stream).await;
        let (whole, clip) = served.split_at(a.len() + b.len());
        assert!(whole == [&a[..], &b[..]].concat(), "{track}");
        let (_, played) = decode(&origin.url(&path), &format!("0:{stream}")).await;
        assert!((played - listed).abs() < 0.1, "{track}: {played} s of {listed} s");
        if stream == "v:0" {
            assert!((listed - 13.0).abs() < 1e-6, "{playlist}");
            assert!(clip == &a[50..100], "{track}");
        } else {
            assert!((listed - 13.0).abs() < 0.2, "{playlist}");
            assert!(a.windows(clip.len()).any(|window| window == clip), "{track}");
        }
    }
    let (_, played) = decode(&origin.url("/vod/all/master.m3u8"), "0:v:0").await;
    assert!((played - 13.0).abs() < 0.1, "{played}");
    origin.stop().await;
}

/// ffmpeg plays only the longest Period of an MPD, so each Period is played on its own, with the
/// URLs of the MPD.
#[tokio::test(flavor = "multi_thread")]
async fn ffmpeg_plays_every_period_of_the_mpd() {
    let origin = start(library("a\n\"my b\"\na 2-4\n"));
    let text = origin.text("/vod/all/manifest.mpd").await;
    let mpd = dash_mpd_core::parse(&text).unwrap();
    assert_eq!(dash_mpd_core::check_conformity(&mpd), Vec::<String>::new());
    let seconds = |d: Option<std::time::Duration>| d.unwrap().as_secs_f64();
    let total: f64 = mpd.periods.iter().map(|p| seconds(p.duration)).sum();
    assert!((seconds(mpd.mediaPresentationDuration) - total).abs() < 1e-5, "{text}");
    let mut start = 0.0;
    for (period, frames) in mpd.periods.iter().zip([175, 100, 50]) {
        assert!((seconds(period.start) - start).abs() < 1e-5, "{text}");
        start += seconds(period.duration);
        let id = period.id.clone().unwrap();
        let from = text.find(&format!("  <Period id=\"{id}\"")).unwrap();
        let to = from + text[from..].find("</Period>").unwrap() + "</Period>".len();
        let head = &text[..text.find("  <Period").unwrap()];
        let alone = format!("{head}{}\n</MPD>\n", &text[from..to]);
        let alone = alone.replace("../", &origin.url("/vod/"));
        let file = support::directory("period").join("alone.mpd");
        fs::write(&file, alone).unwrap();
        let (decoded, end) = decode(file.to_str().unwrap(), "0:v:0").await;
        assert_eq!(decoded, frames, "period {id}");
        assert!((end - frames as f64 / 25.0).abs() < 0.2, "period {id} ends at {end}");
    }
    origin.stop().await;
}

/// A joined presentation has no media URLs of its own, so a cache stores nothing twice.
#[tokio::test]
async fn media_urls_are_those_of_the_entries() {
    let origin = start(library("a\n\"my b\"\n"));
    let own = origin.text("/vod/a/video_180/media.m3u8").await;
    let own: Vec<String> =
        own.lines().filter(|l| l.ends_with(".m4s")).map(|l| format!("../../a/video_180/{l}")).collect();
    let joined = origin.text("/vod/all/video-2/media.m3u8").await;
    let named: Vec<&str> = joined.lines().filter(|l| l.ends_with(".m4s")).collect();
    assert_eq!(named[..own.len()], own);
    let b = named[own.len()].strip_prefix("../../my%20b/high/").unwrap();
    assert_eq!(origin.get(&format!("/vod/my%20b/high/{b}")).await.status, StatusCode::OK);
    let refused = origin.get("/vod/all/video-2/0.m4s").await;
    assert_eq!(refused.status, StatusCode::NOT_FOUND);
    assert_eq!(refused.text(), "all joins other presentations: request headers and segments from those");
    let mpd = origin.text("/vod/all/manifest.mpd?max_height=90").await;
    let mpd = dash_mpd_core::parse(&mpd).unwrap();
    let bases: Vec<&str> = mpd.periods.iter().map(|p| &p.BaseURL[0].base[..]).collect();
    assert_eq!(bases, ["../a/", "../my%20b/"]);
    let video = mpd.periods.iter().map(|p| p.adaptations[0].representations.len());
    assert_eq!(video.collect::<Vec<_>>(), [1, 1], "the selection applies to every period");
    let low = origin.text("/vod/all/master.m3u8?max_height=90").await;
    assert!(low.contains("\nvideo-1/media.m3u8") && !low.contains("video-2"), "{low}");
    assert_eq!(origin.get("/vod/all/master.m3u8?lang=ja").await.status, StatusCode::NOT_FOUND);
    origin.stop().await;
}

#[tokio::test]
async fn catalogue_lists_joined_presentations_and_their_faults() {
    let media = library("a\n\"my b\" 2-\n");
    write(&media, "unknown", "a\nflim\n");
    write(&media, "nested", "all\n");
    write(&media, "late", "# too late\na 1:00-\n");
    write(&media, "malformed", "a b\n");
    write(&media, "silent", "a\nmute\n");
    write(&media, "latin", "");
    fs::write(media.join("latin/playlist.txt"), b"# \xc3\xa9t\xc3\xa9\na\n# \xe9t\xe9\n").unwrap();
    fs::create_dir(media.join("mute")).unwrap();
    make_video(&media.join("mute/v.mp4"), "160x90", 2.0);
    fs::create_dir(media.join("empty")).unwrap();
    let origin = start(media.clone());
    let catalog: serde_json::Value = serde_json::from_str(&origin.text("/catalog.json").await).unwrap();
    let all = catalog["vod"].as_array().unwrap().iter().find(|p| p["name"] == "all").unwrap();
    assert_eq!(all["hls"], "/vod/all/master.m3u8");
    let duration_s = all["duration_s"].as_f64().unwrap();
    assert!((duration_s - 9.0).abs() < 0.1, "{duration_s}");
    let message = |name: &str| {
        let faults = catalog["faults"].as_array().unwrap().iter();
        let messages: Vec<&str> =
            faults.filter(|f| f["name"] == name).map(|f| f["message"].as_str().unwrap()).collect();
        assert_eq!(messages.len(), 1, "{name}: {catalog}");
        messages[0].to_owned()
    };
    for (name, expected) in [
        ("unknown", "unknown/playlist.txt:2: \"flim\" is not a presentation: create it, or correct the name"),
        ("nested", "nested/playlist.txt:1: \"all\" is itself a playlist: write its entries here instead"),
        ("late", "late/playlist.txt:2: the clip begins after the end, which is at 7."),
        ("malformed", "malformed/playlist.txt:1: \"b\" is not a clip: write START-END"),
        (
            "silent",
            "silent/playlist.txt:2: HLS cannot join \"mute\": it has no mp4a audio track, but \"a\" (line 1)",
        ),
        ("latin", "latin/playlist.txt:3: the file is not UTF-8: save it in that encoding"),
        ("empty", "empty: no track;"),
    ] {
        assert!(message(name).starts_with(expected), "{}", message(name));
    }
    // The MPD needs no matching tracks.
    assert_eq!(origin.get("/vod/silent/manifest.mpd").await.status, StatusCode::OK);
    let refused = origin.get("/vod/silent/master.m3u8").await;
    assert_eq!(refused.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(refused.text().starts_with("silent/playlist.txt:2: HLS cannot join"), "{}", refused.text());
    // A corrected file is used at once.
    write(&media, "unknown", "a\n");
    assert_eq!(origin.get("/vod/unknown/master.m3u8").await.status, StatusCode::OK);
    assert_eq!(origin.get("/vod/nothing/master.m3u8").await.status, StatusCode::NOT_FOUND);
    // Tracks take precedence over a playlist file in the same directory.
    write(&media, "a", "\"my b\"\n");
    assert!(origin.text("/vod/a/master.m3u8").await.contains("video_180/media.m3u8"));
    origin.stop().await;
}

#[tokio::test]
async fn large_playlist_file_is_refused() {
    let media = support::directory("media");
    write(&media, "large", &"# comment\n".repeat(7000));
    ffmpeg("-f lavfi -i testsrc2=size=160x90:rate=25 -t 1", media.join("unrelated.mkv"));
    let origin = start(media);
    let refused = origin.get("/vod/large/master.m3u8").await;
    assert_eq!(refused.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(refused.text(), "large/playlist.txt: too large: the file may have at most 65536 bytes");
    origin.stop().await;
}
