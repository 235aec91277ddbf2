//! The server's side: a backend, the controller, and two PoPs of two edges that apply the
//! controller's bundles, each with an agent that reports to the controller.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use thalweg_netem::emulation::{Emulation, Side};

use super::controller::Controller;
use super::damage;
use super::networks::{POPS, World};
use crate::process::ChildProcess;

/// Edges of a PoP.
pub const EDGES: usize = 2;
/// Port of the first edge to which clients connect; each further edge uses the next one.
const EDGE_PORT: u16 = 8001;
/// Port of the first edge's admin interface.
const ADMIN_PORT: u16 = 8101;
pub(super) const CONTROLLER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8083);
/// The kernel's list of available algorithms.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// What the edges use, and what the controller tries.
#[derive(Debug, Clone, Copy)]
pub(super) struct Roles {
    /// Name of this set of processes; also the directory of their files.
    pub(super) name: &'static str,
    /// The edges' default algorithm.
    pub(super) default: &'static str,
    /// The algorithm that the controller tries.
    pub(super) tried: &'static str,
    /// Where the edges get their bundles.
    pub(super) bundles: SocketAddr,
}

/// The main measurement.
pub(super) const TUNED: Roles = Roles { name: "tuned", default: "cubic", tried: "bbr", bundles: CONTROLLER };
/// The same, but bundles are damaged on their way.
pub(super) const DAMAGED: Roles = Roles { name: "damaged", bundles: damage::ADDRESS, ..TUNED };

/// Non-default controller settings. They scale minutes and hours down to seconds, and the numbers
/// of networks that are explored from thousands of networks down to 24.
const CONTROLLER_SETTINGS: [(&str, &str); 12] = [
    ("window", "4s"),
    ("late", "2s"),
    ("history-windows", "15"),
    ("observed-windows-min", "5"),
    ("trial-windows-max", "35"),
    ("switchback-block-windows", "3"),
    ("switchback-windows-max", "80"),
    ("proof-windows-max", "1000"),
    ("cool-off-windows", "30"),
    ("explored-max", "1"),
    ("exploring-max", "1"),
    ("guardrail-pause-windows", "3"),
];
/// Settings that put all networks on trial at once, in worlds in which none must be declared
/// helped.
const ALL_AT_ONCE: [(&str, &str); 2] = [("explored-max", "24"), ("exploring-max", "12")];

/// Returns the non-default controller settings in a world.
pub fn controller_settings(world: World) -> Vec<(&'static str, &'static str)> {
    let changed: &[_] = if world == World::Mixed { &[] } else { &ALL_AT_ONCE };
    let is_changed = |name| changed.iter().any(|(other, _)| *other == name);
    let same = CONTROLLER_SETTINGS.into_iter().filter(|(name, _)| !is_changed(*name));
    same.chain(changed.iter().copied()).collect()
}

/// Non-default agent settings.
pub const AGENT_SETTINGS: [(&str, &str); 1] = [("period", "500ms")];

/// All server processes, killed on drop.
#[derive(Debug)]
pub(super) struct Parts {
    _agents: Vec<ChildProcess>,
    _edges: Vec<ChildProcess>,
    _controller: ChildProcess,
    _backend: ChildProcess,
}

/// Returns the controller's interface to a PoP, as reached from the server's side.
pub(super) fn controller(pop: usize) -> Controller<'static> {
    Controller { address: CONTROLLER, pop: POPS[pop] }
}

fn nth(pop: usize, edge: usize) -> u16 {
    // The cast is safe: there are few edges.
    (pop * EDGES + edge) as u16
}

/// Returns the port to which an edge's clients connect.
pub(super) fn port(pop: usize, edge: usize) -> u16 {
    EDGE_PORT + nth(pop, edge)
}

/// Returns the address of an edge's admin interface, as reached from the server's side.
pub(super) fn admin(pop: usize, edge: usize) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, ADMIN_PORT + nth(pop, edge)).into()
}

/// Returns the name of an edge, counted from zero.
pub fn edge_name(pop: usize, edge: usize) -> String {
    format!("{}-{}", POPS[pop], edge + 1)
}

