//! Live channel tests over HTTP: the test controls the uploads and checks what each reader
//! receives, and when.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod support;

use std::fs;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use support::{Running, make_audio, make_video};
use thalweg_media::boxes::Boxes;
use thalweg_media::fourcc::FourCc;
use thalweg_origin::{Config, UploadLimits};

/// A CMAF track as a source sends it.
struct Track {
    header: Bytes,
    /// Chunks of half a second, with a key frame every four chunks.
    chunks: Vec<Bytes>,
}

/// Splits a file into its header and chunks.
fn cut(file: &[u8]) -> Track {
    let (mut header_end, mut start, mut chunks) = (0, None, Vec::new());
    for found in Boxes::new(file, 0) {
        let found = found.unwrap();
        let at = usize::try_from(found.offset).unwrap();
        let end = at + found.bytes.len();
        match found.kind {
            FourCc::FTYP | FourCc::MOOV => header_end = end,
            FourCc::MOOF => start = Some(at),
            FourCc::MDAT => chunks.push(Bytes::copy_from_slice(&file[start.take().unwrap()..end])),
            _ => {}
        }
    }
    Track { header: Bytes::copy_from_slice(&file[..header_end]), chunks }
}

fn video(seconds: f64) -> Track {
    let path = support::directory("track").join("v.mp4");
    make_video(&path, "160x90", seconds);
    cut(&fs::read(path).unwrap())
}

fn audio(seconds: f64) -> Track {
    let path = support::directory("track").join("a.mp4");
    make_audio(&path, seconds);
    cut(&fs::read(path).unwrap())
}

fn start() -> Running {
    start_with(UploadLimits::default())
}

fn start_with(uploads: UploadLimits) -> Running {
    Running::start(Config { window: Duration::from_secs(30), uploads, ..Config::default() })
}

/// Returns limits under which media without a header is refused at once.
fn impatient() -> UploadLimits {
    UploadLimits { header_wait: Duration::ZERO, ..UploadLimits::default() }
}

/// Returns a copy of a chunk with `by` bytes of padding in its mdat.
fn padded(chunk: &[u8], by: u32) -> Vec<u8> {
    let mdat = chunk.windows(4).position(|w| w == b"mdat").unwrap() - 4;
    let mut padded = chunk.to_vec();
    let size = u32::from_be_bytes(chunk[mdat..mdat + 4].try_into().unwrap());
    padded[mdat..mdat + 4].copy_from_slice(&(size + by).to_be_bytes());
    padded.resize(chunk.len() + by as usize, 0);
    padded
}

/// The content of a response, read incrementally.
struct Content {
    incoming: Incoming,
    read: BytesMut,
}

impl Content {
    fn of(answer: Response<Incoming>) -> Content {
        Content { incoming: answer.into_body(), read: BytesMut::new() }
    }

    /// Reads `expected.len()` bytes and compares them with `expected`.
    async fn expect(&mut self, expected: &Bytes) {
        while self.read.len() < expected.len() {
            let frame = self.incoming.frame().await.expect("the response must have more content").unwrap();
            self.read.extend_from_slice(&frame.into_data().unwrap());
        }
        assert!(self.read.split_to(expected.len()) == expected, "content differs from the expected bytes");
    }

    /// Expects a clean end without further content.
    async fn expect_end(&mut self) {
        assert!(self.read.is_empty());
        assert!(self.incoming.frame().await.is_none(), "the response must end here");
    }
}

/// Returns the number of the first segment, from the MPD.
async fn first_number(origin: &Running) -> u64 {
    let mpd = dash_mpd_core::parse(&origin.text("/live/c/manifest.mpd").await).unwrap();
    let template = mpd.periods[0].adaptations[0].SegmentTemplate.clone().unwrap();
    template.startNumber.unwrap()
}

