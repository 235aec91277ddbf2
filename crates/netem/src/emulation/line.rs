//! Line after a bottleneck: loses and delays packets, and measures its own lateness.
//!
//! A line is a cell in rattan's chain. Each packet carries the time at which it should have
//! arrived, so lateness does not add up from cell to cell. A packet should leave at that time plus
//! the delay. Any further delay is the emulator's own error and is recorded as lateness.
//!
//! **Invariant:** packets are never reordered.
//! **Invariant:** whether a packet is lost depends only on the seed and the number of earlier
//! packets.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hdrhistogram::Histogram;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rattan_core::cells::{Cell, ControlInterface, Egress, Ingress, Packet, StdPacket};
use rattan_core::error::Error;
use rattan_core::metal::timer::Timer;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::scenario::{Alteration, Direction, Loss};

/// Maximum packets on a line, enough for 150 ms of full packets at 10 Gbit/s. Packets beyond this
/// are dropped.
const PACKETS_MAX: usize = 131_072;
/// Interval between randomly drawn jitter values, in multiples of the jitter.
const WANDER_PERIOD: f64 = 2.0;
/// Maximum recorded lateness.
const LATENESS_MAX_US: u64 = 10_000_000;

/// Packet counts of a line.
#[derive(Debug, Clone)]
pub struct Counts {
    /// Packets processed, including lost ones.
    pub packets: u64,
    /// Packets lost because of the configured loss.
    pub lost: u64,
    /// Packets dropped because the line was full.
    pub overflowed: u64,
    /// Lateness of packets, in microseconds.
    pub lateness_us: Histogram<u64>,
}

