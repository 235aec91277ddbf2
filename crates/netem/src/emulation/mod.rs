//! Emulation of a scenario: two network namespaces, connected by two rattan cells per path and
//! direction, a bottleneck ([`bottleneck`]) and a line ([`line`]).
//!
//! Packets pass through AF_PACKET sockets on the inner ends of veth pairs. The sender's own device
//! is not shaped, because that would put back-pressure on the sender. `rattan-core` provides the
//! devices, the driver, the bottleneck and the queues.
//!
//! The server may also run on the host itself, outside the namespaces ([`uplink`]).
//!
//! **Invariant:** an emulation disappears when this process exits ([`mounts`]), even on a signal
//! ([`ending`]). After a SIGKILL, the next run removes anything left behind ([`leftover`]).

mod addresses;
mod bottleneck;
mod ending;
mod lateness;
mod leftover;
mod line;
mod missed;
mod mounts;
mod namespace;
mod setup;
mod uplink;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use rattan_core::config::RattanConfig;
use rattan_core::core::CALIBRATED_START_INSTANT;
use rattan_core::env::{StdNetEnvConfig, StdNetEnvMode};
use rattan_core::metal::io::af_packet::AfPacketDriver;
use rattan_core::radix::RattanRadix;
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::{CapabilitySet, capabilities, gettid};

use crate::scenario::{self, Alteration, Change, Direction, Scenario};
use bottleneck::Bottleneck;
pub use ending::{SignalHandler, SignalSetup};
pub use lateness::{LATENESS_MAX, Lateness, MISSED_MAX};
use line::LineCell;
pub use line::{Counts, Line};
use missed::Missed;
use mounts::Mounts;
use namespace::Namespace;
use setup::set_up;
use uplink::Uplink;

/// Real-time priority of the emulator's threads, below the kernel's own threads, which have 50. It
/// is set with `chrt` from util-linux, an essential package on Debian.
const PRIORITY: &str = "10";
/// Real-time priority of the probe: below the emulator, above all ordinary threads.
pub(crate) const PROBE_PRIORITY: &str = "5";

/// An error that keeps an emulation from starting or continuing.
#[derive(Debug)]
pub enum Error {
    /// This process lacks the named capability.
    Rights(&'static str),
    /// A required program is not installed. The values are its name and its Debian package.
    Missing(&'static str, &'static str),
    /// The system failed to provide the named resource.
    System(&'static str, io::Error),
    /// `ip` rejected a command.
    Addresses(String),
    /// The host already has a route to some of the scenario's addresses. The values are the
    /// addresses and the route.
    Taken(String, String),
    /// Rattan reported an error.
    Emulator(rattan_core::error::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rights(capability) => {
                write!(f, "network namespaces need root: {capability} is missing; run this program with sudo")
            }
            Self::Missing(program, package) => write!(f, "`{program}` not found: install {package}"),
            Self::System(what, error) => write!(f, "cannot set up {what}: {error}"),
            Self::Addresses(message) => write!(f, "cannot set up addresses: {message}"),
            Self::Taken(addresses, route) => write!(
                f,
                "{addresses} is already routed on this machine ({route}): change the scenario's addresses (server4 and prefix4, or server6 and prefix6)"
            ),
            Self::Emulator(error) => write!(f, "cannot run the emulation: {error}"),
        }
    }
}

impl std::error::Error for Error {}

/// A side of the emulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The clients' side.
    Clients,
    /// The server's side.
    Server,
}

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    Four,
    /// IPv6.
    Six,
}

impl Family {
    /// Returns the path's client prefix in CIDR notation.
    pub fn prefix(self, path: &scenario::Path) -> String {
        match self {
            Self::Four => format!("{}/24", path.prefix4),
            Self::Six => format!("{}/56", path.prefix6),
        }
    }
}

