//! Presentation tests: track rules, and the models shared by the DASH and HLS tests.

use super::live::{Epoch, Live, LiveSegment, LiveTrack};
use super::utc::Utc;
use super::*;
use crate::boxes::Mp4Box;
use crate::protection::{Protection, Scheme, Uuid};
use crate::track::{Media, SampleDefaults};
use expect_test::{Expect, expect};

/// Creates a track with segments of the given `lengths` in units of `timescale`, at 1000 bytes per
/// second.
pub(crate) fn track(name: &str, codec: &str, media: Media, timescale: u32, lengths: &[u64]) -> NamedTrack {
    let mut segments = Vec::new();
    let (mut time, mut offset) = (0, 800);
    for &duration in lengths {
        let size = duration * 1000 / u64::from(timescale);
        segments.push(Segment { offset, size, time, duration });
        time += duration;
        offset += size;
    }
    let info = TrackInfo {
        track_id: 1,
        timescale,
        codec: codec.to_owned(),
        language: None,
        media,
        properties: Box::default(),
        sample_defaults: SampleDefaults::default(),
        edit_media_time: 0,
    };
    let frame_rate = matches!(info.media, Media::Video { .. }).then_some((25, 1));
    let all_sync = frame_rate.is_none();
    let has_base_data_offset = false;
    let index = TrackIndex {
        info,
        header_size: 800,
        frame_rate,
        has_base_data_offset,
        delay: 0,
        all_sync,
        segments,
        key_sizes: Vec::new(),
    };
    NamedTrack { name: name.to_owned(), version: "v1".to_owned(), file: format!("{name}.mp4"), index }
}

pub(crate) fn video(name: &str, height: u32, lengths: &[u64]) -> NamedTrack {
    let media = Media::Video { width: height * 16 / 9, height };
    track(name, "avc1.64001f", media, 12_800, lengths)
}

pub(crate) fn audio(name: &str, language: Option<&str>, lengths: &[u64]) -> NamedTrack {
    let media = Media::Audio { sample_rate: 48_000, channels: 2 };
    let mut track = track(name, "mp4a.40.2", media, 48_000, lengths);
    track.index.info.language = language.map(str::to_owned);
    track
}

/// Returns the encryption of a track for Widevine, PlayReady and FairPlay.
pub(crate) fn protection(key: u8) -> Protection {
    let system = |id: u128| {
        let pssh =
            [&[0, 0, 0, 34][..], b"pssh\0\0\0\0", &id.to_be_bytes(), b"\0\0\0\x02", &[key, 8]].concat();
        let moov = [&42u32.to_be_bytes()[..], b"moov", &pssh].concat();
        crate::protection::systems(&Mp4Box::parse(&moov, 0).unwrap()).unwrap().remove(0)
    };
    let ids = [
        0xedef_8ba9_79d6_4ace_a3c8_27dc_d51d_21ed,
        0x9a04_f079_9840_4286_ab92_e65b_e088_5f95,
        0x94ce_86fb_07ff_4f43_adb8_93d2_fa96_8ca2,
    ];
    Protection { scheme: Scheme::Cbcs, key_id: Uuid([key; 16]), systems: ids.map(system).to_vec() }
}

/// Returns three video tracks and one audio track of 6 s. The audio has 1024 priming samples, which
/// its edit list skips, and segments of whole AAC frames.
pub(crate) fn ladder() -> Vec<NamedTrack> {
    let mut sound = audio("audio", Some("en"), &[96_256, 95_232, 96_256, 1024]);
    sound.index.info.edit_media_time = 1024;
    vec![
        sound,
        video("video_360", 360, &[25_600, 25_600, 25_600]),
        video("video_180", 180, &[25_600, 25_600, 25_600]),
    ]
}

/// Returns a channel in its second epoch: one video and one audio track with segments of 2 s and
/// chunks of 0.5 s.
pub(crate) fn channel() -> Live {
    let epoch = |id, start_us, end_us, start_number, numbers: std::ops::Range<u64>| {
        let track = |t: NamedTrack, first: u64, duration: u64| {
            let segment = |n: u64| {
                let time = first + (n - start_number) * duration;
                LiveSegment { sequence: n, number: n, time, duration, sync: true }
            };
            LiveTrack {
                bitrate: Bitrate { average: 8000, peak: 9000 },
                inband_prft: true,
                segments: numbers.clone().map(segment).collect(),
                name: t.name,
                info: t.index.info,
                frame_rate: t.index.frame_rate,
            }
        };
        Epoch {
            id,
            start_us,
            end_us,
            timescale: 12_800,
            media_start: 128_000,
            segment_duration: 25_600,
            chunk_duration: 6400,
            produced: None,
            start_number,
            tracks: vec![
                track(video("stream0", 360, &[]), 128_000, 25_600),
                track(audio("stream1", None, &[]), 480_000, 96_000),
            ],
        }
    };
    Live {
        availability_start: Utc(1_795_217_718_250),
        published: Utc(1_795_217_790_250),
        window_ms: 60_000,
        target_duration_s: 2,
        epochs: vec![epoch(0, 0, Some(60_000_000), 0, 27..30), epoch(1, 61_200_000, None, 30, 30..33)],
    }
}

