//! Index tests on files built box by box: layouts of packagers other than ffmpeg, segment cutting,
//! and invalid files.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod support;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use support::build::{FragmentParts, HeaderParts, boxed, full, sidx, words};
use support::{ffmpeg, index, index_of};
use thalweg_media::track::TrackIndex;

/// Formats one line per segment.
fn segments(index: &TrackIndex) -> String {
    let scale = f64::from(index.info.timescale);
    let seconds = |time: u64| time as f64 / scale;
    let mut text = format!("header {} rate {:?}\n", index.header_size, index.frame_rate);
    for s in &index.segments {
        text += &format!("{}+{} {:.3}s+{:.3}s\n", s.offset, s.size, seconds(s.time), seconds(s.duration));
    }
    text
}

fn check(file: &[u8], expect: Expect) {
    expect.assert_eq(&match index(file) {
        Ok(indexed) => segments(&indexed.index),
        Err(error) => error.to_string(),
    });
}

/// The first frame of a segment ends after moof, mdat header and one sample of 3 bytes.
#[test]
fn key_frames_are_measured_if_every_moof_is_read() {
    let header = HeaderParts::video(1000).build();
    let styp = boxed(b"styp", b"cmfs\0\0\0\0");
    let file = |header: &[u8]| {
        let first = FragmentParts::new(0, 2000).build();
        let second = [styp.clone(), FragmentParts::new(2000, 1000).build()].concat();
        let rest = FragmentParts::new(3000, 1000).not_sync().build();
        [header, &first, &second, &rest].concat()
    };
    let moof = u32::try_from(FragmentParts::new(0, 2000).moof().len()).unwrap();
    let sizes = |file: &[u8]| index(file).unwrap().index.key_sizes;
    assert_eq!(sizes(&file(&header)), [moof + 11, 16 + moof + 11]);
    assert_eq!(sizes(&file(&HeaderParts::audio(1000).build())), [0; 0], "only video has key frames");
}