#[tokio::test]
async fn chunk_is_readable_as_soon_as_it_is_complete() {
    let (origin, track) = (start(), video(6.0));
    let (mut source, answer) = origin.upload("/ingest/c/Streams(v.cmfv)");
    source.send_data(track.header.clone()).await.unwrap();
    for chunk in &track.chunks[..5] {
        source.send_data(chunk.clone()).await.unwrap();
    }
    // The manifest appears as soon as the first complete segment determines the duration.
    let first = first_number(&origin).await;
    assert_eq!(origin.get("/live/c/v/init-1.mp4").await.status, StatusCode::NOT_FOUND);
    assert_eq!(origin.get(&format!("/live/c/v/init-{first}.mp4")).await.content, track.header);

    // The second segment starts with one chunk; readers must receive each further chunk before the
    // next is sent.
    let second = origin.open(&format!("/live/c/v/{}.m4s", first + 1)).await;
    assert_eq!(second.headers()["transfer-encoding"], "chunked");
    assert!(!second.headers().contains_key("etag"));
    let mut second = Content::of(second);
    second.expect(&track.chunks[4]).await;
    for chunk in &track.chunks[5..8] {
        source.send_data(chunk.clone()).await.unwrap();
        second.expect(chunk).await;
    }
    second.expect_end().await;

    // The third segment has not begun: a request for it waits for its first chunk.
    let third_path = format!("/live/c/v/{}.m4s", first + 2);
    let (third, ()) = tokio::join!(origin.open(&third_path), async {
        source.send_data(track.chunks[8].clone()).await.unwrap();
    });
    let mut third = Content::of(third);
    third.expect(&track.chunks[8]).await;

    // A reader that joins midway receives the start of the segment at once; half a chunk is not
    // forwarded.
    let half = track.chunks[9].len() / 2;
    source.send_data(track.chunks[9].slice(..half)).await.unwrap();
    let mut joined = Content::of(origin.open(&third_path).await);
    joined.expect(&track.chunks[8]).await;
    source.send_data(track.chunks[9].slice(half..)).await.unwrap();
    third.expect(&track.chunks[9]).await;
    joined.expect(&track.chunks[9]).await;

    // The upload ends in the middle of a segment, which is then completed as is.
    drop(source);
    let answer = answer.await.unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    third.expect_end().await;
    joined.expect_end().await;

    // A complete segment has a length and a validator, and supports ranges.
    let whole = origin.get(&third_path).await;
    assert_eq!(whole.content, [track.chunks[8].clone(), track.chunks[9].clone()].concat());
    assert_eq!(whole.field("content-length"), whole.content.len().to_string());
    assert_eq!(whole.field("cache-control"), "public, max-age=30, immutable");
    assert_eq!(whole.field("content-type"), "video/mp4");
    let fields = [("if-none-match", whole.field("etag"))];
    assert_eq!(origin.request("GET", &third_path, &fields).await.status, StatusCode::NOT_MODIFIED);
    let part = origin.request("GET", &third_path, &[("range", "bytes=5-9")]).await;
    assert_eq!((part.status, part.content), (StatusCode::PARTIAL_CONTENT, whole.content.slice(5..10)));
    origin.stop().await;
}

#[tokio::test]
async fn source_resumes_on_a_new_connection() {
    let (origin, track) = (start(), video(6.0));
    let (mut source, answer) = origin.upload("/ingest/c/Streams(v.cmfv)");
    source.send_data(track.header.clone()).await.unwrap();
    for chunk in &track.chunks[..5] {
        source.send_data(chunk.clone()).await.unwrap();
    }
    let first = first_number(&origin).await;
    let path = format!("/live/c/v/{}.m4s", first + 1);
    let mut reader = Content::of(origin.open(&path).await);
    reader.expect(&track.chunks[4]).await;
    // The connection breaks in the middle of a chunk: the complete chunks remain, and readers reach
    // a clean end.
    source.send_data(track.chunks[5].slice(..100)).await.unwrap();
    source.abort(std::io::Error::other("cable"));
    assert!(answer.await.is_err(), "the source is gone");
    reader.expect_end().await;
    assert_eq!(origin.get(&path).await.content, track.chunks[4]);
    // The next connection repeats the header and resumes with the interrupted chunk.
    let rest = [&[track.header.clone()][..], &track.chunks[5..]].concat().concat();
    assert_eq!(origin.put("/ingest/c/Streams(v.cmfv)", rest).await.status, StatusCode::OK);
    let next = origin.get(&format!("/live/c/v/{}.m4s", first + 2)).await.content;
    assert!(next.starts_with(&track.chunks[5]));
    let playlist = origin.text("/live/c/v/media.m3u8").await;
    assert!(!playlist.contains("#EXT-X-DISCONTINUITY\n"), "{playlist}");
    origin.stop().await;
}

