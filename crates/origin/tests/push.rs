//! Push tests: ffmpeg pushes live channels in real time, and the output must equal the input.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use support::{Running, directory, ffprobe};
use thalweg_origin::Config;

/// Maximum wait for a source's next step, including a process start.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a returning source stays away. This is longer than a slow machine may delay the first
/// chunk of the first run, so that the gap also appears in media time.
const AWAY: Duration = Duration::from_secs(2);
/// ffmpeg input: tiny video and a tone, in real time.
const INPUT: &str = "-re -f lavfi -i testsrc2=size=160x90:rate=25 -re -f lavfi -i sine=440:sample_rate=48000 -map 0:v -map 1:a";
const ENCODE: &str = "-c:v libx264 -preset ultrafast -tune zerolatency -bf 0 -g 50 -keyint_min 50 -sc_threshold 0 \
                      -pix_fmt yuv420p -c:a aac -b:a 64k";

/// A source process, killed when dropped.
struct Pushing(Child);

impl Pushing {
    fn start(arguments: &str) -> Pushing {
        let mut command = Command::new("ffmpeg");
        command.args(["-nostdin", "-loglevel", "error"]).args(arguments.split_whitespace());
        Pushing(command.stdin(Stdio::null()).spawn().expect("ffmpeg is installed"))
    }

    /// Waits until the process exits, without killing it.
    async fn ended(mut self) {
        let status = tokio::task::spawn_blocking(move || self.0.wait()).await.unwrap().unwrap();
        assert!(status.success(), "ffmpeg: {status}");
    }
}

impl Drop for Pushing {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns ffmpeg arguments for form A: chunked objects, with MPD and playlists.
fn objects(origin: &Running, seconds: u32) -> String {
    let url = origin.url("/ingest/c/live.mpd");
    let time = origin.url("/time");
    format!(
        "{INPUT} -t {seconds} {ENCODE} -f dash -ldash 1 -streaming 1 -use_template 1 -use_timeline 0 \
         -seg_duration 2 -frag_type duration -frag_duration 0.5 -target_latency 3 -utc_timing_url {time} \
         -write_prft 1 -format_options movflags=cmaf -window_size 10 \
         -hls_playlist 1 -method PUT -http_persistent 0 -ignore_io_errors 1 {url}"
    )
}

/// Returns ffmpeg arguments for form B: one long upload per track.
fn tracks(origin: &Running, seconds: u32) -> String {
    let cmaf = "-f mp4 -movflags +cmaf+empty_moov+default_base_moof+frag_keyframe -frag_duration 500000 \
                -write_prft wallclock -method PUT";
    let (video, audio) =
        (origin.url("/ingest/c/Streams(video.cmfv)"), origin.url("/ingest/c/Streams(audio.cmfa)"));
    let input = INPUT.replace("-map 0:v -map 1:a", "");
    format!(
        "{input} -t {seconds} -map 0:v {ENCODE} {cmaf} {video} -t {seconds} -map 1:a {ENCODE} {cmaf} {audio}"
    )
}

fn start() -> Running {
    Running::start(Config::default())
}

/// Waits until the channel has video and audio; returns the MPD. Processes take a while to start,
/// and on a busy machine one track may appear long before the other.
async fn mpd(origin: &Running) -> dash_mpd_core::MPD {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = origin.get("/live/c/manifest.mpd").await;
        let late = Instant::now() >= deadline;
        match answer.status {
            StatusCode::OK => {
                let mpd = dash_mpd_core::parse(&answer.text()).unwrap();
                if mpd.periods[0].adaptations.len() == 2 {
                    return mpd;
                }
                assert!(!late, "{}", answer.text());
            }
            StatusCode::NOT_FOUND | StatusCode::SERVICE_UNAVAILABLE if !late => {}
            status => panic!("{status} {}", answer.text()),
        }
        tokio::task::yield_now().await;
    }
}

/// Returns the number of a track's first segment.
fn start_number(set: &dash_mpd_core::AdaptationSet) -> u64 {
    set.SegmentTemplate.as_ref().unwrap().startNumber.unwrap()
}