#[test]
fn truncation_is_named() {
    let header = HeaderParts::video(1000).build();
    let file = [header.clone(), FragmentParts::new(0, 2000).build(), FragmentParts::new(2000, 2000).build()]
        .concat();
    check(
        &file,
        expect![[r#"
            header 486 rate Some((5, 1))
            486+142 0.000s+2.000s
            628+142 2.000s+2.000s
        "#]],
    );
    check(&file[..file.len() - 1], expect!["offset 732: box 'mdat': truncated, needs 38 bytes, 37 left"]);
    check(&file[..file.len() - 38], expect!["offset 628: box 'moof': must be followed by an mdat"]);
    check(&file[..file.len() - 40], expect!["offset 628: box 'moof': truncated, needs 104 bytes, 102 left"]);
    check(&file[..656], expect!["offset 628: box 'moof': truncated, needs 104 bytes, 28 left"]);
    check(&file[..100], expect!["offset 24: box 'moov': truncated, needs 462 bytes, 76 left"]);
    check(&file[..486], expect!["offset 0: box 'ftyp': no fragment (moof) after the CMAF header"]);
    check(&file[..490], expect!["offset 486: box '????': truncated, needs 8 bytes, 4 left"]);
    check(&file[..24], expect!["offset 0: box 'ftyp': has no 'moov' box"]);
    check(&[], expect!["offset 0: box 'ftyp': not an MP4 (ISO BMFF) file"]);
}

#[test]
fn files_other_than_cmaf_tracks_are_named() {
    let both = "-f lavfi -i testsrc2=size=64x64:rate=25 -f lavfi -i sine=440 -t 1 -c:v libx264 -c:a aac";
    let both = ffmpeg(&format!("{both} -movflags +cmaf"));
    check(
        &both,
        expect![
            "offset 28: box 'moov': fragmented MP4 with 2 tracks, but CMAF allows one per file: make it progressive, with all tracks, with `ffmpeg -i IN.mp4 -map 0 -c copy -movflags +faststart OUT.mp4`, or split it with `ffmpeg -i IN.mp4 -map 0:v:0 -c copy -movflags +cmaf+frag_keyframe OUT.mp4` (audio: `-map 0:a:0 -c copy -movflags +cmaf -frag_duration 500000`)"
        ],
    );
    check(
        b"<html><body>Not found</body></html>",
        expect!["offset 0: box 'ftyp': not an MP4 (ISO BMFF) file"],
    );
    let fragment = FragmentParts::new(0, 1000).build();
    check(&fragment, expect!["offset 0: box 'moof': fragment before any CMAF header (ftyp and moov)"]);
}

#[test]
fn irrelevant_boxes_are_skipped() {
    let header = HeaderParts::video(1000).build();
    let free = boxed(b"free", &[0; 9]);
    let styp = boxed(b"styp", b"msdh\0\0\0\0msdhmsix");
    let emsg = full(b"emsg", 0, 0, b"urn:x\0\0aaaabbbbccccdddd");
    let prft = full(b"prft", 0, 24, &words(&[1, 0, 0, 0]));
    let unknown = boxed(b"abcd", b"");
    let mut first = FragmentParts::new(0, 2000);
    first.between = [free.clone(), unknown.clone()].concat();
    let second = FragmentParts::new(2000, 2000).build();
    let mfra = boxed(b"mfra", &full(b"mfro", 0, 0, &words(&[24])));
    // A free box between segments belongs to no segment; after styp, prft or emsg it belongs to the
    // segment.
    let file = [
        boxed(b"free", &[]),
        header,
        unknown,
        free.clone(),
        styp,
        free.clone(),
        prft,
        first.build(),
        free,
        emsg,
        second,
        mfra,
    ]
    .concat();
    check(
        &file,
        expect![[r#"
            header 494 rate Some((5, 1))
            519+236 0.000s+2.000s
            772+177 2.000s+2.000s
        "#]],
    );
}

#[test]
fn base_data_offset_is_accepted() {
    let header = HeaderParts::video(1000).build();
    let mut first = FragmentParts::new(0, 2000);
    first.base_data_offset = Some(header.len() as u64);
    let good = [header.clone(), first.build()].concat();
    check(
        &good,
        expect![[r#"
            header 486 rate Some((5, 1))
            486+150 0.000s+2.000s
        "#]],
    );
    first.base_data_offset = Some(header.len() as u64 + 1);
    let off_by_one = [header.clone(), first.build()].concat();
    check(&off_by_one, expect!["offset 598: box 'mdat': must contain the samples of its moof"]);
    first.base_data_offset = Some(0);
    let before = [header, first.build()].concat();
    check(&before, expect!["offset 510: box 'traf': samples must not precede the moof"]);
}

#[test]
fn large_and_open_ended_media_data_are_indexed() {
    let header = HeaderParts::video(1000).build();
    let fragment = FragmentParts { sample_size: 8, ..FragmentParts::new(0, 2000) };
    let mut large = fragment.moof();
    // An mdat with a 64-bit size has a 16-byte header, so the declared sample range begins 8 bytes
    // before its body.
    large.extend([&[0, 0, 0, 1][..], b"mdat", &(8u64 + 88).to_be_bytes(), &[0; 80]].concat());
    check(
        &[header.clone(), large].concat(),
        expect!["offset 590: box 'mdat': must contain the samples of its moof"],
    );
    let mut open = fragment.moof();
    open.extend([&[0, 0, 0, 0][..], b"mdat", &[0; 80]].concat());
    check(
        &[header, open].concat(),
        expect![[r#"
            header 486 rate Some((5, 1))
            486+192 0.000s+2.000s
        "#]],
    );
}

#[test]
fn decode_times_must_not_decrease() {
    let header = HeaderParts::video(1000).build();
    let at = |time| FragmentParts::new(time, 2000).build();
    let back = [header.clone(), at(2000), at(1999)].concat();
    check(
        &back,
        expect!["offset 628: box 'moof': decode time (tfdt) must not be before the previous fragment's"],
    );
    // A gap must appear in the times: the segment before the gap lasts only as long as its samples.
    let gap = [header.clone(), at(0), at(5000)].concat();
    check(
        &gap,
        expect![[r#"
            header 486 rate Some((5, 1))
            486+142 0.000s+2.000s
            628+142 5.000s+2.000s
        "#]],
    );
    let no_sync = [header, FragmentParts::new(0, 2000).not_sync().build()].concat();
    check(
        &no_sync,
        expect![
            "offset 486: box 'moof': the track's first sample must be a sync sample, so that playback can start"
        ],
    );
}

#[test]
fn negative_composition_offsets_shift_presentation() {
    let header = HeaderParts::video(1000).build();
    let mut first = FragmentParts::new(1000, 2000);
    first.composition_offsets = Some([0, 400, 0, -600, 0, 0, 0, 0, 0, 0].to_vec());
    let mut second = FragmentParts::new(3000, 2000);
    second.composition_offsets = Some([100; 10].to_vec());
    // Samples last 200 ms. The fourth is presented first, at 1000 + 3 × 200 − 600 = 1000 ms. The
    // first segment lasts until the second is presented, at 3100 ms.
    let file = [header.clone(), first.build(), second.build()].concat();
    check(
        &file,
        expect![[r#"
            header 486 rate Some((5, 1))
            486+182 1.000s+2.100s
            668+182 3.100s+2.000s
        "#]],
    );
    // Nothing is presented before media time 0.
    first.decode_time = 0;
    first.composition_offsets = Some([-5000; 10].to_vec());
    check(
        &[header, first.build()].concat(),
        expect![[r#"
            header 486 rate Some((5, 1))
            486+182 0.000s+2.000s
        "#]],
    );
}

/// Returns the segments' start times for fragments given as decode time, duration, and whether they
/// begin with a sync sample.
fn cuts(header: &HeaderParts, fragments: &[(u64, u32, bool)]) -> Vec<u64> {
    let parts = |(time, duration, sync): &(u64, u32, bool)| {
        FragmentParts { sync: *sync, ..FragmentParts::new(*time, *duration) }.build()
    };
    let file: Vec<u8> = [header.build()].into_iter().chain(fragments.iter().map(parts)).flatten().collect();
    index(&file).unwrap().index.segments.iter().map(|s| s.time).collect()
}

#[test]
fn video_is_cut_at_the_sync_sample_nearest_to_the_target() {
    let video = HeaderParts::video(1000);
    // Chunks of half a second, with a sync sample every second.
    let chunks: Vec<_> = (0..10).map(|i| (i * 500, 500, i % 2 == 0)).collect();
    assert_eq!(cuts(&video, &chunks), [0, 2000, 4000]);
    // A sync sample every 1.5 s is nearer to the target than every other one; of 1.4 s and 2.8 s,
    // which are about equally near, the later one begins a segment.
    let every = |ms: u64| (0..8).map(|i| (i * ms / 2, ms as u32 / 2, i % 2 == 0)).collect::<Vec<_>>();
    assert_eq!(cuts(&video, &every(1500)), [0, 1500, 3000, 4500]);
    assert_eq!(cuts(&video, &every(1400)), [0, 2800]);
    // After a short group of pictures, as at a scene change, the next sync sample is expected soon.
    let scene = [(0, 1200, true), (1200, 400, true), (1600, 400, true), (2000, 2000, true)];
    assert_eq!(cuts(&video, &scene), [0, 2000]);
    // Fragments longer than the target stay whole.
    let long: Vec<_> = (0..3).map(|i| (i * 6000, 6000, true)).collect();
    assert_eq!(cuts(&video, &long), [0, 6000, 12_000]);
    // The tolerance is 3/8 of the group of pictures before the cut.
    assert_eq!(cuts(&video, &[(0, 1456, true), (1456, 2000, true)]), [0, 1456]);
    assert_eq!(cuts(&video, &[(0, 1454, true), (1454, 2000, true)]), [0]);
}

#[test]
fn short_tail_joins_the_last_segment() {
    let video = HeaderParts::video(1000);
    assert_eq!(cuts(&video, &[(0, 2000, true), (2000, 2000, true), (4000, 249, true)]), [0, 2000]);
    assert_eq!(cuts(&video, &[(0, 2000, true), (2000, 250, true)]), [0, 2000]);
    assert_eq!(cuts(&video, &[(0, 20, true)]), [0], "the only segment has no segment to join");
    assert_eq!(cuts(&video, &[(0, 2000, true), (3000, 20, true)]), [0, 3000], "after a gap");
    let parts = [(0, 2000), (2000, 20)].map(|(time, duration)| FragmentParts::new(time, duration).build());
    let file = [vec![HeaderParts::video(1000).build()], parts.to_vec()].concat().concat();
    let index = index(&file).unwrap().index;
    let [only] = index.segments[..] else { panic!("{:?}", index.segments) };
    assert_eq!((only.offset, only.duration), (index.header_size, 2020));
    assert_eq!(only.offset + only.size, file.len() as u64);
}

#[test]
fn audio_is_cut_on_a_grid() {
    // Every cut must be at the fragment end nearest to a multiple of 2 s. A fragment of 24 AAC
    // frames lasts 0.512 s at 48 kHz, so segments of four fragments each (2.048 s) would drift.
    let audio = HeaderParts::audio(48_000);
    let fragments: Vec<_> = (0..80).map(|i| (i * 24_576, 24_576 / 10 * 10, true)).collect();
    let starts = cuts(&audio, &fragments);
    for (n, start) in starts.iter().enumerate() {
        let off = start.abs_diff(n as u64 * 96_000);
        assert!(off <= 24_576 / 2, "segment {n} begins at {start}");
    }
    assert_eq!(starts.len(), 21);
    // Fragments longer than the target stay whole.
    let long: Vec<_> = (0..3).map(|i| (i * 480_000, 480_000, true)).collect();
    assert_eq!(cuts(&audio, &long), [0, 480_000, 960_000]);
}

/// Builds a file with a sidx: header, sidx, fragments, tail.
fn with_sidx(references: &[(u32, u32, u32)], fragments: &[FragmentParts], tail: &[u8]) -> Vec<u8> {
    let fragments: Vec<u8> = fragments.iter().flat_map(FragmentParts::build).collect();
    [HeaderParts::video(1000).build(), sidx(1000, references), fragments, tail.to_vec()].concat()
}

const SAP_1: u32 = 0x9000_0000;
const SAP_UNKNOWN: u32 = 0x8000_0000;

#[test]
fn long_references_are_segments() {
    let fragments: Vec<_> = (0..3).map(|i| FragmentParts::new(100 + i * 1200, 1200)).collect();
    let mfra = boxed(b"mfra", &[]);
    let file = with_sidx(&[(142, 1200, SAP_1); 3], &fragments, &mfra);
    // References are shorter than 2 s, but too long for chunks. Segment times come from the media,
    // although the sidx starts at 0.
    check(
        &file,
        expect![[r#"
            header 486 rate Some((25, 3))
            554+142 0.100s+1.200s
            696+142 1.300s+1.200s
            838+142 2.500s+1.200s
        "#]],
    );
    // Each reference covers two fragments.
    let file = with_sidx(&[(284, 2400, SAP_1), (142, 1200, SAP_1)], &fragments, &[]);
    check(
        &file,
        expect![[r#"
            header 486 rate Some((25, 3))
            542+284 0.100s+2.400s
            826+142 2.500s+1.200s
        "#]],
    );
    assert_eq!(index(&file).unwrap().wants.len(), 1, "the first read must contain all needed boxes");
}

#[test]
fn chunk_references_are_grouped() {
    let fragments: Vec<_> =
        (0..8).map(|i| FragmentParts { sync: i % 4 == 0, ..FragmentParts::new(i * 500, 500) }).collect();
    let references: Vec<_> = (0..8).map(|i| (142, 500, if i % 4 == 0 { SAP_1 } else { 0 })).collect();
    let file = with_sidx(&references, &fragments, &[]);
    check(
        &file,
        expect![[r#"
            header 486 rate Some((20, 1))
            614+568 0.000s+2.000s
            1182+568 2.000s+2.000s
        "#]],
    );
    // A sidx that claims an access point of unknown type at every reference is not reliable.
    let file = with_sidx(&[(142, 500, SAP_UNKNOWN); 8], &fragments, &[]);
    check(
        &file,
        expect![[r#"
            header 486 rate Some((20, 1))
            614+568 0.000s+2.000s
            1182+568 2.000s+2.000s
        "#]],
    );
}

#[test]
fn references_without_an_access_point_extend_the_segment() {
    let fragments: Vec<_> =
        (0..4).map(|i| FragmentParts { sync: i % 2 == 0, ..FragmentParts::new(i * 2000, 2000) }).collect();
    let file =
        with_sidx(&[(142, 2000, SAP_1), (142, 2000, 0), (142, 2000, SAP_1), (142, 2000, 0)], &fragments, &[]);
    check(
        &file,
        expect![[r#"
            header 486 rate Some((5, 1))
            566+284 0.000s+4.000s
            850+284 4.000s+4.000s
        "#]],
    );
}

#[test]
fn invalid_sidx_is_ignored() {
    let fragments: Vec<_> = (0..2).map(|i| FragmentParts::new(i * 2000, 2000)).collect();
    let truth = with_sidx(&[(142, 2000, SAP_1); 2], &fragments, &[]);
    let truth = segments(&index(&truth).unwrap().index);
    expect![[r#"
        header 486 rate Some((5, 1))
        542+142 0.000s+2.000s
        684+142 2.000s+2.000s
    "#]]
    .assert_eq(&truth);
    for (what, references) in [
        ("first reference too short", [(141, 2000, SAP_UNKNOWN), (143, 2000, SAP_UNKNOWN)]),
        ("past the end", [(142, 2000, SAP_1), (143, 2000, SAP_1)]),
        ("reference to another sidx", [(0x8000_0000 | 142, 2000, SAP_1), (142, 2000, SAP_1)]),
        ("empty", [(284, 2000, SAP_1), (0, 2000, SAP_1)]),
        ("wrong durations", [(142, 3500, SAP_UNKNOWN), (142, 500, SAP_UNKNOWN)]),
    ] {
        let file = with_sidx(&references, &fragments, &[]);
        assert_eq!(segments(&index(&file).unwrap().index), truth, "{what}");
    }
    // The sidx covers only the first fragment, as if each segment had its own sidx.
    let file = with_sidx(&[(142, 2000, SAP_1)], &fragments[..1], &fragments[1].build());
    check(
        &file,
        expect![[r#"
            header 486 rate Some((5, 1))
            530+142 0.000s+2.000s
            672+142 2.000s+2.000s
        "#]],
    );
}

#[test]
fn last_fragment_does_not_affect_the_frame_rate() {
    let header = HeaderParts::video(12_800).build();
    let paced = |time, pace| FragmentParts { sample_duration: pace, ..FragmentParts::new(time, 0) }.build();
    let rate = |paces: &[u32]| {
        let mut file = header.clone();
        let mut time = 0;
        for pace in paces {
            file.extend(paced(time, *pace));
            time += u64::from(*pace) * 10;
        }
        index(&file).unwrap().index.frame_rate
    };
    assert_eq!(rate(&[512, 512, 512]), Some((25, 1)));
    assert_eq!(rate(&[512, 512, 500]), Some((25, 1)));
    assert_eq!(rate(&[512, 500, 512]), None);
    assert_eq!(rate(&[0, 0]), None);
    let audio = [HeaderParts::audio(48_000).build(), FragmentParts::new(0, 10_240).build()].concat();
    assert_eq!(index(&audio).unwrap().index.frame_rate, None);
}

#[test]
fn limits_are_enforced() {
    let header = HeaderParts::video(1000).build();
    let many = FragmentParts { samples: u32::MAX, sample_size: 0, ..FragmentParts::new(0, 0) };
    check(
        &[header.clone(), many.moof()].concat(),
        expect!["offset 566: box 'trun': 4294967295 exceeds FRAGMENT_SAMPLES_MAX (1048576)"],
    );
    let late = FragmentParts::new(u64::MAX, 1000).build();
    check(
        &[header.clone(), late].concat(),
        expect!["offset 546: box 'tfdt': 18446744073709551615 exceeds MEDIA_TIME_MAX (4611686018427387904)"],
    );
    let mut huge_moof = header.clone();
    huge_moof.extend([&(5u32 << 20).to_be_bytes()[..], b"moof", &vec![0; (5 << 20) - 8]].concat());
    check(&huge_moof, expect!["offset 486: box 'moof': 5242880 exceeds MOOF_BYTES_MAX (4194304)"]);
    let other_track = FragmentParts { track_id: 2, ..FragmentParts::new(0, 1000) }.build();
    check(
        &[header, other_track].concat(),
        expect!["offset 518: box 'tfhd': track_ID must match the CMAF header's"],
    );
}

proptest! {
    /// For any fragments, the segments must cover all fragments, in order and without gaps, and
    /// each must begin with a sync sample.
    #[test]
    fn segments_cover_all_fragments(
        fragments in proptest::collection::vec((1u32..400, any::<bool>()), 1..40),
        target_ms in 1u32..5000,
    ) {
        let mut file = HeaderParts::video(1000).build();
        let mut syncs = Vec::new();
        let mut time = 0;
        for (i, (tenth, sync)) in fragments.iter().enumerate() {
            let sync = *sync || i == 0;
            if sync {
                syncs.push((file.len() as u64, time));
            }
            let fragment = FragmentParts { sync, ..FragmentParts::new(time, tenth * 10) };
            file.extend(fragment.build());
            time += u64::from(tenth * 10);
        }
        let index = index_of(&file, file.len() as u64, target_ms).unwrap().index;
        let mut at = (index.header_size, 0);
        for (i, segment) in index.segments.iter().enumerate() {
            prop_assert_eq!((segment.offset, segment.time), at);
            prop_assert!(syncs.contains(&at));
            at = (segment.offset + segment.size, segment.time + segment.duration);
            let is_last = i + 1 == index.segments.len();
            // A cut is early by at most 3/8 of a group of pictures, which is part of the segment,
            // or by half a sample.
            prop_assert!(is_last || segment.duration * 11 / 8 + 201 >= u64::from(target_ms));
            prop_assert!(i == 0 || segment.duration * 8 >= u64::from(target_ms));
        }
        prop_assert_eq!(at, (file.len() as u64, time));
    }
}