/// One direction of a running path.
pub struct PathDirection {
    /// The line after the bottleneck.
    pub line: Arc<Line>,
    bottleneck: Option<Bottleneck>,
    /// Packets lost by the emulator itself, as of the last
    /// [`count_missed`](Emulation::count_missed).
    missed: AtomicU64,
}

/// A running scenario, stopped and removed on drop.
pub struct Emulation {
    /// Dropped first, so that no packets are in flight. The mutex is never locked; it makes the
    /// type `Sync`.
    radix: Mutex<Option<RattanRadix<AfPacketDriver>>>,
    clients: Namespace,
    server: Namespace,
    /// The emulator's namespace, between the two sides.
    inside: Namespace,
    /// Directions of each path, down then up, in scenario order.
    directions: Vec<[PathDirection; 2]>,
    started: Instant,
    /// Identifier of this emulation in the names of its namespaces and devices.
    id: String,
    scenario: Scenario,
    /// Dropped before `note`, because dropping the note removes the mount points.
    _mounts: Mounts,
    note: leftover::Note,
    /// Link to the host, if the server runs there.
    _uplink: Option<Uplink>,
}

impl Emulation {
    /// Starts a scenario. Moves this thread, and all threads and processes it starts later, to a
    /// new mount namespace. Call this once, before any other thread exists.
    ///
    /// # Errors
    ///
    /// Returns an error if a capability or another requirement is missing; nothing is left behind.
    pub fn start(scenario: &Scenario) -> Result<Self, Error> {
        Self::start_on(scenario, None)
    }

    /// Starts a scenario like [`start`](Self::start), with the host as the server. While the
    /// emulation runs, the calling network namespace has the server's address and routes to the
    /// clients' prefixes, all of one address family. No addresses are translated: the host sees
    /// each client's own address.
    ///
    /// # Errors
    ///
    /// Returns an error if [`start`](Self::start) would, or if the host already has a route to one
    /// of these addresses.
    pub fn start_with_host(scenario: &Scenario, family: Family) -> Result<Self, Error> {
        Self::start_on(scenario, Some(family))
    }

    fn start_on(scenario: &Scenario, host: Option<Family>) -> Result<Self, Error> {
        let ended = leftover::clear();
        if ended > 0 {
            tracing::warn!(processes = ended, "killed processes left by an earlier run");
        }
        check_net_admin()?;
        check_packet_sockets()?;
        if let Some(family) = host {
            uplink::check(scenario, family)?;
        }
        mounts::unshare_mounts()?;
        let note_error = |error| Error::System("the run's marker file", error);
        let note = leftover::Note::write().map_err(note_error)?;
        let mounts = Mounts::new()?;
        let count = scenario.paths.len();
        let config = RattanConfig {
            env: StdNetEnvConfig {
                mode: StdNetEnvMode::Isolated,
                left_veth_count: count,
                right_veth_count: count,
                ..StdNetEnvConfig::default()
            },
            ..RattanConfig::default()
        };
        let mut radix = with_priority(PRIORITY, || RattanRadix::<AfPacketDriver>::new(config))
            .map_err(Error::Emulator)?;
        let id = radix.get_rattan_id().clone();
        let open = |name: String| Namespace::open(&name).map_err(|error| Error::System("a namespace", error));
        let (clients, server) = (open(namespace::clients_name(&id))?, open(namespace::server_name(&id))?);
        let inside = open(namespace::inside_name(&id))?;
        note.set_emulation(&id).map_err(note_error)?;
        let uplink = host.map(|family| Uplink::create(scenario, family, &id)).transpose()?;
        set_up(&clients, false, &addresses::clients(scenario, &id))?;
        set_up(&server, host.is_some(), &addresses::server(scenario, &id, host.is_some()))?;
        let directions = link(&mut radix, scenario)?;
        radix.spawn_rattan().map_err(Error::Emulator)?;
        radix.start_rattan().map_err(Error::Emulator)?;
        let scenario = scenario.clone();
        let started = CALIBRATED_START_INSTANT.get().map_or_else(Instant::now, |started| started.into_std());
        let radix = Mutex::new(Some(radix));
        Ok(Self {
            radix,
            clients,
            server,
            inside,
            directions,
            started,
            id,
            scenario,
            _uplink: uplink,
            _mounts: mounts,
            note,
        })
    }

