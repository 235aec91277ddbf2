//! Progressive files made by ffmpeg: their CMAF tracks, as ffprobe and this crate's parsers read
//! them.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod support;

use expect_test::{Expect, expect};
use support::{AUDIO, VIDEO, VIDEO_B, cmaf_file, ffmpeg, index, movie, packets};
use thalweg_media::dump::dump;
use thalweg_media::progressive::Movie;
use thalweg_media::track::TrackIndex;

/// Two minutes are not needed to see three segments.
const FILM: &str = "-f lavfi -i testsrc2=size=128x72:rate=30000/1001 -f lavfi -i sine=440:sample_rate=48000 \
                    -f lavfi -i sine=880:sample_rate=44100 -map 0 -map 1 -map 2 -t 5 -c:v libx264 -preset veryfast \
                    -bf 3 -force_key_frames expr:gte(t,n_forced*2) -pix_fmt yuv420p -c:a aac -b:a 64k \
                    -metadata:s:a:0 language=eng -metadata:s:a:1 language=deu";

fn starts(index: &TrackIndex) -> String {
    let scale = f64::from(index.info.timescale);
    let shown = |time: u64| (time as f64 - index.info.edit_media_time as f64) / scale;
    let times =
        index.segments.iter().map(|s| format!("{:.3}+{:.3}", shown(s.time), s.duration as f64 / scale));
    times.collect::<Vec<_>>().join(" ")
}

fn summary(movie: &Movie) -> String {
    let mut lines = String::new();
    for track in &movie.tracks {
        let info = &track.index.info;
        let language = info.language.as_deref().unwrap_or("und");
        let rate = track.index.frame_rate.map_or(String::new(), |(num, den)| format!(" {num}/{den}"));
        let number = track.number;
        lines += &format!("{number}: {}{rate} {language}: {}\n", info.codec, starts(&track.index));
    }
    movie.faults.iter().for_each(|fault| lines += &format!("{}: {}\n", fault.number, fault.error));
    lines
}

/// Checks that ffprobe reads the same packets from each CMAF file as from the movie, and that the
/// CMAF file has the index of its track.
fn check(args: &str, streams: &[&str], expect: Expect) -> Vec<u8> {
    let file = ffmpeg(args);
    let (movie, wants) = movie(&file).unwrap_or_else(|error| panic!("{args}: {error}"));
    assert!(wants.len() <= 4, "{wants:?}");
    for (track, stream) in movie.tracks.iter().zip(streams) {
        let cmaf = cmaf_file(&file, track);
        let (expected, found) = (packets(&file, stream), packets(&cmaf, "0"));
        for (number, (is, was)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(is, was, "{args}: packet {number} of {stream}");
        }
        assert_eq!(found.len(), expected.len(), "{args}: {stream}");
        let again = index(&cmaf).unwrap().index;
        let without_defaults = |index: &TrackIndex| (index.info.clone(), index.header_size, index.all_sync);
        assert_eq!(without_defaults(&again), without_defaults(&track.index));
        if stream.starts_with('v') {
            assert_eq!(again.segments, track.index.segments, "{args}: {stream}");
        }
    }
    assert_eq!(movie.tracks.len(), streams.len());
    expect.assert_eq(&summary(&movie));
    file
}

