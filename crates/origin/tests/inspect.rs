//! Inspection of files and directories: what is served, what is wrong, and repairs that work.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::{ffmpeg, make_audio, make_media, make_video};
use thalweg_origin::inspect::report::Report;
use thalweg_origin::inspect::{InspectError, inspect};

async fn report(path: &Path) -> Report {
    inspect(path.to_str().unwrap(), Duration::from_secs(2)).await.unwrap()
}

/// Runs a repair command as printed, in `directory`.
fn run(command: &str, directory: &Path) {
    let command = command.replacen("ffmpeg", "ffmpeg -nostdin -loglevel error -y", 1);
    let run = Command::new("sh").args(["-c", &command]).current_dir(directory).stdin(Stdio::null()).output();
    let run = run.unwrap();
    assert!(run.status.success(), "{command}: {}", String::from_utf8_lossy(&run.stderr));
}

#[tokio::test]
async fn presentation_is_described() {
    let media = make_media(7.0);
    let report = report(&media.join("a")).await;
    assert!(report.faults.is_empty() && report.warnings.is_empty(), "{report:?}");
    let files: Vec<&str> = report.files.iter().map(|f| &f.file[..]).collect();
    assert_eq!(files, ["a/audio.mp4", "a/video_180.mp4", "a/video_90.mp4"]);
    let boxes: Vec<String> =
        report.files[1].boxes.iter().map(|run| format!("{}×{}", run.count, run.boxes)).collect();
    assert_eq!(boxes, ["1×ftyp", "1×moov", "14×moof mdat", "1×mfra"]);
    assert_eq!(
        report.files[1].boxes.iter().map(|run| run.size_bytes).sum::<u64>(),
        report.files[1].size_bytes
    );
    assert_eq!(report.files[1].tracks[0].sample_entry.as_deref(), Some("avc1"));
    let served = report.served.unwrap();
    assert_eq!(served.hls, "/vod/a/master.m3u8");
    let groups: Vec<String> =
        served.groups.iter().map(|g| format!("{} {}", g.kind, g.tracks.join(" "))).collect();
    assert_eq!(groups, ["video video_90 video_180", "audio audio"]);
    let video = &served.tracks[1];
    assert_eq!((video.segments, &video.format[..], video.gaps), (4, "320x180@25", 0));
    assert!((video.end_s - 7.0).abs() < 1e-6 && (video.segment_s_max - 2.0).abs() < 1e-6, "{video:?}");
    assert_eq!(video.playlist, "/vod/a/video_180/media.m3u8");
}

#[tokio::test]
async fn edit_list_of_a_file_is_shown() {
    let media = support::directory("media");
    let edited = "-f mp4 -movflags +delay_moov+default_base_moof -frag_duration 500000";
    ffmpeg(&format!("-f lavfi -i sine=440:sample_rate=48000 -t 2 -c:a aac {edited}"), media.join("a.mp4"));
    let report = report(&media.join("a.mp4")).await;
    let edits = &report.files[0].tracks[0].edits;
    assert_eq!(edits.len(), 1);
    assert!((edits[0].media_time_s.unwrap() - 1024.0 / 48_000.0).abs() < 1e-9, "{edits:?}");
    assert_eq!(report.served.unwrap().tracks[0].codec, "mp4a.40.2");
}

/// The commands printed for a fragmented file with two tracks must make a presentation without
/// faults.
#[tokio::test]
async fn repair_of_several_tracks_in_one_fragmented_file_works() {
    let media = support::directory("media");
    let film = media.join("my film.mp4");
    let inputs = "-f lavfi -i testsrc2=size=160x90:rate=25 -f lavfi -i sine=440:sample_rate=48000 -t 4";
    let fragments = "-movflags empty_moov+default_base_moof+frag_keyframe";
    ffmpeg(&format!("{inputs} {} -c:a aac {fragments}", support::VIDEO.replace("-an ", "")), &film);
    let faulty = report(&film).await;
    assert!(faulty.served.is_none());
    assert_eq!(faulty.files[0].is_fragmented, Some(true));
    assert_eq!(faulty.files[0].tracks.len(), 2);
    let [fault] = &faulty.faults[..] else { panic!("{faulty:?}") };
    assert_eq!(fault.repair.len(), 2, "{fault:?}");
    let repaired = support::directory("repaired");
    fault.repair.iter().for_each(|command| run(command, &repaired));
    let report = report(&repaired).await;
    assert!(report.faults.is_empty(), "{report:?}");
    let kinds: Vec<&str> = report.served.unwrap().tracks.iter().map(|track| track.kind).collect();
    assert_eq!(kinds, ["audio", "video"]);
}