#[tokio::test]
async fn manifests_wait_for_the_first_complete_segment() {
    let (origin, video, audio) = (start(), video(4.0), audio(4.0));
    assert_eq!(origin.get("/live/c/manifest.mpd").await.status, StatusCode::NOT_FOUND);
    for path in ["/ingest/c/v_init.mp4", "/ingest/c/a_init.mp4"] {
        let header = if path.contains("v_") { &video.header } else { &audio.header };
        assert_eq!(origin.put(path, header.clone()).await.status, StatusCode::OK);
    }
    let (mpd, playlist, master, ()) = tokio::join!(
        origin.get("/live/c/manifest.mpd"),
        origin.get("/live/c/a/media.m3u8"),
        origin.get("/live/c/master.m3u8"),
        async {
            for (i, (v, a)) in video.chunks.iter().zip(&audio.chunks).enumerate() {
                assert_eq!(
                    origin.put(&format!("/ingest/c/a_{i}.m4s"), a.clone()).await.status,
                    StatusCode::OK
                );
                assert_eq!(
                    origin.put(&format!("/ingest/c/v_{i}.m4s"), v.clone()).await.status,
                    StatusCode::OK
                );
            }
        }
    );
    for answer in [&mpd, &playlist, &master] {
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        assert_eq!(answer.field("cache-control"), "public, max-age=1, s-maxage=1");
    }
    let lines: Vec<String> = master.text().lines().map(str::to_owned).collect();
    assert_eq!(lines.iter().filter(|l| l.starts_with("#EXT-X-STREAM-INF")).count(), 1);
    assert!(lines.iter().any(|l| l.starts_with("#EXT-X-MEDIA:TYPE=AUDIO") && l.contains("a/media.m3u8")));
    assert!(playlist.text().contains("#EXT-X-PROGRAM-DATE-TIME:"));
    let parsed = dash_mpd_core::parse(&mpd.text()).unwrap();
    let template = parsed.periods[0].adaptations[0].SegmentTemplate.as_ref().unwrap();
    assert_eq!((template.duration, template.timescale), (Some(25_600.0), Some(12_800)));
    assert_eq!(template.availabilityTimeComplete, Some(false));
    // The offset is the segment duration of 2 s minus the longest chunk: an audio chunk of 24
    // frames (0.512 s) or a video chunk (0.5 s).
    let offset = template.availabilityTimeOffset.unwrap();
    assert!((1.48..=1.5).contains(&offset), "{offset}");
    let again = [("if-none-match", master.field("etag"))];
    let again = origin.request("GET", "/live/c/master.m3u8", &again).await;
    assert_eq!(again.status, StatusCode::NOT_MODIFIED);
    origin.stop().await;
}