fn check(tracks: Vec<NamedTrack>, expect: Expect) {
    let message = match OnDemand::new(tracks) {
        Ok(presentation) => {
            let excluded: String =
                presentation.excluded().iter().map(|m| format!("; excluded: {m}")).collect();
            format!("{} µs{excluded}", presentation.duration_us())
        }
        Err(misaligned) => misaligned.to_string(),
    };
    expect.assert_eq(&message);
}

#[test]
fn aligned_tracks_form_a_presentation() {
    check(ladder(), expect!["6000000 µs"]);
}

#[test]
fn misaligned_boundary_names_files_and_segment() {
    let a = || video("a", 180, &[25_600, 25_600, 25_600]);
    check(vec![a(), video("b", 360, &[25_600, 25_856, 25_344])], expect!["6000000 µs"]);
    check(
        vec![a(), video("b", 360, &[25_600, 25_857, 25_343])],
        expect![
            "6000000 µs; excluded: a.mp4 and b.mp4 do not line up: segment 3 begins at 4.000000 s in the first, at 4.020078 s in the second; encode them with the same key frame times"
        ],
    );
}

#[test]
fn missing_segment_is_named() {
    check(
        vec![video("a", 180, &[25_600, 25_600]), video("b", 360, &[25_600])],
        expect![
            "4000000 µs; excluded: a.mp4 and b.mp4 do not line up: the number of segments is 2 in the first and 1 in the second; the first missing one is segment 2"
        ],
    );
}

#[test]
fn audio_ending_more_than_a_segment_apart_is_left_out() {
    let a = || video("a", 180, &[25_600, 25_600]);
    check(vec![a(), audio("b", None, &[96_000])], expect!["4000000 µs"]);
    check(
        vec![a(), audio("b", None, &[95_999])],
        expect![
            "4000000 µs; excluded: a.mp4 and b.mp4 do not line up: the first ends at 4.000000 s, the second at 1.999979 s; ends may be at most 2.000000 s apart"
        ],
    );
}

