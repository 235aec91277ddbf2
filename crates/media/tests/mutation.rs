//! Mutation tests: real files with bytes changed, removed, duplicated and swapped by a seeded
//! generator. No parser may panic, loop, or return anything outside the file. A failure prints its
//! seed.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};

use support::build::{FragmentParts, HeaderParts, sidx};
use support::movie::{Sample, TrackParts, movie_file};
use support::{AUDIO, VIDEO_B, ffmpeg, index_of, run_indexer, scan};
use thalweg_media::chunk::Event;
use thalweg_media::dump::dump;
use thalweg_media::header;
use thalweg_media::index::Step;
use thalweg_media::progressive::MovieTrack;
use thalweg_media::retime::shifted;
use thalweg_media::write::rebase_on_moof;

/// Damaged copies to test per file.
const ROUNDS: u64 = 5000;

/// SplitMix64 (Steele, Lea, Flood 2014), which is small and identical on every platform.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap()
    }
}

/// Values that often break lengths, counts and versions.
const NASTY: [u32; 10] = [0, 1, 7, 8, 9, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x0100_0000, 0x0000_ffff];

fn damage(file: &[u8], random: &mut Random) -> Vec<u8> {
    let mut file = file.to_vec();
    // Damages only the front of a file, where the boxes are, not its media.
    let front = file.len().min(4096);
    for _ in 0..=random.below(6) {
        let reach = if random.below(4) == 0 { file.len() } else { front.min(file.len()) };
        let at = random.below(reach).min(file.len());
        match random.below(8) {
            0..=2 if at < file.len() => file[at] = random.next() as u8,
            3 | 4 if at + 4 <= file.len() => {
                let value = NASTY[random.below(NASTY.len())];
                file[at..at + 4].copy_from_slice(&value.to_be_bytes());
            }
            5 => file.truncate(at),
            6 => {
                let len = random.below(64).min(file.len() - at);
                file.drain(at..at + len);
            }
            _ => {
                let len = random.below(64).min(file.len() - at);
                let copy = file[at..][..len].to_vec();
                let to = random.below(file.len() + 1);
                file.splice(to..to, copy);
            }
        }
    }
    file
}

/// Runs all parsers on a file.
fn parse(file: &[u8], random: &mut Random) {
    let _ = dump(file);
    let _ = header::parse(file, 0);
    let claimed = file.len() as u64 + if random.below(4) == 0 { random.next() % 9999 } else { 0 };
    if let Ok(indexed) = index_of(file, claimed, 2000) {
        let mut end = indexed.index.header_size;
        for segment in &indexed.index.segments {
            assert!(segment.offset >= end && segment.size > 0, "{segment:?} before {end}");
            end = segment.offset + segment.size;
        }
        assert!(end <= claimed, "segments end at {end} of {claimed}");
    }
    if let Ok((Step::Movie(movie), _)) = run_indexer(file, claimed, 2000) {
        movie.tracks.iter().for_each(|track| check_segments(track, claimed));
    }
    let cuts: Vec<usize> = (0..random.below(5)).map(|_| random.below(file.len() + 1)).collect();
    for event in scan(file, None, &cuts).0 {
        if let Event::Chunk(chunk) = event {
            let _ = shifted(&chunk.bytes, random.next().cast_signed(), 1000);
        }
    }
    let mut whole = file.to_vec();
    let _ = rebase_on_moof(&mut whole, random.next() % 1000);
    assert_eq!(whole.len(), file.len());
}

/// Checks that every segment has its stated size, and that its media lies within the file.
fn check_segments(track: &MovieTrack, file_size: u64) {
    let mut end = track.header().len() as u64;
    for segment in &track.index.segments {
        let parts = track.segment(segment).unwrap();
        assert!(parts.data.iter().all(|range| range.start < range.end && range.end <= file_size));
        let data: u64 = parts.data.iter().map(|range| range.end - range.start).sum();
        assert_eq!((segment.offset, segment.size), (end, parts.head.len() as u64 + data));
        end += segment.size;
    }
}

fn survive(name: &str, file: &[u8]) {
    for seed in 0..ROUNDS {
        let mut random = Random(seed);
        let damaged = damage(file, &mut random);
        let outcome = catch_unwind(AssertUnwindSafe(|| parse(&damaged, &mut random)));
        assert!(outcome.is_ok(), "{name}, seed {seed}");
    }
}

#[test]
fn damaged_ffmpeg_files_are_survived() {
    // The input is short, so that files consist mostly of boxes.
    let short = |input: &str| input.replace("-t 5", "-t 0.6");
    for (input, flags) in [
        (VIDEO_B, "+cmaf+global_sidx"),
        (VIDEO_B, "+cmaf+frag_keyframe -frag_duration 100000 -write_prft wallclock"),
        (VIDEO_B, "+dash"),
        (VIDEO_B, "frag_keyframe+empty_moov"),
        (AUDIO, "+cmaf -frag_duration 100000"),
    ] {
        survive(flags, &ffmpeg(&format!("{} -movflags {flags}", short(input))));
    }
}

const ENCRYPTION: &str = "-encryption_scheme cenc-aes-ctr -encryption_key 00112233445566778899aabbccddeeff \
                          -encryption_kid 0123456789abcdef0123456789abcdef";

#[test]
fn damaged_headers_of_every_codec_are_survived() {
    let video = "-f lavfi -i testsrc2=size=64x64:rate=25 -frames:v 1 -pix_fmt yuv420p";
    let audio = "-f lavfi -i sine=440:sample_rate=48000 -t 0.1";
    for args in [
        format!("{video} -c:v libx265 -x265-params log-level=none"),
        format!("{video} -c:v libaom-av1 -cpu-used 8"),
        format!("{video} -c:v libvpx-vp9 -deadline realtime"),
        format!("{audio} -c:a libopus"),
        format!("{audio} -c:a flac -strict -2"),
        format!("{audio} -c:a ac3"),
        format!("{audio} -c:a eac3"),
        format!("{audio} -c:a aac -disposition:a:0 dub {ENCRYPTION}"),
    ] {
        let file = ffmpeg(&format!("{args} -movflags +cmaf+delay_moov"));
        let moof = file.windows(4).position(|w| w == b"moof").unwrap() - 4;
        survive(&args, &file[..moof]);
    }
}

#[test]
fn damaged_progressive_files_are_survived() {
    let film = "-f lavfi -i testsrc2=size=64x36:rate=25 -f lavfi -i sine -t 0.6 -c:v libx264 -preset veryfast -bf 2 -c:a aac";
    survive("faststart", &ffmpeg(&format!("{film} -movflags +faststart")));
    let sample = |i: u32| Sample {
        size: i % 7,
        duration: 400 + i % 2,
        composition_offset: 0,
        sync: i.is_multiple_of(4),
    };
    let video = TrackParts { size_bits: 4, ..TrackParts::video(1000, (0..16).map(sample).collect()) };
    let audio = TrackParts { co64: true, ..TrackParts::audio(1000, (0..16).map(sample).collect()) };
    survive("small movie", &movie_file(&[video, audio], true).0);
}

#[test]
fn damaged_small_boxes_are_survived() {
    let fragments = (0..6).flat_map(|i| FragmentParts::new(i * 1000, 1000).build());
    let references = [(142, 1000, 0x9000_0000); 6];
    let mut file = [HeaderParts::video(1000).build(), sidx(1000, &references)].concat();
    file.extend(fragments);
    survive("small", &file);
}
