//! Progressive files with synthetic sample tables: whatever the tables, segments contain every
//! sample once, and times continue from segment to segment.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod support;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use support::build::{boxed, full, words};
use support::movie::{Sample, TrackParts, movie_file, movie_front};
use support::{cmaf_file, movie, run_indexer};
use thalweg_media::boxes::Boxes;
use thalweg_media::fourcc::FourCc;
use thalweg_media::fragment::Fragment;
use thalweg_media::index::Step;
use thalweg_media::progressive::MovieTrack;

fn frame(number: u32, gop: u32, size: u32) -> Sample {
    let sync = number.is_multiple_of(gop);
    Sample { size, duration: 40, composition_offset: if sync { 80 } else { 0 }, sync }
}

fn audio_frame(size: u32) -> Sample {
    Sample { size, duration: 1024, composition_offset: 0, sync: true }
}

/// Checks the CMAF file of a track against the samples from which the movie was built.
fn check_track(file: &[u8], track: &MovieTrack, samples: &[Sample], media: &[u8]) {
    let cmaf = cmaf_file(file, track);
    let (mut data, mut count, mut decode_time, mut segment_number) = (Vec::new(), 0, 0, 0);
    let mut announced = 0;
    for found in Boxes::new(&cmaf, 0) {
        let found = found.unwrap();
        match found.kind {
            FourCc::MOOF => {
                let fragment = Fragment::parse(found.bytes, found.offset, &track.index.info).unwrap();
                let segment = track.index.segments[segment_number];
                segment_number += 1;
                assert_eq!(
                    (found.offset, fragment.sequence_number as usize),
                    (segment.offset, segment_number)
                );
                assert_eq!(fragment.decode_time, decode_time);
                let own = &samples[count..][..fragment.sample_count as usize];
                assert_eq!(fragment.duration, own.iter().map(|s| u64::from(s.duration)).sum::<u64>());
                assert_eq!(fragment.all_sync, own.iter().all(|s| s.sync));
                assert_eq!(fragment.starts_with_sync, own[0].sync);
                assert_eq!(fragment.presentation_time, segment.time);
                count += own.len();
                decode_time += fragment.duration;
                announced = fragment.data_size;
            }
            FourCc::MDAT => {
                assert_eq!(found.body().len() as u64, announced);
                data.extend_from_slice(found.body());
            }
            _ => {}
        }
    }
    assert_eq!((count, segment_number), (samples.len(), track.index.segments.len()));
    assert_eq!(data, media);
    // At most 16 bytes per sample, 12 per chunk, 56 per segment, palettes, and the header.
    let others = 56 * track.index.segments.len() + track.header().len() + 2048;
    assert!(track.memory_bytes() <= 28 * samples.len() + others);
}

fn samples(count: std::ops::Range<usize>, all_sync: bool) -> impl Strategy<Value = Vec<Sample>> {
    let sample = (0u32..16, prop_oneof![Just(1024u32), 1u32..3000], 0i32..3, prop::bool::weighted(0.2));
    let sample = sample.prop_map(move |(size, duration, reorder, sync)| Sample {
        size,
        duration,
        // Offsets are shorter than any sample, so that segments ascend.
        composition_offset: if duration == 1024 { 512 * reorder } else { 0 },
        sync: sync || all_sync,
    });
    prop::collection::vec(sample, count).prop_map(|mut samples| {
        if let Some(first) = samples.first_mut() {
            first.sync = true;
        }
        // A sync sample is presented before those that follow it.
        samples.iter_mut().filter(|s| s.sync).for_each(|s| s.composition_offset = 0);
        samples
    })
}

