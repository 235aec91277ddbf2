//! Chunk scanner tests: both forms of ffmpeg uploads, split arbitrarily, and streams that must be
//! refused.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod support;

use std::process::Command;
use std::sync::OnceLock;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use support::build::{FragmentParts, HeaderParts, boxed, full, words};
use support::{AUDIO, VIDEO, ffmpeg, scan, temporary};
use thalweg_media::chunk::{CHUNK_BYTES_MAX, ChunkScanner, Event};
use thalweg_media::error::{Error, Fault};
use thalweg_media::fourcc::FourCc;
use thalweg_media::header;
use thalweg_media::track::TrackInfo;

/// Formats one line per event, with times in milliseconds.
fn lines(events: &[Event], end: &Result<(), Error>) -> String {
    let mut timescale = 1;
    let mut text = String::new();
    for event in events {
        match event {
            Event::Header(h) => {
                timescale = u64::from(h.info.timescale);
                let repeated = if h.repeated { " repeated" } else { "" };
                text += &format!("header {} bytes {}{repeated}\n", h.bytes.len(), h.info.codec);
            }
            Event::Chunk(c) => {
                let f = &c.fragment;
                let ms = |time: u64| time * 1000 / timescale;
                text += &format!("chunk at {} {} bytes", c.offset, c.bytes.len());
                text += &format!(" {}+{} ms", ms(f.presentation_time), ms(f.duration));
                text += if f.starts_with_sync { " sync" } else { "" };
                text += if c.styp.is_some() { " styp" } else { "" };
                text += if c.prft.is_some() { " prft" } else { "" };
                text += if c.is_last() { " last" } else { "" };
                text += "\n";
            }
        }
    }
    if let Err(error) = end {
        text += &format!("{error}\n");
    }
    text
}

fn check(stream: &[u8], info: Option<&TrackInfo>, expect: Expect) {
    let (events, end) = scan(stream, info, &[]);
    expect.assert_eq(&lines(&events, &end));
}

/// Checks the header, chunk times and flags against `expect`. Sizes are left out, because they
/// depend on the encoder.
fn check_ffmpeg(stream: &[u8], expect: Expect) {
    let (events, end) = scan(stream, None, &[]);
    assert_eq!(end, Ok(()));
    let given: usize = events.iter().map(|event| event_bytes(event).len()).sum();
    let text = lines(&events, &end);
    let words = text.lines().map(|line| match line.split_once(" bytes ") {
        Some((_, rest)) => format!("{rest}\n"),
        None => format!("{line}\n"),
    });
    expect.assert_eq(&words.collect::<String>());
    assert!(given <= stream.len());
}

fn event_bytes(event: &Event) -> &[u8] {
    match event {
        Event::Header(header) => &header.bytes,
        Event::Chunk(chunk) => &chunk.bytes,
    }
}

/// Returns one long track, as sent by `-method PUT` to a single URL.
fn long_track() -> &'static [u8] {
    static STREAM: OnceLock<Vec<u8>> = OnceLock::new();
    STREAM.get_or_init(|| {
        let flags = "+cmaf+empty_moov+default_base_moof+frag_keyframe -frag_duration 500000";
        ffmpeg(&format!("{VIDEO} -movflags {flags} -write_prft wallclock"))
    })
}

