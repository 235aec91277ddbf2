//! Tests that the account always adds up, and that known gaps cause stalls of the exact length.

use proptest::prelude::*;

use super::*;

const STEADY: Thresholds =
    Thresholds { startup: Duration::from_millis(500), resume: Duration::from_millis(500) };

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn piece(start_ms: u64, duration_ms: u64) -> Piece {
    Piece { start: ms(start_ms), duration: ms(duration_ms) }
}

#[test]
fn starts_stalls_resumes_and_ends() {
    let mut playhead = Playhead::on_demand(STEADY, Duration::ZERO);
    assert_eq!(playhead.arrive(ms(100), piece(0, 400)), None);
    assert_eq!(playhead.arrive(ms(300), piece(400, 600)), Some(Change::Started(ms(300))));
    // One second is buffered at 300 ms, so the buffer runs empty at 1300 ms, regardless of later
    // calls.
    assert_eq!(playhead.arrive(ms(2000), piece(1000, 400)), None);
    assert_eq!(playhead.arrive(ms(2200), piece(1400, 200)), Some(Change::Resumed(ms(900))));
    playhead.complete(ms(2300));
    playhead.advance(ms(5000));
    assert_eq!(playhead.state(), State::Ended);
    let expected = Account {
        startup: ms(300),
        played: ms(1600),
        stalled: ms(900),
        ended: ms(2200),
        stalls: 1,
        skipped: Duration::ZERO,
    };
    assert_eq!(*playhead.account(), expected);
    assert!((playhead.account().stall_ratio() - 0.36).abs() < 1e-9);
}

#[test]
fn short_presentation_plays_below_the_threshold() {
    let mut playhead = Playhead::on_demand(STEADY, Duration::ZERO);
    playhead.arrive(ms(10), piece(0, 100));
    assert_eq!(playhead.complete(ms(20)), Some(Change::Started(ms(20))));
}

#[test]
fn live_startup_keeps_the_latency() {
    // The viewer joins 2 s behind media time 10 s at wall time 0; media from 6 s to 9.5 s arrives
    // 300 ms later. Playback starts 300 ms further on, so the latency stays 2 s.
    let mut playhead = Playhead::live(STEADY, Duration::ZERO, ms(8000));
    assert_eq!(playhead.arrive(ms(300), piece(6000, 3500)), Some(Change::Started(ms(300))));
    assert_eq!(playhead.position(), ms(8300));
    // If startup takes longer than the available media lasts, playback starts with only the
    // threshold buffered: 500 ms before the end at 9.5 s.
    let mut playhead = Playhead::live(STEADY, Duration::ZERO, ms(8000));
    playhead.arrive(ms(3000), piece(6000, 3500));
    assert_eq!(playhead.position(), ms(9000));
}

#[test]
fn holes_are_skipped_and_rounding_is_not_a_hole() {
    let mut playhead = Playhead::on_demand(STEADY, Duration::ZERO);
    playhead.arrive(ms(0), piece(0, 1000));
    playhead.arrive(ms(0), piece(1050, 1000));
    playhead.arrive(ms(0), piece(4050, 1000));
    assert_eq!(playhead.buffered(), ms(3050));
    playhead.advance(ms(3000));
    assert_eq!(playhead.position(), ms(5000));
    assert_eq!((playhead.account().skipped, playhead.account().stalls), (ms(2000), 0));
}

#[test]
fn rejoin_stalls_and_counts_skipped_media() {
    let mut playhead = Playhead::live(STEADY, Duration::ZERO, Duration::ZERO);
    playhead.arrive(ms(0), piece(0, 1000));
    playhead.rejoin(ms(400), ms(60_000));
    assert_eq!((playhead.state(), playhead.buffered()), (State::Stalled, Duration::ZERO));
    assert_eq!(playhead.arrive(ms(900), piece(60_000, 600)), Some(Change::Resumed(ms(500))));
    assert_eq!(playhead.account().skipped, ms(59_600));
}

