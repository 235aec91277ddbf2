//! The server's side: a backend, the controller, an edge that applies the controller's bundles, and
//! the agent between them.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use thalweg_netem::emulation::{Emulation, Side};

use super::controller::Controller;
use crate::process::ChildProcess;

/// Port of the edge to which clients connect.
pub(super) const EDGE_PORT: u16 = 80;
const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8082);
const CONTROLLER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8083);
/// PoP name.
const POP: &str = "lab";
/// The default algorithm and the algorithm on trial.
pub(super) const DEFAULT: &str = "cubic";
pub(super) const TRIED: &str = "bbr";
/// The kernel's list of available algorithms.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// Non-default controller settings, which scale minutes and hours down to seconds.
pub const CONTROLLER_SETTINGS: [(&str, &str); 15] = [
    ("window", "4s"),
    ("late", "2s"),
    ("history-windows", "15"),
    ("observed-windows-min", "5"),
    ("trial-windows-max", "35"),
    ("switchback-block-windows", "3"),
    ("switchback-windows-max", "80"),
    ("proof-windows-max", "1000"),
    ("cool-off-windows", "1000"),
    ("explored-max", "1"),
    ("exploring-max", "1"),
    ("holdout", "0.05"),
    ("retransmitted-rise-max", "0.03"),
    ("guardrail-rise-max", "0.1"),
    ("guardrail-pause-windows", "3"),
];
/// Non-default edge settings.
pub const EDGE_SETTINGS: [(&str, &str); 1] = [("congestion-control", DEFAULT)];
/// Non-default agent settings.
pub const AGENT_SETTINGS: [(&str, &str); 1] = [("period", "500ms")];

/// All server processes, killed on drop.
#[derive(Debug)]
pub(super) struct Parts {
    _agent: ChildProcess,
    _edge: ChildProcess,
    _controller: ChildProcess,
    _backend: ChildProcess,
}

/// Returns the controller, as reached from the server's side.
pub(super) fn controller() -> Controller<'static> {
    Controller { address: CONTROLLER, pop: POP }
}

impl Parts {
    /// Starts each process once its dependencies are ready.
    ///
    /// # Errors
    ///
    /// Returns an error if a process does not start, or the kernel lacks an algorithm.
    pub(super) fn start(emulation: &Emulation, thalweg: &Path) -> anyhow::Result<Self> {
        check_algorithms()?;
        let own = std::env::current_exe().context("cannot locate this program's own file")?;
        let mut command = Command::new(own);
        command.args(["load", "serve", "--listen", "127.0.0.1:0"]);
        let (backend, origin) = ChildProcess::start_on(emulation, Side::Server, command)?;
        let scratch = emulation.scratch();
        let start = |role: &[&str], own: &[(&str, String)], set: &[(&str, &str)]| {
            let mut command = Command::new(thalweg);
            command.args(role).current_dir(scratch);
            let set = set.iter().map(|(name, value)| (*name, (*value).to_owned()));
            for (name, value) in own.iter().cloned().chain(set) {
                command.arg(format!("--{name}")).arg(value);
            }
            ChildProcess::start_on(emulation, Side::Server, command)
                .with_context(|| format!("cannot start the {} of {}", role[0], thalweg.display()))
        };
        let file = |name: &str| scratch.join(name).display().to_string();
        let listen = [("listen", CONTROLLER.to_string()), ("database", file("control.sqlite"))];
        let tried = [("congestion-control", TRIED)];
        let settings: Vec<_> = tried.into_iter().chain(CONTROLLER_SETTINGS).collect();
        let (controller, _) = start(&["controller", "run"], &listen, &settings)?;
        let listen = [
            ("listen", SocketAddr::from((Ipv4Addr::UNSPECIFIED, EDGE_PORT)).to_string()),
            ("admin", ADMIN.to_string()),
            ("backend", format!("http://{origin}")),
            ("bundle", format!("http://{CONTROLLER}/bundle?pop={POP}")),
            ("state", file("edge")),
        ];
        let (edge, address) = start(&["edge"], &listen, &EDGE_SETTINGS)?;
        ensure!(address.port() == EDGE_PORT, "edge listens at {address}, expected port {EDGE_PORT}");
        let flags = [
            ("listen", "127.0.0.1:0".to_owned()),
            ("edge", ADMIN.to_string()),
            ("controller", format!("http://{CONTROLLER}")),
            ("pop", POP.to_owned()),
            ("sockets", format!("sport {EDGE_PORT}")),
            ("spool", format!("{}=64MiB", file("spool"))),
        ];
        let (agent, _) = start(&["agent"], &flags, &AGENT_SETTINGS)?;
        Ok(Self { _agent: agent, _edge: edge, _controller: controller, _backend: backend })
    }
}

/// Checks that the kernel provides both algorithms.
fn check_algorithms() -> anyhow::Result<()> {
    let available = fs::read_to_string(AVAILABLE).context(AVAILABLE)?;
    for needed in [DEFAULT, TRIED] {
        ensure!(
            available.split_whitespace().any(|name| name == needed),
            "kernel has no {needed}, only {}: run `modprobe tcp_{needed}`",
            available.trim()
        );
    }
    Ok(())
}
