//! On-demand tests over HTTP: what players and caches receive from real files.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::StatusCode;
use support::{Running, ffmpeg, ffprobe, make_audio, make_media, make_video};
use thalweg_origin::Config;

const SECONDS: f64 = 7.0;

fn start(media: PathBuf) -> Running {
    Running::start(Config { media: vec![media.into()], listing_max_age: Duration::ZERO, ..Config::default() })
}

/// Returns a stream's packets: presentation time in seconds, and size in bytes.
async fn packets(input: &str, stream: &str) -> Vec<String> {
    let arguments = format!("-select_streams {stream} -show_entries packet=pts_time,size -of csv=p=0");
    let lines = ffprobe(&arguments, input).await;
    lines.lines().filter(|l| !l.is_empty()).map(|l| l.trim_end_matches(',').to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn ffprobe_reads_the_source_packets_from_every_rendition() {
    let media = make_media(SECONDS);
    let origin = start(media.clone());
    let source = |file: &str| media.join("a").join(file).to_str().unwrap().to_owned();
    for (track, file, stream) in
        [("video_90", "video_90.mp4", "v"), ("video_180", "video_180.mp4", "v"), ("audio", "audio.mp4", "a")]
    {
        let expected = packets(&source(file), stream).await;
        assert!(expected.len() > 100);
        let playlist = packets(&origin.url(&format!("/vod/a/{track}/media.m3u8")), stream).await;
        assert!(playlist == expected, "HLS {track}");
    }
    let mpd = origin.url("/vod/a/manifest.mpd");
    for (stream, file) in [("v:0", "video_90.mp4"), ("v:1", "video_180.mp4"), ("a:0", "audio.mp4")] {
        let kind = &stream[..1];
        assert!(packets(&mpd, stream).await == packets(&source(file), kind).await, "DASH {stream}");
    }
    let master = origin.url("/vod/a/master.m3u8");
    let programs = ffprobe("-show_entries stream=width,height,codec_name -of csv=p=0", &master).await;
    for expected in ["h264,320,180", "h264,160,90", "aac"] {
        assert!(programs.contains(expected), "{programs}");
    }
    origin.stop().await;
}

/// Fragments that ffmpeg wrote without default_base_moof must be playable. Their data offsets count
/// from the start of the file, so players would misread a segment served unchanged.
#[tokio::test(flavor = "multi_thread")]
async fn fragments_with_absolute_offsets_are_playable() {
    let media = support::directory("media");
    fs::create_dir(media.join("a")).unwrap();
    let file = media.join("a/v.mp4");
    let form = "-f mp4 -movflags frag_keyframe+empty_moov -frag_duration 500000";
    ffmpeg(&format!("-f lavfi -i testsrc2=size=160x90:rate=25 -t 7 {} {form}", support::VIDEO), &file);
    let origin = start(media.clone());
    let file = file.to_str().unwrap();
    let frames = async |input: &str| {
        let arguments = "-count_frames -select_streams v:0 -show_entries stream=nb_read_frames -of csv=p=0";
        ffprobe(arguments, input).await.lines().next().unwrap().trim_end_matches(',').to_owned()
    };
    for manifest in ["v/media.m3u8", "master.m3u8", "manifest.mpd"] {
        let url = origin.url(&format!("/vod/a/{manifest}"));
        assert_eq!(frames(&url).await, "175", "{manifest}");
        assert!(packets(&url, "v:0").await == packets(file, "v:0").await, "{manifest}");
    }
    let path = "/vod/a/v/25600.m4s";
    let whole = origin.get(path).await;
    let moofs: Vec<usize> =
        (0..whole.content.len() - 4).filter(|&at| whole.content[at..].starts_with(b"moof")).collect();
    assert_eq!(moofs.len(), 4);
    // The range begins inside a moof, crosses media, and ends in the next moof.
    let (from, to) = (moofs[0] + 30, moofs[1] + 40);
    let part = origin.request("GET", path, &[("range", &format!("bytes={from}-{to}"))]).await;
    assert_eq!(part.status, StatusCode::PARTIAL_CONTENT);
    assert_eq!(part.content, whole.content.slice(from..=to));
    assert_eq!(part.field("etag"), whole.field("etag"));
    origin.stop().await;
}

#[tokio::test]
async fn header_and_segments_are_the_file() {
    let media = make_media(SECONDS);
    let origin = start(media.clone());
    for track in ["video_90", "audio"] {
        let mut joined = Vec::new();
        let header = origin.get(&format!("/vod/a/{track}/init.mp4")).await;
        joined.extend_from_slice(&header.content);
        let playlist = origin.text(&format!("/vod/a/{track}/media.m3u8")).await;
        let segments: Vec<&str> = playlist.lines().filter(|l| l.ends_with(".m4s")).collect();
        assert_eq!(segments.len(), 4);
        for segment in segments {
            joined.extend_from_slice(&origin.get(&format!("/vod/a/{track}/{segment}")).await.content);
        }
        let file = fs::read(media.join(format!("a/{track}.mp4"))).unwrap();
        // ffmpeg ends the file with an mfra, which belongs to no segment.
        assert!(file.starts_with(&joined));
        assert_eq!(&file[joined.len() + 4..joined.len() + 8], b"mfra");
    }
    origin.stop().await;
}

#[tokio::test]
async fn both_manifests_name_the_same_segments() {
    let origin = start(make_media(SECONDS));
    let mpd = dash_mpd_core::parse(&origin.text("/vod/a/manifest.mpd").await).unwrap();
    for set in &mpd.periods[0].adaptations {
        let mut times = Vec::new();
        let template = set.SegmentTemplate.as_ref().unwrap();
        assert_eq!(template.media.as_deref(), Some("$Time$.m4s"));
        assert_eq!(template.initialization.as_deref(), Some("init.mp4"));
        let mut time = 0;
        for s in &template.SegmentTimeline.as_ref().unwrap().segments {
            time = s.t.unwrap_or(time);
            for _ in 0..=s.r.unwrap_or(0) {
                times.push(format!("{time}.m4s"));
                time += s.d;
            }
        }
        for representation in &set.representations {
            let id = representation.id.as_ref().unwrap();
            let playlist = origin.text(&format!("/vod/a/{id}/media.m3u8")).await;
            let base = representation.BaseURL[0].base.strip_prefix(&format!("{id}/")).unwrap();
            let of_mpd: Vec<String> = times.iter().map(|t| format!("{base}{t}")).collect();
            let named: Vec<&str> = playlist.lines().filter(|l| l.ends_with(".m4s")).collect();
            assert_eq!(named, of_mpd, "{id}");
            assert!(playlist.contains(&format!("#EXT-X-MAP:URI=\"{base}init.mp4\"")), "{playlist}");
        }
    }
    origin.stop().await;
}

/// Both manifests must use the times after edit lists (B-frames and AAC priming), as players do.
#[tokio::test]
async fn edit_lists_keep_audio_and_video_in_sync() {
    let media = support::directory("media");
    fs::create_dir(media.join("a")).unwrap();
    let edited = "-f mp4 -movflags +delay_moov+frag_keyframe+default_base_moof";
    let coded = "-c:v libx264 -preset veryfast -bf 2 -g 50 -keyint_min 50 -sc_threshold 0 -pix_fmt yuv420p";
    ffmpeg(&format!("-f lavfi -i testsrc2=size=160x90:rate=25 -t 5 {coded} {edited}"), media.join("a/v.mp4"));
    let edited = "-f mp4 -movflags +delay_moov+default_base_moof -frag_duration 500000";
    ffmpeg(&format!("-f lavfi -i sine=440:sample_rate=48000 -t 5 -c:a aac {edited}"), media.join("a/a.mp4"));
    let origin = start(media.clone());
    let mpd = origin.text("/vod/a/manifest.mpd").await;
    let timelines: Vec<&str> = mpd.lines().map(str::trim).filter(|l| l.starts_with("<S ")).collect();
    let video = [r#"<S t="0" d="25600" r="1"/>"#, r#"<S d="12800"/>"#];
    // A segment is the fewest chunks of 24,576 samples that reach 2 s: four chunks, or 98,304
    // samples. The edit list removes 1024 priming samples from the first, which leaves 97,280.
    let audio = [r#"<S t="0" d="97280"/>"#, r#"<S d="98304"/>"#, r#"<S d="44416"/>"#];
    assert_eq!(timelines, [&video[..], &audio[..]].concat());
    assert!(!mpd.contains("presentationTimeOffset"), "the edit list already provides it");
    let first = packets(media.join("a/a.mp4").to_str().unwrap(), "a").await;
    assert!(first[0].starts_with("-0.021333,"), "{}", first[0]);
    for track in ["a", "v"] {
        let playlist = origin.text(&format!("/vod/a/{track}/media.m3u8")).await;
        for segment in playlist.lines().filter(|l| l.ends_with(".m4s")) {
            assert_eq!(origin.get(&format!("/vod/a/{track}/{segment}")).await.status, StatusCode::OK);
        }
    }
    origin.stop().await;
}

/// Audio that begins 0.48 s after the video must still do so when served. The files are made by the
/// recipe of docs/guides/deliver-files.md; ffmpeg puts the delay into an empty edit, which browsers
/// ignore, so the origin must move it into decode times.
#[tokio::test(flavor = "multi_thread")]
async fn delayed_audio_stays_delayed() {
    let media = support::directory("media");
    fs::create_dir(media.join("a")).unwrap();
    let film = media.join("film.mkv");
    let tone = "-itsoffset 0.48 -f lavfi -i sine=440:sample_rate=48000";
    let coded = "-c:v libx264 -preset veryfast -bf 3 -c:a aac";
    ffmpeg(&format!("-f lavfi -i testsrc2=size=160x90:rate=25 {tone} -t 5 {coded}"), &film);
    let film = film.to_str().unwrap();
    let form = "-f mp4 -movflags +delay_moov+frag_keyframe+default_base_moof -frag_duration 500000";
    let keys = "-pix_fmt yuv420p -force_key_frames expr:gte(t,n_forced*2)";
    ffmpeg(&format!("-i {film} -map 0:v:0 -c:v libx264 {keys} {form}"), media.join("a/v.mp4"));
    ffmpeg(&format!("-i {film} -map 0:a:0 -c:a aac {form}"), media.join("a/a.mp4"));
    let origin = start(media.clone());
    let seconds = |packet: &String| packet.split(',').next().unwrap().parse::<f64>().unwrap();
    let source = packets(media.join("a/a.mp4").to_str().unwrap(), "a").await;
    for (input, stream) in [("a/media.m3u8", "a"), ("manifest.mpd", "a"), ("master.m3u8", "a")] {
        let served = packets(&origin.url(&format!("/vod/a/{input}")), stream).await;
        assert_eq!(served.len(), source.len(), "{input}");
        for (is, was) in served.iter().zip(&source) {
            assert!((seconds(is) - seconds(was)).abs() < 0.001, "{input}: {is} was {was}");
        }
        assert!((0.43..0.46).contains(&seconds(&served[0])), "{input}: {}", served[0]);
    }
    let first =
        packets(&origin.url("/vod/a/v/media.m3u8"), "v").await.iter().map(seconds).fold(9.0, f64::min);
    assert!(first.abs() < 0.001, "video begins at {first}");
    let header = origin.get("/vod/a/a/init.mp4").await.content;
    assert!(!header.windows(4).any(|w| w == b"edts") && header.windows(4).any(|w| w == b"free"));
    let catalog: serde_json::Value = serde_json::from_str(&origin.text("/catalog.json").await).unwrap();
    assert_eq!((&catalog["faults"], &catalog["warnings"]), (&serde_json::json!([]), &serde_json::json!([])));
    origin.stop().await;
}

/// The `cmaf` flag makes ffmpeg drop the offset, which then cannot be known.
#[tokio::test]
async fn lost_offset_is_warned_of() {
    let media = support::directory("media");
    fs::create_dir(media.join("a")).unwrap();
    make_video(&media.join("a/v.mp4"), "160x90", 4.0);
    make_audio(&media.join("a/a.mp4"), 3.5);
    let origin = start(media);
    let catalog: serde_json::Value = serde_json::from_str(&origin.text("/catalog.json").await).unwrap();
    let warning = &catalog["warnings"][0];
    assert_eq!((&warning["name"], &warning["file"]), (&"a".into(), &"a/a.mp4".into()));
    let message = warning["message"].as_str().unwrap();
    assert!(message.contains(" before a/v.mp4, and both begin at 0 without an edit list"), "{message}");
    origin.stop().await;
}

#[tokio::test]
async fn segments_support_validators_ranges_and_methods() {
    let origin = start(make_media(SECONDS));
    let path = "/vod/a/video_90/0.m4s";
    let whole = origin.get(path).await;
    assert_eq!(whole.field("content-type"), "video/mp4");
    assert_eq!(whole.field("cache-control"), "public, no-cache");
    assert_eq!(whole.field("access-control-allow-origin"), "*");
    assert_eq!(whole.field("timing-allow-origin"), "*");
    assert!(whole.field("access-control-expose-headers").contains("Cache-Status"));
    let etag = whole.field("etag");
    let get = async |fields: &[(&str, &str)]| origin.request("GET", path, fields).await;

    let head = origin.request("HEAD", path, &[]).await;
    assert_eq!((head.status, head.content.len()), (StatusCode::OK, 0));
    assert_eq!(head.field("content-length"), whole.content.len().to_string());
    assert_eq!(head.field("etag"), etag);

    let again = get(&[("if-none-match", etag)]).await;
    assert_eq!((again.status, again.content.len()), (StatusCode::NOT_MODIFIED, 0));
    assert_eq!(again.field("etag"), etag);
    assert_eq!(again.field("cache-control"), whole.field("cache-control"));
    assert_eq!(get(&[("if-none-match", "\"other\"")]).await.status, StatusCode::OK);
    let since = get(&[("if-modified-since", whole.field("last-modified"))]).await;
    assert_eq!(since.status, StatusCode::NOT_MODIFIED);
    assert_eq!(get(&[("if-match", "\"other\"")]).await.status, StatusCode::PRECONDITION_FAILED);

    let part = get(&[("range", "bytes=10-19")]).await;
    assert_eq!((part.status, &part.content), (StatusCode::PARTIAL_CONTENT, &whole.content.slice(10..20)));
    assert_eq!(part.field("content-range"), format!("bytes 10-19/{}", whole.content.len()));
    let end = get(&[("range", "bytes=-3")]).await;
    assert_eq!(end.content, whole.content.slice(whole.content.len() - 3..));
    let beyond = get(&[("range", "bytes=99999999-")]).await;
    assert_eq!(beyond.status, StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(beyond.field("content-range"), format!("bytes */{}", whole.content.len()));
    let stale = get(&[("range", "bytes=0-1"), ("if-range", "\"other\"")]).await;
    assert_eq!((stale.status, stale.content.len()), (StatusCode::OK, whole.content.len()));
    assert_eq!(get(&[("range", "bytes=0-1,4-5")]).await.status, StatusCode::OK);

    let refused = origin.request("POST", path, &[]).await;
    assert_eq!(
        (refused.status, refused.field("allow")),
        (StatusCode::METHOD_NOT_ALLOWED, "GET, HEAD, OPTIONS")
    );
    let preflight = origin.request("OPTIONS", path, &[("origin", "http://x")]).await;
    assert_eq!(preflight.status, StatusCode::NO_CONTENT);
    assert_eq!(preflight.field("access-control-allow-methods"), "GET, HEAD, OPTIONS");

    for (path, content_type) in [
        ("/vod/a/master.m3u8", "application/vnd.apple.mpegurl"),
        ("/vod/a/audio/media.m3u8", "application/vnd.apple.mpegurl"),
        ("/vod/a/manifest.mpd", "application/dash+xml"),
        ("/vod/a/audio/init.mp4", "audio/mp4"),
    ] {
        let answer = origin.get(path).await;
        assert_eq!(answer.field("content-type"), content_type);
        assert_eq!(answer.fields.contains_key("last-modified"), path.ends_with("init.mp4"), "{path}");
        let again = origin.request("GET", path, &[("if-none-match", answer.field("etag"))]).await;
        assert_eq!(again.status, StatusCode::NOT_MODIFIED, "{path}");
    }
    origin.stop().await;
}

#[tokio::test]
async fn missing_and_malformed_targets_are_refused() {
    let origin = start(make_media(SECONDS));
    for (path, status) in [
        ("/vod/b/master.m3u8", 404),
        ("/vod/a/video/media.m3u8", 404),
        ("/vod/a/video_90/1.m4s", 404),
        ("/vod/a/video_90/init-1.mp4", 404),
        ("/live/x/manifest.mpd", 404),
        ("/etc/passwd", 404),
        ("/vod/../Cargo.toml", 400),
        ("/vod/%2e%2e/x/master.m3u8", 400),
        ("/vod/a%2f..%2fa/master.m3u8", 400),
    ] {
        let answer = origin.get(path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert_eq!(answer.field("cache-control"), "no-store", "{path}");
        assert_eq!(answer.field("access-control-allow-origin"), "*", "{path}");
    }
    let long = format!("/vod/{}", "a".repeat(3000));
    assert_eq!(origin.get(&long).await.status, StatusCode::URI_TOO_LONG);
    let field = "a".repeat(20_000);
    let head = origin.request("GET", "/time", &[("x", &field)]).await;
    assert_eq!(head.status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    origin.stop().await;
}

/// Serves a valid presentation and a broken one; `prepare` creates the broken one and returns the
/// expected message.
async fn check_fault(prepare: impl FnOnce(&Path) -> String) {
    let media = make_media(3.0);
    let broken = media.join("broken");
    fs::create_dir(&broken).unwrap();
    let expected = prepare(&broken);
    let origin = start(media);
    let answer = origin.get("/vod/broken/master.m3u8").await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(answer.text(), expected);
    let catalog: serde_json::Value = serde_json::from_str(&origin.text("/catalog.json").await).unwrap();
    assert_eq!(catalog["faults"], serde_json::json!([{ "name": "broken", "message": expected }]));
    assert_eq!(catalog["vod"].as_array().unwrap().len(), 1);
    assert_eq!(catalog["vod"][0]["hls"], "/vod/a/master.m3u8");
    let duration_s = catalog["vod"][0]["duration_s"].as_f64().unwrap();
    assert!((3.0..3.05).contains(&duration_s), "AAC ends with a whole frame: {duration_s}");
    assert_eq!(origin.get("/vod/a/master.m3u8").await.status, StatusCode::OK);
    origin.stop().await;
}

#[tokio::test]
async fn truncated_file_is_reported() {
    check_fault(|broken| {
        let path = broken.join("v.mp4");
        make_video(&path, "160x90", 3.0);
        let file = fs::read(&path).unwrap();
        let last = file.windows(4).rposition(|w| w == b"mdat").unwrap() - 4;
        let size = u32::from_be_bytes(file[last..last + 4].try_into().unwrap());
        fs::write(&path, &file[..last + 24]).unwrap();
        format!("broken/v.mp4: offset {last}: box 'mdat': truncated, needs {size} bytes, 24 left")
    })
    .await;
}

#[tokio::test]
async fn file_that_is_not_mp4_is_reported() {
    check_fault(|broken| {
        fs::write(broken.join("v.mp4"), "hello, world").unwrap();
        String::from("broken/v.mp4: offset 0: box 'ftyp': not an MP4 (ISO BMFF) file")
    })
    .await;
}

#[tokio::test]
async fn empty_directory_is_reported() {
    check_fault(|_| {
        String::from(
            "broken: no track; a track is a file ending in .mp4, .m4v, .m4a, .m4s, .cmfv, .cmfa, .cmft or .vtt",
        )
    })
    .await;
}

/// Bad files are left out and reported; the rest of the presentation is served.
#[tokio::test]
async fn bad_tracks_are_left_out_and_reported() {
    let media = make_media(3.0);
    let bad = |file: &str| media.join("a").join(file);
    fs::write(bad("truncated.mp4"), &fs::read(bad("video_90.mp4")).unwrap()[..3000]).unwrap();
    fs::write(bad("text.mp4"), "not a film").unwrap();
    let gop = support::VIDEO.replace("50", "60");
    let input = format!("-f lavfi -i testsrc2=size=320x180:rate=25 -t 3 {gop} {}", support::CMAF);
    ffmpeg(&input, bad("another_gop.mp4"));
    let origin = start(media.clone());
    let master = origin.text("/vod/a/master.m3u8").await;
    let mut variants: Vec<&str> = master.lines().filter(|l| l.ends_with("/media.m3u8")).collect();
    variants.sort_unstable();
    assert_eq!(variants, ["video_180/media.m3u8", "video_90/media.m3u8"]);
    let catalog: serde_json::Value = serde_json::from_str(&origin.text("/catalog.json").await).unwrap();
    assert_eq!(catalog["vod"].as_array().unwrap().len(), 1);
    let faults = catalog["faults"].as_array().unwrap();
    let files: Vec<_> = faults.iter().map(|f| f["file"].as_str().unwrap()).collect();
    assert_eq!(files, ["a/text.mp4", "a/truncated.mp4", "a/another_gop.mp4"]);
    assert!(faults.iter().all(|f| f["name"] == "a"));
    assert_eq!(
        faults[2]["message"],
        "a/video_180.mp4 and a/another_gop.mp4 do not line up: segment 2 begins at 2.000000 s in the first, at \
         2.400000 s in the second; encode them with the same key frame times"
    );
    assert_eq!(origin.get("/vod/a/another_gop/media.m3u8").await.status, StatusCode::NOT_FOUND);
    // A repaired file is served again, and the others keep their names.
    fs::remove_file(bad("text.mp4")).unwrap();
    fs::remove_file(bad("truncated.mp4")).unwrap();
    make_video(&bad("another_gop.mp4"), "320x180", 3.0);
    assert!(origin.text("/vod/a/master.m3u8").await.contains("another_gop/media.m3u8"));
    origin.stop().await;
}

#[tokio::test]
async fn presentation_of_bad_files_alone_names_every_reason() {
    check_fault(|broken| {
        fs::write(broken.join("a.mp4"), "not a film").unwrap();
        fs::write(broken.join("b.mp4"), "not a film either").unwrap();
        let reason = |file| format!("broken/{file}.mp4: offset 0: box 'ftyp': not an MP4 (ISO BMFF) file");
        format!("{}; {}", reason("a"), reason("b"))
    })
    .await;
}

#[tokio::test]
async fn replaced_file_is_indexed_again() {
    let media = make_media(3.0);
    let origin = start(media.clone());
    let path = "/vod/a/audio/media.m3u8";
    let before = origin.get(path).await;
    let segment = origin.get("/vod/a/audio/0.m4s").await;
    make_audio(&media.join("a/audio.mp4"), 4.0);
    let after = origin.get(path).await;
    assert_ne!(before.content, after.content);
    assert_ne!(before.field("etag"), after.field("etag"));
    let fields = [("if-none-match", segment.field("etag"))];
    assert_eq!(origin.request("GET", "/vod/a/audio/0.m4s", &fields).await.status, StatusCode::OK);
    origin.stop().await;
}

/// A cache must never mix content of a file with content of its replacement.
#[tokio::test]
async fn url_in_a_manifest_never_changes_content() {
    let media = make_media(3.0);
    let origin = start(media.clone());
    let named = async || {
        let playlist = origin.text("/vod/a/audio/media.m3u8").await;
        let header = playlist.split('"').nth(1).unwrap();
        let segment = playlist.lines().find(|l| l.ends_with("/0.m4s")).unwrap();
        [header, segment].map(|uri| format!("/vod/a/audio/{uri}"))
    };
    let before = named().await;
    for path in &before {
        let answer = origin.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        assert_eq!(answer.field("cache-control"), "public, max-age=31536000, immutable");
    }
    let video = origin.text("/vod/a/video_90/media.m3u8").await;
    make_audio(&media.join("a/audio.mp4"), 4.0);
    let after = named().await;
    assert_eq!(origin.text("/vod/a/video_90/media.m3u8").await, video, "its file is unchanged");
    for (old, new) in before.iter().zip(&after) {
        assert_ne!(old, new);
        let old_response = origin.get(old).await;
        assert_eq!(
            (old_response.status, old_response.field("cache-control")),
            (StatusCode::NOT_FOUND, "public, max-age=2")
        );
        assert_eq!(origin.get(new).await.status, StatusCode::OK);
    }
    origin.stop().await;
}

#[tokio::test]
async fn dangling_links_and_other_files_are_skipped() {
    use std::os::unix::fs::symlink;
    let media = make_media(3.0);
    symlink("nowhere.mp4", media.join("a/dangling.mp4")).unwrap();
    symlink("loop.txt", media.join("a/loop.txt")).unwrap();
    symlink("nowhere", media.join("dangling")).unwrap();
    let origin = start(media);
    let master = origin.text("/vod/a/master.m3u8").await;
    assert!(!master.contains("dangling"), "{master}");
    let catalog: serde_json::Value = serde_json::from_str(&origin.text("/catalog.json").await).unwrap();
    assert_eq!(catalog["faults"], serde_json::json!([]));
    origin.stop().await;
}

#[tokio::test]
async fn time_is_iso_8601_and_not_stored() {
    let origin = Running::start(Config::default());
    let answer = origin.get("/time").await;
    assert_eq!(answer.field("cache-control"), "no-store");
    let text = answer.text();
    assert_eq!(text.len(), "2026-11-20T23:35:18.250Z".len(), "{text}");
    assert!(text.starts_with("20") && text.ends_with('Z'), "{text}");
    origin.stop().await;
}
