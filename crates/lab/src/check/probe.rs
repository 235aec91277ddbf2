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
/// Content of a packet of the first part.
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

    let arrivals = probe.send(SMALL_PACKETS, small_pace(direction), SMALL_BYTES)?;
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
    /// Sends so many packets, one each `pace`, and collects what arrives.
    fn send(&self, packets: u64, pace: Duration, content_bytes: usize) -> io::Result<Vec<Arrival>> {
        let is_sent = AtomicBool::new(false);
        thread::scope(|scope| {
            let receiver = scope.spawn(|| self.receive(&is_sent));
            let sent = self.send_all(packets, pace, content_bytes);
            is_sent.store(true, Relaxed);
            let arrivals = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            sent.map(|()| arrivals)
        })
    }

    fn send_all(&self, packets: u64, pace: Duration, content_bytes: usize) -> io::Result<()> {
        let mut content = vec![0; content_bytes];
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

    /// What arrives until all was sent and the wait is over.
    fn receive(&self, is_sent: &AtomicBool) -> io::Result<Vec<Arrival>> {
        self.sink.set_read_timeout(Some(RECEIVE_LOOK))?;
        let mut content = [0; FULL_BYTES];
        let mut arrivals: Vec<Arrival> = Vec::new();
        let mut quiet_since = self.clock.elapsed();
        loop {
            match self.sink.recv(&mut content) {
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
        let arrivals = self.send(packets, pace, FULL_BYTES)?;
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
