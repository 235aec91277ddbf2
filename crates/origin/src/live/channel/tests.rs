//! The channel as scripts of chunks and times: what is numbered, kept, dropped and begun anew.

use super::*;
use expect_test::{Expect, expect};
use std::fmt::Write;
use thalweg_media::presentation::micros;
use thalweg_media::presentation::utc::Utc;
use thalweg_media::track::{Media, SampleDefaults};

/// Wall clock at which every script starts: 2026-11-20T23:33:20Z.
const START_US: i64 = 1_795_217_600_000_000;
const VIDEO_TIMESCALE: u32 = 12_800;
const AUDIO_TIMESCALE: u32 = 48_000;

/// A channel under a script: chunks go in, what happened comes out as text.
struct Script {
    channel: Channel,
    log: String,
    /// Number of the first segment; the log counts from it.
    base: Option<u64>,
    /// What chunks say of their time of capture.
    prft: Option<Prft>,
    /// Makes each chunk's content another.
    serial: u32,
}

impl Script {
    fn new() -> Script {
        let settings = Settings { segment_target_ms: 2000, window_ms: 10_000 };
        Script { channel: Channel::new(settings), log: String::new(), base: None, prft: None, serial: 0 }
    }

    fn video(mut self) -> Script {
        self.header("video", b"V0");
        self
    }

    fn both() -> Script {
        let mut script = Script::new().video();
        script.header("audio", b"A0");
        script
    }

    fn header(&mut self, name: &str, bytes: &'static [u8]) {
        let (timescale, media) = match name {
            "video" => (VIDEO_TIMESCALE, Media::Video { width: 640, height: 360 }),
            "text" => (1000, Media::Text),
            _ => (AUDIO_TIMESCALE, Media::Audio { sample_rate: 48_000, channels: 2 }),
        };
        let info = TrackInfo {
            track_id: 1,
            timescale,
            codec: String::from(if name == "text" { "stpp.ttml.im1t" } else { "c" }),
            language: None,
            media,
            sample_defaults: SampleDefaults::default(),
            edit_media_time: 0,
        };
        let index = self.channel.header(name, Bytes::from_static(bytes), info, false, START_US).unwrap();
        self.channel.closed(index, false);
    }

    /// A chunk of `seconds` of media from media time `time`, that comes at `at` seconds.
    fn chunk(&mut self, name: &str, time: f64, seconds: f64, sync: bool, at: f64) {
        self.serial += 1;
        let (index, info) = self.channel.track_info(name).unwrap();
        let units = |s: f64| (s * f64::from(info.timescale)).round() as u64;
        let chunk = ChunkIn {
            bytes: cmaf(units(time), &(self.serial.to_be_bytes())),
            time: units(time),
            duration: units(seconds),
            sync,
            sample_duration: (name == "video").then_some(512),
            prft: self.prft,
            last: false,
        };
        match self.channel.chunk(index, chunk, START_US + (at * 1e6) as i64) {
            Ok(Outcome::Taken) => {}
            Ok(outcome) => writeln!(self.log, "{name} {time} {outcome:?}").unwrap(),
            Err(refusal) => writeln!(self.log, "{name} {time} {refusal}").unwrap(),
        }
        self.drain();
    }

    /// Half-second chunks of both tracks with a sync sample every 2 s, each as soon as it is there.
    fn run(&mut self, media: std::ops::Range<f64>, start: f64) {
        let chunks = ((media.end - media.start) * 2.0).round() as u32;
        for i in 0..chunks {
            let offset = f64::from(i) * 0.5;
            let at = start + offset + 0.5;
            if self.channel.track_info("audio").is_some() {
                self.chunk("audio", media.start + offset, 0.5, true, at);
            }
            self.chunk("video", media.start + offset, 0.5, i % 4 == 0, at);
        }
    }

    fn tick(&mut self, at: f64) {
        self.channel.tick(START_US + (at * 1e6) as i64);
        self.drain();
    }

    fn drain(&mut self) {
        for effect in self.channel.take_effects() {
            let name = |track: usize| self.channel.track_name(track);
            let (track, number, what) = match &effect {
                Effect::Begin { track, number } => (*track, *number, "["),
                Effect::Append { track, number, .. } => (*track, *number, "+"),
                Effect::Complete { track, number } => (*track, *number, "]"),
                Effect::Evict { track, number } => (*track, *number, "x"),
                Effect::Note(Note::Irregular { track, number }) => (*track, *number, "irregular"),
                Effect::Note(note) => {
                    writeln!(self.log, "{note:?}").unwrap();
                    continue;
                }
            };
            let number = number - *self.base.get_or_insert(number);
            writeln!(self.log, "{} {number} {what}", name(track)).unwrap();
        }
    }

    /// The log, each segment's effects in one line.
    fn check(mut self, expect: Expect) -> Channel {
        let mut lines: Vec<String> = Vec::new();
        for line in std::mem::take(&mut self.log).lines() {
            let (key, what) = line.rsplit_once(' ').unwrap_or(("", line));
            match lines
                .iter_mut()
                .rev()
                .take(2)
                .find(|l| l.starts_with(&format!("{key} ")) && what.len() == 1)
            {
                Some(last) if what != "x" => last.push_str(what),
                _ => lines.push(line.to_owned()),
            }
        }
        expect.assert_eq(&lines.join("\n"));
        self.channel
    }
}

/// A chunk with no more boxes than a channel looks at.
fn cmaf(time: u64, content: &[u8]) -> Bytes {
    let made =
        |kind: &[u8; 4], body: &[u8]| [&(body.len() as u32 + 8).to_be_bytes()[..], kind, body].concat();
    let tfdt = made(b"tfdt", &[&[1, 0, 0, 0][..], &time.to_be_bytes()].concat());
    [made(b"moof", &made(b"traf", &tfdt)), made(b"mdat", content)].concat().into()
}

