//! `thalweg origin inspect`: its output and exit status.

use std::path::Path;

use expect_test::expect;

use crate::program::{Directory, thalweg};

fn sample() -> String {
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/sample");
    assets.to_str().unwrap().to_owned()
}

/// Runs `thalweg origin inspect`; returns the exit status, standard output and standard error.
fn inspect(args: &[&str]) -> (Option<i32>, String, String) {
    let run = thalweg(&["origin", "inspect"]).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (run.status.code(), text(run.stdout), text(run.stderr))
}

#[test]
fn sample_has_no_faults() {
    let (status, out, err) = inspect(&[&sample()]);
    assert_eq!((status, &err[..]), (Some(0), ""), "{out}");
    expect![[r#"
        FILE                     SIZE  BOXES
        sample/audio.mp4       275KiB  ftyp moov 64×([styp] moof mdat)
        sample/video_180.mp4   412KiB  ftyp moov 64×([styp] moof mdat)
        sample/video_360.mp4   974KiB  ftyp moov 64×([styp] moof mdat)
        sample/video_540.mp4  1.88MiB  ftyp moov 64×([styp] moof mdat)

        FILE                  ID  HANDLER  ENTRY  TIMESCALE  SAMPLES       EDITS
        sample/audio.mp4       1  soun     mp4a       48000  in fragments  -
        sample/video_180.mp4   1  vide     avc1       12288  in fragments  -
        sample/video_360.mp4   1  vide     avc1       12288  in fragments  -
        sample/video_540.mp4   1  vide     avc1       12288  in fragments  -

        TRACK      KIND   CODEC        FORMAT       LANG     AVERAGE        PEAK  SEGMENTS  LONGEST   START      END  GAPS
        audio      audio  mp4a.40.2    48000Hz/2ch  -     70.1kbit/s  71.0kbit/s        16   2.005s  0.000s  32.000s     0
        video_180  video  avc1.4d400c  320x180@24   -      105kbit/s   113kbit/s        16   2.000s  0.000s  32.000s     0
        video_360  video  avc1.4d401e  640x360@24   -      249kbit/s   261kbit/s        16   2.000s  0.000s  32.000s     0
        video_540  video  avc1.4d401f  960x540@24   -      493kbit/s   523kbit/s        16   2.000s  0.000s  32.000s     0

        group 0: video: video_180 < video_360 < video_540
        group 1: audio: audio
        served: /vod/sample/master.m3u8 and /vod/sample/manifest.mpd, 32.000 s

        no faults found
    "#]].assert_eq(&out);
}

#[test]
fn report_is_available_as_json() {
    let (status, out, _) = inspect(&[&sample(), "--json"]);
    assert_eq!(status, Some(0));
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["served"]["hls"], "/vod/sample/master.m3u8");
    assert_eq!(report["faults"], serde_json::json!([]));
}

#[test]
fn faults_are_printed_with_their_repair() {
    let directory = Directory::new();
    let file = directory.write("film.mp4", "this is not a film");
    let (status, out, err) = inspect(&[file.to_str().unwrap()]);
    assert_eq!((status, &err[..]), (Some(1), ""), "{out}");
    assert!(out.contains("fault: ") && out.contains("not an MP4 (ISO BMFF) file"), "{out}");
    assert!(out.contains("\n  repair: ffmpeg -i "), "{out}");
}

#[test]
fn wrong_use_has_its_own_status() {
    for (args, expected) in [
        (
            &["/nothing/here"][..],
            "thalweg: cannot read /nothing/here: No such file or directory (os error 2)\n",
        ),
        (
            &["s3://bucket/film"],
            "thalweg: cannot inspect s3://bucket/film: only local files and directories can be inspected\n",
        ),
        (&["--segment-target", "2", "x"], "error: invalid value '2' for '--segment-target <DURATION>'"),
        (&[], "error: the following required arguments were not provided"),
    ] {
        let (status, out, err) = inspect(args);
        assert_eq!((status, &out[..]), (Some(2), ""), "{err}");
        assert!(err.starts_with(expected), "{err}");
    }
    let run = thalweg(&["origin", "--media", "x", "inspect", "y"]).output().unwrap();
    assert_eq!(run.status.code(), Some(2), "flags of the role and a subcommand exclude each other");
}