    /// Returns the running scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Returns the time at which the emulation and all its traces started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Returns the directions of path `path`, down then up.
    pub fn directions(&self, path: usize) -> &[PathDirection; 2] {
        &self.directions[path]
    }

    /// Applies a change to path `path`.
    ///
    /// # Errors
    ///
    /// Returns an error if the emulation has stopped.
    pub fn change(&self, path: usize, change: &Change) -> Result<(), Error> {
        let [down, up] = self.directions(path);
        down.alter(&change.down)?;
        up.alter(&change.up)?;
        tracing::info!(path = self.scenario.paths[path].name, at = ?change.at, "path changed");
        Ok(())
    }

    /// Updates the count of packets lost by the emulator itself, which [`PathDirection::missed`]
    /// and [`Lateness`] report.
    pub fn count_missed(&self) {
        match Missed::count(&self.clients, &self.server, &self.inside) {
            Ok(missed) => missed.store(&self.directions, &self.id),
            Err(error) => tracing::warn!(%error, "cannot count packets lost by the emulator"),
        }
    }

    fn namespace(&self, side: Side) -> &Namespace {
        match side {
            Side::Clients => &self.clients,
            Side::Server => &self.server,
        }
    }

    /// Returns the path of the file through which children of this process can enter a side's
    /// network namespace (`nsenter --net=FILE`).
    pub fn namespace_path(&self, side: Side) -> &str {
        &self.namespace(side).path
    }

