//! Channel tests driven by scripts of timed chunks: numbering, storing, dropping and new epochs.

use super::*;
use expect_test::{Expect, expect};
use std::fmt::Write;
use thalweg_media::presentation::micros;
use thalweg_media::presentation::utc::Utc;
use thalweg_media::prft::Prft;
use thalweg_media::track::{Media, SampleDefaults};

/// Wall-clock time at the start of every script: 2026-11-20T23:33:20Z.
const START_US: i64 = 1_795_217_600_000_000;
const VIDEO_TIMESCALE: u32 = 12_800;
const AUDIO_TIMESCALE: u32 = 48_000;

/// A channel driven by a script, with its effects logged as text.
struct Script {
    channel: Channel,
    log: String,
    /// Number of the first segment; the log counts segments from it.
    base: Option<u64>,
    /// Capture time reported by the chunks.
    prft: Option<Prft>,
    /// Counter that makes each chunk's content unique.
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
            properties: Box::default(),
            sample_defaults: SampleDefaults::default(),
            edit_media_time: 0,
        };
        let index = self.channel.header(name, Bytes::from_static(bytes), info, false, START_US).unwrap();
        self.channel.upload_ended(index, false);
    }

    /// Sends a chunk with `seconds` of media starting at media time `time`, arriving at `at`
    /// seconds.
    fn chunk(&mut self, name: &str, time: f64, seconds: f64, sync: bool, at: f64) {
        self.serial += 1;
        let (index, info) = self.channel.track_info(name).unwrap();
        let units = |s: f64| (s * f64::from(info.timescale)).round() as u64;
        let chunk = IncomingChunk {
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

    /// Sends half-second chunks of both tracks with a sync sample every 2 s, each as soon as it is
    /// complete.
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

    /// Compares the log with `expect`, with each segment's effects on one line.
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

/// Builds a chunk with only the boxes that a channel reads.
fn cmaf(time: u64, content: &[u8]) -> Bytes {
    let boxed =
        |kind: &[u8; 4], body: &[u8]| [&(body.len() as u32 + 8).to_be_bytes()[..], kind, body].concat();
    let tfdt = boxed(b"tfdt", &[&[1, 0, 0, 0][..], &time.to_be_bytes()].concat());
    [boxed(b"moof", &boxed(b"traf", &tfdt)), boxed(b"mdat", content)].concat().into()
}

/// Formats the epochs of the channel's manifest model.
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
fn first_complete_segment_sets_the_duration() {
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
fn audio_is_cut_on_the_video_grid() {
    let mut script = Script::both();
    for i in 0..20 {
        // Each chunk has 24 AAC frames of 1024 samples, which last 0.512 s at 48 kHz.
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
fn audio_segment_begins_with_the_chunk_containing_its_grid_point() {
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
        // Video is cut at its grid points.
        let (starts, audio) = (begins("video"), begins("audio"));
        let both: Vec<_> = audio.iter().filter_map(|(number, at)| Some((starts.get(number)?, at))).collect();
        assert!(both.len() >= 4, "{seconds} s: {starts:?} {audio:?}");
        for (start, at) in both {
            assert!(*at < start + 0.001 && at + seconds > *start, "{seconds} s: at {at} for {start}");
        }
    }
}

#[test]
fn audio_only_segments_are_whole_chunks() {
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
fn short_gops_are_joined_and_long_ones_stay_whole() {
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
fn channel_begins_with_a_sync_sample() {
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
fn audio_before_the_first_frame_is_dropped() {
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
fn repeated_header_changes_nothing() {
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
fn restarted_source_begins_an_epoch_for_all_tracks() {
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

/// Scripts one track that continues while the other restarts at 0 after a one-second pause; both
/// must keep playing.
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
fn video_follows_audio_that_restarts_alone() {
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
fn audio_follows_video_that_restarts_alone() {
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
fn source_restarting_at_once_is_not_a_duplicate() {
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
fn header_with_another_timescale_completes_the_segment() {
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
fn refusal_drops_pending_chunks() {
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
fn irregular_key_frames_never_exceed_the_target_duration() {
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
fn header_object_does_not_end_the_current_segment() {
    let mut script = Script::new().video();
    script.run(0.0..2.5, 0.0);
    let info = script.channel.track_info("video").unwrap().1.clone();
    script.channel.header("video", Bytes::from_static(b"V0"), info, false, START_US).unwrap();
    script.channel.upload_ended(0, false);
    assert_eq!(script.channel.take_effects(), []);
    script.channel.upload_ended(0, true);
    let number = script.base.unwrap() + 1;
    assert_eq!(script.channel.take_effects(), [Effect::Complete { track: 0, number }]);
}

#[test]
fn after_a_lost_segment_the_next_begins_with_a_sync_sample() {
    let mut script = Script::new().video();
    script.run(0.0..3.0, 0.0);
    script.channel.drop_segment(0, script.base.unwrap() + 1);
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
fn channel_ends_after_its_window() {
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
fn concurrent_upload_must_have_the_same_header() {
    let mut script = Script::new().video();
    let info = script.channel.track_info("video").unwrap().1.clone();
    let mut header = |bytes: &'static [u8], again| {
        script.channel.header("video", Bytes::from_static(bytes), info.clone(), again, START_US)
    };
    assert_eq!(header(b"V0", false), Ok(0));
    assert_eq!(header(b"V1", true), Ok(0), "an upload may change its own header");
    assert_eq!(header(b"V1", false), Ok(0));
    assert_eq!(header(b"V2", false), Err(Refusal::Busy { track: String::from("video") }));
}

#[test]
fn restart_with_another_header_measures_the_duration_again() {
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
fn changed_header_begins_an_epoch_others_enter_by_time() {
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
fn gap_begins_an_epoch_at_its_wall_clock_time() {
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
fn permanently_late_source_begins_an_epoch() {
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
fn source_that_catches_up_stays_in_its_epoch() {
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
fn stalled_source_leaves_no_request_waiting() {
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
fn segments_follow_sync_samples_that_leave_the_grid() {
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
fn window_evicts_old_segments() {
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
fn late_track_joins_only_if_its_times_fit() {
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
fn only_requests_slightly_ahead_of_the_source_wait() {
    let mut script = Script::new().video();
    script.run(0.0..4.5, 0.0);
    let base = script.base.unwrap();
    let at = |number, at: f64| script.channel.segment("video", base + number, START_US + (at * 1e6) as i64);
    assert_eq!(at(0, 4.5), SegmentLookup::Available(0));
    assert_eq!(at(2, 4.5), SegmentLookup::Available(0));
    assert_eq!(at(3, 4.5), SegmentLookup::Pending);
    assert_eq!(at(4, 4.5), SegmentLookup::Missing);
    assert_eq!(at(4, 6.0), SegmentLookup::Pending);
    assert_eq!(at(3, 60.0), SegmentLookup::Missing);
    assert_eq!(script.channel.segment("audio", 0, START_US), SegmentLookup::Missing);
}

#[test]
fn header_of_an_expected_track_is_pending() {
    let mut script = Script::both();
    script.run(0.0..4.5, 0.0);
    script.chunk("video", 0.0, 0.5, true, 8.5);
    let base = script.base.unwrap();
    assert_eq!(script.channel.header_of("audio", base), HeaderLookup::Available(Bytes::from_static(b"A0")));
    assert_eq!(script.channel.header_of("audio", base + 4), HeaderLookup::Pending);
    assert_eq!(script.channel.header_of("audio", base + 1), HeaderLookup::Missing);
    script.header("audio", b"A1");
    script.chunk("audio", 0.0, 0.5, true, 8.6);
    assert_eq!(
        script.channel.header_of("audio", base + 4),
        HeaderLookup::Available(Bytes::from_static(b"A1"))
    );
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
fn track_that_does_not_follow_is_dropped() {
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
fn first_number_follows_the_time_of_day() {
    let mut script = Script::new().video();
    script.run(0.0..2.5, 0.0);
    assert_eq!(script.base, Some(START_US.cast_unsigned() / 2_000_000));
}

/// Converts to an NTP timestamp, rounded up so that no microsecond is lost.
fn ntp(unix_us: i64) -> u64 {
    let (s, us) = (unix_us.cast_unsigned() / 1_000_000, unix_us.cast_unsigned() % 1_000_000);
    (s + 2_208_988_800) << 32 | (us << 32).div_ceil(1_000_000)
}

#[test]
fn only_plausible_capture_times_are_used() {
    // A chunk of media time 0 to 0.5 s that arrived at 0.5 s was captured at 0 s at the latest.
    // Capture times more than 10 s before arrival are implausible.
    for (captured_s, plausible) in [(-0.3, true), (0.0, true), (0.2, false), (-11.0, false)] {
        let mut script = Script::new().video();
        let captured_us = START_US + (captured_s * 1e6) as i64;
        script.prft = Some(Prft { track_id: 1, ntp: ntp(captured_us), media_time: 0, flags: 24 });
        script.run(0.0..2.5, 0.0);
        let live = script.channel.live().unwrap();
        let produced = live.epochs[0].produced.map(|p| (p.wall, p.media_time));
        assert_eq!(produced, plausible.then_some((Utc(captured_us / 1000), 0)), "{captured_s}");
        assert_eq!(live.epochs[0].tracks[0].inband_prft, plausible, "{captured_s}");
    }
}

#[test]
fn first_capture_time_of_an_epoch_stays() {
    let mut script = Script::new().video();
    let at = |us: i64, media_time| Some(Prft { track_id: 1, ntp: ntp(us), media_time, flags: 24 });
    let produced = |s: &Script| s.channel.live().unwrap().epochs[0].produced.map(|p| (p.wall, p.media_time));
    script.prft = at(START_US - 100_000, 0);
    script.run(0.0..4.0, 0.0);
    let first = Some((Utc(START_US / 1000 - 100), 0));
    assert_eq!(produced(&script), first);
    // Players interpret a changed pair of capture and media time as a different encoder, so a later
    // clock adjustment at the source must not change the pair.
    script.prft = at(START_US + 3_500_000, 4 * u64::from(VIDEO_TIMESCALE));
    script.run(4.0..8.0, 4.0);
    assert_eq!(produced(&script), first);
}

/// A 2.5 s segment counts as 3 s (RFC 8216bis §4.4.3.1).
#[test]
fn target_duration_is_rounded_to_the_nearest_second() {
    let mut script = Script::new().video();
    for i in 0..16 {
        let time = f64::from(i) * 0.5;
        script.chunk("video", time, 0.5, i % 5 == 0, time + 0.5);
    }
    assert!(epochs(&script.channel).contains("segment 2.5"));
    assert_eq!(script.channel.live().unwrap().target_duration_s, 3);
}

/// Returns the end of the first epoch and the start of the second, in tenths of a second.
fn border(script: &Script) -> [u64; 2] {
    let live = script.channel.live().unwrap();
    [live.epochs[0].end_us.unwrap(), live.epochs[1].start_us].map(|us| us / 100_000)
}

#[test]
fn epoch_without_holes_ends_where_the_next_begins() {
    // A header changes in the middle of another track's chunk.
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

    // The source restarts without a pause while the other track's last chunk is still in flight.
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
fn very_short_epoch_keeps_its_length() {
    let mut script = Script::new().video();
    script.run(0.0..4.5, 0.0);
    // The source's second run lasts 0.1 s, less than twice EPOCH_TAIL_US, and is followed by a
    // third run.
    script.chunk("video", 100.0, 0.1, true, 10.1);
    script.chunk("video", 0.0, 0.5, true, 12.5);
    let live = script.channel.live().unwrap();
    let epochs: Vec<_> = live.epochs.iter().map(|e| (e.start_us, e.end_us)).collect();
    assert_eq!(epochs, [(0, Some(4_300_000)), (10_000_000, Some(10_100_000)), (12_000_000, None)]);
}

#[test]
fn track_that_ended_early_does_not_end_the_epoch() {
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
fn epoch_expecting_ttml_keeps_its_times() {
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
fn capture_time_before_a_restart_is_not_used_after_it() {
    let mut script = Script::both();
    // Each run reports a capture time slightly after its first chunk's arrival, which is
    // implausible.
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
fn expected_track_keeps_its_plausible_prft() {
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
fn limits_are_enforced() {
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

/// One step of an arbitrary source.
#[derive(Debug, Clone)]
enum Step {
    /// A chunk `ahead` quarter segments after the end of its track's last chunk, sent after a wait.
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

/// Checks the invariants of the effects emitted by a channel.
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
                assert_eq!(self.open.insert(track, number), None, "one open segment per track");
                assert!(self.last.insert(track, number).is_none_or(|last| number > last), "numbers increase");
                self.kept.insert((track, number));
            }
            Effect::Append { track, number, bytes } => {
                assert_eq!(self.open.get(&track), Some(&number));
                let serial = u32::from_be_bytes(*bytes.last_chunk().unwrap());
                let seen = self.seen.entry(track).or_default();
                assert!(seen.last().is_none_or(|last| serial > *last), "each chunk appears once, in order");
                seen.push(serial);
            }
            Effect::Complete { track, number } => assert_eq!(self.open.remove(&track), Some(number)),
            Effect::Evict { track, number } => {
                assert!(self.kept.remove(&(track, number)), "only stored segments are evicted");
            }
            Effect::Note(_) => {}
        }
    }
}

proptest::proptest! {
    #[test]
    fn any_source_yields_complete_segments_in_order(
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
                    let chunk = IncomingChunk {
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
                Step::Ended { track } => script.channel.upload_ended(track, true),
            }
            for effect in script.channel.take_effects() {
                witness.see(effect);
            }
            if let Some(live) = script.channel.live() {
                let start = published.as_ref().map_or(live.availability_start, |p| p.0);
                proptest::prop_assert_eq!(live.availability_start, start, "availability start never changes");
                let epochs: Vec<_> = live.epochs.iter().map(|e| [e.id, e.start_us, e.start_number]).collect();
                proptest::prop_assert!(epochs.windows(2).all(|w| w[0][1] <= w[1][1] && w[0][2] < w[1][2]), "{:?}", epochs);
                let ended = |e: &thalweg_media::presentation::live::Epoch| e.end_us.is_none_or(|end| end > e.start_us);
                proptest::prop_assert!(live.epochs.iter().all(ended), "{:?}", live.epochs);
                for before in published.iter().flat_map(|p| &p.1) {
                    let now = epochs.iter().find(|e| e[0] == before[0]);
                    proptest::prop_assert!(now.is_none_or(|e| e == before), "published epochs never change");
                }
                published = Some((start, epochs));
            }
        }
    }
}