#[test]
fn film_with_two_languages() {
    for flags in ["", "-movflags +faststart"] {
        let expect = expect![[r#"
            1: avc1.64000a 30000/1001 und: 0.000+2.002 2.002+2.002 4.004+1.001
            2: mp4a.40.2 en: -0.021+2.027 2.005+2.005 4.011+0.989
            3: mp4a.40.2 de: -0.023+2.020 1.997+1.997 3.994+1.006
        "#]];
        check(&format!("{FILM} {flags}"), &["v:0", "a:0", "a:1"], expect);
    }
}

#[test]
fn long_groups_of_pictures() {
    let args = "-f lavfi -i testsrc2=size=64x36:rate=25 -f lavfi -i sine=440 -t 12 -c:v libx264 -preset ultrafast -g 125 \
                -keyint_min 125 -sc_threshold 0 -c:a aac";
    check(
        args,
        &["v:0", "a:0"],
        expect![[r#"
        1: avc1.42c00a 25/1 und: 0.000+5.000 5.000+5.000 10.000+2.000
        2: mp4a.40.2 und: -0.023+5.016 4.992+5.016 10.008+1.992
    "#]],
    );
}

#[test]
fn single_tracks() {
    check(
        VIDEO,
        &["v:0"],
        expect![[r#"
        1: avc1.42c00a 25/1 und: 0.000+2.000 2.000+2.000 4.000+1.000
    "#]],
    );
    check(
        &format!("{VIDEO_B} -movflags +faststart"),
        &["v:0"],
        expect![[r#"
        1: avc1.64000a 25/1 und: 0.000+2.000 2.000+2.000 4.000+1.000
    "#]],
    );
    check(
        AUDIO,
        &["a:0"],
        expect![[r#"
        1: mp4a.40.2 und: -0.021+2.005 1.984+1.984 3.968+1.032
    "#]],
    );
}

/// Without an edit list, ffprobe 5.1 shifts times of fragments up if composition offsets are
/// negative, so that no sample is presented before it is decoded; the specification does not.
#[test]
fn negative_composition_offsets_are_kept() {
    let file = ffmpeg(&format!("{VIDEO_B} -movflags +negative_cts_offsets"));
    let (movie, _) = movie(&file).unwrap();
    let cmaf = cmaf_file(&file, &movie.tracks[0]);
    let moved = |lines: Vec<String>, by: f64| {
        let field = |field: &str| match field.split_once("_time=") {
            Some((name, time)) => format!("{name} {:.3}", time.parse::<f64>().unwrap() + by),
            None => field.to_owned(),
        };
        lines.iter().map(|l| l.split(' ').map(field).collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    assert_eq!(moved(packets(&cmaf, "v:0"), 0.0), moved(packets(&file, "v:0"), 0.08));
    assert_eq!(movie.tracks[0].index.segments[1].time, 25_600);
}

#[test]
fn delayed_audio_keeps_its_delay() {
    let args = "-f lavfi -i testsrc2=size=64x36:rate=25 -itsoffset 0.48 -f lavfi -i sine=440:sample_rate=48000 -t 5 \
                -c:v libx264 -preset ultrafast -g 50 -c:a ac3";
    check(
        args,
        &["v:0", "a:0"],
        expect![[r#"
        1: avc1.42c00a 25/1 und: 0.000+2.000 2.000+2.000 4.000+1.000
        2: ac-3 und: 0.474+1.536 2.010+1.984 3.994+1.024
    "#]],
    );
}

#[test]
fn header_and_fragment_are_golden() {
    let file = ffmpeg(&format!("{VIDEO_B} -fflags +bitexact -flags:v +bitexact"));
    let (movie, _) = movie(&file).unwrap();
    let cmaf = cmaf_file(&file, &movie.tracks[0]);
    let two = movie.tracks[0].index.segments[1].offset + movie.tracks[0].index.segments[1].size;
    // The media's size depends on the encoder's version.
    let text = dump(&cmaf[..two as usize]);
    let text: Vec<&str> = text.lines().filter(|line| !line.starts_with("mdat")).collect();
    expect![[r#"
        ftyp 24 iso6/0+iso6+cmfc
        moov 707
          mvhd 108 v0 timescale=1000
          trak 551
            tkhd 92 v0 flags=0x3 track_id=1 size=128x72
            edts 36
              elst 28
            mdia 415
              mdhd 32 v0 timescale=12800
              hdlr 45 handler=vide
              minf 330
                vmhd 20
                dinf 36
                  dref 28
                stbl 266
                  stsd 190
                    avc1 174
                  stts 16
                  stsc 16
                  stsz 20
                  stco 16
          mvex 40
            trex 32 v0 flags=0x0 track_id=1 duration=0 size=0 sample_flags=0x0
        moof 500
          mfhd 16 v0 flags=0x0 sequence_number=1
          traf 476
            tfhd 24 v0 flags=0x20028 track_id=1 duration=512 sample_flags=0x1010000
            tfdt 20 v1 flags=0x0 decode_time=0
            trun 424 v1 flags=0xa05 samples=50 data_offset=508 first_sample_flags=0x2000000
        moof 500
          mfhd 16 v0 flags=0x0 sequence_number=2
          traf 476
            tfhd 24 v0 flags=0x20028 track_id=1 duration=512 sample_flags=0x1010000
            tfdt 20 v1 flags=0x0 decode_time=25600
            trun 424 v1 flags=0xa05 samples=50 data_offset=508 first_sample_flags=0x2000000
    "#]]
    .assert_eq(&(text.join("\n") + "\n"));
}
