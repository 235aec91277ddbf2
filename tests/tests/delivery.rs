//! Media integrity through the real program: packets read by ffprobe through the edge must equal
//! those of the source, on demand and live, across segment boundaries and the live source's loop.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The tracks of the sample: name, ffprobe's stream kind, timescale, units per packet.
const TRACKS: [(&str, &str, u64, u64); 4] = [
    ("video_180", "v", 12_288, 512),
    ("video_360", "v", 12_288, 512),
    ("video_540", "v", 12_288, 512),
    ("audio", "a", 48_000, 1_024),
];

/// Duration of the looped presentation in seconds. Every track has a whole number of packets in
/// this time; the AAC track has 375.
const LOOP_S: u32 = 8;
/// Duration of the channel to check, in seconds: longer than the loop, so that the loop's end is
/// included.
const WATCHED_S: u32 = 14;

/// Time limit for a channel's first segments, on a machine busy with other tests.
const PATIENCE: Duration = Duration::from_secs(30);

fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets/sample")
}

/// The program with all roles, on free ports; stopped on drop.
struct Program {
    child: Child,
    edge: String,
    directory: PathBuf,
}

impl Program {
    fn start(name: &str, config: &str) -> Self {
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("thalweg.toml");
        std::fs::write(&file, config).unwrap();
        let test = std::env::current_exe().unwrap();
        let program = test.ancestors().nth(2).unwrap().join("thalweg");
        let mut child = Command::new(&program)
            .args(["up", "--config"])
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{}: {error}; cargo test --workspace builds it", program.display())
            });
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let edge =
            lines.find_map(|line| Some(line.unwrap().strip_prefix("edge listening ")?.to_owned())).unwrap();
        thread::spawn(move || lines.for_each(|line| eprintln!("{}", line.unwrap_or_default())));
        Self { child, edge, directory }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.edge)
    }

    /// Requests `path` every 100 ms until the status is 200.
    fn wait_for(&self, path: &str) {
        let begun = Instant::now();
        loop {
            let mut stream = TcpStream::connect(&self.edge).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.edge)
                .unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            if answer.starts_with(b"HTTP/1.1 200") {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{path}: {}", String::from_utf8_lossy(&answer));
            thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Returns ffprobe's packets of one stream, with `fields` of each packet.
fn packets(input: &str, stream: &str, fields: &str, options: &[&str]) -> Vec<String> {
    let output = Command::new("ffprobe")
        .args(["-v", "error", "-select_streams", stream])
        .args(["-show_entries", &format!("packet={fields}"), "-of", "csv=p=0"])
        .args(options)
        .arg(input)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{input}: {complaints}");
    text.lines().map(|line| line.trim_end_matches(',').to_owned()).filter(|line| !line.is_empty()).collect()
}

/// An origin on free ports.
const ORIGIN: &str = "[origin]\nlisten = '127.0.0.1:0'\ningest = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\n";

#[test]
fn on_demand_renditions_through_the_edge_equal_the_source() {
    let media = sample().parent().unwrap().canonicalize().unwrap();
    let program = Program::start(
        "on-demand",
        &format!(
            "{ORIGIN}media = '{}'\n[edge]\nlisten = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\n",
            media.display()
        ),
    );
    let mpd = program.url("/vod/sample/manifest.mpd");
    let fields = "pts_time,size,flags";
    for (at, (track, kind, ..)) in TRACKS.iter().enumerate() {
        let source = packets(sample().join(format!("{track}.mp4")).to_str().unwrap(), kind, fields, &[]);
        assert!(source.len() > 700, "{track} has {} packets", source.len());
        let playlist = program.url(&format!("/vod/sample/{track}/media.m3u8"));
        assert!(packets(&playlist, kind, fields, &[]) == source, "HLS {track}");
        let stream = if *kind == "v" { format!("v:{at}") } else { "a:0".into() };
        assert!(packets(&mpd, &stream, fields, &[]) == source, "DASH {track}");
    }
}

/// Writes the first `LOOP_S` seconds of the sample as a separate presentation.
fn short_loop(directory: &Path) {
    for (track, ..) in TRACKS {
        let status = Command::new("ffmpeg")
            .args(["-v", "error", "-y", "-i"])
            .arg(sample().join(format!("{track}.mp4")))
            .args(["-t", &LOOP_S.to_string(), "-c", "copy", "-f", "mp4"])
            .args(["-movflags", "cmaf+empty_moov+default_base_moof", "-frag_duration", "500000"])
            .arg(directory.join(format!("{track}.mp4")))
            .stdin(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
    }
}

#[test]
fn live_time_through_the_edge_is_continuous_across_the_loop() {
    let media = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("loop");
    std::fs::create_dir_all(&media).unwrap();
    short_loop(&media);
    let listen = "listen = '127.0.0.1:0'";
    let program = Program::start(
        "live",
        &format!(
            "{ORIGIN}[edge]\n{listen}\nadmin = '127.0.0.1:0'\n\
             [[source]]\nchannel = 'demo'\nmedia = '{}'\n",
            media.display()
        ),
    );
    for (track, ..) in TRACKS {
        program.wait_for(&format!("/live/demo/{track}/media.m3u8"));
    }
    let watched = format!("%+{WATCHED_S}");
    let options = ["-read_intervals", watched.as_str()];
    let mpd = program.url("/live/demo/manifest.mpd");
    let mut watching = Vec::new();
    for (track, kind, scale, step) in TRACKS {
        let playlist = program.url(&format!("/live/demo/{track}/media.m3u8"));
        watching.push((format!("HLS {track}"), kind, playlist, scale, step));
    }
    watching.push(("DASH video".into(), "v:0", mpd.clone(), 12_288, 512));
    watching.push(("DASH audio".into(), "a:0", mpd, 48_000, 1_024));
    thread::scope(|scope| {
        for (name, stream, url, scale, step) in &watching {
            scope.spawn(move || {
                let lines = packets(url, stream, "pts_time", &options);
                let times: Vec<f64> = lines.iter().map(|line| line.parse().unwrap()).collect();
                let seconds = times.len() as u64 * step / scale;
                assert!(seconds + 1 >= u64::from(WATCHED_S), "{name}: {seconds} s of packets");
                let step_s = *step as f64 / *scale as f64;
                for pair in times.windows(2) {
                    let gap = pair[1] - pair[0];
                    // ffprobe prints times rounded to microseconds.
                    assert!(
                        (gap - step_s).abs() < 0.000_05,
                        "{name}: {gap} s from {} to {}",
                        pair[0],
                        pair[1]
                    );
                }
            });
        }
    });
}
