//! The probe: UDP packets through one direction of a path, with the time at which each was sent.
//!
//! Both sides are on this machine and share its clock, so a single direction is measured, not the round trip.
//!
//! First small packets at an even pace below the rate, for loss and delay; then, where the rate is limited, full packets faster
//! than may pass, for the rate.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use super::{Measured, Passed};
use crate::emulation::{Emulation, Lateness, Side};
use crate::scenario::{Capacity, Direction};

/// IPv4 and UDP headers.
const HEADER_BYTES: usize = 28;
/// Content of a packet of the first part: when it was sent, its part, and nothing.
const SMALL_BYTES: usize = 32;
/// An IP packet of it.
pub const DELAY_PACKET_BYTES: usize = HEADER_BYTES + SMALL_BYTES;
/// Content of a packet of the second.
const FULL_BYTES: usize = 1400;
/// Packets of the first part.
const SMALL_PACKETS: u64 = 3000;
/// Between two of them, unless the rate asks for more.
const SMALL_PACE: Duration = Duration::from_millis(1);
/// Their part of the capacity.
const SMALL_SHARE: f64 = 0.5;
/// Less than this is not measured: the first part would take more than a minute, and of the second hardly anything would pass.
pub const RATE_MIN_BITS_PER_S: f64 = 48_000.0;
/// How long the second part sends, after which the queue still empties.
const FULL_TIME: Duration = Duration::from_millis(1500);
/// How much more than the greatest capacity it sends.
const FULL_EXCESS: f64 = 1.15;
/// Packets that were not read yet may take so much memory.
const RECEIVE_BYTES: usize = 64 << 20;
/// Who receives looks so often whether it is over.
const RECEIVE_LOOK: Duration = Duration::from_millis(100);
/// After the last packet was sent, beside the delay of the path, until it is taken for lost.
const PATIENCE: Duration = Duration::from_millis(500);
/// After the last packet was sent, what still comes is waited for so long at most.
const RECEIVE_MAX: Duration = Duration::from_secs(60);

/// A part of the measurement, which stands in its packets: those of one that come late are not the next one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Small = 1,
    Full = 2,
}

impl Part {
    fn content_bytes(self) -> usize {
        match self {
            Self::Small => SMALL_BYTES,
            Self::Full => FULL_BYTES,
        }
    }
}

/// A packet that arrived.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    sent: Duration,
    arrived: Duration,
}

/// Measures the direction from one side to the other of the path of that number.
///
/// # Errors
/// What the sockets say.
pub fn measure(emulation: &Emulation, path: usize, from: Side) -> io::Result<Measured> {
    let asked = &emulation.scenario().paths[path];
    let server = IpAddr::V4(emulation.scenario().server4);
    let (direction, way, to, addresses) = match from {
        Side::Server => {
            (&asked.down, &emulation.ways(path)[0], Side::Clients, [server, asked.client4().into()])
        }
        Side::Clients => {
            (&asked.up, &emulation.ways(path)[1], Side::Server, [asked.client4().into(), server])
        }
    };
    let bind = |side, address| emulation.on(side, move || UdpSocket::bind(SocketAddr::new(address, 0)));
    let [source, sink] = [bind(from, addresses[0])?, bind(to, addresses[1])?];
    source.connect(sink.local_addr()?)?;
    set_socket_recv_buffer_size_force(&sink, RECEIVE_BYTES)?;
    let probe =
        Probe { source, sink, clock: Instant::now(), wait: direction.delay + direction.jitter + PATIENCE };

    let arrivals = probe.send(Part::Small, SMALL_PACKETS, small_pace(direction))?;
    let mut takes: Vec<_> = arrivals.iter().map(|arrival| arrival.arrived - arrival.sent).collect();
    takes.sort_unstable();
    let Some(delay) = takes.get(takes.len() / 2).copied() else {
        return Err(io::Error::other("nothing arrives at the other side"));
    };
    let lost = SMALL_PACKETS - arrivals.len() as u64;
    let passed = probe.flood(direction, emulation)?;
    emulation.count_missed();
    Ok(Measured { delay, sent: SMALL_PACKETS, lost, passed, lateness: Lateness::of([way]) })
}

/// Whether a direction can be measured in the time that there is for it.
///
/// # Errors
/// Why not.
pub fn check_rate(direction: &Direction) -> Result<(), String> {
    match extremes(&direction.capacity) {
        Some((least, _)) if least < RATE_MIN_BITS_PER_S => Err(format!(
            "a rate of {least} bit/s can be run, not measured: that takes {RATE_MIN_BITS_PER_S} bit/s or more"
        )),
        _ => Ok(()),
    }
}

fn small_pace(direction: &Direction) -> Duration {
    let Some(least) = extremes(&direction.capacity).map(|(least, _)| least) else { return SMALL_PACE };
    SMALL_PACE.max(Duration::from_secs_f64(DELAY_PACKET_BYTES as f64 * 8.0 / (least * SMALL_SHARE)))
}

/// The least and the greatest rate, in bits per second, without the times in which nothing passes.
fn extremes(capacity: &Capacity) -> Option<(f64, f64)> {
    let rates = match capacity {
        Capacity::Unlimited => return None,
        Capacity::Rate(bits_per_s) => vec![*bits_per_s],
        Capacity::Trace(trace) => {
            trace.steps().iter().map(|step| step.bits_per_s).filter(|rate| *rate > 0).collect()
        }
    };
    Some((*rates.iter().min()? as f64, *rates.iter().max()? as f64))
}