#[tokio::test]
async fn media_before_its_header_waits_for_it() {
    let patient = UploadLimits { header_wait: Duration::from_secs(3600), ..UploadLimits::default() };
    let (origin, track) = (start_with(patient), video(4.0));
    // Try uploads with and without a track name in the path. Meanwhile another channel receives a
    // header.
    for (header, media, name) in [("v_init.mp4", "v_", "v"), ("init.mp4", "", "track1")] {
        let path = |file: &str| format!("/ingest/c{name}/{file}");
        let mut first = origin.begun_upload(&path(&format!("{media}1.m4s"))).await;
        first.send(&track.chunks[..3].concat(), false).await;
        first.send(&track.chunks[3], true).await;
        assert_eq!(origin.put("/ingest/other/v_init.mp4", track.header.clone()).await.status, StatusCode::OK);
        assert_eq!(origin.put(&path(header), track.header.clone()).await.status, StatusCode::OK);
        assert_eq!(first.status().await, "200");
        let second = origin.put(&path(&format!("{media}2.m4s")), track.chunks[4..].concat()).await;
        assert_eq!(second.status, StatusCode::OK, "{}", second.text());
        let mpd = dash_mpd_core::parse(&origin.text(&format!("/live/c{name}/manifest.mpd")).await).unwrap();
        let number = mpd.periods[0].adaptations[0].SegmentTemplate.as_ref().unwrap().startNumber.unwrap();
        for (number, chunks) in [(number, &track.chunks[..4]), (number + 1, &track.chunks[4..])] {
            let segment = origin.get(&format!("/live/c{name}/{name}/{number}.m4s")).await;
            assert_eq!(segment.content, chunks.concat());
        }
    }
    origin.stop().await;
}

#[tokio::test]
async fn uploads_waiting_for_one_header_resume_in_arrival_order() {
    let patient = UploadLimits { header_wait: Duration::from_secs(3600), ..UploadLimits::default() };
    let (origin, track) = (start_with(patient), video(4.0));
    let mut first = origin.begun_upload("/ingest/c/v_1.m4s").await;
    first.send(&track.chunks[0], false).await;
    let mut second = origin.begun_upload("/ingest/c/v_2.m4s").await;
    second.send(&track.chunks[4..].concat(), true).await;
    assert_eq!(origin.put("/ingest/c/v_init.mp4", track.header.clone()).await.status, StatusCode::OK);
    first.send(&track.chunks[1..4].concat(), true).await;
    assert_eq!((&*first.status().await, &*second.status().await), ("200", "200"));
    let mpd = dash_mpd_core::parse(&origin.text("/live/c/manifest.mpd").await).unwrap();
    let number = mpd.periods[0].adaptations[0].SegmentTemplate.as_ref().unwrap().startNumber.unwrap();
    for (number, chunks) in [(number, &track.chunks[..4]), (number + 1, &track.chunks[4..])] {
        assert_eq!(origin.get(&format!("/live/c/v/{number}.m4s")).await.content, chunks.concat());
    }
    origin.stop().await;
}

#[tokio::test]
async fn upload_with_an_ambiguous_track_is_refused() {
    let patient = UploadLimits { header_wait: Duration::from_secs(3600), ..UploadLimits::default() };
    let (origin, track) = (start_with(patient), video(1.0));
    for header in ["v_init.mp4", "w_init.mp4"] {
        assert_eq!(
            origin.put(&format!("/ingest/c/{header}"), track.header.clone()).await.status,
            StatusCode::OK
        );
    }
    let refused = origin.put("/ingest/c/1.m4s", track.chunks[0].clone()).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    expect_test::expect!["the path does not identify the track: name uploads TRACK-NUMBER.m4s"]
        .assert_eq(&refused.text());
    origin.stop().await;
}

#[tokio::test]
async fn idle_upload_is_aborted() {
    let silent = UploadLimits { idle_max: Duration::from_millis(200), ..UploadLimits::default() };
    let (origin, track) = (start_with(silent), video(3.0));
    let (mut source, answer) = origin.upload("/ingest/c/Streams(v.cmfv)");
    source.send_data(track.header.clone()).await.unwrap();
    source.send_data(track.chunks[0].clone()).await.unwrap();
    let answer = answer.await.unwrap();
    assert_eq!(
        (answer.status, &*answer.text()),
        (StatusCode::REQUEST_TIMEOUT, "no byte of the upload arrived for 200ms")
    );
    // The track is free for an upload with another header.
    let path = support::directory("track").join("v.mp4");
    make_video(&path, "320x180", 1.0);
    let other = origin.put("/ingest/c/Streams(v.cmfv)", fs::read(path).unwrap()).await;
    assert_eq!(other.status, StatusCode::OK, "{}", other.text());
    origin.stop().await;
}

