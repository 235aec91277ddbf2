//! A scenario as it runs: two network namespaces, and between them, for each path and direction, rattan's chain of
//! bottleneck ([`bottleneck`]) and line ([`line`]).
//!
//! Packets go through AF_PACKET sockets on the inner ends of veth pairs; nothing shapes on the sender's own device, where it
//! would be felt as back-pressure. `rattan-core` brings the devices, the driver, the bottleneck and the queues.
//!
//! The server may also be the host itself, outside ([`uplink`]).
//!
//! **Invariant:** all of it is gone with this process ([`namespace`]), also if a signal ends it ([`ending`]), and what a killed one
//! left is ended by the next ([`leftover`]).

mod addresses;
mod bottleneck;
mod ending;
mod lateness;
mod leftover;
mod line;
mod missed;
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

use crate::scenario::{Alteration, Change, Direction, Scenario};
use bottleneck::Bottleneck;
pub use ending::Ending;
pub use lateness::{LATENESS_MAX, Lateness, MISSED_MAX};
use line::LineCell;
pub use line::{Counts, Line};
use missed::Missed;
use namespace::{Mounts, Namespace};
use setup::set_up;
use uplink::Uplink;

/// The real-time priority of the emulation's threads, among the lowest: the kernel's own have 50. `chrt` sets it, which is part of
/// Debian's essential util-linux.
const PRIORITY: &str = "10";

/// Why there is no emulation.
#[derive(Debug)]
pub enum Error {
    /// This process lacks a right.
    Rights(&'static str),
    /// A program that is needed is not installed: its name and its Debian package.
    Missing(&'static str, &'static str),
    /// The system did not give this.
    System(&'static str, io::Error),
    /// `ip` did not take a command.
    Addresses(String),
    /// The host has a route of its own to these addresses of the scenario.
    Taken(String, String),
    /// Rattan has failed.
    Emulator(rattan_core::error::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rights(capability) => {
                write!(f, "network namespaces need root: {capability} is missing; run it with sudo")
            }
            Self::Missing(program, package) => write!(f, "`{program}` is missing: install {package}"),
            Self::System(what, error) => write!(f, "the system gives no {what}: {error}"),
            Self::Addresses(message) => write!(f, "addresses cannot be set up: {message}"),
            Self::Taken(addresses, route) => write!(
                f,
                "{addresses} is routed on this machine already ({route}): give the scenario others (server4 and prefix4, or server6 and prefix6)"
            ),
            Self::Emulator(error) => write!(f, "the emulation cannot be set up: {error}"),
        }
    }
}

impl std::error::Error for Error {}

/// One of the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Where the clients are.
    Clients,
    /// Where the server is.
    Server,
}

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    Four,
    /// IPv6.
    Six,
}

/// One direction of one path, as it runs.
pub struct Way {
    /// Behind the bottleneck.
    pub line: Arc<Line>,
    bottleneck: Option<Bottleneck>,
    /// Packets that the emulator itself lost, when it was last counted.
    missed: AtomicU64,
}

/// A scenario that runs until it is dropped.
pub struct Emulation {
    /// Dropped first: nothing is under way then. Nobody locks it; it lets threads share the rest.
    radix: Mutex<Option<RattanRadix<AfPacketDriver>>>,
    clients: Namespace,
    server: Namespace,
    /// Where the emulator is.
    inside: Namespace,
    /// Of each path, in the scenario's order: down and up.
    ways: Vec<[Way; 2]>,
    started: Instant,
    /// Part of the names of namespaces and devices.
    id: String,
    scenario: Scenario,
    /// The mounts go before the note, with which the directories go that they are on.
    _mounts: Mounts,
    note: leftover::Note,
    /// To the host, where the server is outside.
    _uplink: Option<Uplink>,
}

impl Emulation {
    /// Sets the scenario up and starts it. This thread, and all threads and processes that it starts from now on, are in a
    /// mount namespace of their own afterwards: it is to be called before any other thread is there, and once.
    ///
    /// # Errors
    /// Without the rights, or if the system lacks what is needed. Nothing is left then.
    pub fn start(scenario: &Scenario) -> Result<Self, Error> {
        Self::begin(scenario, None)
    }

    /// The same with the host as the server: the namespace in which this is called has the server's address and a way to the
    /// clients' prefixes, of one family, while this is there. Nothing is translated; the host sees each client's own address.
    ///
    /// # Errors
    /// As [`start`](Self::start), and if the host has routes to these addresses already.
    pub fn start_with_host(scenario: &Scenario, family: Family) -> Result<Self, Error> {
        Self::begin(scenario, Some(family))
    }