fn track(is_video: bool) -> impl Strategy<Value = TrackParts> {
    let forms = (
        samples(1..300, !is_video),
        prop::collection::vec(1u32..40, 1..6),
        prop::sample::select(vec![0, 4, 8, 16]),
        any::<bool>(),
        prop::sample::select(vec![1000u32, 12_800, 48_000]),
    );
    forms.prop_map(move |(samples, chunks, size_bits, co64, timescale)| {
        let track = TrackParts { is_video, ..TrackParts::video(timescale, samples) };
        TrackParts { chunks, size_bits, co64, ..track }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn segments_contain_every_sample_once(
        video in track(true), audio in track(false), moov_first: bool, with_video: bool,
    ) {
        let tracks = if with_video { vec![audio, video] } else { vec![audio] };
        let (file, media) = movie_file(&tracks, moov_first);
        let (movie, _) = movie(&file).unwrap();
        prop_assert!(movie.faults.is_empty(), "{:?}", movie.faults);
        for ((track, parts), media) in movie.tracks.iter().zip(&tracks).zip(&media) {
            check_track(&file, track, &parts.samples, media);
        }
    }
}

#[test]
fn offsets_beyond_4_gib_are_kept() {
    let samples = (0..200).map(|i| frame(i, 50, 1000)).collect();
    let video = TrackParts { co64: true, ..TrackParts::video(1000, samples) };
    let mut front = movie_front(&[video], 5 << 30);
    front.resize(1 << 16, 0);
    let (Step::Movie(movie), _) = run_indexer(&front, 6 << 30, 2000).unwrap() else { panic!() };
    assert_eq!(movie.faults, []);
    let track = &movie.tracks[0];
    for (number, segment) in (0u64..).zip(&track.index.segments) {
        let start = (5 << 30) + 50_000 * number;
        let data = track.segment(segment).unwrap().data;
        assert_eq!((data.len(), &data[0]), (1, &(start..start + 50_000)));
    }
    assert_eq!(track.index.segments.len(), 4);
}

#[test]
fn ten_hours_take_little_memory() {
    let video: Vec<Sample> = (0..900_000).map(|i| frame(i, 50, 20_000 + i % 5000)).collect();
    let audio: Vec<Sample> = (0..1_687_500).map(|i| audio_frame(300 + i % 90)).collect();
    let chunks = |chunks: u32, track| TrackParts { chunks: vec![chunks], co64: true, ..track };
    let tracks = [chunks(25, TrackParts::video(1000, video)), chunks(47, TrackParts::audio(48_000, audio))];
    let front = movie_front(&tracks, 1 << 30);
    let (Step::Movie(movie), wants) = run_indexer(&front, 1 << 40, 2000).unwrap() else { panic!() };
    assert_eq!(wants.len(), 2);
    let cost = |at: usize| {
        let track = &movie.tracks[at];
        let per_sample = track.memory_bytes() as f64 / tracks[at].samples.len() as f64;
        format!("{} segments, {per_sample:.1} bytes per sample; ", track.index.segments.len())
    };
    expect!["18000 segments, 4.2 bytes per sample; 18000 segments, 1.9 bytes per sample; "]
        .assert_eq(&(cost(0) + &cost(1)));
}

/// A film of 8 s whose video is damaged by `damage`, and the fault of the video track.
fn check_fault(damage: impl FnOnce(&mut TrackParts), expect: Expect) {
    let mut video = TrackParts::video(1000, (0..200).map(|i| frame(i, 50, 10)).collect());
    damage(&mut video);
    let audio = TrackParts::audio(48_000, (0..375).map(|_| audio_frame(5)).collect());
    let (file, _) = movie_file(&[video, audio], true);
    let (movie, _) = movie(&file).unwrap();
    assert_eq!(movie.tracks.len(), 1, "the audio is served");
    let fault = &movie.faults[0];
    assert_eq!(fault.number, 1);
    expect.assert_eq(&fault.error.to_string());
}

fn edits(entries: &[[u32; 3]]) -> Vec<u8> {
    let fields: Vec<u32> = entries.iter().flatten().copied().collect();
    boxed(b"edts", &full(b"elst", 0, 0, &words(&[&[entries.len() as u32], &fields[..]].concat())))
}

#[test]
fn tracks_that_cannot_be_served_are_reported() {
    let cuts_middle = edits(&[[2000, 0, 0x1_0000], [2000, 4000, 0x1_0000]]);
    check_fault(
        |video| video.in_trak = cuts_middle,
        expect![
            "offset 244: box 'elst': the edit list cuts out or repeats part of the track: encode the file again, so that the edits are in the media"
        ],
    );
    check_fault(
        |video| video.in_trak = edits(&[[2000, 0, 0x2_0000]]),
        expect![
            "offset 244: box 'elst': the edit list changes the speed of the track: encode the file again"
        ],
    );
    check_fault(
        |video| video.samples[0].sync = false,
        expect![
            "offset 317: box 'stbl': the track's first sample must be a sync sample, so that playback can start: encode the file again"
        ],
    );
    check_fault(|video| video.samples.clear(), expect!["offset 317: box 'stbl': the track has no samples"]);
    check_fault(
        |video| video.samples = (0..70_000).map(|i| frame(i, u32::MAX, 1)).collect(),
        expect![
            "offset 317: box 'stbl': a segment would have more than SEGMENT_SAMPLES_MAX (65536) samples or SEGMENT_BYTES_MAX (2 GiB) of media: encode the file again with a key frame at least every few seconds"
        ],
    );
}

#[test]
fn edit_list_cuts_off_the_end() {
    let samples = (0..200).map(|i| frame(i, 50, 10)).collect();
    let in_trak = edits(&[[1000, u32::MAX, 0x1_0000], [5000, 80, 0x1_0000]]);
    let (file, _) = movie_file(&[TrackParts { in_trak, ..TrackParts::video(1000, samples) }], false);
    let (movie, _) = movie(&file).unwrap();
    let index = &movie.tracks[0].index;
    let times: Vec<_> = index.segments.iter().map(|s| (s.time, s.duration)).collect();
    // The delay of 1 s exceeds the start of the edit by 0.92 s.
    assert_eq!(index.info.edit_media_time, 0);
    expect!["[(960, 2000), (2960, 2000), (4960, 1120)]"].assert_eq(&format!("{times:?}"));
}

#[test]
fn dependencies_become_sample_flags() {
    let samples: Vec<Sample> = (0..4).map(|i| Sample { composition_offset: 0, ..frame(i, 4, 10) }).collect();
    // I, P, and two B-frames on which no sample depends.
    let in_stbl = full(b"sdtp", 0, 0, &[0x20, 0x10, 0x18, 0x18]);
    let (file, _) = movie_file(&[TrackParts { in_stbl, ..TrackParts::video(1000, samples) }], true);
    let (movie, _) = movie(&file).unwrap();
    let track = &movie.tracks[0];
    let head = track.segment(&track.index.segments[0]).unwrap().head;
    let trun = head.windows(4).position(|w| w == b"trun").unwrap() + 4;
    let fields: Vec<u32> =
        head[trun..].as_chunks::<4>().0.iter().take(7).map(|w| u32::from_be_bytes(*w)).collect();
    let flags = [0x0200_0000, 0x0101_0000, 0x0181_0000, 0x0181_0000];
    assert_eq!((fields[0], fields[1], &fields[3..]), (0x0100_0401, 4, &flags[..]));
}
