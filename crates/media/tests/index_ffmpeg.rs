//! Index tests on files created by ffmpeg, compared with ffprobe's reading of the same files.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod support;

use expect_test::{Expect, expect};
use support::{AUDIO, VIDEO, VIDEO_B, ffmpeg, ffprobe, ffprobe_frames, index, index_of};
use thalweg_media::track::TrackIndex;
use thalweg_media::write::rebase_on_moof;

/// Formats times only, for files whose sizes depend on the encoder.
fn times(index: &TrackIndex) -> String {
    let scale = f64::from(index.info.timescale);
    let seconds = |time: u64| time as f64 / scale;
    let times = index.segments.iter().map(|s| format!("{:.3}+{:.3}", seconds(s.time), seconds(s.duration)));
    format!("{:?} {}", index.frame_rate, times.collect::<Vec<_>>().join(" "))
}

/// Indexes a file created by ffmpeg and compares every segment with the samples reported by
/// ffprobe.
fn check_ffmpeg(args: &str, expect: Expect) -> Vec<u8> {
    let file = ffmpeg(args);
    let indexed = index(&file).unwrap_or_else(|error| panic!("{args}: {error}"));
    let packets = ffprobe(&file);
    let all = &indexed.index.segments;
    // With negative composition offsets, ffmpeg's demuxer shifts all times up so that no sample is
    // presented before it is decoded; the specification does not. `expect` has the specified times.
    let moved = packets.iter().map(|p| p.pts).min().unwrap() as u64 - all[0].time;
    let mut seen = 0;
    let mut end = 0;
    for (i, segment) in all.iter().enumerate() {
        assert!(segment.offset >= end, "{args}: segments must not overlap");
        end = segment.offset + segment.size;
        let inside = packets.iter().filter(|p| (segment.offset..end).contains(&p.pos));
        let inside: Vec<_> = inside.copied().collect();
        assert!(inside[0].key, "{args}: a segment must begin with a sync sample");
        seen += inside.len();
        let first = inside.iter().map(|p| p.pts).min().unwrap() as u64;
        assert_eq!(segment.time + moved, first, "{args}");
        match all.get(i + 1) {
            Some(next) => assert_eq!(segment.time + segment.duration, next.time, "{args}: must have no gap"),
            None => {
                // The muxer may have shortened the last sample; ffprobe reports whole frames.
                let whole = inside.iter().map(|p| p.duration).sum::<i64>() as u64;
                let last = inside.last().unwrap().duration as u64;
                assert!((whole - last..=whole).contains(&segment.duration), "{args}");
            }
        }
        // The segment must play on its own after the header.
        let mut cut = file[segment.offset as usize..end as usize].to_vec();
        if indexed.index.has_base_data_offset {
            rebase_on_moof(&mut cut, segment.offset).unwrap();
        }
        let alone = [&file[..indexed.index.header_size as usize], &cut].concat();
        assert_eq!(ffprobe_frames(&alone), inside.len(), "{args}");
    }
    assert_eq!(seen, packets.len(), "{args}: every sample must be in a segment");
    expect.assert_eq(&times(&indexed.index));
    file
}

#[test]
fn ffmpeg_fragments_become_segments() {
    for flags in [
        "+cmaf",
        "+cmaf+global_sidx",
        "+cmaf+empty_moov+default_base_moof+frag_keyframe",
        "frag_keyframe+empty_moov+default_base_moof",
        "frag_keyframe+empty_moov",
        "+dash+frag_keyframe",
        "+dash+frag_keyframe+global_sidx",
    ] {
        let expect = expect!["Some((25, 1)) 0.000+2.000 2.000+2.000 4.000+1.000"];
        check_ffmpeg(&format!("{VIDEO} -movflags {flags}"), expect);
    }
}

#[test]
fn ffmpeg_chunks_are_grouped_into_segments() {
    for flags in [
        "+cmaf+frag_keyframe -write_prft wallclock",
        "+cmaf+empty_moov+default_base_moof+frag_keyframe",
        "+cmaf+frag_keyframe+global_sidx",
        "+dash+frag_keyframe",
    ] {
        let expect = expect!["Some((25, 1)) 0.000+2.000 2.000+2.000 4.000+1.000"];
        check_ffmpeg(&format!("{VIDEO} -frag_duration 500000 -movflags {flags}"), expect);
    }
}

#[test]
fn ffmpeg_reordered_frames_delay_presentation() {
    // dash and plain fragments include the reordering delay in composition offsets, so presentation
    // begins two frames late. cmaf removes the delay with negative offsets.
    for flags in ["+dash+frag_keyframe", "+dash+frag_keyframe+global_sidx", "frag_keyframe+empty_moov"] {
        let expect = expect!["Some((25, 1)) 0.080+2.000 2.080+2.000 4.080+1.000"];
        check_ffmpeg(&format!("{VIDEO_B} -movflags {flags}"), expect);
    }
    for flags in ["+cmaf", "+cmaf+global_sidx", "+cmaf+frag_keyframe -frag_duration 500000"] {
        let expect = expect!["Some((25, 1)) 0.000+2.000 2.000+2.000 4.000+1.000"];
        check_ffmpeg(&format!("{VIDEO_B} -movflags {flags}"), expect);
    }
}

#[test]
fn ffmpeg_fragments_between_sync_samples_are_merged() {
    // Fragments are cut by the clock every 0.52 s, while the sidx claims that each begins with a
    // sync sample. Only the first does, so the file must have one segment.
    let args = format!("{VIDEO} -frag_duration 500000 -movflags +cmaf+global_sidx");
    let file = check_ffmpeg(&args, expect!["Some((25, 1)) 0.000+5.000"]);
    assert!(index(&file).unwrap().index.segments.len() == 1);
}