/// Reads a track from segment `first` until the source has ended and no segment is left; returns
/// the header and the segments, concatenated.
async fn follow(origin: &Running, track: &str, first: u64, ended: &AtomicBool) -> Vec<u8> {
    let header = origin.get(&format!("/live/c/{track}/init-{first}.mp4")).await;
    assert_eq!(header.status, StatusCode::OK, "{track}: {}", header.text());
    let mut joined = header.content.to_vec();
    let mut number = first;
    let mut deadline = Instant::now() + PATIENCE;
    loop {
        // Read this flag before the request, because a source that has ended by now produces no
        // further segment.
        let over = ended.load(Ordering::Acquire);
        let segment = origin.get(&format!("/live/c/{track}/{number}.m4s")).await;
        if segment.status == StatusCode::OK {
            joined.extend_from_slice(&segment.content);
            number += 1;
            deadline = Instant::now() + PATIENCE;
        } else if over {
            return joined;
        }
        assert!(Instant::now() < deadline, "{track} {number}: {} {}", segment.status, segment.text());
    }
}

/// Returns the presentation times of a file's packets, in seconds.
async fn times(path: &Path) -> Vec<f64> {
    let lines = ffprobe("-show_entries packet=pts_time -of csv=p=0", path.to_str().unwrap()).await;
    lines.lines().map(|l| l.trim_end_matches(',').parse().unwrap()).collect()
}

/// Asserts that packets are contiguous; returns their times.
async fn assert_continuous(joined: &[u8], frame_s: f64) -> Vec<f64> {
    let path = directory("followed").join("track.mp4");
    fs::write(&path, joined).unwrap();
    let times = times(&path).await;
    for pair in times.windows(2) {
        assert!((pair[1] - pair[0] - frame_s).abs() < 1e-4, "{pair:?}");
    }
    times
}

#[derive(Clone, Copy)]
enum Form {
    Objects,
    Tracks,
}

/// Pushes for `SECONDS`, follows every track to its end, and checks that everything arrived.
async fn push_and_follow(form: Form) {
    const SECONDS: u32 = 9;
    let origin = start();
    let (arguments, video, audio) = match form {
        Form::Objects => (objects(&origin, SECONDS), "stream0", "stream1"),
        Form::Tracks => (tracks(&origin, SECONDS), "video", "audio"),
    };
    let pushing = Pushing::start(&arguments);
    let mpd = mpd(&origin).await;
    let sets = &mpd.periods[0].adaptations;
    let ids: Vec<_> = sets.iter().map(|s| s.representations[0].id.as_deref().unwrap()).collect();
    assert_eq!(ids, [video, audio]);
    // ffmpeg's prft reports when the moof was written; whether it is plausible depends on how soon
    // the chunk arrives.
    assert!(sets.iter().all(|s| s.ProducerReferenceTime[0].inband.is_some()));
    let template = sets[0].SegmentTemplate.as_ref().unwrap();
    let (first_picture, first_sound) = (start_number(&sets[0]), start_number(&sets[1]));
    assert_eq!((template.duration, template.timescale), (Some(25_600.0), Some(12_800)));
    let offset = template.availabilityTimeOffset.unwrap();
    assert!((1.4..=1.5).contains(&offset), "{offset}");

    let ended = AtomicBool::new(false);
    let (pictures, sound, ()) = tokio::join!(
        follow(&origin, video, first_picture, &ended),
        follow(&origin, audio, first_sound, &ended),
        async {
            pushing.ended().await;
            ended.store(true, Ordering::Release);
        }
    );
    let pictures = assert_continuous(&pictures, 0.04).await;
    assert_eq!(pictures.len(), 25 * SECONDS as usize, "every frame must arrive");
    let sound = assert_continuous(&sound, 1024.0 / 48_000.0).await;
    let length = sound.last().unwrap() - sound[0] + 1024.0 / 48_000.0;
    assert!((length - f64::from(SECONDS)).abs() < 0.05, "{length} s of audio");

    for (track, expected) in [(video, f64::from(SECONDS)), (audio, length)] {
        let playlist = origin.text(&format!("/live/c/{track}/media.m3u8")).await;
        let lengths = playlist.lines().filter_map(|l| l.strip_prefix("#EXTINF:")?.strip_suffix(','));
        let lengths: Vec<f64> = lengths.map(|l| l.parse().unwrap()).collect();
        assert!(playlist.contains("#EXT-X-TARGETDURATION:2\n") && lengths.iter().all(|l| l.round() <= 2.0));
        let sum: f64 = lengths.iter().sum();
        assert!((sum - expected).abs() < 0.01, "{track}: {sum} s listed, {expected} s expected");
        assert!(!playlist.contains("#EXT-X-DISCONTINUITY\n"), "{playlist}");
    }
    // An HLS player must find every packet. ffprobe would follow a live playlist forever, so it
    // reads an ended one.
    let playlist = ended_playlist(&origin, video).await;
    let open = "-protocol_whitelist file,http,tcp -allowed_extensions ALL";
    let seen = format!("{open} -count_packets -show_entries stream=codec_type,nb_read_packets -of csv=p=0");
    let seen = ffprobe(&seen, &playlist).await;
    assert!(seen.contains(&format!("video,{}", pictures.len())), "{seen}");
    origin.stop().await;
}