/// The channel's epochs as manifests show them.
fn epochs(channel: &Channel) -> String {
    let live = channel.live().unwrap();
    for (timescale, s) in live
        .epochs
        .iter()
        .flat_map(|e| &e.tracks)
        .flat_map(|t| t.segments.iter().map(|s| (t.info.timescale, s)))
    {
        assert!((micros(s.duration, timescale) + 500_000) / 1_000_000 <= live.target_duration_s, "{s:?}");
    }
    let base = live.epochs[0].start_number;
    let mut out = String::new();
    for e in &live.epochs {
        let seconds = |us: u64| us as f64 / 1e6;
        writeln!(
            out,
            "epoch {} {}–{} media {} segment {} chunk {} from {}",
            e.id,
            seconds(e.start_us),
            e.end_us.map_or(String::from("…"), |us| seconds(us).to_string()),
            e.media_start as f64 / f64::from(e.timescale),
            e.segment_duration as f64 / f64::from(e.timescale),
            e.chunk_duration as f64 / f64::from(e.timescale),
            e.start_number - base,
        )
        .unwrap();
        for t in &e.tracks {
            let segment = |s: &thalweg_media::presentation::live::LiveSegment| {
                let ts = f64::from(t.info.timescale);
                format!("{}@{}+{}", s.number - base, s.time as f64 / ts, s.duration as f64 / ts)
            };
            let segments: Vec<_> = t.segments.iter().map(segment).collect();
            writeln!(out, "  {} {}", t.name, segments.join(" ")).unwrap();
        }
    }
    out
}