#[tokio::test]
async fn chunk_beyond_live_memory_is_refused() {
    // Live memory for segments: two slabs of 2 MiB.
    let origin = Running::start(Config { live_memory_bytes: 4 << 20, ..Config::default() });
    let track = video(3.0);
    let (header, chunks) = (&track.header, &track.chunks);
    let large = [header, &*chunks[..5].concat(), &padded(&chunks[5], 8 << 20)].concat();
    let refused = upload_in_halves(&origin, "/ingest/c/Streams(v.cmfv)", &large).await;
    assert_eq!(refused, "503 no memory left for live segments");
    // The channel continues with chunks that fit.
    let rest = [header, &*chunks[..].concat()].concat();
    assert_eq!(upload_in_halves(&origin, "/ingest/d/Streams(v.cmfv)", &rest).await, "200 accepted");
    origin.stop().await;
}

#[tokio::test]
async fn memory_of_incomplete_chunks_is_bounded() {
    let tight = UploadLimits { held_back_bytes_max: 8 << 20, ..UploadLimits::default() };
    let (origin, track) = (start_with(tight), video(3.0));
    let large = padded(&track.chunks[0], 3 << 20);
    let other = [&track.header[..], &large].concat();
    // The limit is 8 MiB, and one upload holds most of a 3 MiB chunk. A second 3 MiB chunk would
    // leave less than its own size free for other uploads, so its upload is refused but read to its
    // end. The test cannot control which of the two is read first.
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        assert!(Instant::now() < deadline, "both uploads are always accepted");
        let (mut one, one_answer) = origin.upload("/ingest/c/Streams(one.cmfv)");
        one.send_data(track.header.clone()).await.unwrap();
        one.send_data(Bytes::copy_from_slice(&large[..large.len() - 1])).await.unwrap();
        let other = upload_in_halves(&origin, "/ingest/c/Streams(other.cmfv)", &other).await;
        one.send_data(Bytes::copy_from_slice(&large[large.len() - 1..])).await.unwrap();
        drop(one);
        match (one_answer.await.unwrap().status.as_u16(), &*other) {
            (200, "503 no memory left for incomplete chunks") => break,
            (200 | 503, "200 accepted") => {}
            unexpected => panic!("{unexpected:?}"),
        }
    }
    // After the first upload ends, memory is available again.
    assert_eq!(upload_in_halves(&origin, "/ingest/c/Streams(other.cmfv)", &other).await, "200 accepted");
    origin.stop().await;
}