#[test]
fn majority_decides_which_tracks_stay() {
    let good = |name: &str| video(name, 180, &[25_600, 25_600]);
    let other = |name: &str| video(name, 360, &[12_800, 38_400]);
    let kept = |tracks: Vec<NamedTrack>| {
        let presentation = OnDemand::new(tracks).unwrap();
        presentation.tracks().iter().map(|t| t.name.clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(kept(vec![other("a"), good("b"), good("c")]), "b c");
    assert_eq!(kept(vec![good("b"), other("a")]), "a", "a tie goes to the first file name");
    let long = |name: &str| audio(name, None, &[96_000; 9]);
    assert_eq!(kept(vec![long("a"), long("b"), good("v")]), "v", "video decides about the end");
    let short = audio("c", None, &[96_000, 96_000]);
    assert_eq!(kept(vec![short.clone(), long("a"), long("b")]), "a b");
    assert_eq!(kept(vec![short, good("v"), video("w", 180, &[25_600; 9])]), "c v");
}

#[test]
fn presentation_without_usable_track_names_all_reasons() {
    let cut = |name: &str| {
        let mut track = video(name, 180, &[25_600]);
        track.index.info.edit_media_time = 25_600;
        track
    };
    check(
        vec![cut("a"), cut("b"), track("s", "wvtt", Media::Text, 1000, &[2000])],
        expect![
            "a.mp4: the edit list excludes all of the media; b.mp4: the edit list excludes all of the media; the presentation has only subtitle tracks: add a video or an audio track"
        ],
    );
}

#[test]
fn other_codecs_may_have_other_boundaries() {
    let mut b = video("b", 360, &[12_800, 38_400]);
    b.index.info.codec = String::from("hvc1.1.6.L93.B0");
    check(vec![video("a", 180, &[25_600, 25_600]), b], expect!["4000000 µs"]);
}

#[test]
fn no_presented_media_is_refused() {
    check(vec![], expect!["no CMAF track"]);
    let mut a = video("a", 180, &[25_600]);
    a.index.info.edit_media_time = 25_600;
    check(vec![a], expect!["a.mp4: the edit list excludes all of the media"]);
}

#[test]
fn edit_list_shifts_every_segment() {
    let mut track = audio("a", None, &[1000, 2000, 3000]);
    let mut at = |edit: u64| -> Vec<(u64, u64)> {
        track.index.info.edit_media_time = edit;
        track.segments().map(|s| (s.time, s.duration)).collect()
    };
    assert_eq!(at(0), [(0, 1000), (1000, 2000), (3000, 3000)]);
    assert_eq!(at(400), [(0, 600), (600, 2000), (2600, 3000)]);
    assert_eq!(at(1000), [(0, 2000), (2000, 3000)]);
}

#[test]
fn segment_is_found_by_its_exact_time() {
    let mut track = audio("a", None, &[1000, 2000, 3000]);
    track.index.info.edit_media_time = 400;
    let found = |time| track.segment_at(time).map(|s| s.segment.time);
    assert_eq!([0, 1, 600, 2599, 2600, 2601].map(found), [Some(0), None, Some(1000), None, Some(3000), None]);
}

#[test]
fn switching_sets_group_switchable_tracks() {
    let mut surround = audio("c", Some("en"), &[1]);
    surround.index.info.media = Media::Audio { sample_rate: 48_000, channels: 6 };
    let tracks = [
        audio("a", Some("en"), &[1]),
        audio("b", Some("fr"), &[1]),
        surround,
        video("v", 180, &[1]),
        video("w", 360, &[1]),
    ];
    let renditions: Vec<_> = tracks.iter().map(|t| t.rendition(Role::Main)).collect();
    let sets: Vec<_> = switching_sets(&renditions).into_iter().map(|s| (s.kind, s.members)).collect();
    assert_eq!(
        sets,
        [(Kind::Video, vec![3, 4]), (Kind::Audio, vec![0]), (Kind::Audio, vec![2]), (Kind::Audio, vec![1])],
        "the default language comes first"
    );
}

#[test]
fn only_well_formed_languages_are_used() {
    let of = |tag: &str| language(&audio("a", Some(tag), &[]).index.info).is_some();
    assert_eq!(
        ["en", "zh-Hant-TW", "", "e n", "en-", "a\"b", "12"].map(of),
        [true, true, false, false, false, false, false]
    );
}

#[test]
fn scaling_rounds_to_the_nearest() {
    assert_eq!(rescale(1, 3, 1_000_000), 333_333);
    assert_eq!(rescale(2, 3, 1_000_000), 666_667);
    assert_eq!(micros(u64::MAX, 1), u64::MAX);
}

#[test]
fn young_channel_window_reaches_only_to_its_start() {
    let live = channel();
    let at = |seconds: i64| {
        let then = live.clone().at(Utc(live.availability_start.0 + seconds * 1000 + 250));
        (then.window_ms, then.published.0 - live.availability_start.0)
    };
    // The state was published at 72 s, later than the window's last increase at 60 s, so the
    // publication time stays at 72 s.
    assert_eq!([at(-1), at(30), at(59)], [(0, 72_000), (30_000, 72_000), (59_000, 72_000)]);
    assert_eq!([at(60), at(600)], [(60_000, 72_000), (60_000, 72_000)]);
    let young = Live { published: live.availability_start, ..live.clone() };
    let then = young.at(Utc(live.availability_start.0 + 30_999));
    assert_eq!(then.published, Utc(live.availability_start.0 + 30_000));
    // A state published at the start: the publication time follows the window until it is full.
    let young = Live { published: live.availability_start, ..live.clone() };
    let published = [59_999, 60_000, 600_000].map(|ms| {
        young.clone().at(Utc(live.availability_start.0 + ms)).published.0 - live.availability_start.0
    });
    assert_eq!(published, [59_000, 60_000, 60_000]);
}

#[test]
fn subtitles_alone_are_refused() {
    let alone = vec![track("s", "wvtt", Media::Text, 1000, &[2000])];
    assert_eq!(OnDemand::new(alone), Err(Misaligned::TextAlone));
}

#[test]
fn trick_play_track_is_outside_the_ladder() {
    // One frame per 2 s, with other segment boundaries than the ladder.
    let mut slow = video("slow", 180, &[51_200, 25_600]);
    (slow.index.frame_rate, slow.index.all_sync) = (Some((1, 2)), true);
    let presentation = OnDemand::new([ladder(), vec![slow]].concat()).unwrap();
    let renditions = presentation.renditions();
    assert_eq!(
        renditions.iter().map(|r| r.role).collect::<Vec<_>>(),
        [Role::Main, Role::Main, Role::Main, Role::TrickPlay]
    );
    let members: Vec<_> = switching_sets(&renditions).into_iter().map(|s| s.members).collect();
    assert_eq!(members, [vec![1, 2], vec![0]]);
    assert!(presentation.track("slow").is_some(), "its segments are still served");
}