    /// Returns a directory that only this process and its children can see and that disappears with
    /// them.
    pub fn scratch(&self) -> &'static Path {
        Path::new(namespace::SCRATCH)
    }

    /// Runs `work` on a new thread on one side. Sockets created by `work` belong to that side.
    ///
    /// # Errors
    ///
    /// Returns the error of `work`.
    pub fn on<R: Send>(&self, side: Side, work: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
        self.namespace(side).run(work)
    }

    /// Runs a future on one side, like [`on`](Self::on), on a new thread with its own runtime.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread or the runtime cannot be created.
    pub fn run_on<F: Future<Output: Send>>(
        &self,
        side: Side,
        work: impl FnOnce() -> F + Send,
    ) -> io::Result<F::Output> {
        self.on(side, || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            Ok(runtime.block_on(work()))
        })
    }

    /// Starts a process on one side.
    ///
    /// # Errors
    ///
    /// Returns an error if the process cannot be started.
    pub fn spawn(&self, side: Side, command: &mut Command) -> io::Result<Child> {
        self.on(side, || command.spawn())
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        // Processes left behind by commands would keep the namespaces alive.
        leftover::end_within(&self.id);
        // Stop the emulator before the namespaces' files are closed and the mounts removed.
        drop(self.radix.get_mut().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl PathDirection {
    /// Returns the number of packets that arrived at the bottleneck's queue or, without a
    /// bottleneck, at the line.
    pub fn packets(&self) -> u64 {
        self.bottleneck.as_ref().map_or_else(|| self.line.arrived(), Bottleneck::packets)
    }

    /// Returns the number of packets dropped by the bottleneck's queue, or because the line was
    /// full.
    pub fn dropped(&self) -> u64 {
        self.bottleneck.as_ref().map_or(0, Bottleneck::dropped) + self.line.counts().overflowed
    }

    /// Returns the number of packets lost by the emulator itself, as of the last
    /// [`count_missed`](Emulation::count_missed). No other count includes them.
    pub fn missed(&self) -> u64 {
        self.missed.load(Relaxed)
    }

    /// Returns the number of packets in the queue or on the line.
    pub fn in_flight(&self) -> u64 {
        // Counts only grow. Reading the outgoing counts first keeps the difference from going below
        // zero.
        let done = self.dropped() + self.line.done();
        self.packets().saturating_sub(done)
    }

    /// Applies an alteration.
    ///
    /// # Errors
    ///
    /// Returns an error if the emulation has stopped.
    pub fn alter(&self, alteration: &Alteration) -> Result<(), Error> {
        self.line.alter(alteration);
        match (alteration.rate_bits_per_s, &self.bottleneck) {
            (Some(bits_per_s), Some(bottleneck)) => bottleneck.set_rate(bits_per_s).map_err(Error::Emulator),
            _ => Ok(()),
        }
    }
}

fn check_net_admin() -> Result<(), Error> {
    match capabilities(None) {
        Ok(held) if !held.effective.contains(CapabilitySet::NET_ADMIN) => Err(Error::Rights("CAP_NET_ADMIN")),
        // If capabilities cannot be read, a later operation fails and reports the error.
        _ => Ok(()),
    }
}

fn check_packet_sockets() -> Result<(), Error> {
    match socket(AddressFamily::PACKET, SocketType::RAW, None) {
        Ok(_) => Ok(()),
        Err(error) if error == rustix::io::Errno::PERM => Err(Error::Rights("CAP_NET_RAW")),
        Err(error) => Err(Error::System("AF_PACKET sockets", error.into())),
    }
}

/// Runs `work` on a thread with real-time priority, which threads started by `work` inherit.
/// Packets then leave on time even while the programs under test keep the machine busy. A low
/// niceness is not enough, because another thread could still use up its time slice of 3 ms.
pub(crate) fn with_priority<R: Send>(priority: &str, work: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| {
        let first = || {
            let thread = gettid().as_raw_nonzero().to_string();
            let set = Command::new("chrt").args(["--rr", "--pid", priority, &thread]).output();
            if !set.is_ok_and(|output| output.status.success()) {
                tracing::warn!(
                    "cannot set real-time priority: packets may be late while the machine is busy"
                );
            }
            work()
        };
        scope.spawn(first).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Links the cells of all paths to the devices of both sides.
fn link(
    radix: &mut RattanRadix<AfPacketDriver>,
    scenario: &Scenario,
) -> Result<Vec<[PathDirection; 2]>, Error> {
    let mut links = HashMap::new();
    let mut directions = Vec::new();
    let count = scenario.paths.len();
    for (index, path) in scenario.paths.iter().enumerate() {
        // If a side has a single device, rattan leaves the number out of the name.
        let end = |side: &str| if count == 1 { side.to_owned() } else { format!("{side}{}", index + 1) };
        let seed = scenario.seed.wrapping_mul(1_000_003).wrapping_add(2 * index as u64);
        let mut chain = |from: String, name: &str, to: String, direction: &Direction, seed| {
            let cells = [format!("{name}-rate-{index}"), format!("{name}-line-{index}")];
            let bottleneck = Bottleneck::build(radix, &cells[0], &direction.capacity, direction.queue)?;
            let line = Line::new(direction, seed);
            let built = radix.build_cell(cells[1].clone(), |runtime| {
                let _within = runtime.enter();
                LineCell::new(&line)
            });
            built.map_err(Error::Emulator)?;
            let [rate_cell, line_cell] = cells;
            if bottleneck.is_some() {
                links.insert(from, rate_cell.clone());
                links.insert(rate_cell, line_cell.clone());
            } else {
                links.insert(from, line_cell.clone());
            }
            links.insert(line_cell, to);
            Ok(PathDirection { line, bottleneck, missed: AtomicU64::new(0) })
        };
        directions.push([
            chain(end("right"), "down", end("left"), &path.down, seed)?,
            chain(end("left"), "up", end("right"), &path.up, seed + 1)?,
        ]);
    }
    radix.link_cells(links).map_err(Error::Emulator)?;
    Ok(directions)
}
