//! In-place rewriting tests, with golden dumps of the boxes before and after.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod support;

use expect_test::expect;
use support::build::{FragmentParts, HeaderParts, boxed, full, sidx, words};
use support::{VIDEO, ffmpeg, ffprobe, index, scan};
use thalweg_media::chunk::Event;
use thalweg_media::delay::{delay_moof, edit_lists};
use thalweg_media::dump::dump;
use thalweg_media::error::Result;
use thalweg_media::fragment::Fragment;
use thalweg_media::header;
use thalweg_media::prft::{PRFT_CAPTURE, Prft};
use thalweg_media::retime::shifted;
use thalweg_media::write::rebase_on_moof;

#[test]
fn dump_lists_every_box() {
    let styp = boxed(b"styp", b"msdh\0\0\0\0msdhlmsg");
    let prft = Prft { track_id: 1, ntp: 0xeeab_5792_126e_978d, media_time: 500, flags: PRFT_CAPTURE };
    let file = [
        HeaderParts::video(1000).build(),
        sidx(1000, &[(142, 500, 0x9000_0000), (0x8000_0010, 500, 0)]),
        styp,
        prft.to_bytes().to_vec(),
        FragmentParts::new(500, 500).build(),
        b"\0\0\0\x20free".to_vec(),
    ];
    expect![[r#"
        ftyp 24 cmf2/0+cmf2+iso6
        moov 462
          mvhd 108 v0 timescale=1000
          trak 306
            tkhd 92 v0 flags=0x7 track_id=1 size=640x360
            mdia 206
              mdhd 32 v0 timescale=1000
              hdlr 33 handler=vide
              minf 133
                stbl 125
                  stsd 117
                    avc1 101
          mvex 40
            trex 32 v0 flags=0x0 track_id=1 duration=0 size=0 sample_flags=0x0
        sidx 56 timescale=1000 time=0 first_offset=0 media:142/500/sap1 index:16/500
        styp 24 msdh/0+msdh+lmsg
        prft 32 flags=24 track_id=1 ntp=0xeeab5792126e978d media_time=500
        moof 104
          mfhd 16 v0 flags=0x0 sequence_number=1
          traf 80
            tfhd 28 v0 flags=0x20038 track_id=1 duration=50 size=3 sample_flags=0x1010000
            tfdt 20 v1 flags=0x0 decode_time=500
            trun 24 v1 flags=0x5 samples=10 data_offset=112 first_sample_flags=0x2000000
        mdat 38
        [offset 740: box 'free': truncated, needs 32 bytes, 8 left]
    "#]]
    .assert_eq(&dump(&file.concat()));
}

/// A file's chunks, repeated with later times, must form one longer file.
#[test]
fn repeated_chunks_play_continuously() {
    let file = ffmpeg(&format!("{VIDEO} -frag_duration 500000 -movflags +cmaf+frag_keyframe"));
    let (events, end) = scan(&file, None, &[]);
    assert_eq!(end, Ok(()));
    let mut looped = Vec::new();
    let period = 5 * 12_800;
    for round in 0..3 {
        for event in &events {
            match event {
                Event::Header(header) if round == 0 => looped.extend_from_slice(&header.bytes),
                Event::Header(_) => {}
                Event::Chunk(chunk) => {
                    looped.extend(shifted(&chunk.bytes, round * period, 12_800).unwrap().unwrap());
                }
            }
        }
    }
    let packets = ffprobe(&looped);
    assert_eq!(packets.len(), 375);
    assert!(packets.iter().zip(0i64..).all(|(p, i)| p.pts == i * 512), "25 frames/s without a gap");
    let times: Vec<_> = index(&looped).unwrap().index.segments.iter().map(|s| s.time / 1280).collect();
    assert_eq!(times, [0, 20, 40, 70, 90, 120, 140]);
}

#[test]
fn rebase_makes_a_segment_stand_alone() {
    let header = HeaderParts::video(1000).build();
    let offset = header.len() as u64;
    let mut parts = FragmentParts::new(0, 500);
    parts.base_data_offset = Some(offset);
    let before = parts.build();
    let mut after = before.clone();
    rebase_on_moof(&mut after, offset).unwrap();
    assert_eq!(after.len(), before.len());
    expect![[r#"
        moof 112
          mfhd 16 v0 flags=0x0 sequence_number=1
          traf 88
            tfhd 28 v0 flags=0x20038 track_id=1 duration=50 size=3 sample_flags=0x1010000
            free 8
            tfdt 20 v1 flags=0x0 decode_time=0
            trun 24 v1 flags=0x5 samples=10 data_offset=120 first_sample_flags=0x2000000
        mdat 38
    "#]]
    .assert_eq(&dump(&after));
    let info = header::parse(&header, 0).unwrap();
    let was = Fragment::parse(&before[..112], offset, &info).unwrap();
    let is = Fragment::parse(&after[..112], 0, &info).unwrap();
    assert_eq!(is, Fragment { has_base_data_offset: false, ..was });
    // Rebasing a self-contained segment must change nothing.
    let again = after.clone();
    rebase_on_moof(&mut after, 0).unwrap();
    assert_eq!(after, again);
}

#[test]
fn rebase_refuses_invalid_segments() -> Result<()> {
    let mut far = FragmentParts::new(0, 500);
    far.base_data_offset = Some(1 << 40);
    let error = rebase_on_moof(&mut far.build(), 0).unwrap_err();
    expect!["offset 88: box 'trun': data is too far from the moof"].assert_eq(&error.to_string());
    let mut cut = FragmentParts::new(0, 500).build();
    cut.pop();
    let error = rebase_on_moof(&mut cut, 1000).unwrap_err();
    expect!["offset 1104: box 'mdat': truncated, needs 38 bytes, 37 left"].assert_eq(&error.to_string());
    rebase_on_moof(&mut [], 0)
}

#[test]
fn delay_moves_from_the_edit_list_into_decode_times() {
    let edits = [words(&[100, u32::MAX, 0x1_0000]), words(&[0, 20, 0x1_0000])].concat();
    let elst = full(b"elst", 0, 0, &[&2u32.to_be_bytes()[..], &edits].concat());
    let header = HeaderParts { in_trak: boxed(b"edts", &elst), ..HeaderParts::video(1000) }.build();
    let fragment = FragmentParts::new(500, 2000).build();
    let indexed = index(&[header.clone(), fragment.clone()].concat()).unwrap().index;
    assert_eq!((indexed.delay, indexed.info.edit_media_time, indexed.segments[0].time), (80, 0, 580));
    let mut moof = fragment[..104].to_vec();
    delay_moof(&mut moof, header.len() as u64, indexed.delay).unwrap();
    let mut plain = header.clone();
    for at in edit_lists(&header, 0).unwrap() {
        plain[at as usize + 4..at as usize + 8].copy_from_slice(b"free");
    }
    let served = index(&[plain, moof, fragment[104..].to_vec()].concat()).unwrap().index;
    assert_eq!((served.delay, &served.segments), (0, &indexed.segments));
}

#[test]
fn delay_must_fit_the_decode_time() {
    let moof = |time: u32| boxed(b"moof", &boxed(b"traf", &full(b"tfdt", 0, 0, &time.to_be_bytes())));
    let mut last = moof(u32::MAX - 7);
    delay_moof(&mut last, 0, 7).unwrap();
    assert_eq!(last, moof(u32::MAX));
    let error = delay_moof(&mut last, 0, 1).unwrap_err();
    expect!["offset 16: box 'tfdt': delayed decode time exceeds 32 bits"].assert_eq(&error.to_string());
    assert_eq!(last, moof(u32::MAX), "unchanged");
}