struct Probe {
    source: UdpSocket,
    sink: UdpSocket,
    clock: Instant,
    /// What the last packet may take.
    wait: Duration,
}

impl Probe {
    /// Sends so many packets of that part, one each `pace`, and collects what arrives of them.
    fn send(&self, part: Part, packets: u64, pace: Duration) -> io::Result<Vec<Arrival>> {
        let is_sent = AtomicBool::new(false);
        thread::scope(|scope| {
            let receiver = scope.spawn(|| self.receive(part, &is_sent));
            let sent = self.send_all(part, packets, pace);
            is_sent.store(true, Relaxed);
            let arrivals = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            sent.map(|()| arrivals)
        })
    }

    fn send_all(&self, part: Part, packets: u64, pace: Duration) -> io::Result<()> {
        let mut content = vec![0; part.content_bytes()];
        content[8] = part as u8;
        let begun = Instant::now();
        for number in 0..packets {
            let due = begun + Duration::from_secs_f64(pace.as_secs_f64() * number as f64);
            let now = Instant::now();
            if due > now {
                thread::sleep(due - now);
            }
            let sent_ns = u64::try_from(self.clock.elapsed().as_nanos()).expect("within 500 years");
            content[..8].copy_from_slice(&sent_ns.to_le_bytes());
            self.source.send(&content)?;
        }
        Ok(())
    }

    /// What arrives of that part until all was sent and the wait is over.
    fn receive(&self, part: Part, is_sent: &AtomicBool) -> io::Result<Vec<Arrival>> {
        self.sink.set_read_timeout(Some(RECEIVE_LOOK))?;
        let mut content = [0; FULL_BYTES];
        let mut arrivals: Vec<Arrival> = Vec::new();
        let mut quiet_since = self.clock.elapsed();
        let mut sent_at = None;
        loop {
            if is_sent.load(Relaxed)
                && *sent_at.get_or_insert_with(Instant::now) + RECEIVE_MAX < Instant::now()
            {
                return Ok(arrivals);
            }
            match self.sink.recv(&mut content) {
                Ok(_) if content[8] != part as u8 => {}
                Ok(_) => {
                    let sent_ns = u64::from_le_bytes(content[..8].try_into().expect("these are eight"));
                    let arrived = self.clock.elapsed();
                    arrivals.push(Arrival { sent: Duration::from_nanos(sent_ns), arrived });
                    quiet_since = arrived;
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if !is_sent.load(Relaxed) {
                        quiet_since = self.clock.elapsed();
                    } else if self.clock.elapsed() - quiet_since > self.wait {
                        return Ok(arrivals);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends more than passes, and says what did.
    fn flood(&self, direction: &Direction, emulation: &Emulation) -> io::Result<Option<Passed>> {
        let Some((_, greatest)) = extremes(&direction.capacity) else { return Ok(None) };
        let bits = ((HEADER_BYTES + FULL_BYTES) * 8) as f64;
        let pace = Duration::from_secs_f64(bits / (greatest * FULL_EXCESS));
        let packets = (FULL_TIME.as_secs_f64() / pace.as_secs_f64()).ceil() as u64;
        let since_start = emulation.started().elapsed();
        let begun = self.clock.elapsed();
        let arrivals = self.send(Part::Full, packets, pace)?;
        let (Some(first), Some(last)) = (arrivals.first(), arrivals.last()) else {
            return Err(io::Error::other("nothing arrives at the other side"));
        };
        // While it sends, the bottleneck is never idle; afterwards it empties the queue at the same pace.
        let time = last.arrived - first.arrived;
        let bits_asked = match &direction.capacity {
            Capacity::Trace(trace) => {
                let at = |arrival: &Arrival| {
                    trace.bits_until(since_start + arrival.arrived - begun - direction.delay)
                };
                at(last) - at(first)
            }
            _ => greatest * time.as_secs_f64(),
        };
        Ok(Some(Passed { bits: bits * (arrivals.len() - 1) as f64, bits_asked, time }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario;

    #[test]
    fn what_comes_late_is_not_the_next_parts() {
        let [source, sink] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        source.connect(sink.local_addr().unwrap()).unwrap();
        let probe = Probe { source, sink, clock: Instant::now(), wait: Duration::ZERO };
        probe.send_all(Part::Small, 5, Duration::ZERO).unwrap();
        assert_eq!(probe.send(Part::Full, 3, Duration::ZERO).unwrap().len(), 3);
    }

    #[test]
    fn what_would_take_a_month_is_refused() {
        let check = |down: &str| {
            let scenario = scenario::read(&format!("[[path]]\ndown.{down}"), &|_| unreachable!("no file"));
            check_rate(&scenario.unwrap().paths[0].down)
        };
        assert!(check("rate = '1bit/s'").unwrap_err().starts_with("a rate of 1 bit/s can be run"));
        assert!(check("steps = ['1s 1Mbit/s', '1s 47kbit/s']").is_err());
        assert!(check("steps = ['1s 48kbit/s', '1s 0bit/s']").is_ok() && check("delay = '1s'").is_ok());
    }
}