/// Writes a copy of a track's playlist with absolute URIs and an end tag.
async fn ended_playlist(origin: &Running, track: &str) -> String {
    let base = origin.url(&format!("/live/c/{track}/"));
    let playlist = origin.text(&format!("/live/c/{track}/media.m3u8")).await;
    let playlist = playlist.replace("URI=\"", &format!("URI=\"{base}"));
    let lines =
        playlist.lines().map(|l| if l.starts_with('#') { l.to_owned() } else { format!("{base}{l}") });
    let path = directory("playlist").join("ended.m3u8");
    fs::write(&path, lines.chain([String::from("#EXT-X-ENDLIST\n")]).collect::<Vec<_>>().join("\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn ffmpeg_pushes_objects() {
    push_and_follow(Form::Objects).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ffmpeg_pushes_long_tracks() {
    push_and_follow(Form::Tracks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_source_continues_after_a_discontinuity() {
    let origin = start();
    Pushing::start(&tracks(&origin, 5)).ended().await;
    tokio::time::sleep(AWAY).await;
    let again = Pushing::start(&tracks(&origin, 5));
    let deadline = Instant::now() + PATIENCE;
    while mpd(&origin).await.periods.len() < 2 {
        assert!(Instant::now() < deadline, "the source did not return");
    }
    // ffmpeg's player computes segment numbers from availabilityStartTime in every Period.
    let open = "-read_intervals %+1 -select_streams v -show_entries packet=pts_time -of csv=p=0";
    assert!(ffprobe(open, &origin.url("/live/c/manifest.mpd")).await.lines().count() > 10);
    again.ended().await;
    let mpd = mpd(&origin).await;
    let [one, two] = &mpd.periods[..] else { panic!("{:?}", mpd.periods.len()) };
    let ended = one.start.unwrap() + one.duration.unwrap();
    assert!((4.7..5.0).contains(&ended.as_secs_f64()), "must be slightly before the last frame: {ended:?}");
    assert!(two.start.unwrap() >= ended && two.start.unwrap() < ended + AWAY + PATIENCE);
    for (period, tracks) in [(one, ["video", "audio"]), (two, ["video", "audio"])] {
        for (set, track) in period.adaptations.iter().zip(tracks) {
            assert_eq!(set.representations[0].id.as_deref(), Some(track));
            let first = start_number(set);
            let header = origin.get(&format!("/live/c/{track}/init-{first}.mp4")).await;
            assert_eq!(header.status, StatusCode::OK, "{track}: {}", header.text());
            let mut joined = header.content.to_vec();
            for number in first..first + 3 {
                let segment = origin.get(&format!("/live/c/{track}/{number}.m4s")).await;
                assert_eq!(segment.status, StatusCode::OK);
                joined.extend_from_slice(&segment.content);
            }
            let frame_s = if track == "video" { 0.04 } else { 1024.0 / 48_000.0 };
            let times = assert_continuous(&joined, frame_s).await;
            let at_s = times[0] - period.start.unwrap().as_secs_f64();
            assert!((0.0..0.1).contains(&at_s), "media time follows the clock: {at_s} s into its Period");
        }
    }
    let playlist = origin.text("/live/c/video/media.m3u8").await;
    let shape: Vec<_> = playlist
        .lines()
        .filter_map(|l| match l.split(':').next()? {
            "#EXT-X-DISCONTINUITY" => Some("discontinuity"),
            "#EXT-X-MAP" => Some("map"),
            "#EXTINF" => Some("segment"),
            _ => None,
        })
        .collect();
    let run = ["map", "segment", "segment", "segment"];
    assert_eq!(shape, [&run[..], &["discontinuity"], &run[..]].concat(), "{playlist}");
    origin.stop().await;
}
