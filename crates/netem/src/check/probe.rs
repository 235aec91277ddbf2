//! UDP probe for one direction of a path. Each packet carries the time at which it was sent.
//!
//! Both sides share this machine's clock, so the probe can measure a single direction instead of
//! the round trip. Arrival times come from the kernel (`SO_TIMESTAMPNS`, socket(7)), so they
//! exclude the time the receiving thread waits to be scheduled.
//!
//! The first part measures loss and delay with small packets, sent at an even pace below the rate.
//! If the rate is limited, the second part measures it with full-sized packets sent above the rate.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use super::{Measured, Passed};
use crate::emulation::{Emulation, Lateness, PROBE_PRIORITY, Side, with_priority};
use crate::scenario::{Capacity, Direction};

/// Size of the IPv4 and UDP headers.
const HEADER_BYTES: usize = 28;
/// UDP payload size in the first part: send time, part number and padding.
const SMALL_BYTES: usize = 32;
/// IP packet size in the first part.
pub const DELAY_PACKET_BYTES: usize = HEADER_BYTES + SMALL_BYTES;
/// UDP payload size in the second part.
const FULL_BYTES: usize = 1400;
/// Number of packets in the first part.
const SMALL_PACKETS: u64 = 3000;
/// Interval between packets in the first part, unless the rate requires a longer one.
const SMALL_PACE: Duration = Duration::from_millis(1);
/// Share of the capacity used in the first part.
const SMALL_SHARE: f64 = 0.5;
/// Minimum measurable rate. At a lower rate, the first part would take more than a minute, and
/// almost nothing would pass in the second.
pub const RATE_MIN_BITS_PER_S: f64 = 48_000.0;
/// Duration of sending in the second part. The queue drains afterwards.
const FULL_TIME: Duration = Duration::from_millis(1500);
/// Sending rate of the second part, relative to the highest capacity.
const FULL_EXCESS: f64 = 1.15;
/// Size of the receive buffer.
const RECEIVE_BYTES: usize = 64 << 20;
/// Interval at which the receiver checks whether the probe is done.
const RECEIVE_POLL: Duration = Duration::from_millis(100);
/// Silence after which missing packets count as lost, in addition to the path's delay.
const PATIENCE: Duration = Duration::from_millis(500);
/// Time limit for receiving after the last packet has been sent.
const RECEIVE_MAX: Duration = Duration::from_secs(60);

/// Part of the measurement. Each packet carries its part's number, so that a late packet is not
/// counted in the next part.
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

/// Send and arrival times of a received packet, as Unix time.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    sent: Duration,
    arrived: Duration,
}

/// Measures path `path` in the direction away from side `from`.
///
/// # Errors
///
/// Returns an error if a socket operation fails or no packet arrives.
pub fn measure(emulation: &Emulation, path: usize, from: Side) -> io::Result<Measured> {
    let asked = &emulation.scenario().paths[path];
    let server = IpAddr::V4(emulation.scenario().server4);
    let (direction, running, to, addresses) = match from {
        Side::Server => {
            (&asked.down, &emulation.directions(path)[0], Side::Clients, [server, asked.client4().into()])
        }
        Side::Clients => {
            (&asked.up, &emulation.directions(path)[1], Side::Server, [asked.client4().into(), server])
        }
    };
    let bind = |side, address| emulation.on(side, move || UdpSocket::bind(SocketAddr::new(address, 0)));
    let [source, sink] = [bind(from, addresses[0])?, bind(to, addresses[1])?];
    source.connect(sink.local_addr()?)?;
    set_socket_recv_buffer_size_force(&sink, RECEIVE_BYTES)?;
    let probe = Probe::new(source, sink, direction.delay + direction.jitter + PATIENCE)?;
    let missed = || {
        emulation.count_missed();
        running.missed()
    };

    let missed_before = missed();
    let arrivals = probe.send(Part::Small, SMALL_PACKETS, small_pace(direction))?;
    let missed_small = missed() - missed_before;
    let mut delays: Vec<_> =
        arrivals.iter().map(|arrival| arrival.arrived.saturating_sub(arrival.sent)).collect();
    delays.sort_unstable();
    let Some(delay) = delays.get(delays.len() / 2).copied() else {
        return Err(io::Error::other("no probe packets arrived at the other side"));
    };
    let lost = (SMALL_PACKETS - arrivals.len() as u64).saturating_sub(missed_small);
    let passed = probe.flood(direction, emulation)?;
    missed();
    Ok(Measured { delay, sent: SMALL_PACKETS, lost, passed, lateness: Lateness::of([running]) })
}

/// Checks that the direction's rate is high enough to be measured in a reasonable time.
///
/// # Errors
///
/// Returns an error message if the rate is too low.
pub fn check_rate(direction: &Direction) -> Result<(), String> {
    match extremes(&direction.capacity) {
        Some((least, _)) if least < RATE_MIN_BITS_PER_S => Err(format!(
            "rate too low to measure: must be at least {RATE_MIN_BITS_PER_S} bit/s, got {least} bit/s"
        )),
        _ => Ok(()),
    }
}

fn small_pace(direction: &Direction) -> Duration {
    let Some(least) = extremes(&direction.capacity).map(|(least, _)| least) else { return SMALL_PACE };
    SMALL_PACE.max(Duration::from_secs_f64(DELAY_PACKET_BYTES as f64 * 8.0 / (least * SMALL_SHARE)))
}

/// Returns the lowest and highest rate in bits per second, ignoring steps with a rate of zero, or
/// `None` if the rate is unlimited.
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

/// Returns the current time on the clock that the kernel uses for packet timestamps.
fn unix_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

struct Probe {
    source: UdpSocket,
    sink: UdpSocket,
    /// Silence after which missing packets count as lost.
    wait: Duration,
}