/// An event, with milliseconds since the previous one.
#[derive(Debug, Clone)]
enum Event {
    Advance(u64),
    /// A piece arrives: its distance from the end of the last piece, and its duration.
    Arrive(u64, i64, u64),
    Complete(u64),
    Rejoin(u64, u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..3000u64).prop_map(Event::Advance),
        8 => (0..1500u64, -500..1500i64, 0..2000u64).prop_map(|(after, from, long)| Event::Arrive(after, from, long)),
        1 => (0..1000u64).prop_map(Event::Complete),
        1 => (0..1000u64, 0..100_000u64).prop_map(|(after, to)| Event::Rejoin(after, to)),
    ]
}

proptest! {
    #[test]
    fn account_adds_up(
        events in prop::collection::vec(event(), 0..200),
        startup in 0..3000u64,
        resume in 0..3000u64,
        live in any::<bool>(),
        join in 0..10_000u64,
    ) {
        let thresholds = Thresholds { startup: ms(startup), resume: ms(resume) };
        let mut playhead = if live {
            Playhead::live(thresholds, Duration::ZERO, ms(join))
        } else {
            Playhead::on_demand(thresholds, ms(join))
        };
        let (mut now, mut last) = (0, playhead.position());
        for event in events {
            let mut rejoined = false;
            match event {
                Event::Advance(after) => { now += after; playhead.advance(ms(now)); }
                Event::Arrive(after, from, long) => {
                    now += after;
                    let start = ms(u64::try_from(playhead.end().as_millis()).unwrap().saturating_add_signed(from));
                    playhead.arrive(ms(now), Piece { start, duration: ms(long) });
                }
                Event::Complete(after) => { now += after; playhead.complete(ms(now)); }
                Event::Rejoin(after, to) => { now += after; playhead.rejoin(ms(now), ms(to)); rejoined = true; }
            }
            let account = *playhead.account();
            prop_assert_eq!(account.startup + account.played + account.stalled + account.ended, ms(now));
            prop_assert!(playhead.position() + playhead.buffered() <= playhead.end());
            prop_assert!(rejoined || playhead.position() >= last);
            last = playhead.position();
        }
    }

    #[test]
    fn media_that_arrives_in_time_never_stalls(
        chunk in 20..2000u64,
        ahead in 2..10u64,
        lateness in prop::collection::vec(0..1000u64, 1..100),
    ) {
        // Chunk n arrives, with any delay, before n·chunk has been played.
        let mut playhead = Playhead::on_demand(Thresholds { startup: ms(chunk * ahead), resume: ms(chunk) }, ms(0));
        for n in 0..ahead {
            playhead.arrive(ms(0), piece(n * chunk, chunk));
        }
        let mut now = 0;
        for (i, late) in lateness.iter().enumerate() {
            let n = i as u64 + ahead;
            now = now.max(i as u64 * chunk + late * (ahead - 1) * chunk / 1000);
            playhead.arrive(ms(now), piece(n * chunk, chunk));
        }
        prop_assert_eq!(playhead.account().stalls, 0);
        prop_assert_eq!(playhead.account().played, ms(now));
    }

    #[test]
    fn gap_causes_a_stall_of_its_length(chunk in 10..1000u64, before in 2..20u64, gap in 1..10_000u64) {
        // Each chunk arrives one chunk ahead of its playback; then a gap adds `gap` to that
        // interval.
        let mut playhead = Playhead::on_demand(Thresholds { startup: ms(chunk), resume: ms(chunk) }, ms(0));
        for n in 0..before {
            playhead.arrive(ms(n * chunk), piece(n * chunk, chunk));
        }
        let resumed = playhead.arrive(ms(before * chunk + gap), piece(before * chunk, chunk));
        prop_assert_eq!(resumed, Some(Change::Resumed(ms(gap))));
        prop_assert_eq!((playhead.account().stalls, playhead.account().stalled), (1, ms(gap)));
    }
}