/// State and counts of a line, shared between its cell and its owner.
#[derive(Debug)]
pub struct Line {
    state: Mutex<State>,
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct State {
    delay: Duration,
    jitter: Duration,
    loss: Loss,
    is_bad: bool,
    random: StdRng,
    wander: Wander,
    counts: Counts,
}

/// Jitter over time, interpolated linearly between random values. Its slope is too small for any
/// packet to overtake another, however close together they are.
#[derive(Debug)]
struct Wander {
    random: StdRng,
    started: Instant,
    /// Number of the current interval, counted from zero.
    number: u64,
    from: f64,
    to: f64,
}

impl Line {
    /// Creates a line with the properties of `direction`, seeded with `seed`.
    pub(super) fn new(direction: &Direction, seed: u64) -> Arc<Self> {
        let lateness_us = Histogram::new_with_max(LATENESS_MAX_US, 2).expect("histogram bounds are valid");
        let state = State {
            delay: direction.delay,
            jitter: direction.jitter,
            loss: direction.loss,
            is_bad: false,
            random: StdRng::seed_from_u64(seed),
            wander: Wander {
                random: StdRng::seed_from_u64(!seed),
                started: Instant::now(),
                number: 0,
                from: 0.5,
                to: 0.5,
            },
            counts: Counts { packets: 0, lost: 0, overflowed: 0, lateness_us },
        };
        Arc::new(Self { state: Mutex::new(state), waiting: AtomicUsize::new(0) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies an alteration.
    pub(super) fn alter(&self, alteration: &Alteration) {
        let mut state = self.state();
        state.delay = alteration.delay.unwrap_or(state.delay);
        state.jitter = alteration.jitter.unwrap_or(state.jitter);
        state.loss = alteration.loss.unwrap_or(state.loss);
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        self.state().counts.clone()
    }

    /// Returns the number of packets that arrived, including those waiting and those dropped
    /// because the line was full.
    pub(super) fn arrived(&self) -> u64 {
        let waiting = self.waiting.load(Relaxed) as u64;
        let counts = &self.state().counts;
        waiting + counts.packets + counts.overflowed
    }

    /// Returns the number of packets lost or forwarded.
    pub(super) fn done(&self) -> u64 {
        let counts = &self.state().counts;
        counts.lost + counts.lateness_us.len()
    }
}

impl State {
    /// Returns the delay of the next packet, which arrived at `now`, or `None` if the packet is
    /// lost.
    fn next(&mut self, now: Instant) -> Option<Duration> {
        self.counts.packets += 1;
        let change = if self.is_bad { self.loss.leave } else { self.loss.enter };
        self.is_bad ^= self.random.random_bool(change);
        let loss = if self.is_bad { self.loss.bad } else { self.loss.good };
        if self.random.random_bool(loss) {
            self.counts.lost += 1;
            return None;
        }
        Some(self.delay + self.wander.at(now, self.jitter))
    }
}

impl Wander {
    fn at(&mut self, now: Instant, jitter: Duration) -> Duration {
        let period_s = jitter.as_secs_f64() * WANDER_PERIOD;
        if period_s == 0.0 {
            return Duration::ZERO;
        }
        let periods = now.saturating_duration_since(self.started).as_secs_f64() / period_s;
        if periods as u64 > self.number {
            // Skip the random values of intervals without packets.
            self.from = if periods as u64 == self.number + 1 { self.to } else { self.random.random() };
            self.to = self.random.random();
            self.number = periods as u64;
        }
        jitter.mul_f64(self.from + (self.to - self.from) * periods.fract())
    }
}

/// The line as a rattan cell.
pub(super) struct LineCell {
    entry: Arc<Entry>,
    exit: Exit,
}

pub(super) struct Entry {
    line: Arc<Line>,
    packets: mpsc::UnboundedSender<StdPacket>,
}

pub(super) struct Exit {
    line: Arc<Line>,
    packets: mpsc::UnboundedReceiver<StdPacket>,
    timer: Timer,
    last: Instant,
}

impl LineCell {
    /// Creates the cell. The caller must be inside a runtime, whose timers the cell uses.
    ///
    /// # Errors
    ///
    /// Returns an error if the system provides no timer.
    pub(super) fn new(line: &Arc<Line>) -> Result<Self, Error> {
        // The channel is unbounded because `enqueue` must not block; `enqueue` itself enforces
        // `PACKETS_MAX`.
        let (sender, receiver) = mpsc::unbounded_channel();
        Ok(Self {
            entry: Arc::new(Entry { line: line.clone(), packets: sender }),
            exit: Exit { line: line.clone(), packets: receiver, timer: Timer::new()?, last: Instant::now() },
        })
    }
}

impl Cell<StdPacket> for LineCell {
    type IngressType = Entry;
    type EgressType = Exit;
    type ControlInterfaceType = Unused;

    fn sender(&self) -> Arc<Entry> {
        self.entry.clone()
    }

    fn receiver(&mut self) -> &mut Exit {
        &mut self.exit
    }

    fn into_receiver(self) -> Exit {
        self.exit
    }

    fn control_interface(&self) -> Arc<Unused> {
        Arc::new(Unused)
    }
}

/// Placeholder control interface. Use [`Line::alter`] to change a line.
pub(super) struct Unused;

impl ControlInterface for Unused {
    type Config = ();

    fn set_config(&self, (): ()) -> Result<(), Error> {
        Ok(())
    }
}

impl Ingress<StdPacket> for Entry {
    fn enqueue(&self, packet: StdPacket) -> Result<(), Error> {
        if self.line.waiting.fetch_add(1, Relaxed) >= PACKETS_MAX {
            self.line.waiting.fetch_sub(1, Relaxed);
            self.line.state().counts.overflowed += 1;
            return Ok(());
        }
        self.packets.send(packet).map_err(|_| Error::ChannelError("the line is closed".to_owned()))
    }
}

#[async_trait]
impl Egress<StdPacket> for Exit {
    async fn dequeue(&mut self) -> Option<StdPacket> {
        let mut packet = self.packets.recv().await?;
        self.line.waiting.fetch_sub(1, Relaxed);
        let arrived = packet.get_timestamp();
        let delay = self.line.state().next(arrived)?;
        let due = (arrived + delay).max(self.last);
        self.last = due;
        if let Err(error) = self.timer.sleep_until(due).await {
            tracing::error!(%error, "packet lost: system timer failed");
            return None;
        }
        let late_us = u64::try_from(due.elapsed().as_micros()).unwrap_or(LATENESS_MAX_US);
        self.line.state().counts.lateness_us.saturating_record(late_us);
        packet.delay_until(due);
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Capacity, Discipline, Queue};

    fn state(delay_ms: u64, jitter_ms: u64, loss: Loss) -> Arc<Line> {
        let direction = Direction {
            delay: Duration::from_millis(delay_ms),
            jitter: Duration::from_millis(jitter_ms),
            capacity: Capacity::Unlimited,
            queue: Queue { bytes: 0, discipline: Discipline::DropTail },
            loss,
        };
        Line::new(&direction, 7)
    }

    fn lost(line: &Line, packets: u64) -> Vec<bool> {
        let mut state = line.state();
        (0..packets).map(|_| state.next(Instant::now()).is_none()).collect()
    }

    #[test]
    fn share_of_lost_packets_is_the_mean() {
        const PACKETS: u64 = 200_000;
        for loss in [
            Loss::NONE,
            Loss::random(0.01),
            Loss { good: 0.001, bad: 0.8, enter: 0.002, leave: 0.2 },
            Loss::random(1.0),
        ] {
            let line = state(0, 0, loss);
            let share = lost(&line, PACKETS).iter().filter(|lost| **lost).count() as f64 / PACKETS as f64;
            let deviation = (loss.mean() * (1.0 - loss.mean()) * loss.clustering() / PACKETS as f64).sqrt();
            assert!((share - loss.mean()).abs() <= 4.0 * deviation, "{loss:?}: {share}");
            assert_eq!(line.counts().lost, (share * PACKETS as f64).round() as u64);
        }
    }

    #[test]
    fn seed_determines_which_packets_are_lost() {
        let all = |_| lost(&state(0, 0, Loss::random(0.5)), 64);
        assert_eq!(all(0), all(1));
    }

    #[test]
    fn jitter_is_bounded_and_never_reorders() {
        let line = state(10, 4, Loss::NONE);
        let mut state = line.state();
        let started = Instant::now();
        let all: Vec<_> = (0..1_000_000)
            .map(|number| {
                let arrival = Duration::from_micros(10 * number);
                arrival + state.next(started + arrival).unwrap()
            })
            .collect();
        assert!(all.is_sorted());
        let mut delays: Vec<_> =
            all.iter().zip(0..).map(|(left, number)| *left - Duration::from_micros(10 * number)).collect();
        delays.sort_unstable();
        assert!((10_000..10_100).contains(&delays[0].as_micros()), "{delays:?}");
        assert!((13_900..14_000).contains(&delays[delays.len() - 1].as_micros()));
        assert!(
            (11_800..12_200).contains(&delays[delays.len() / 2].as_micros()),
            "{:?}",
            delays[delays.len() / 2]
        );
    }

    #[test]
    fn packets_leave_on_time_and_in_order() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let line = state(20, 10, Loss::NONE);
            let mut cell = LineCell::new(&line).unwrap();
            let started = Instant::now();
            for number in 0..50u8 {
                cell.sender().enqueue(StdPacket::from_raw_buffer(&[number; 60])).unwrap();
            }
            for number in 0..50u8 {
                let packet = cell.receiver().dequeue().await.unwrap();
                assert_eq!(packet.as_slice()[0], number);
                assert!(started.elapsed() >= Duration::from_millis(20));
                assert!(packet.get_timestamp() <= Instant::now());
            }
            line.alter(&Alteration { loss: Some(Loss::random(1.0)), ..Alteration::default() });
            cell.sender().enqueue(StdPacket::from_raw_buffer(&[0; 60])).unwrap();
            assert_eq!((line.arrived(), line.done()), (51, 50));
            assert!(cell.receiver().dequeue().await.is_none());
            assert_eq!((line.arrived(), line.done()), (51, 51));
            assert_eq!((line.counts().packets, line.counts().lost), (51, 1));
        });
    }
}