/// The commands printed for two video tracks that do not line up must align them.
#[tokio::test]
async fn repair_of_misaligned_tracks_works() {
    let media = support::directory("media");
    let a = media.join("a");
    fs::create_dir(&a).unwrap();
    make_video(&a.join("low.mp4"), "160x90", 6.0);
    let other = support::VIDEO.replace("-g 50 -keyint_min 50", "-g 75 -keyint_min 75");
    let input = format!("-f lavfi -i testsrc2=size=320x180:rate=25 -t 6 {other} {}", support::CMAF);
    ffmpeg(&input, a.join("high.mp4"));
    make_audio(&a.join("audio.mp4"), 6.0);
    let faulty = report(&a).await;
    let [fault] = &faulty.faults[..] else { panic!("{faulty:?}") };
    assert!(fault.message.contains("do not line up"), "{fault:?}");
    assert_eq!(faulty.served.as_ref().unwrap().tracks.len(), 2, "the others are served");
    let repaired = support::directory("repaired");
    fault.repair.iter().for_each(|command| run(command, &repaired));
    let report = report(&repaired).await;
    assert!(report.faults.is_empty(), "{report:?}");
    assert_eq!(report.served.unwrap().groups[0].tracks.len(), 2);
}

#[tokio::test]
async fn faults_and_warnings_name_file_and_remedy() {
    let media = support::directory("media");
    let a = media.join("a");
    fs::create_dir(&a).unwrap();
    fs::write(a.join("text.mp4"), "not a film").unwrap();
    let long = "-an -c:v libx264 -preset ultrafast -g 300 -keyint_min 300 -sc_threshold 0 -pix_fmt yuv420p";
    let input = format!("-f lavfi -i testsrc2=size=160x90:rate=25 -t 12 {long} {}", support::CMAF);
    ffmpeg(&input, a.join("long.mp4"));
    let report = report(&a).await;
    assert_eq!(report.faults[0].file.as_deref(), Some("a/text.mp4"));
    assert!(report.faults[0].message.ends_with("not an MP4 (ISO BMFF) file"), "{report:?}");
    let [warning] = &report.warnings[..] else { panic!("{report:?}") };
    assert!(warning.message.starts_with("a/long.mp4: the longest segment lasts 12.000 s"), "{warning:?}");
    assert!(warning.repair[0].contains("-force_key_frames"), "{warning:?}");
    let error = inspect(media.join("none").to_str().unwrap(), Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, InspectError::Path(..)), "{error}");
    let error = inspect("s3://bucket/film", Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, InspectError::NotLocal(_)), "{error}");
}

#[tokio::test]
async fn playlist_is_described() {
    let media = make_media(4.0);
    fs::create_dir(media.join("all")).unwrap();
    let file = media.join("all/playlist.txt");
    fs::write(&file, "a\na 2-4\n").unwrap();
    let described = report(&media.join("all")).await;
    let served = described.served.unwrap();
    assert_eq!(served.entries.len(), 2);
    assert!(served.entries[1].starts_with("a 2 s"), "{:?}", served.entries);
    let names: Vec<&str> = served.tracks.iter().map(|t| &t.name[..]).collect();
    assert_eq!(names, ["video-1", "video-2", "audio-1"]);
    fs::write(&file, "a\nb\n").unwrap();
    let faulty = report(&media.join("all")).await;
    assert!(
        faulty.faults[0].message.starts_with("all/playlist.txt:2: \"b\" is not a presentation"),
        "{faulty:?}"
    );
}
