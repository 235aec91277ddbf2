//! The index of files built box by box: what packagers other than ffmpeg make, how segments are cut, and
//! what is wrong with files.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use support::build::{FragmentParts, HeaderParts, boxed, full, sidx, words};
use support::{VIDEO, ffmpeg, index, index_of};
use thalweg_media::track::TrackIndex;

/// One line a segment.
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
    check(&file[..file.len() - 38], expect!["offset 628: box 'moof': no mdat follows it"]);
    check(&file[..file.len() - 40], expect!["offset 628: box 'moof': truncated, needs 104 bytes, 102 left"]);
    check(&file[..656], expect!["offset 628: box 'moof': truncated, needs 104 bytes, 28 left"]);
    check(&file[..100], expect!["offset 24: box 'moov': truncated, needs 462 bytes, 76 left"]);
    check(&file[..486], expect!["offset 0: box 'ftyp': no fragment (moof) after the CMAF header"]);
    check(&file[..490], expect!["offset 486: box '????': truncated, needs 8 bytes, 4 left"]);
    check(&file[..24], expect!["offset 0: box 'ftyp': has no 'moov' box"]);
    check(&[], expect!["offset 0: box 'ftyp': not an MP4 (ISO BMFF) file"]);
}

#[test]
fn what_is_no_track_is_named() {
    let progressive = ffmpeg(&format!("{VIDEO} -movflags +faststart"));
    check(
        &progressive,
        expect![
            "offset 32: box 'moov': progressive MP4, not fragmented: make it so, a file a track, with `ffmpeg -i IN.mp4 -map 0:v:0 -c copy -movflags +cmaf+frag_keyframe OUT.mp4` (audio: `-map 0:a:0 -c copy -movflags +cmaf -frag_duration 500000`)"
        ],
    );
    let text = index(&ffmpeg(VIDEO)).unwrap_err().to_string();
    expect!["offset 40: box 'mdat': progressive MP4, not fragmented: make it so, a file a track, with `ffmpeg -i IN.mp4 -map 0:v:0 -c copy -movflags +cmaf+frag_keyframe OUT.mp4` (audio: `-map 0:a:0 -c copy -movflags +cmaf -frag_duration 500000`)"].assert_eq(&text);
    let both = "-f lavfi -i testsrc2=size=64x64:rate=25 -f lavfi -i sine=440 -t 1 -c:v libx264 -c:a aac";
    let both = ffmpeg(&format!("{both} -movflags +cmaf"));
    check(
        &both,
        expect![
            "offset 28: box 'moov': 2 tracks in one file, CMAF has one a file: split them with `ffmpeg -i IN.mp4 -map 0:v:0 -c copy -movflags +cmaf+frag_keyframe OUT.mp4` (audio: `-map 0:a:0 -c copy -movflags +cmaf -frag_duration 500000`)"
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
fn boxes_of_no_concern_are_passed_over() {
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
    // Between segments free belongs to none; after styp, prft or emsg it lies in the segment.
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
fn base_data_offset_is_tolerated() {
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
    check(&off_by_one, expect!["offset 598: box 'mdat': does not hold the samples of its moof"]);
    first.base_data_offset = Some(0);
    let before = [header, first.build()].concat();
    check(&before, expect!["offset 510: box 'traf': its samples lie before the moof"]);
}

#[test]
fn large_and_open_ended_media_data() {
    let header = HeaderParts::video(1000).build();
    let fragment = FragmentParts { sample_size: 8, ..FragmentParts::new(0, 2000) };
    let mut large = fragment.moof();
    // A 64-bit size: 16 bytes of header, so that the samples begin 8 bytes into the body's place.
    large.extend([&[0, 0, 0, 1][..], b"mdat", &(8u64 + 88).to_be_bytes(), &[0; 80]].concat());
    check(
        &[header.clone(), large].concat(),
        expect!["offset 590: box 'mdat': does not hold the samples of its moof"],
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
fn times_have_to_go_on() {
    let header = HeaderParts::video(1000).build();
    let at = |time| FragmentParts::new(time, 2000).build();
    let back = [header.clone(), at(2000), at(1999)].concat();
    check(
        &back,
        expect!["offset 628: box 'moof': its decode time (tfdt) is before that of the fragment before it"],
    );
    // A gap is told by the times: the segment before it lasts as long as its samples.
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
            "offset 486: box 'moof': the first sample of the track is no sync sample, so that nothing can start with it"
        ],
    );
}

#[test]
fn negative_composition_offsets() {
    let header = HeaderParts::video(1000).build();
    let mut first = FragmentParts::new(1000, 2000);
    first.composition_offsets = Some([0, 400, 0, -600, 0, 0, 0, 0, 0, 0].to_vec());
    let mut second = FragmentParts::new(3000, 2000);
    second.composition_offsets = Some([100; 10].to_vec());
    // The earliest is the fourth: 1000 + 3 × 200 − 600. A segment lasts until the next is presented.
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

/// The starts of the segments of fragments given by decode time, duration, and whether they begin
/// with a sync sample.
fn cuts(header: &HeaderParts, fragments: &[(u64, u32, bool)]) -> Vec<u64> {
    let parts = |(time, duration, sync): &(u64, u32, bool)| {
        FragmentParts { sync: *sync, ..FragmentParts::new(*time, *duration) }.build()
    };
    let file: Vec<u8> = [header.build()].into_iter().chain(fragments.iter().map(parts)).flatten().collect();
    index(&file).unwrap().index.segments.iter().map(|s| s.time).collect()
}

#[test]
fn video_is_cut_at_sync_samples_once_the_target_has_passed() {
    let video = HeaderParts::video(1000);
    // Chunks of half a second, a sync sample each second.
    let chunks: Vec<_> = (0..10).map(|i| (i * 500, 500, i % 2 == 0)).collect();
    assert_eq!(cuts(&video, &chunks), [0, 2000, 4000]);
    // Sync samples every 1.5 s: every second of them.
    let uneven: Vec<_> = (0..8).map(|i| (i * 750, 750, i % 2 == 0)).collect();
    assert_eq!(cuts(&video, &uneven), [0, 3000]);
    // Longer than the target: as they come.
    let long: Vec<_> = (0..3).map(|i| (i * 6000, 6000, true)).collect();
    assert_eq!(cuts(&video, &long), [0, 6000, 12_000]);
    // A fragment has ten samples: 1,900 ms + half of 200 reach 2 s, one less does not.
    assert_eq!(cuts(&video, &[(0, 1900, true), (1900, 2000, true)]), [0, 1900]);
    assert_eq!(cuts(&video, &[(0, 1899, true), (1899, 2000, true)]), [0]);
}

#[test]
fn audio_is_cut_on_a_grid() {
    // 24 frames of 1024 at 48 kHz a fragment, 0.512 s: 2 s is nearest to the fourth, and so on without
    // the drift of 2.048 s a segment.
    let audio = HeaderParts::audio(48_000);
    let fragments: Vec<_> = (0..80).map(|i| (i * 24_576, 24_576 / 10 * 10, true)).collect();
    let starts = cuts(&audio, &fragments);
    for (n, start) in starts.iter().enumerate() {
        let off = start.abs_diff(n as u64 * 96_000);
        assert!(off <= 24_576 / 2, "segment {n} begins at {start}");
    }
    assert_eq!(starts.len(), 21);
    // Fragments longer than the target stay as they are.
    let long: Vec<_> = (0..3).map(|i| (i * 480_000, 480_000, true)).collect();
    assert_eq!(cuts(&audio, &long), [0, 480_000, 960_000]);
}

/// A file with a sidx: header, sidx, fragments.
fn with_sidx(references: &[(u32, u32, u32)], fragments: &[FragmentParts], tail: &[u8]) -> Vec<u8> {
    let fragments: Vec<u8> = fragments.iter().flat_map(FragmentParts::build).collect();
    [HeaderParts::video(1000).build(), sidx(1000, references), fragments, tail.to_vec()].concat()
}

const SAP_1: u32 = 0x9000_0000;
const SAP_UNKNOWN: u32 = 0x8000_0000;

#[test]
fn references_are_segments() {
    let fragments: Vec<_> = (0..3).map(|i| FragmentParts::new(100 + i * 1200, 1200)).collect();
    let mfra = boxed(b"mfra", &[]);
    let file = with_sidx(&[(142, 1200, SAP_1); 3], &fragments, &mfra);
    // Shorter than 2 s, but not as chunks are. Times are those of the media, not the 0 of the sidx.
    check(
        &file,
        expect![[r#"
            header 486 rate Some((25, 3))
            554+142 0.100s+1.200s
            696+142 1.300s+1.200s
            838+142 2.500s+1.200s
        "#]],
    );
    // Two fragments a reference.
    let file = with_sidx(&[(284, 2400, SAP_1), (142, 1200, SAP_1)], &fragments, &[]);
    check(
        &file,
        expect![[r#"
            header 486 rate Some((25, 3))
            542+284 0.100s+2.400s
            826+142 2.500s+1.200s
        "#]],
    );
    assert_eq!(index(&file).unwrap().wants.len(), 1, "all of it is in the first read");
}

#[test]
fn references_that_are_chunks_are_grouped() {
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
    // Where the sidx claims an access point at every reference and knows no type, it is not believed.
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
fn references_without_an_access_point_belong_to_the_segment_before() {
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
fn a_sidx_that_does_not_hold_is_not_used() {
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
        ("too short a first", [(141, 2000, SAP_UNKNOWN), (143, 2000, SAP_UNKNOWN)]),
        ("past the end", [(142, 2000, SAP_1), (143, 2000, SAP_1)]),
        ("of another sidx", [(0x8000_0000 | 142, 2000, SAP_1), (142, 2000, SAP_1)]),
        ("empty", [(284, 2000, SAP_1), (0, 2000, SAP_1)]),
        ("of other times", [(142, 3500, SAP_UNKNOWN), (142, 500, SAP_UNKNOWN)]),
    ] {
        let file = with_sidx(&references, &fragments, &[]);
        assert_eq!(segments(&index(&file).unwrap().index), truth, "{what}");
    }
    // One that covers the first fragment alone, as where each segment has its own.
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
fn frame_rate_is_that_of_all_but_the_last_fragment() {
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
fn limits_hold() {
    let header = HeaderParts::video(1000).build();
    let many = FragmentParts { samples: u32::MAX, sample_size: 0, ..FragmentParts::new(0, 0) };
    check(
        &[header.clone(), many.moof()].concat(),
        expect!["offset 566: box 'trun': 4294967295 is above FRAGMENT_SAMPLES_MAX = 1048576"],
    );
    let late = FragmentParts::new(u64::MAX, 1000).build();
    check(
        &[header.clone(), late].concat(),
        expect!["offset 546: box 'tfdt': 18446744073709551615 is above MEDIA_TIME_MAX = 4611686018427387904"],
    );
    let mut huge_moof = header.clone();
    huge_moof.extend([&(5u32 << 20).to_be_bytes()[..], b"moof", &vec![0; (5 << 20) - 8]].concat());
    check(&huge_moof, expect!["offset 486: box 'moof': 5242880 is above MOOF_BYTES_MAX = 4194304"]);
    let other_track = FragmentParts { track_id: 2, ..FragmentParts::new(0, 1000) }.build();
    check(
        &[header, other_track].concat(),
        expect!["offset 518: box 'tfhd': track_ID is not that of the CMAF header"],
    );
}

proptest! {
    /// However fragments lie: the segments cover them all, in order, without a gap, and each begins with
    /// a sync sample.
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
            prop_assert!(is_last || segment.duration + 200 >= u64::from(target_ms));
        }
        prop_assert_eq!(at, (file.len() as u64, time));
    }
}