#[test]
fn ffmpeg_long_track_is_split_into_chunks() {
    check_ffmpeg(
        long_track(),
        expect![[r#"
            avc1.42c00a
            0+520 ms sync prft
            520+520 ms prft
            1040+520 ms prft
            1560+440 ms prft
            2000+520 ms sync prft
            2520+520 ms prft
            3040+520 ms prft
            3560+440 ms prft
            4000+520 ms sync prft
            4520+480 ms prft
        "#]],
    );
    // Everything except mfra is returned, byte for byte.
    let (events, _) = scan(long_track(), None, &[]);
    let given: Vec<u8> = events.iter().flat_map(|event| event_bytes(event).to_vec()).collect();
    assert_eq!(given, &long_track()[..given.len()]);
    assert_eq!(&long_track()[given.len() + 4..][..4], b"mfra");
}

#[test]
fn ffmpeg_objects_are_scanned_with_a_known_header() {
    let dir = temporary("dash");
    std::fs::create_dir(&dir).unwrap();
    let args = format!(
        "{VIDEO} -f dash -ldash 1 -streaming 1 -use_template 1 -use_timeline 0 -seg_duration 2 \
         -frag_type duration -frag_duration 0.5 -target_latency 3 -write_prft 1 \
         -utc_timing_url http://127.0.0.1/time -format_options movflags=cmaf"
    );
    let run = Command::new("ffmpeg")
        .args(["-v", "error", "-nostdin", "-y"])
        .args(args.split_whitespace())
        .arg(dir.join("live.mpd"))
        .status();
    assert!(run.unwrap().success());
    let object = |name: &str| std::fs::read(dir.join(name)).unwrap();
    let (init, first, last) =
        (object("init-stream0.m4s"), object("chunk-stream0-00001.m4s"), object("chunk-stream0-00003.m4s"));
    std::fs::remove_dir_all(&dir).unwrap();
    check_ffmpeg(&init, expect!["avc1.42c00a\n"]);
    let info = header::parse(&init, 0).unwrap();
    let described = |object: &[u8]| {
        let (events, end) = scan(object, Some(&info), &[]);
        assert_eq!(end, Ok(()));
        let given: Vec<u8> = events.iter().flat_map(|event| event_bytes(event).to_vec()).collect();
        assert_eq!(given, object, "nothing may be dropped");
        let one = |event: &Event| match event {
            Event::Chunk(c) => {
                let prft = c.prft.unwrap();
                assert_eq!((prft.track_id, prft.media_time), (1, c.fragment.decode_time));
                (c.fragment.decode_time, c.fragment.starts_with_sync, c.styp.clone().unwrap_or_default())
            }
            Event::Header(_) => panic!("a segment must have no header"),
        };
        events.iter().map(one).collect::<Vec<_>>()
    };
    let styp = vec![FourCc(*b"msdh"), FourCc(*b"msdh"), FourCc(*b"msix")];
    let none = Vec::new;
    let want =
        [(0, true, styp.clone()), (6656, false, none()), (13_312, false, none()), (19_968, false, none())];
    assert_eq!(described(&first), want);
    assert_eq!(described(&last), [(51_200, true, styp), (57_856, false, none())]);
    // A segment without its header causes a fault that the origin can distinguish from others.
    check(
        &first,
        None,
        expect![[r#"
            offset 56: box 'moof': fragment before any CMAF header (ftyp and moov)
        "#]],
    );
}

#[test]
fn ffmpeg_sidx_before_each_fragment_is_dropped() {
    // `+dash` puts a sidx before each moof.
    check_ffmpeg(
        &ffmpeg(&format!("{AUDIO} -movflags +dash -frag_duration 1000000")),
        expect![[r#"
            mp4a.40.2
            0+1002 ms sync
            1002+1002 ms sync
            2005+1002 ms sync
            3008+1002 ms sync
            4010+1002 ms sync
            5013+8 ms sync
        "#]],
    );
}

fn header_bytes() -> Vec<u8> {
    HeaderParts::video(1000).build()
}

fn info() -> TrackInfo {
    header::parse(&header_bytes(), 0).unwrap()
}

fn fragment(time: u64) -> Vec<u8> {
    FragmentParts::new(time, 500).build()
}

fn styp(brands: &[u8]) -> Vec<u8> {
    boxed(b"styp", &[b"msdh\0\0\0\0", brands].concat())
}

#[test]
fn boxes_of_whole_files_are_dropped() {
    let sidx = support::build::sidx(1000, &[(142, 500, 0)]);
    let prft = full(b"prft", 1, 24, &words(&[1, 0, 0, 0, 77]));
    let (styp, emsg) = (styp(b"cmfs"), full(b"emsg", 0, 0, b"a\0b\0aaaabbbbccccdddd"));
    let pieces = [&styp[..], &sidx, &boxed(b"free", &[0; 100]), &prft, &boxed(b"uuid", &[1; 16]), &emsg];
    let stream = [&header_bytes()[..], &pieces.concat(), &fragment(0), &boxed(b"mfra", &[0; 50])].concat();
    let (events, end) = scan(&stream, None, &[]);
    assert_eq!(end, Ok(()));
    let Event::Chunk(chunk) = &events[1] else { panic!("the second event must be a chunk") };
    assert_eq!(chunk.bytes, [&styp[..], &prft, &emsg, &fragment(0)].concat());
    assert_eq!((chunk.offset, chunk.prft.unwrap().media_time), (486, 77));
    // Some of these splits lie inside a dropped box that follows gathered boxes.
    for cut in 486..stream.len() {
        assert_eq!(scan(&stream, None, &[cut]), (events.clone(), end.clone()));
    }
}

#[test]
fn boxes_between_moof_and_mdat_stay() {
    // The moof's data offset spans the boxes before the mdat.
    let parts = FragmentParts { between: boxed(b"free", &[0; 5]), ..FragmentParts::new(0, 500) };
    let (events, end) = scan(&parts.build(), Some(&info()), &[]);
    assert_eq!(end, Ok(()));
    assert_eq!(event_bytes(&events[0]), parts.build());
}

#[test]
fn headers_may_repeat_and_change() {
    let sound = HeaderParts::audio(48_000).build();
    let stream =
        [header_bytes(), fragment(0), header_bytes(), fragment(500), sound, fragment(24_000)].concat();
    check(
        &stream,
        None,
        expect![[r#"
            header 486 bytes avc1.64001f
            chunk at 486 142 bytes 0+500 ms sync
            header 486 bytes avc1.64001f repeated
            chunk at 1114 142 bytes 500+500 ms sync
            header 432 bytes ac-3 repeated
            chunk at 1688 142 bytes 500+10 ms sync
        "#]],
    );
    // Boxes before a header do not belong to a chunk.
    let stream = [styp(b"cmfs"), header_bytes(), fragment(0)].concat();
    check(
        &stream,
        None,
        expect![[r#"
            header 486 bytes avc1.64001f
            chunk at 506 142 bytes 0+500 ms sync
        "#]],
    );
}

#[test]
fn last_segment_is_marked() {
    let stream = [header_bytes(), styp(b"cmfs"), fragment(0), styp(b"cmfslmsg"), fragment(500)].concat();
    check(
        &stream,
        None,
        expect![[r#"
            header 486 bytes avc1.64001f
            chunk at 486 162 bytes 0+500 ms sync styp
            chunk at 648 166 bytes 500+500 ms sync styp last
        "#]],
    );
}

#[test]
fn unfinished_stream_is_a_fault() {
    let stream = [header_bytes(), fragment(0), boxed(b"free", &[0; 92])].concat();
    let end = |keep: usize| scan(&stream[..keep], None, &[]).1.map_err(|error| error.to_string());
    let fault = |text: &str| Err(text.to_owned());
    assert_eq!(end(0), Ok(()));
    assert_eq!(end(7), fault("offset 0: box '????': truncated, needs 8 bytes, 7 left"));
    assert_eq!(end(24), fault("offset 0: box 'ftyp': has no 'moov' box"));
    assert_eq!(end(485), fault("offset 24: box 'moov': truncated, needs 462 bytes, 461 left"));
    assert_eq!(end(486), Ok(()));
    assert_eq!(end(590), fault("offset 486: box 'moof': must be followed by an mdat"));
    assert_eq!(end(627), fault("offset 590: box 'mdat': truncated, needs 38 bytes, 37 left"));
    assert_eq!(end(628), Ok(()));
    assert_eq!(end(727), fault("offset 628: box 'free': truncated, needs 100 bytes, 99 left"));
    assert_eq!(end(728), Ok(()));
}

#[test]
fn streams_other_than_cmaf_are_refused() {
    let refused = |stream: &[u8], expect: Expect| {
        check(stream, Some(&info()), expect);
    };
    refused(
        b"G@\0\x10\0\0\xb0\r transport stream",
        expect![[r#"
        offset 0: box 'ftyp': not an MP4 (ISO BMFF) file
    "#]],
    );
    refused(
        b"<?xml version=\"1.0\"?>",
        expect![[r#"
        offset 0: box 'ftyp': not an MP4 (ISO BMFF) file
    "#]],
    );
    refused(
        &[fragment(0), vec![0; 8]].concat(),
        expect![[r#"
            chunk at 0 142 bytes 0+500000 ms sync
            offset 142: box '\x00\x00\x00\x00': expected a box header
        "#]],
    );
    refused(
        &boxed(b"mdat", b"x"),
        expect![[r#"
        offset 0: box 'mdat': media data without a moof
    "#]],
    );
    refused(
        &boxed(b"moov", b""),
        expect![[r#"
        offset 0: box 'moov': must follow an ftyp
    "#]],
    );
    let moof = FragmentParts::new(0, 500).moof();
    refused(
        &[&moof[..], &moof].concat(),
        expect![[r#"
        offset 0: box 'moof': must be followed by an mdat
    "#]],
    );
    refused(
        &[&moof[..], &boxed(b"mdat", &[0; 29])].concat(),
        expect![[r#"
        offset 104: box 'mdat': must contain the samples of its moof
    "#]],
    );
    refused(
        &[&moof[..], b"\0\0\0\0mdat", &[0; 30]].concat(),
        expect![[r#"
        offset 104: box 'mdat': size must not be 0 (box extends to the end) in a stream
    "#]],
    );
    let ftyp = boxed(b"ftyp", b"cmf2\0\0\0\0");
    refused(
        &[&ftyp[..], &moof].concat(),
        expect![[r#"
        offset 0: box 'ftyp': has no 'moov' box
    "#]],
    );
    let absolute = FragmentParts { base_data_offset: Some(0), ..FragmentParts::new(0, 500) };
    refused(
        &absolute.build(),
        expect![[r#"
        offset 0: box 'moof': tfhd must not have a base_data_offset (CMAF): with ffmpeg, add -movflags +default_base_moof
    "#]],
    );
    let progressive = HeaderParts { mvex: false, ..HeaderParts::video(1000) }.build();
    refused(
        &progressive,
        expect![[r#"
        offset 24: box 'moov': progressive MP4, not fragmented: convert it, one file per track, with `ffmpeg -i IN.mp4 -map 0:v:0 -c copy -movflags +cmaf+frag_keyframe OUT.mp4` (audio: `-map 0:a:0 -c copy -movflags +cmaf -frag_duration 500000`)
    "#]],
    );
}

#[test]
fn events_before_a_fault_are_returned() {
    let stream = [header_bytes(), fragment(0), boxed(b"mdat", b"x"), fragment(500)].concat();
    check(
        &stream,
        None,
        expect![[r#"
            header 486 bytes avc1.64001f
            chunk at 486 142 bytes 0+500 ms sync
            offset 628: box 'mdat': media data without a moof
        "#]],
    );
}

#[test]
fn limits_are_checked_from_the_box_header() {
    let box_of = |kind: &[u8; 4], size: u64| [&1u32.to_be_bytes()[..], kind, &size.to_be_bytes()].concat();
    let moof = FragmentParts::new(0, 500).moof();
    let refused = |stream: &[u8], expect: Expect| check(stream, Some(&info()), expect);
    let mdat = box_of(b"mdat", CHUNK_BYTES_MAX);
    // The mdat's header is eight bytes longer than the moof expects, so the samples would lie
    // outside the mdat. A box of eight bytes in between compensates for this.
    let mut between = FragmentParts::new(0, 500);
    between.between = boxed(b"free", &[0; 8]);
    let start = [between.moof(), boxed(b"free", b"")].concat();
    refused(
        &[&start[..], &mdat].concat(),
        expect![[r#"
        offset 112: box 'mdat': 67108976 exceeds CHUNK_BYTES_MAX (67108864)
    "#]],
    );
    refused(
        &box_of(b"moof", 1 << 40),
        expect![[r#"
        offset 0: box 'moof': 1099511627776 exceeds MOOF_BYTES_MAX (4194304)
    "#]],
    );
    let ftyp = boxed(b"ftyp", b"cmf2\0\0\0\0");
    refused(
        &[&ftyp[..], &box_of(b"moov", 1 << 40)].concat(),
        expect![[r#"
        offset 16: box 'moov': 1099511627776 exceeds MOOV_BYTES_MAX (16777216)
    "#]],
    );
    refused(
        &[&moof[..], &box_of(b"free", u64::MAX)].concat(),
        expect![[r#"
        offset 104: box 'free': 18446744073709551615 exceeds CHUNK_BYTES_MAX (67108864)
    "#]],
    );
}

#[test]
fn dropped_boxes_take_no_memory() {
    // A free box of a terabyte before the first fragment: its bytes must be discarded as they
    // arrive.
    let mut scanner = ChunkScanner::with_header(&info());
    let size = 1u64 << 40;
    scanner.push(&styp(b"cmfs"));
    scanner.push(&[&1u32.to_be_bytes()[..], b"free", &size.to_be_bytes()].concat());
    assert_eq!(scanner.next_event(), Ok(None));
    let megabyte = vec![0xff; 1 << 20];
    for _ in 0..64 {
        scanner.push(&megabyte);
        assert_eq!(scanner.next_event(), Ok(None));
    }
    let end = scanner.finish().unwrap_err().to_string();
    expect!["offset 20: box 'free': truncated, needs 1099511627776 bytes, 67108880 left"].assert_eq(&end);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The events of a real stream must not depend on how it is split.
    #[test]
    fn any_split_yields_the_same(mut cuts in proptest::collection::vec(0..long_track().len(), 0..60)) {
        static WHOLE: OnceLock<(Vec<Event>, Result<(), Error>)> = OnceLock::new();
        let whole = WHOLE.get_or_init(|| scan(long_track(), None, &[]));
        cuts.sort_unstable();
        prop_assert_eq!(&scan(long_track(), None, &cuts), whole);
    }

    /// Supplying the header late must lose no bytes, however the stream is split.
    #[test]
    fn late_header_loses_no_media(mut cuts in proptest::collection::vec(0usize..900, 0..60)) {
        let stream = [boxed(b"free", &[0; 40]), styp(b"cmfs"), fragment(0), fragment(500)].concat();
        cuts.retain(|&cut| cut < stream.len());
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let (mut scanner, mut events, mut missed) = (ChunkScanner::new(), Vec::new(), 0);
        for cut in cuts.windows(2) {
            scanner.push(&stream[cut[0]..cut[1]]);
            loop {
                match scanner.next_event() {
                    Ok(Some(event)) => events.push(event),
                    Ok(None) => break,
                    Err(error) => {
                        prop_assert_eq!(error.fault, Fault::MissingHeader);
                        scanner.resume_with_header(&info());
                        missed += 1;
                    }
                }
            }
        }
        prop_assert_eq!(missed, 1);
        prop_assert_eq!(scanner.buffered(), 0);
        prop_assert_eq!((events, scanner.finish()), scan(&stream, Some(&info()), &[]));
    }

    /// The events of streams with faults or dropped boxes must not depend on the split either.
    #[test]
    fn any_split_of_an_invalid_stream_yields_the_same(
        mut cuts in proptest::collection::vec(0usize..1200, 0..60),
        (at, value) in (0usize..1200, any::<u8>()),
    ) {
        let free = boxed(b"free", &[0; 40]);
        let mut stream =
            [header_bytes(), free.clone(), styp(b"cmfs"), free, fragment(0), fragment(500), fragment(1000)]
                .concat();
        if let Some(byte) = stream.get_mut(at) {
            *byte = value;
        }
        cuts.sort_unstable();
        prop_assert_eq!(scan(&stream, None, &cuts), scan(&stream, None, &[]));
    }
}

#[test]
fn late_header_does_not_recover_dropped_bytes() {
    let lost = |scanner: &mut ChunkScanner, stream: &[u8]| {
        scanner.push(stream);
        let error = scanner.next_event().unwrap_err();
        scanner.push(&stream[1..]);
        scanner.resume_with_header(&info());
        assert_eq!(scanner.next_event().unwrap_err(), error);
        assert_eq!(scanner.buffered(), 0);
        error.fault
    };
    // Bytes were dropped while the header was missing, so resuming must fail; so must resuming
    // after another kind of fault.
    assert_eq!(lost(&mut ChunkScanner::new(), &fragment(0)), Fault::MissingHeader);
    assert_eq!(lost(&mut ChunkScanner::new(), b"no boxes at all"), Fault::NotIsoBmff);
}

#[test]
fn stream_pushed_byte_by_byte_yields_the_same() {
    let stream = [header_bytes(), styp(b"cmfs"), fragment(0), fragment(500)].concat();
    let every: Vec<usize> = (0..stream.len()).collect();
    assert_eq!(scan(&stream, None, &every), scan(&stream, None, &[]));
}