    fn begin(scenario: &Scenario, host: Option<Family>) -> Result<Self, Error> {
        let ended = leftover::clear();
        if ended > 0 {
            tracing::warn!(processes = ended, "ended what a killed run had left");
        }
        check_net_admin()?;
        check_packet_sockets()?;
        if let Some(family) = host {
            uplink::check(scenario, family)?;
        }
        namespace::leave_mounts()?;
        let unnoted = |error| Error::System("place for a note", error);
        let note = leftover::Note::write().map_err(unnoted)?;
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
        let mut radix =
            first_in_line(|| RattanRadix::<AfPacketDriver>::new(config)).map_err(Error::Emulator)?;
        let id = radix.get_rattan_id().clone();
        let open = |name: String| Namespace::open(&name).map_err(|error| Error::System("namespace", error));
        let (clients, server) = (open(namespace::clients_name(&id))?, open(namespace::server_name(&id))?);
        let inside = open(namespace::inside_name(&id))?;
        note.name(&id).map_err(unnoted)?;
        let uplink = host.map(|family| Uplink::lay(scenario, family, &id)).transpose()?;
        set_up(&clients, false, &addresses::clients(scenario, &id))?;
        set_up(&server, host.is_some(), &addresses::server(scenario, &id, host.is_some()))?;
        let ways = link(&mut radix, scenario)?;
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
            ways,
            started,
            id,
            scenario,
            _uplink: uplink,
            _mounts: mounts,
            note,
        })
    }

    /// What runs.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// When it began, and with it all traces.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Of the path of that number, in the scenario's order: down and up.
    pub fn ways(&self, path: usize) -> &[Way; 2] {
        &self.ways[path]
    }

    /// Has the path of that number be different from now on.
    ///
    /// # Errors
    /// If the emulation has ended.
    pub fn change(&self, path: usize, change: &Change) -> Result<(), Error> {
        let [down, up] = self.ways(path);
        down.alter(&change.down)?;
        up.alter(&change.up)?;
        tracing::info!(path = self.scenario.paths[path].name, at = ?change.at, "changed");
        Ok(())
    }

    /// Counts what the emulator itself has lost so far, for [`Way::missed`] and [`Lateness`].
    pub fn count_missed(&self) {
        match Missed::count(&self.clients, &self.server, &self.inside) {
            Ok(missed) => missed.note(&self.ways, &self.id),
            Err(error) => tracing::warn!(%error, "cannot count what the emulator itself loses"),
        }
    }

    fn namespace(&self, side: Side) -> &Namespace {
        match side {
            Side::Clients => &self.clients,
            Side::Server => &self.server,
        }
    }

    /// The file by which other programs enter a side's network namespace (`nsenter --net=FILE`), for children of this process.
    pub fn namespace_path(&self, side: Side) -> &str {
        &self.namespace(side).path
    }

    /// A directory that only this process and its children see, and that goes with them.
    pub fn scratch(&self) -> &'static Path {
        Path::new(namespace::SCRATCH)
    }

    /// Runs `work` on a thread of its own on one side. Sockets made there are that side's.
    ///
    /// # Errors
    /// What `work` says.
    pub fn on<R: Send>(&self, side: Side, work: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
        self.namespace(side).run(work)
    }

    /// The same with a future that `work` gives, on a runtime of that thread.
    ///
    /// # Errors
    /// If there is no thread or no runtime.
    pub(crate) fn run_on<F: Future<Output: Send>>(
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
    /// If it cannot be started.
    pub fn spawn(&self, side: Side, command: &mut Command) -> io::Result<Child> {
        self.on(side, || command.spawn())
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        // What the commands have left there would keep the namespaces.
        leftover::end_within(&self.id);
        // Before the namespaces' files are closed and the mounts go.
        drop(self.radix.get_mut().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl Way {
    /// Packets that came to the queue before the bottleneck; without one, to the line.
    pub fn packets(&self) -> u64 {
        self.bottleneck.as_ref().map_or_else(|| self.line.came(), Bottleneck::packets)
    }

    /// Packets that the queue before the bottleneck dropped, or for which the line had no room.
    pub fn dropped(&self) -> u64 {
        self.bottleneck.as_ref().map_or(0, Bottleneck::dropped) + self.line.counts().overflowed
    }

    /// Packets that the emulator itself had lost at the last [`count`](Emulation::count_missed): in no other count.
    pub fn missed(&self) -> u64 {
        self.missed.load(Relaxed)
    }

    /// Packets that are in the queue or on the line.
    pub fn under_way(&self) -> u64 {
        // Counts only grow: what left is read before what came.
        let ended = self.dropped() + self.line.ended();
        self.packets().saturating_sub(ended)
    }

    /// Is so from now on.
    ///
    /// # Errors
    /// If the emulation has ended.
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
        // A system that does not tell says so when it comes to that.
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

/// Runs `work` on a thread that comes before all others for the CPU, as will those that it starts: packets are let go on time
/// also while what is measured keeps the machine busy. A low niceness is not enough: who runs may finish its slice of 3 ms.
fn first_in_line<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| {
        let first = || {
            let thread = gettid().as_raw_nonzero().to_string();
            let set = Command::new("chrt").args(["--rr", "--pid", PRIORITY, &thread]).output();
            if !set.is_ok_and(|output| output.status.success()) {
                tracing::warn!(
                    "the emulation has no real-time priority: packets may be late while the machine is busy"
                );
            }
            work()
        };
        scope.spawn(first).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Puts the cells of all paths between both sides' devices.
fn link(radix: &mut RattanRadix<AfPacketDriver>, scenario: &Scenario) -> Result<Vec<[Way; 2]>, Error> {
    let mut links = HashMap::new();
    let mut ways = Vec::new();
    let count = scenario.paths.len();
    for (index, path) in scenario.paths.iter().enumerate() {
        // The name of a single device has no number.
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
            Ok(Way { line, bottleneck, missed: AtomicU64::new(0) })
        };
        ways.push([
            chain(end("right"), "down", end("left"), &path.down, seed)?,
            chain(end("left"), "up", end("right"), &path.up, seed + 1)?,
        ]);
    }
    radix.link_cells(links).map_err(Error::Emulator)?;
    Ok(ways)
}