#[test]
fn ffmpeg_audio_stays_aligned_with_video() {
    for flags in ["+cmaf", "+cmaf+global_sidx", "+dash"] {
        let expect = expect!["None 0.000+2.048 2.048+2.048 4.096+0.925"];
        check_ffmpeg(&format!("{AUDIO} -frag_duration 500000 -movflags {flags}"), expect);
    }
}

#[test]
fn ffmpeg_fractional_frame_rate_is_detected() {
    let args = "-f lavfi -i testsrc2=size=64x64:rate=30000/1001 -t 2 -c:v libx264 -preset ultrafast -g 30 \
                -movflags +cmaf";
    check_ffmpeg(args, expect!["Some((30000, 1001)) 0.000+2.002"]);
}

#[test]
fn tracks_of_sync_samples_alone_are_recognised() {
    for movflags in ["+cmaf", "+cmaf+global_sidx", "+cmaf+frag_keyframe -frag_duration 500000"] {
        let all_sync = |args: &str| index(&ffmpeg(&format!("{args} -movflags {movflags}"))).unwrap().index;
        assert!(!all_sync(VIDEO).all_sync, "{movflags}");
        let intra = "-f lavfi -i testsrc2=size=64x64:rate=1/2 -t 12 -c:v libx264 -preset ultrafast -g 1";
        let intra = all_sync(intra);
        assert_eq!((intra.all_sync, intra.frame_rate), (true, Some((1, 2))), "{movflags}");
    }
}

/// With the recipe of docs/guides/deliver-files.md, segments are one group of pictures at every
/// usual frame rate. Forced key frames are at the first frame that is not before a multiple of 2 s,
/// so at fractional frame rates some intervals are shorter than 2 s.
#[test]
fn key_frames_every_two_seconds_make_segments_of_two_seconds() {
    for rate in ["24000/1001", "24", "25", "30000/1001", "30", "50", "60000/1001", "60"] {
        let file = ffmpeg(&format!(
            "-f lavfi -i testsrc2=size=32x32:rate={rate} -t 44.5 -c:v libx264 -preset ultrafast -force_key_frames \
             expr:gte(t,n_forced*2) -movflags +delay_moov+frag_keyframe+default_base_moof -frag_duration 500000"
        ));
        let index = index(&file).unwrap().index;
        let seconds = |d: u64| d as f64 / f64::from(index.info.timescale);
        let lengths: Vec<f64> = index.segments.iter().map(|s| seconds(s.duration)).collect();
        let (last, whole) = lengths.split_last().unwrap();
        assert!(whole.iter().all(|s| (1.93..2.07).contains(s)) && *last < 1.0, "{rate}: {lengths:?}");
        assert_eq!(lengths.len(), 23, "{rate}: {lengths:?}");
    }
}

#[test]
fn ffmpeg_delay_is_in_the_decode_times() {
    // frag_discont puts the delay into the decode times.
    let args = format!("-itsoffset 0.5 {AUDIO} -frag_duration 500000 -movflags +cmaf+frag_discont");
    check_ffmpeg(&args, expect!["None 0.479+2.048 2.527+2.048 4.575+0.427"]);
}

#[test]
fn few_bytes_are_read() {
    // The file lasts 40 s, so that reads can skip most of it.
    let long = |flags: &str| {
        let args =
            "-f lavfi -i testsrc2=size=320x180:rate=25 -t 40 -c:v libx264 -preset ultrafast -g 50 -bf 0";
        ffmpeg(&format!("{args} -keyint_min 50 -sc_threshold 0 {flags}"))
    };
    let cost = |file: &[u8]| {
        let indexed = index(file).unwrap();
        let (reads, bytes) = (indexed.wants.len(), indexed.wants.iter().map(|want| want.len).sum::<u64>());
        assert!(file.len() > 2_000_000 && bytes <= 16_384 + 4096 * (reads as u64 - 1));
        format!("{} segments, {reads} reads", indexed.index.segments.len())
    };
    expect!["20 segments, 21 reads"].assert_eq(&cost(&long("-movflags +cmaf")));
    expect!["20 segments, 10 reads"].assert_eq(&cost(&long("-movflags +cmaf+global_sidx")));
    let chunked = long("-frag_duration 500000 -movflags +cmaf+frag_keyframe");
    expect!["20 segments, 81 reads"].assert_eq(&cost(&chunked));
}

#[test]
fn truncation_anywhere_is_a_fault() {
    for flags in ["+cmaf", "+cmaf+global_sidx"] {
        let file = ffmpeg(&format!("{VIDEO} -movflags {flags}"));
        let mfra = find_last(&file, b"mfra") - 4;
        let whole = index(&file).unwrap().index;
        let borders: Vec<u64> = whole.segments.iter().map(|s| s.offset + s.size).collect();
        for keep in (0..file.len()).step_by(997).chain([mfra + 1, mfra - 1]) {
            let known = index_of(&file[..keep], keep as u64, 2000);
            let shrunk = index_of(&file[..keep], file.len() as u64, 2000);
            for indexed in [known, shrunk] {
                let error = indexed.expect_err("a truncated file must be refused");
                assert!(!borders.contains(&(keep as u64)), "{error}");
            }
        }
        // mfra is not part of the media: without mfra, the file is complete.
        assert_eq!(index(&file[..mfra]).unwrap().index, whole);
    }
}

fn find_last(file: &[u8], kind: &[u8; 4]) -> usize {
    file.windows(4).rposition(|w| w == kind).unwrap()
}