#[tokio::test]
async fn channel_without_a_complete_segment_sends_retry_after() {
    let (origin, track) = (start(), video(1.0));
    assert_eq!(origin.put("/ingest/c/v_init.mp4", track.header.clone()).await.status, StatusCode::OK);
    let answer = origin.get("/live/c/manifest.mpd").await;
    assert_eq!((answer.status, answer.field("retry-after")), (StatusCode::SERVICE_UNAVAILABLE, "1"));
    assert_eq!(answer.field("cache-control"), "no-store");
    assert_eq!(origin.text("/catalog.json").await, r#"{"vod":[],"live":[],"faults":[],"warnings":[]}"#);
    origin.stop().await;
}

#[tokio::test]
async fn catalogue_lists_playable_channels() {
    let (origin, track) = (start(), video(3.0));
    let whole = [&[track.header.clone()][..], &track.chunks[..]].concat().concat();
    assert_eq!(origin.put("/ingest/c/v.mp4", whole).await.status, StatusCode::OK);
    let catalog: serde_json::Value = serde_json::from_str(&origin.text("/catalog.json").await).unwrap();
    assert_eq!(catalog["live"][0]["name"], "c");
    assert_eq!(catalog["live"][0]["hls"], "/live/c/master.m3u8");
    assert_eq!(catalog["live"][0]["dash"], "/live/c/manifest.mpd");
    let since = catalog["live"][0]["since"].as_str().unwrap();
    assert!(
        origin.text("/live/c/manifest.mpd").await.contains(&format!("availabilityStartTime=\"{since}\""))
    );
    origin.stop().await;
}

#[tokio::test]
async fn second_source_of_a_track_adds_no_duplicates() {
    let (origin, track) = (start(), video(6.0));
    let (mut source, answer) = origin.upload("/ingest/c/Streams(v.cmfv)");
    source.send_data(track.header.clone()).await.unwrap();
    for chunk in &track.chunks[..6] {
        source.send_data(chunk.clone()).await.unwrap();
    }
    let first = first_number(&origin).await;
    // A second source pushes the same track, slightly behind the first.
    let (mut other, other_answer) = origin.upload("/ingest/c/Streams(v.cmfv)");
    other.send_data(track.header.clone()).await.unwrap();
    for chunk in &track.chunks[4..8] {
        other.send_data(chunk.clone()).await.unwrap();
    }
    let second = origin.get(&format!("/live/c/v/{}.m4s", first + 1)).await;
    assert_eq!(second.content, track.chunks[4..8].concat());
    drop(other);
    assert_eq!(other_answer.await.unwrap().status, StatusCode::OK);
    // The first source continues undisturbed.
    for chunk in &track.chunks[6..] {
        source.send_data(chunk.clone()).await.unwrap();
    }
    drop(source);
    assert_eq!(answer.await.unwrap().status, StatusCode::OK);
    let third = origin.get(&format!("/live/c/v/{}.m4s", first + 2)).await;
    assert_eq!(third.content, track.chunks[8..].concat());
    assert!(!origin.text("/live/c/v/media.m3u8").await.contains("#EXT-X-DISCONTINUITY\n"));
    origin.stop().await;
}

#[tokio::test]
async fn invalid_media_creates_no_channel() {
    let origin = Running::start(Config { channels_max: 1, uploads: impatient(), ..Config::default() });
    let track = video(1.0);
    for content in [Bytes::from_static(b"junk, and more of it"), track.chunks[0].clone(), Bytes::new()] {
        origin.put("/ingest/junk/v_1.m4s", content).await;
    }
    assert_eq!(origin.put("/ingest/c/v_init.mp4", track.header).await.status, StatusCode::OK);
    origin.stop().await;
}

#[tokio::test]
async fn ended_channel_makes_room_for_another() {
    let origin =
        Running::start(Config { window: Duration::from_millis(100), channels_max: 1, ..Config::default() });
    let track = video(3.0);
    let whole = Bytes::from([&[track.header.clone()][..], &track.chunks].concat().concat());
    assert_eq!(origin.put("/ingest/a/v.mp4", whole.clone()).await.status, StatusCode::OK);
    assert_eq!(origin.get("/live/a/manifest.mpd").await.status, StatusCode::OK);
    let other =
        async { while origin.put("/ingest/b/v.mp4", whole.clone()).await.status != StatusCode::OK {} };
    tokio::time::timeout(Duration::from_secs(20), other).await.expect("the first channel ends");
    assert_eq!(origin.get("/live/a/manifest.mpd").await.status, StatusCode::NOT_FOUND);
    let catalog: serde_json::Value = serde_json::from_str(&origin.text("/catalog.json").await).unwrap();
    assert_eq!(catalog["live"][0]["name"], "b");
    origin.stop().await;
}

#[tokio::test]
async fn disconnected_source_releases_its_track_and_channel() {
    let origin =
        Running::start(Config { window: Duration::from_millis(100), channels_max: 1, ..Config::default() });
    let track = video(3.0);
    let whole = [&[track.header.clone()][..], &track.chunks].concat().concat();
    let mut cut = origin.begun_upload("/ingest/a/v.mp4").await;
    cut.send(&whole, false).await;
    while origin.get("/live/a/manifest.mpd").await.status != StatusCode::OK {}
    drop(cut);
    let other = async {
        while origin.put("/ingest/b/v.mp4", Bytes::from(whole.clone())).await.status != StatusCode::OK {}
    };
    tokio::time::timeout(Duration::from_secs(20), other).await.expect("the first channel ends");
    origin.stop().await;
}

#[tokio::test]
async fn long_uploads_with_numbered_names_are_separate_tracks() {
    let (origin, track) = (start(), video(3.0));
    let (mut one, one_answer) = origin.upload("/ingest/c/video-180.cmfv");
    let (mut other, other_answer) = origin.upload("/ingest/c/video-90.cmfv");
    for part in [&track.header].into_iter().chain(&track.chunks) {
        one.send_data(part.clone()).await.unwrap();
        other.send_data(part.clone()).await.unwrap();
    }
    drop((one, other));
    for answer in [one_answer, other_answer] {
        assert_eq!(answer.await.unwrap().status, StatusCode::OK);
    }
    let first = first_number(&origin).await;
    for name in ["video-180", "video-90"] {
        let segment = origin.get(&format!("/live/c/{name}/{first}.m4s")).await;
        assert_eq!(segment.content, track.chunks[..4].concat());
    }
    origin.stop().await;
}

#[tokio::test]
async fn concurrent_upload_with_another_header_is_a_conflict() {
    let (origin, track) = (start(), video(3.0));
    let (mut source, answer) = origin.upload("/ingest/c/Streams(v.cmfv)");
    source.send_data(track.header.clone()).await.unwrap();
    for chunk in &track.chunks[..5] {
        source.send_data(chunk.clone()).await.unwrap();
    }
    first_number(&origin).await;
    let path = support::directory("track").join("v.mp4");
    make_video(&path, "320x180", 1.0);
    let refused = origin.put("/ingest/c/Streams(v.cmfv)", fs::read(path).unwrap()).await;
    assert_eq!(refused.status, StatusCode::CONFLICT, "{}", refused.text());
    drop(source);
    assert_eq!(answer.await.unwrap().status, StatusCode::OK);
    origin.stop().await;
}

/// Uploads in two halves and checks that no response arrives between them; returns the response's
/// status and text.
async fn upload_in_halves(origin: &Running, path: &str, content: &[u8]) -> String {
    let (mut source, answer) = origin.upload(path);
    let (one, other) = content.split_at(content.len() / 2);
    source.send_data(Bytes::copy_from_slice(one)).await.unwrap();
    assert!(!answer.is_finished(), "{path}: the response must follow the upload's end");
    source.send_data(Bytes::copy_from_slice(other)).await.unwrap();
    drop(source);
    let answer = answer.await.unwrap();
    format!("{} {}", answer.status.as_u16(), answer.text())
}

#[tokio::test]
async fn refused_upload_is_read_to_its_end_before_the_response() {
    let (origin, track) = (start_with(impatient()), video(3.0));
    let mut out = String::new();
    let damaged = {
        let mut chunk = track.chunks[0].to_vec();
        let trun = chunk.windows(4).position(|w| w == b"trun").unwrap();
        chunk[trun - 1] = 200;
        [&track.header[..], &chunk, &track.chunks[1]].concat()
    };
    let other_kind = audio(1.0).header;
    let garbage = vec![0x55; 100_000];
    for (path, content) in [
        ("/ingest/c/Streams(v.cmfv)", &garbage[..]),
        ("/ingest/c/v_1.m4s", &track.chunks[0]),
        ("/ingest/c/live.mpd", &garbage),
        ("/ingest/c/live.mpd", b"<?xml version=\"1.0\"?><MPD/>"),
        ("/ingest/c/media.m3u8", b"#EXTM3U\n"),
        ("/ingest/c/v.ts", &garbage),
        ("/ingest/a%20b/v.mp4", &track.header),
        ("/ingest/c/v_init.mp4", &track.header),
        ("/ingest/c/v_init.mp4", &track.header),
        ("/ingest/c/v_init.mp4", &other_kind),
        ("/ingest/c/Streams(v.cmfv)", &damaged),
        ("/ingest/c/Streams(v.cmfv)", &track.chunks[0][..100]),
    ] {
        out += &format!("{path}\n  {}\n", upload_in_halves(&origin, path, content).await);
    }
    let typed = origin.request("PUT", "/ingest/c/v", &[("content-type", "video/mp2t")]).await;
    out += &format!("video/mp2t\n  {} {}\n", typed.status.as_u16(), typed.text());
    for method in ["DELETE", "OPTIONS", "GET"] {
        let answer = origin.request(method, "/ingest/c/v_1.m4s", &[]).await;
        out +=
            &format!("{method}\n  {} {} {}\n", answer.status.as_u16(), answer.field("allow"), answer.text());
    }
    expect_test::expect![[r#"
        /ingest/c/Streams(v.cmfv)
          415 offset 0: box 'ftyp': not an MP4 (ISO BMFF) file
        /ingest/c/v_1.m4s
          412 offset 0: box 'moof': fragment before any CMAF header (ftyp and moov)
        /ingest/c/live.mpd
          400 content is not a manifest, but the file name is
        /ingest/c/live.mpd
          200 accepted
        /ingest/c/media.m3u8
          200 accepted
        /ingest/c/v.ts
          415 .ts is not accepted: send CMAF
        /ingest/a%20b/v.mp4
          404 invalid channel name: expected 1 to 64 letters, digits, '.', '_', '~' or '-'
        /ingest/c/v_init.mp4
          200 accepted
        /ingest/c/v_init.mp4
          200 accepted
        /ingest/c/v_init.mp4
          400 track v already has another media kind: give each track its own name
        /ingest/c/Streams(v.cmfv)
          400 offset 856: box 'trun': truncated, needs 200 bytes, 76 left
        /ingest/c/Streams(v.cmfv)
          400 offset 0: box 'moof': truncated, needs 160 bytes, 100 left
        video/mp2t
          415 media type video/mp2t is not accepted: send CMAF as video/mp4 or audio/mp4
        DELETE
          200  ignored: segments remain until they leave the window
        OPTIONS
          204 PUT, POST, DELETE, OPTIONS 
        GET
          405 PUT, POST, DELETE, OPTIONS method not allowed: this path supports PUT, POST, DELETE, OPTIONS
    "#]]
    .assert_eq(&out);
    origin.stop().await;
}

#[tokio::test]
async fn channels_beyond_the_limit_are_refused() {
    let origin = Running::start(Config { channels_max: 1, ..Config::default() });
    let track = video(1.0);
    assert_eq!(origin.put("/ingest/a/v_init.mp4", track.header.clone()).await.status, StatusCode::OK);
    let refused = origin.put("/ingest/b/v_init.mp4", track.header.clone()).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(origin.put("/ingest/a/v_init.mp4", track.header).await.status, StatusCode::OK);
    origin.stop().await;
}

#[tokio::test]
async fn exhausted_memory_shortens_the_window() {
    // Live memory: four slabs of 2 MiB; half a second of noise is about 1 MB.
    let origin = Running::start(Config { live_memory_bytes: 8 << 20, ..Config::default() });
    let path = support::directory("track").join("v.mp4");
    let noise = "-f lavfi -i testsrc2=size=640x360:rate=25,noise=alls=100:allf=t -t 12";
    support::ffmpeg(
        &format!("{noise} {} -b:v 16M -maxrate 16M -bufsize 8M {}", support::VIDEO, support::CMAF),
        &path,
    );
    let track = cut(&fs::read(path).unwrap());
    assert!(track.chunks.iter().map(Bytes::len).sum::<usize>() > 16 << 20);
    let (mut source, answer) = origin.upload("/ingest/c/Streams(v.cmfv)");
    source.send_data(track.header.clone()).await.unwrap();
    for chunk in &track.chunks {
        source.send_data(chunk.clone()).await.unwrap();
    }
    drop(source);
    assert_eq!(answer.await.unwrap().status, StatusCode::OK);
    let first = first_number(&origin).await;
    assert_eq!(origin.get(&format!("/live/c/v/{first}.m4s")).await.status, StatusCode::NOT_FOUND);
    let last = origin.get(&format!("/live/c/v/{}.m4s", first + 5)).await;
    assert_eq!(last.content, track.chunks[20..].concat());
    origin.stop().await;
}