#[test]
fn the_first_whole_segment_teaches_the_duration() {
    let mut script = Script::new().video();
    script.run(0.0..4.5, 0.0);
    let channel = script.check(expect![[r#"
        Epoch { id: 0, track: 0, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [++++]
        video 2 [+"#]]);
    expect![[r#"
        epoch 0 0–… media 0 segment 2 chunk 0.5 from 0
          video 0@0+2 1@2+2
    "#]]
    .assert_eq(&epochs(&channel));
}

#[test]
fn audio_is_cut_on_the_grid_of_the_video() {
    let mut script = Script::both();
    for i in 0..20 {
        // Chunks of 24 AAC frames: 0.512 s.
        let time = f64::from(i) * 0.512;
        script.chunk("audio", time, 0.512, true, time + 0.512);
        let time = f64::from(i) * 0.5;
        script.chunk("video", time, 0.5, i % 4 == 0, time + 0.512);
    }
    let channel = script.check(expect![[r#"
        Epoch { id: 0, track: 1, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [+
        audio 0 [+++]
        audio 1 [++++]
        video 1 +++]
        audio 2 [++++]
        video 2 [++++]
        audio 3 [++++]
        video 3 [++++]
        audio 4 [++++]
        video 4 [++++]
        audio 5 [+"#]]);
    expect![[r#"
        epoch 0 0–… media 0 segment 2 chunk 0.51203125 from 0
          video 0@0+2 1@2+2 2@4+2 3@6+2 4@8+2
          audio 0@0+1.536 1@1.536+2.048 2@3.584+2.048 3@5.632+2.048 4@7.68+2.048
    "#]]
    .assert_eq(&epochs(&channel));
}

#[test]
fn a_segment_of_audio_begins_with_the_chunk_in_which_its_place_lies() {
    for (seconds, offset) in [(1.0, 0.4), (0.8, 0.0), (0.3, 0.1), (0.512, 0.25)] {
        let mut script = Script::both();
        let mut audio = (0..).map(|i| offset + f64::from(i) * seconds).peekable();
        for i in 0..40 {
            let time = f64::from(i) * 0.5;
            script.chunk("video", time, 0.5, i % 4 == 0, time + 0.5);
            while let Some(begin) = audio.next_if(|begin| begin + seconds <= time + 0.5) {
                script.chunk("audio", begin, seconds, true, time + 0.5);
            }
        }
        let live = script.channel.live().unwrap();
        let begins = |track: &str| {
            let track = live.epochs[0].track(track).unwrap();
            let timescale = f64::from(track.info.timescale);
            let begins = track.segments.iter().map(|s| (s.number, s.time as f64 / timescale));
            begins.collect::<std::collections::BTreeMap<_, _>>()
        };
        // Video is cut at its places.
        let (places, audio) = (begins("video"), begins("audio"));
        let both: Vec<_> = audio.iter().filter_map(|(number, at)| Some((places.get(number)?, at))).collect();
        assert!(both.len() >= 4, "{seconds} s: {places:?} {audio:?}");
        for (place, at) in both {
            assert!(*at < place + 0.001 && at + seconds > *place, "{seconds} s: at {at} for {place}");
        }
    }
}

#[test]
fn audio_alone_makes_segments_of_whole_chunks() {
    let mut script = Script::new();
    script.header("audio", b"A0");
    for i in 0..9 {
        let time = f64::from(i) * 0.512;
        script.chunk("audio", time, 0.512, true, time + 0.512);
    }
    let channel = script.check(expect![[r#"
        Epoch { id: 0, track: 0, cause: First }
        Published { id: 0, segment_us: 2048000 }
        audio 0 [++++]
        audio 1 [++++]
        audio 2 [+"#]]);
    expect![[r#"
        epoch 0 0–… media 0 segment 2.048 chunk 0.512 from 0
          audio 0@0+2.048 1@2.048+2.048
    "#]]
    .assert_eq(&epochs(&channel));
}

#[test]
fn short_gops_are_joined_and_long_ones_kept() {
    let mut script = Script::new().video();
    for i in 0..10 {
        script.chunk("video", f64::from(i) * 0.5, 0.5, i % 2 == 0, f64::from(i) * 0.5 + 0.5);
    }
    let short = epochs(&script.check(expect![[r#"
        Epoch { id: 0, track: 0, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [++++]
        video 2 [++"#]]));
    let mut script = Script::new().video();
    for i in 0..13 {
        script.chunk("video", f64::from(i), 1.0, i % 6 == 0, f64::from(i) + 1.0);
    }
    let long = epochs(&script.check(expect![[r#"
        Epoch { id: 0, track: 0, cause: First }
        Published { id: 0, segment_us: 6000000 }
        video 0 [++++++]
        video 1 [++++++]
        video 2 [+"#]]));
    expect![[r#"
        epoch 0 0–… media 0 segment 2 chunk 0.5 from 0
          video 0@0+2 1@2+2
        epoch 0 0–… media 0 segment 6 chunk 1 from 0
          video 0@0+6 1@6+6
    "#]]
    .assert_eq(&format!("{short}{long}"));
}

#[test]
fn a_channel_does_not_begin_before_a_sync_sample() {
    let mut script = Script::new().video();
    script.chunk("video", 1.5, 0.5, false, 0.5);
    script.run(2.0..4.5, 0.5);
    let channel = script.check(expect![[r#"
        video 1.5 NotSync
        Epoch { id: 0, track: 0, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [+"#]]);
    expect![[r#"
        epoch 0 0–… media 2 segment 2 chunk 0.5 from 0
          video 0@2+2
    "#]]
    .assert_eq(&epochs(&channel));
}

#[test]
fn audio_from_before_the_first_picture_is_left_out() {
    let mut script = Script::both();
    for i in 0..9 {
        let time = f64::from(i) * 0.5;
        script.chunk("audio", time, 0.5, true, time + 0.5);
        script.chunk("video", time, 0.5, i % 4 == 3, time + 0.5);
    }
    let channel = script.check(expect![[r#"
        Epoch { id: 0, track: 1, cause: First }
        video 0 NotSync
        video 0.5 NotSync
        video 1 NotSync
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [+
        audio 0 [++++]
        audio 1 [++
        video 1 +"#]]);
    expect![[r#"
        epoch 0 0–… media 1.5 segment 2 chunk 0.5 from 0
          video 0@1.5+2
          audio 0@1.5+2
    "#]]
    .assert_eq(&epochs(&channel));
}

#[test]
fn duplicates_are_dropped() {
    let mut script = Script::new().video();
    script.run(0.0..3.0, 0.0);
    script.run(2.0..3.0, 2.0);
    script.run(3.0..4.0, 3.0);
    script.check(expect![[r#"
        Epoch { id: 0, track: 0, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [++
        video 2 Duplicate
        video 2.5 Duplicate
        video 1 ++]"#]]);
}

#[test]
fn the_same_header_again_changes_nothing() {
    let mut script = Script::new().video();
    script.run(0.0..2.5, 0.0);
    script.header("video", b"V0");
    script.chunk("video", 2.5, 0.5, false, 3.0);
    script.check(expect![[r#"
        Epoch { id: 0, track: 0, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [++"#]]);
}

#[test]
fn a_restarted_source_begins_an_epoch_that_all_tracks_enter() {
    let mut script = Script::both();
    script.run(0.0..6.5, 0.0);
    script.tick(10.0);
    script.run(0.0..4.5, 20.0);
    let channel = script.check(expect![[r#"
        Epoch { id: 0, track: 1, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [+
        audio 0 [++++]
        audio 1 [++++]
        video 1 +++]
        audio 2 [++++]
        video 2 [++++]
        audio 3 [+]
        video 3 [+]
        Epoch { id: 1, track: 1, cause: Jump }
        video 0 x
        video 1 x
        video 2 x
        video 3 x
        audio 0 x
        audio 1 x
        audio 2 x
        audio 3 x
        Published { id: 1, segment_us: 2000000 }
        video 10 [++++]
        audio 10 [++++]
        audio 11 [++++]
        video 11 [++++]
        audio 12 [+
        video 12 [+"#]]);
    expect![[r#"
        epoch 1 20–… media 20 segment 2 chunk 0.5 from 0
          video 0@20+2 1@22+2
          audio 0@20+2 1@22+2
    "#]]
    .assert_eq(&epochs(&channel));
}

/// One track goes on as before, the other begins again at 0 after a second without it: both play on.
fn restart_one(restarted: &str) -> Script {
    let mut script = Script::both();
    script.run(0.0..7.0, 0.0);
    for i in 0..20 {
        let (since, at) = (f64::from(i) * 0.5, 7.5 + f64::from(i) * 0.5);
        for name in ["audio", "video"] {
            if name != restarted {
                script.chunk(name, 7.0 + since, 0.5, name == "audio" || (i + 2) % 4 == 0, at);
            } else if i >= 2 {
                if i == 2 {
                    script.header(name, if name == "audio" { b"A0" } else { b"V0" });
                }
                script.chunk(name, since - 1.0, 0.5, name == "audio" || (i - 2) % 4 == 0, at);
            }
        }
    }
    script
}

#[test]
fn audio_that_begins_again_alone_is_followed_by_the_video() {
    let channel = restart_one("audio").check(expect![[r#"
        Epoch { id: 0, track: 1, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [+
        audio 0 [++++]
        audio 1 [++++]
        video 1 +++]
        audio 2 [++++]
        video 2 [++++]
        audio 3 [++
        video 3 [++++]
        Epoch { id: 1, track: 1, cause: Jump }
        audio 3 ]
        Published { id: 1, segment_us: 2000000 }
        video 4 [++++]
        audio 4 [++++]
        audio 5 [++++]
        video 5 [++++]
        audio 6 [++++]
        video 6 [++++]
        audio 7 [++++]
        video 7 [++++]
        audio 8 [+
        video 0 x
        audio 0 x
        video 8 [++
        audio 8 +"#]]);
    expect![[r#"
        epoch 0 0–6.8 media 0 segment 2 chunk 0.5 from 0
          video 1@2+2 2@4+2 3@6+2
          audio 1@2+2 2@4+2 3@6+1
        epoch 1 8–… media 8 segment 2 chunk 0.5 from 4
          video 4@8+2 5@10+2 6@12+2 7@14+2
          audio 4@8+2 5@10+2 6@12+2 7@14+2
    "#]]
    .assert_eq(&epochs(&channel));
}

#[test]
fn video_that_begins_again_alone_is_followed_by_the_audio() {
    let channel = restart_one("video").check(expect![[r#"
        Epoch { id: 0, track: 1, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [+
        audio 0 [++++]
        audio 1 [++++]
        video 1 +++]
        audio 2 [++++]
        video 2 [++++]
        audio 3 [++++]
        video 3 [++
        audio 4 [+
        Epoch { id: 1, track: 0, cause: Jump }
        video 3 ]
        Published { id: 1, segment_us: 2000000 }
        video 5 [+
        audio 4 ]
        audio 5 [+++]
        video 5 +++]
        audio 6 [++++]
        video 6 [++++]
        audio 7 [++++]
        video 7 [++++]
        audio 8 [++++]
        video 8 [++++]
        audio 9 [+
        video 0 x
        audio 0 x
        video 9 [++
        audio 9 +"#]]);
    expect![[r#"
        epoch 0 0–6.8 media 0 segment 2 chunk 0.5 from 0
          video 1@2+2 2@4+2 3@6+1
          audio 1@2+2 2@4+2 3@6+2 4@8+0.5
        epoch 1 8.5–… media 8.5 segment 2 chunk 0.5 from 5
          video 5@8.5+2 6@10.5+2 7@12.5+2 8@14.5+2
          audio 5@9+1.5 6@10.5+2 7@12.5+2 8@14.5+2
    "#]]
    .assert_eq(&epochs(&channel));
}

#[test]
fn a_source_that_begins_again_at_once_is_no_duplicate() {
    let mut script = Script::new().video();
    script.run(0.0..2.5, 0.0);
    script.header("video", b"V0");
    script.run(0.0..2.5, 3.0);
    let channel = script.check(expect![[r#"
        Epoch { id: 0, track: 0, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [+]
        Epoch { id: 1, track: 0, cause: Jump }
        Published { id: 1, segment_us: 2000000 }
        video 2 [++++]
        video 3 [+"#]]);
    expect![[r#"
        epoch 0 0–2.3 media 0 segment 2 chunk 0.5 from 0
          video 0@0+2 1@2+0.5
        epoch 1 3–… media 3 segment 2 chunk 0.5 from 2
          video 2@3+2
    "#]]
    .assert_eq(&epochs(&channel));
}

#[test]
fn a_header_in_another_unit_ends_the_segment_in_the_old_one() {
    let mut script = Script::new().video();
    script.run(0.0..2.5, 0.0);
    let mut info = script.channel.track_info("video").unwrap().1.clone();
    info.timescale = 90_000;
    let _ = script.channel.header("video", Bytes::from_static(b"V1"), info, false, START_US).unwrap();
    script.drain();
    script.chunk("video", 2.5, 0.5, true, 3.0);
    script.chunk("video", 3.0, 0.5, false, 3.5);
    script.chunk("video", 3.5, 0.5, false, 4.0);
    script.chunk("video", 4.0, 0.5, false, 4.5);
    script.chunk("video", 4.5, 0.5, true, 5.0);
    let channel = script.check(expect![[r#"
        Epoch { id: 0, track: 0, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [+]
        Epoch { id: 1, track: 0, cause: Header }
        Published { id: 1, segment_us: 2000000 }
        video 2 [++++]
        video 3 [+"#]]);
    expect![[r#"
        epoch 0 0–2.5 media 0 segment 2 chunk 0.5 from 0
          video 0@0+2 1@2+0.5
        epoch 1 2.5–… media 2.5 segment 2 chunk 0.5 from 2
          video 2@2.5+2
    "#]]
    .assert_eq(&epochs(&channel));
}

#[test]
fn a_refusal_leaves_nothing_in_the_way() {
    let mut script = Script::new().video();
    for i in 0..=60 {
        script.chunk("video", f64::from(i) * 0.5, 0.5, i == 0, 0.5 + f64::from(i) * 0.5);
    }
    script.run(31.0..33.5, 31.0);
    script.check(expect![[r#"
        Epoch { id: 0, track: 0, cause: First }
        video 30 track video: no second sync sample in 30 s: encode with shorter GOPs
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [+"#]]);
}

#[test]
fn key_frames_that_come_irregularly_make_no_segment_longer_than_announced() {
    let mut script = Script::new().video();
    for i in 0..21 {
        let time = f64::from(i) * 0.5;
        script.chunk("video", time, 0.5, [0, 4, 16].contains(&i), time + 0.5);
    }
    let channel = script.check(expect![[r#"
        Epoch { id: 0, track: 0, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [++++]
        video 2 [
        video 2 irregular++++]
        video 3 [
        video 3 irregular++++]
        video 4 [++++]
        video 5 [
        video 5 irregular+"#]]);
    let independent: Vec<_> =
        channel.live().unwrap().epochs[0].tracks[0].segments.iter().map(|s| s.sync).collect();
    assert_eq!(independent, [true, true, false, false, true]);
    expect![[r#"
        epoch 0 0–… media 0 segment 2 chunk 0.5 from 0
          video 0@0+2 1@2+2 2@4+2 3@6+2 4@8+2
    "#]]
    .assert_eq(&epochs(&channel));
}

#[test]
fn a_header_object_leaves_the_segment_in_progress_alone() {
    let mut script = Script::new().video();
    script.run(0.0..2.5, 0.0);
    let info = script.channel.track_info("video").unwrap().1.clone();
    script.channel.header("video", Bytes::from_static(b"V0"), info, false, START_US).unwrap();
    script.channel.closed(0, false);
    assert_eq!(script.channel.take_effects(), []);
    script.channel.closed(0, true);
    let number = script.base.unwrap() + 1;
    assert_eq!(script.channel.take_effects(), [Effect::Complete { track: 0, number }]);
}

#[test]
fn a_segment_that_was_lost_is_not_listed_and_the_next_begins_with_a_sync_sample() {
    let mut script = Script::new().video();
    script.run(0.0..3.0, 0.0);
    script.channel.lost(0, script.base.unwrap() + 1);
    script.chunk("video", 3.0, 0.5, false, 3.5);
    script.chunk("video", 3.5, 0.5, false, 4.0);
    script.run(4.0..6.0, 4.0);
    let channel = script.check(expect![[r#"
        Epoch { id: 0, track: 0, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [++
        video 3 NotSync
        video 1 x
        video 3.5 NotSync
        video 2 [++++]"#]]);
    expect![[r#"
        epoch 0 0–… media 0 segment 2 chunk 0.5 from 0
          video 0@0+2 2@4+2
    "#]]
    .assert_eq(&epochs(&channel));
}

#[test]
fn a_channel_is_over_when_its_window_has_passed() {
    let mut script = Script::new().video();
    script.run(0.0..4.0, 0.0);
    let mut over = |at: f64| {
        script.tick(at);
        script.channel.is_over(START_US + (at * 1e6) as i64)
    };
    assert!([4.0, 14.0, 18.0].iter().all(|&at| !over(at)));
    assert!(over(18.1));
}

#[test]
fn another_upload_of_a_track_is_under_the_same_header() {
    let mut script = Script::new().video();
    let info = script.channel.track_info("video").unwrap().1.clone();
    let mut header = |bytes: &'static [u8], again| {
        script.channel.header("video", Bytes::from_static(bytes), info.clone(), again, START_US)
    };
    assert_eq!(header(b"V0", false), Ok(0));
    assert_eq!(header(b"V1", true), Ok(0), "its own, changed");
    assert_eq!(header(b"V1", false), Ok(0));
    assert_eq!(header(b"V2", false), Err(Refusal::Busy { track: String::from("video") }));
}

#[test]
fn a_restart_under_another_header_learns_the_duration_anew() {
    let mut script = Script::new().video();
    script.run(0.0..4.5, 0.0);
    script.header("video", b"V1");
    for i in 0..9 {
        script.chunk("video", f64::from(i) * 0.5, 0.5, i % 8 == 0, 10.5 + f64::from(i) * 0.5);
    }
    let channel = script.check(expect![[r#"
        Epoch { id: 0, track: 0, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [++++]
        video 2 [+]
        Epoch { id: 1, track: 0, cause: Jump }
        Published { id: 1, segment_us: 4000000 }
        video 5 [++++++++]
        video 6 [+"#]]);
    expect![[r#"
        epoch 0 0–4.3 media 0 segment 2 chunk 0.5 from 0
          video 0@0+2 1@2+2 2@4+0.5
        epoch 1 10–… media 10 segment 4 chunk 0.5 from 5
          video 5@10+4
    "#]]
    .assert_eq(&epochs(&channel));
}

#[test]
fn a_changed_header_begins_an_epoch_that_others_enter_in_time() {
    let mut script = Script::both();
    script.run(0.0..4.0, 0.0);
    script.header("video", b"V1");
    script.run(4.0..8.5, 4.0);
    let channel = script.check(expect![[r#"
        Epoch { id: 0, track: 1, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [+
        audio 0 [++++]
        audio 1 [++++]
        video 1 +++]
        audio 2 [+]
        Epoch { id: 1, track: 0, cause: Header }
        Published { id: 1, segment_us: 2000000 }
        video 3 [++++]
        video 4 [+
        audio 3 [+++]
        audio 4 [++++]
        video 4 +++]
        audio 5 [+
        video 5 [+"#]]);
    expect![[r#"
        epoch 0 0–4 media 0 segment 2 chunk 0.5 from 0
          video 0@0+2 1@2+2
          audio 0@0+2 1@2+2 2@4+0.5
        epoch 1 4–… media 4 segment 2 chunk 0.5 from 3
          video 3@4+2 4@6+2
          audio 3@4.5+1.5 4@6+2
    "#]]
    .assert_eq(&epochs(&channel));
}

#[test]
fn a_gap_in_time_begins_an_epoch_at_its_place_on_the_clock() {
    let mut script = Script::both();
    script.run(0.0..4.5, 0.0);
    script.run(8.0..10.5, 8.0);
    let channel = script.check(expect![[r#"
        Epoch { id: 0, track: 1, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [+
        audio 0 [++++]
        audio 1 [++++]
        video 1 +++]
        audio 2 [+
        video 2 [+
        Epoch { id: 1, track: 1, cause: Gap }
        audio 2 ]
        video 2 ]
        Published { id: 1, segment_us: 2000000 }
        video 4 [++++]
        audio 4 [++++]
        audio 5 [+
        video 5 [+"#]]);
    expect![[r#"
        epoch 0 0–4.3 media 0 segment 2 chunk 0.5 from 0
          video 0@0+2 1@2+2 2@4+0.5
          audio 0@0+2 1@2+2 2@4+0.5
        epoch 1 8–… media 8 segment 2 chunk 0.5 from 4
          video 4@8+2
          audio 4@8+2
    "#]]
    .assert_eq(&epochs(&channel));
}

#[test]
fn a_source_that_paused_begins_an_epoch_once_it_is_late_for_good() {
    let mut script = Script::new().video();
    script.run(0.0..4.5, 0.0);
    script.run(4.5..6.0, 9.5);
    script.chunk("video", 6.0, 0.5, true, 11.5);
    for i in 1..4 {
        script.chunk("video", 6.0 + f64::from(i) * 0.5, 0.5, false, 11.5 + f64::from(i) * 0.5);
    }
    script.chunk("video", 8.0, 0.5, true, 13.5);
    let channel = script.check(expect![[r#"
        Epoch { id: 0, track: 0, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [++++]
        video 2 [++++]
        Epoch { id: 1, track: 0, cause: Late }
        Published { id: 1, segment_us: 2000000 }
        video 6 [++++]
        video 7 [+"#]]);
    expect![[r#"
        epoch 0 0–5.8 media 0 segment 2 chunk 0.5 from 0
          video 0@0+2 1@2+2 2@4+2
        epoch 1 11–… media 11 segment 2 chunk 0.5 from 6
          video 6@11+2
    "#]]
    .assert_eq(&epochs(&channel));
}

#[test]
fn a_source_that_catches_up_stays_in_its_epoch() {
    let mut script = Script::new().video();
    script.run(0.0..4.0, 0.0);
    for i in 0..12 {
        script.chunk("video", 4.0 + f64::from(i) * 0.5, 0.5, i % 4 == 0, 9.5 + f64::from(i) * 0.01);
    }
    script.check(expect![[r#"
        Epoch { id: 0, track: 0, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [++++]
        video 2 [++++]
        video 3 [++++]
        video 4 [++++]"#]]);
}

#[test]
fn a_source_that_hangs_leaves_nobody_waiting() {
    let mut script = Script::new().video();
    script.run(0.0..3.0, 0.0);
    script.tick(6.4);
    script.tick(6.5);
    script.chunk("video", 3.0, 0.5, false, 7.0);
    script.check(expect![[r#"
        Epoch { id: 0, track: 0, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [++]
        video 2 [
        video 2 irregular+"#]]);
}

#[test]
fn sync_samples_that_stop_coming_where_they_did() {
    let mut script = Script::new().video();
    script.run(0.0..4.0, 0.0);
    for (i, sync) in [false, true, false, false, false, true, false].into_iter().enumerate() {
        let time = 4.0 + i as f64 * 0.5;
        script.chunk("video", time, 0.5, sync, time + 0.5);
    }
    script.check(expect![[r#"
        Epoch { id: 0, track: 0, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [++++]
        video 2 [
        video 2 irregular++++]
        video 3 [
        video 3 irregular+++"#]]);
}

#[test]
fn the_window_moves_on() {
    let mut script = Script::new().video();
    script.run(0.0..20.5, 0.0);
    script.tick(100.0);
    let channel = script.check(expect![[r#"
        Epoch { id: 0, track: 0, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [++++]
        video 2 [++++]
        video 3 [++++]
        video 4 [++++]
        video 5 [++++]
        video 6 [++++]
        video 7 [++++]
        video 8 [++++]
        video 0 x
        video 9 [++++]
        video 1 x
        video 10 [+]
        video 2 x
        video 3 x
        video 4 x
        video 5 x
        video 6 x
        video 7 x
        video 8 x
        video 9 x
        video 10 x"#]]);
    expect![[r#"
        epoch 0 0–… media 0 segment 2 chunk 0.5 from 0
          video 
    "#]]
    .assert_eq(&epochs(&channel));
}

#[test]
fn a_late_track_joins_only_if_its_times_fit() {
    let mut script = Script::new().video();
    script.run(0.0..4.5, 0.0);
    script.header("audio", b"A0");
    script.chunk("audio", 1000.0, 0.5, true, 5.0);
    script.chunk("audio", 4.5, 0.5, true, 5.0);
    script.chunk("audio", 5.0, 0.5, true, 5.5);
    let channel = script.check(expect![[r#"
        Epoch { id: 0, track: 0, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [++++]
        video 2 [+
        audio 1000 Misfit
        Misfit { track: 1, time: 48000000 }
        audio 2 [++"#]]);
    expect![[r#"
        epoch 0 0–… media 0 segment 2 chunk 0.5 from 0
          video 0@0+2 1@2+2
          audio 
    "#]]
    .assert_eq(&epochs(&channel));
}

#[test]
fn requests_ahead_of_the_source_wait_and_others_do_not() {
    let mut script = Script::new().video();
    script.run(0.0..4.5, 0.0);
    let base = script.base.unwrap();
    let at = |number, at: f64| script.channel.segment("video", base + number, START_US + (at * 1e6) as i64);
    assert_eq!(at(0, 4.5), Lookup::Here(0));
    assert_eq!(at(2, 4.5), Lookup::Here(0));
    assert_eq!(at(3, 4.5), Lookup::Soon);
    assert_eq!(at(4, 4.5), Lookup::Nowhere);
    assert_eq!(at(4, 6.0), Lookup::Soon);
    assert_eq!(at(3, 60.0), Lookup::Nowhere);
    assert_eq!(script.channel.segment("audio", 0, START_US), Lookup::Nowhere);
}

#[test]
fn a_header_is_waited_for_in_an_epoch_that_its_track_is_to_enter() {
    let mut script = Script::both();
    script.run(0.0..4.5, 0.0);
    script.chunk("video", 0.0, 0.5, true, 8.5);
    let base = script.base.unwrap();
    assert_eq!(script.channel.header_of("audio", base), HeaderLookup::Here(Bytes::from_static(b"A0")));
    assert_eq!(script.channel.header_of("audio", base + 4), HeaderLookup::Soon);
    assert_eq!(script.channel.header_of("audio", base + 1), HeaderLookup::Nowhere);
    script.header("audio", b"A1");
    script.chunk("audio", 0.0, 0.5, true, 8.6);
    assert_eq!(script.channel.header_of("audio", base + 4), HeaderLookup::Here(Bytes::from_static(b"A1")));
    script.check(expect![[r#"
        Epoch { id: 0, track: 1, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [+
        audio 0 [++++]
        audio 1 [++++]
        video 1 +++]
        audio 2 [+
        video 2 [+]
        Epoch { id: 1, track: 0, cause: Jump }
        Published { id: 1, segment_us: 2000000 }
        video 4 [+
        audio 2 ]
        audio 4 [+"#]]);
}

#[test]
fn a_track_that_does_not_follow_is_left_behind() {
    let mut script = Script::both();
    script.run(0.0..4.5, 0.0);
    let shown = |s: &Script| s.channel.live().unwrap().epochs.last().unwrap().tracks.len();
    for i in 0..12 {
        let at = 20.5 + f64::from(i) * 0.5;
        script.chunk("video", f64::from(i) * 0.5, 0.5, i % 4 == 0, at);
        script.tick(at);
        assert_eq!(shown(&script), if i < 9 { 2 } else { 1 }, "chunk {i}");
    }
    script.check(expect![[r#"
        Epoch { id: 0, track: 1, cause: First }
        Published { id: 0, segment_us: 2000000 }
        video 0 [++++]
        video 1 [+
        audio 0 [++++]
        audio 1 [++++]
        video 1 +++]
        audio 2 [+
        video 2 [+]
        Epoch { id: 1, track: 0, cause: Jump }
        Published { id: 1, segment_us: 2000000 }
        video 10 [+
        video 0 x
        video 1 x
        video 2 x
        audio 0 x
        audio 1 x
        audio 2 ]
        audio 2 x
        video 10 +++]
        video 11 [++++]
        video 12 [++++]"#]]);
}

#[test]
fn numbers_begin_at_the_time_of_day() {
    let mut script = Script::new().video();
    script.run(0.0..2.5, 0.0);
    assert_eq!(script.base, Some(START_US.cast_unsigned() / 2_000_000));
}

/// Rounded up, so that a microsecond is not lost on the way.
fn ntp(unix_us: i64) -> u64 {
    let (s, us) = (unix_us.cast_unsigned() / 1_000_000, unix_us.cast_unsigned() % 1_000_000);
    (s + 2_208_988_800) << 32 | (us << 32).div_ceil(1_000_000)
}

#[test]
fn a_time_of_capture_is_believed_only_if_it_can_be() {
    // A chunk of media time 0 to 0.5 s that came at 0.5 s was taken at 0 s at the latest.
    for (captured_s, believed) in [(-0.3, true), (0.0, true), (0.2, false), (-11.0, false)] {
        let mut script = Script::new().video();
        let captured_us = START_US + (captured_s * 1e6) as i64;
        script.prft = Some(Prft { track_id: 1, ntp: ntp(captured_us), media_time: 0, flags: 24 });
        script.run(0.0..2.5, 0.0);
        let live = script.channel.live().unwrap();
        let produced = live.epochs[0].produced.map(|p| (p.wall, p.media_time));
        assert_eq!(produced, believed.then_some((Utc(captured_us / 1000), 0)), "{captured_s}");
        assert_eq!(live.epochs[0].tracks[0].inband_prft, believed, "{captured_s}");
    }
}

/// Where the first epoch is said to end and the second begins, in tenths of a second.
fn border(script: &Script) -> [u64; 2] {
    let live = script.channel.live().unwrap();
    [live.epochs[0].end_us.unwrap(), live.epochs[1].start_us].map(|us| us / 100_000)
}

#[test]
fn an_epoch_ends_where_the_next_begins_if_no_track_has_a_hole() {
    // A header that changes where another track's chunk is in its middle.
    let mut script = Script::both();
    for i in 0..18 {
        let time = f64::from(i) * 0.5;
        if i == 8 {
            script.header("video", b"V1");
        }
        script.chunk("video", time, 0.5, i % 4 == 0, time + 0.5);
        if i > 0 {
            script.chunk("audio", time - 0.24, 0.5, true, time + 0.5);
        }
    }
    assert_eq!(border(&script), [40, 40]);

    // Times that begin again without a pause, while the last chunk of the other track is still on its way.
    let mut script = Script::both();
    for i in 0..45 {
        let time = f64::from(i) / 10.0;
        script.chunk("video", time, 0.1, i % 20 == 0, time + 0.1);
        if i % 5 == 4 && i < 44 {
            script.chunk("audio", time - 0.4, 0.5, true, time + 0.1);
        }
    }
    script.chunk("video", 0.0, 0.1, true, 4.6);
    assert_eq!(border(&script), [45, 45]);
}

#[test]
fn an_epoch_that_is_shorter_than_what_is_left_out_at_its_end_has_a_length() {
    let mut script = Script::new().video();
    script.run(0.0..4.5, 0.0);
    // Another run of the source, which ends after a tenth of a second, and a third.
    script.chunk("video", 100.0, 0.1, true, 10.1);
    script.chunk("video", 0.0, 0.5, true, 12.5);
    let live = script.channel.live().unwrap();
    let epochs: Vec<_> = live.epochs.iter().map(|e| (e.start_us, e.end_us)).collect();
    assert_eq!(epochs, [(0, Some(4_300_000)), (10_000_000, Some(10_100_000)), (12_000_000, None)]);
}

#[test]
fn a_track_that_ended_long_before_the_others_does_not_end_their_epoch() {
    let mut script = Script::both();
    script.header("audio2", b"A2");
    for i in 0..20 {
        let (time, at) = (f64::from(i) * 0.5, f64::from(i) * 0.5 + 0.5);
        script.chunk("video", time, 0.5, i % 4 == 0, at);
        script.chunk("audio", time, 0.5, true, at);
        if i < 9 {
            script.chunk("audio2", time, 0.5, true, at);
        }
    }
    script.run(0.0..1.0, 12.0);
    assert_eq!(border(&script), [98, 120]);
}

#[test]
fn an_epoch_that_ttml_is_to_enter_keeps_its_times() {
    for with_text in [false, true] {
        let mut script = Script::both();
        if with_text {
            script.header("text", b"T0");
            for i in 0..8 {
                let time = f64::from(i) * 0.5;
                script.chunk("video", time, 0.5, i % 4 == 0, time + 0.5);
                script.chunk("audio", time, 0.5, true, time + 0.5);
                script.chunk("text", time, 0.5, true, time + 0.5);
            }
        } else {
            script.run(0.0..4.0, 0.0);
        }
        script.run(0.0..2.5, 9.0);
        let media_start = script.channel.live().unwrap().epochs[1].media_start;
        assert_eq!(media_start, if with_text { 0 } else { 9 * u64::from(VIDEO_TIMESCALE) });
    }
}

#[test]
fn a_time_of_capture_from_before_a_restart_says_nothing_of_what_came_after() {
    let mut script = Script::both();
    // Of the first chunk of each run, a moment after it came: not to be believed.
    let at = |us: i64| Some(Prft { track_id: 1, ntp: ntp(us), media_time: 0, flags: 24 });
    script.prft = at(START_US + 100_000);
    script.run(0.0..4.5, 0.0);
    script.prft = at(START_US + 8_100_000);
    script.chunk("video", 0.0, 0.5, true, 8.5);
    let epoch = script.channel.live().unwrap().epochs.pop().unwrap();
    assert_eq!(epoch.tracks.len(), 2, "audio is expected");
    assert_eq!(epoch.produced, None);
}

#[test]
fn prft_boxes_that_were_believed_are_of_a_track_that_is_expected_again() {
    let mut script = Script::both();
    let at = |us: i64| Some(Prft { track_id: 1, ntp: ntp(us), media_time: 0, flags: 24 });
    script.prft = at(START_US);
    script.run(0.0..4.5, 0.0);
    let inband =
        |s: &Script| s.channel.live().unwrap().epochs.last().unwrap().tracks.iter().all(|t| t.inband_prft);
    assert!(inband(&script));
    script.prft = at(START_US + 30_000_000);
    script.chunk("video", 0.0, 0.5, true, 30.5);
    assert!(inband(&script));
    script.chunk("audio", 0.0, 0.5, true, 30.5);
    assert!(inband(&script));
}

#[test]
fn limits_are_kept() {
    let mut script = Script::new().video();
    for i in 0..=60 {
        script.chunk("video", f64::from(i) * 0.5, 0.5, i == 0, 0.5 + f64::from(i) * 0.5);
    }
    for i in 1..TRACKS_MAX {
        script.header(&format!("audio{i}"), b"A0");
    }
    let info = script.channel.track_info("video").unwrap().1.clone();
    assert_eq!(
        script.channel.header("more", Bytes::new(), info, false, START_US),
        Err(Refusal::TooManyTracks)
    );
    script.check(expect![[r#"
        Epoch { id: 0, track: 0, cause: First }
        video 30 track video: no second sync sample in 30 s: encode with shorter GOPs"#]]);
}

/// One step of a source that may do anything.
#[derive(Debug, Clone)]
enum Step {
    /// A chunk so many quarter segments after the last one of its track, as fast as the clock or not.
    Chunk {
        track: usize,
        ahead: i64,
        sync: bool,
        wait_ms: u32,
    },
    Header {
        track: usize,
        version: u8,
    },
    Tick {
        wait_ms: u32,
    },
    Ended {
        track: usize,
    },
}

fn step() -> impl proptest::strategy::Strategy<Value = Step> {
    use proptest::prelude::*;
    prop_oneof![
        20 => (0..2usize, prop_oneof![8 => Just(0i64), 1 => -60..60i64], any::<bool>(), 0..600u32)
            .prop_map(|(track, ahead, sync, wait_ms)| Step::Chunk { track, ahead, sync, wait_ms }),
        1 => (0..2usize, 0..2u8).prop_map(|(track, version)| Step::Header { track, version }),
        1 => (0..5000u32).prop_map(|wait_ms| Step::Tick { wait_ms }),
        1 => (0..2usize).prop_map(|track| Step::Ended { track }),
    ]
}

/// Holds the invariants over the effects that a caller sees.
#[derive(Default)]
struct Witness {
    open: std::collections::BTreeMap<usize, u64>,
    last: std::collections::BTreeMap<usize, u64>,
    kept: std::collections::BTreeSet<(usize, u64)>,
    seen: std::collections::BTreeMap<usize, Vec<u32>>,
}

impl Witness {
    fn see(&mut self, effect: Effect) {
        match effect {
            Effect::Begin { track, number } => {
                assert_eq!(self.open.insert(track, number), None, "one segment at a time");
                assert!(self.last.insert(track, number).is_none_or(|last| number > last), "numbers rise");
                self.kept.insert((track, number));
            }
            Effect::Append { track, number, bytes } => {
                assert_eq!(self.open.get(&track), Some(&number));
                let serial = u32::from_be_bytes(*bytes.last_chunk().unwrap());
                let seen = self.seen.entry(track).or_default();
                assert!(seen.last().is_none_or(|last| serial > *last), "chunks come once and in order");
                seen.push(serial);
            }
            Effect::Complete { track, number } => assert_eq!(self.open.remove(&track), Some(number)),
            Effect::Evict { track, number } => assert!(self.kept.remove(&(track, number)), "what is there"),
            Effect::Note(_) => {}
        }
    }
}

proptest::proptest! {
    #[test]
    fn whatever_a_source_does_segments_are_whole_and_in_order(
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let mut script = Script::both();
        let mut witness = Witness::default();
        let (mut now, mut edges) = (START_US, [0i64; 2]);
        let mut published: Option<(Utc, Vec<[u64; 3]>)> = None;
        for (serial, step) in steps.into_iter().enumerate() {
            match step {
                Step::Chunk { track, ahead, sync, wait_ms } => {
                    now += i64::from(wait_ms) * 1000;
                    let scale = [VIDEO_TIMESCALE, AUDIO_TIMESCALE][track];
                    let half = i64::from(scale / 2);
                    let time = (edges[track] + ahead * half).max(0);
                    edges[track] = time + half;
                    let chunk = ChunkIn {
                        bytes: cmaf(time.cast_unsigned(), &(serial as u32).to_be_bytes()),
                        time: time.cast_unsigned(),
                        duration: half.cast_unsigned(),
                        sync: sync || track == 1,
                        sample_duration: None,
                        prft: None,
                        last: false,
                    };
                    let _ = script.channel.chunk(track, chunk, now);
                }
                Step::Header { track, version } => {
                    let bytes: &[u8] = [[b"V0", b"V1"], [b"A0", b"A1"]][track][usize::from(version)];
                    script.header(["video", "audio"][track], bytes);
                }
                Step::Tick { wait_ms } => {
                    now += i64::from(wait_ms) * 1000;
                    script.channel.tick(now);
                }
                Step::Ended { track } => script.channel.closed(track, true),
            }
            for effect in script.channel.take_effects() {
                witness.see(effect);
            }
            if let Some(live) = script.channel.live() {
                let start = published.as_ref().map_or(live.availability_start, |p| p.0);
                proptest::prop_assert_eq!(live.availability_start, start, "fixed for life");
                let epochs: Vec<_> = live.epochs.iter().map(|e| [e.id, e.start_us, e.start_number]).collect();
                proptest::prop_assert!(epochs.windows(2).all(|w| w[0][1] <= w[1][1] && w[0][2] < w[1][2]), "{:?}", epochs);
                let ended = |e: &thalweg_media::presentation::live::Epoch| e.end_us.is_none_or(|end| end > e.start_us);
                proptest::prop_assert!(live.epochs.iter().all(ended), "{:?}", live.epochs);
                for before in published.iter().flat_map(|p| &p.1) {
                    let now = epochs.iter().find(|e| e[0] == before[0]);
                    proptest::prop_assert!(now.is_none_or(|e| e == before), "epochs do not change");
                }
                published = Some((start, epochs));
            }
        }
    }
}