impl Probe {
    fn new(source: UdpSocket, sink: UdpSocket, wait: Duration) -> io::Result<Self> {
        setsockopt(&sink, ReceiveTimestampns, &true)?;
        sink.set_read_timeout(Some(RECEIVE_POLL))?;
        Ok(Self { source, sink, wait })
    }

    /// Sends `packets` packets of `part`, one every `pace`, and collects the arrivals.
    fn send(&self, part: Part, packets: u64, pace: Duration) -> io::Result<Vec<Arrival>> {
        let is_sent = AtomicBool::new(false);
        thread::scope(|scope| {
            let receiver = scope.spawn(|| self.receive(part, &is_sent));
            // Send with real-time priority, so that the bottleneck never idles.
            let sent = with_priority(PROBE_PRIORITY, || self.send_all(part, packets, pace));
            is_sent.store(true, Relaxed);
            let arrivals = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            sent.map(|()| arrivals)
        })
    }

    fn send_all(&self, part: Part, packets: u64, pace: Duration) -> io::Result<()> {
        let mut content = vec![0; part.content_bytes()];
        content[8] = part as u8;
        let started = Instant::now();
        for number in 0..packets {
            let due = started + Duration::from_secs_f64(pace.as_secs_f64() * number as f64);
            let now = Instant::now();
            if due > now {
                thread::sleep(due - now);
            }
            let sent_ns = u64::try_from(unix_now().as_nanos()).expect("the clock is before the year 2554");
            content[..8].copy_from_slice(&sent_ns.to_le_bytes());
            self.source.send(&content)?;
        }
        Ok(())
    }

    /// Collects the arrivals of `part` until all packets have been sent and none has arrived for
    /// `wait`.
    fn receive(&self, part: Part, is_sent: &AtomicBool) -> io::Result<Vec<Arrival>> {
        let mut content = [0; FULL_BYTES];
        let mut arrivals: Vec<Arrival> = Vec::new();
        let mut quiet_since = Instant::now();
        let mut sent_at = None;
        loop {
            if is_sent.load(Relaxed)
                && *sent_at.get_or_insert_with(Instant::now) + RECEIVE_MAX < Instant::now()
            {
                return Ok(arrivals);
            }
            match self.receive_one(&mut content) {
                Ok(_) if content[8] != part as u8 => {}
                Ok(arrived) => {
                    let sent_ns =
                        u64::from_le_bytes(content[..8].try_into().expect("the slice has eight bytes"));
                    arrivals.push(Arrival { sent: Duration::from_nanos(sent_ns), arrived });
                    quiet_since = Instant::now();
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if !is_sent.load(Relaxed) {
                        quiet_since = Instant::now();
                    } else if quiet_since.elapsed() > self.wait {
                        return Ok(arrivals);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Receives a packet into `content` and returns its arrival time.
    fn receive_one(&self, content: &mut [u8]) -> io::Result<Duration> {
        let mut control = nix::cmsg_space!(TimeSpec);
        let mut content = [IoSliceMut::new(content)];
        let message =
            recvmsg::<()>(self.sink.as_raw_fd(), &mut content, Some(&mut control), MsgFlags::empty())?;
        let arrived = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(arrived) => Some(arrived.into()),
            _ => None,
        });
        arrived.ok_or_else(|| io::Error::other("the kernel sent no packet timestamp"))
    }

    /// Sends above the rate and measures the traffic that passes. Returns `None` if the rate is
    /// unlimited.
    fn flood(&self, direction: &Direction, emulation: &Emulation) -> io::Result<Option<Passed>> {
        let Some((_, greatest)) = extremes(&direction.capacity) else { return Ok(None) };
        let bits = ((HEADER_BYTES + FULL_BYTES) * 8) as f64;
        let pace = Duration::from_secs_f64(bits / (greatest * FULL_EXCESS));
        let packets = (FULL_TIME.as_secs_f64() / pace.as_secs_f64()).ceil() as u64;
        let (since_start, started) = (emulation.started().elapsed(), unix_now());
        let arrivals = self.send(Part::Full, packets, pace)?;
        let (Some(first), Some(last)) = (arrivals.first(), arrivals.last()) else {
            return Err(io::Error::other("no probe packets arrived at the other side"));
        };
        // The bottleneck never idles between the first and last arrival: it is saturated while
        // packets are sent and drains its queue afterwards.
        let time = last.arrived - first.arrived;
        let bits_asked = match &direction.capacity {
            Capacity::Trace(trace) => {
                let at = |arrival: &Arrival| {
                    trace.bits_until(since_start + arrival.arrived - started - direction.delay)
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
    fn late_packets_do_not_count_in_the_next_part() {
        let [source, sink] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        source.connect(sink.local_addr().unwrap()).unwrap();
        let probe = Probe::new(source, sink, Duration::ZERO).unwrap();
        probe.send_all(Part::Small, 5, Duration::ZERO).unwrap();
        assert_eq!(probe.send(Part::Full, 3, Duration::ZERO).unwrap().len(), 3);
    }

    #[test]
    fn rates_too_low_to_measure_are_rejected() {
        let check = |down: &str| {
            let scenario = scenario::read(&format!("[[path]]\ndown.{down}"), &|_| {
                unreachable!("the scenario includes no file")
            });
            check_rate(&scenario.unwrap().paths[0].down)
        };
        assert!(check("rate = '1bit/s'").unwrap_err().starts_with("rate too low to measure: "));
        assert!(check("steps = ['1s 1Mbit/s', '1s 47kbit/s']").is_err());
        assert!(check("steps = ['1s 48kbit/s', '1s 0bit/s']").is_ok() && check("delay = '1s'").is_ok());
    }
}