impl Parts {
    /// Starts each process once its dependencies are ready.
    ///
    /// # Errors
    ///
    /// Returns an error if a process does not start, or the kernel lacks an algorithm.
    pub(super) fn start(
        emulation: &Emulation,
        thalweg: &Path,
        roles: Roles,
        world: World,
    ) -> anyhow::Result<Self> {
        check_algorithms(roles)?;
        let scratch = emulation.scratch().join(roles.name);
        fs::create_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
        let starter = Starter { emulation, thalweg, scratch, roles };
        let own = std::env::current_exe().context("cannot locate this program's own file")?;
        let mut command = Command::new(own);
        command.args(["load", "serve", "--listen", "127.0.0.1:0"]);
        let (backend, origin) = ChildProcess::start_on(emulation, Side::Server, command)?;
        let listen = [
            ("listen", CONTROLLER.to_string()),
            ("database", starter.file("control.sqlite")),
            ("congestion-control", roles.tried.to_owned()),
        ];
        let controller = starter.start(&["controller", "run"], &listen, &controller_settings(world))?;
        let (mut edges, mut agents) = (Vec::new(), Vec::new());
        for pop in 0..POPS.len() {
            for edge in 0..EDGES {
                edges.push(starter.edge(pop, edge, origin)?);
                agents.push(starter.agent(pop, edge)?);
            }
        }
        Ok(Self { _agents: agents, _edges: edges, _controller: controller, _backend: backend })
    }
}

/// Starts processes on the server's side.
struct Starter<'a> {
    emulation: &'a Emulation,
    thalweg: &'a Path,
    scratch: PathBuf,
    roles: Roles,
}

impl Starter<'_> {
    fn file(&self, name: &str) -> String {
        self.scratch.join(name).display().to_string()
    }

    fn start(
        &self,
        role: &[&str],
        own: &[(&str, String)],
        set: &[(&str, &str)],
    ) -> anyhow::Result<ChildProcess> {
        let mut command = Command::new(self.thalweg);
        command.args(role).current_dir(&self.scratch);
        let set = set.iter().map(|(name, value)| (*name, (*value).to_owned()));
        for (name, value) in own.iter().cloned().chain(set) {
            command.arg(format!("--{name}")).arg(value);
        }
        let started = ChildProcess::start_on(self.emulation, Side::Server, command);
        let (process, _) =
            started.with_context(|| format!("cannot start the {} of {}", role[0], self.thalweg.display()))?;
        Ok(process)
    }

    fn edge(&self, pop: usize, edge: usize, origin: SocketAddr) -> anyhow::Result<ChildProcess> {
        let name = edge_name(pop, edge);
        let flags = [
            ("listen", SocketAddr::from((Ipv6Addr::UNSPECIFIED, port(pop, edge))).to_string()),
            ("admin", admin(pop, edge).to_string()),
            ("backend", format!("http://{origin}")),
            ("bundle", format!("http://{}/bundle?pop={}&edge={name}", self.roles.bundles, POPS[pop])),
            ("state", self.file(&name)),
            ("congestion-control", self.roles.default.to_owned()),
        ];
        self.start(&["edge"], &flags, &[])
    }

    fn agent(&self, pop: usize, edge: usize) -> anyhow::Result<ChildProcess> {
        let name = edge_name(pop, edge);
        let flags = [
            ("listen", "127.0.0.1:0".to_owned()),
            ("host", name.clone()),
            ("edge", admin(pop, edge).to_string()),
            ("controller", format!("http://{CONTROLLER}")),
            ("pop", POPS[pop].to_owned()),
            ("sockets", format!("sport {}", port(pop, edge))),
            ("spool", format!("{}=64MiB", self.file(&format!("{name}-spool")))),
        ];
        self.start(&["agent"], &flags, &AGENT_SETTINGS)
    }
}

/// Checks that the kernel provides both algorithms.
fn check_algorithms(roles: Roles) -> anyhow::Result<()> {
    let available = fs::read_to_string(AVAILABLE).context(AVAILABLE)?;
    for needed in [roles.default, roles.tried] {
        ensure!(
            available.split_whitespace().any(|name| name == needed),
            "kernel has no {needed}, only {}: run `modprobe tcp_{needed}`",
            available.trim()
        );
    }
    Ok(())
}
