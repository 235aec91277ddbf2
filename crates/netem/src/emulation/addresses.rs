//! Addresses and routes of both sides, as commands for `ip -batch`.
//!
//! The server has one address of each family. Each client prefix has its own device on the clients'
//! side. The whole prefix is local, so a client may use any address in it. A packet's source
//! address selects its path.

use std::fmt::Write as _;

use super::Family;
use crate::scenario::Scenario;

/// Base number of the clients' routing tables; each path, counted from one, adds its number.
const TABLE: usize = 100;

/// Returns the name of the device of path `index`, counted from zero, on side `letter` in emulation
/// `id`.
pub(super) fn device(letter: char, index: usize, id: &str) -> String {
    format!("v{letter}{}-{letter}-{id}", index + 1)
}

/// Returns the name of the other end of [`device`], where the emulator receives and sends packets.
pub(super) fn inner_device(letter: char, index: usize, id: &str) -> String {
    let other = if letter == 'L' { 'R' } else { 'L' };
    format!("v{letter}{}-{other}-{id}", index + 1)
}

/// Commands for `ip -4 -batch` and for `ip -6 -batch`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Commands {
    pub(super) four: String,
    pub(super) six: String,
}

impl Commands {
    /// Returns the `ip` option of one family, and its commands.
    pub(super) fn of(&self, family: Family) -> (&'static str, &str) {
        match family {
            Family::Four => ("-4", &self.four),
            Family::Six => ("-6", &self.six),
        }
    }
}

/// Name of the uplink's end on the server's side.
pub(super) const GATEWAY: &str = "to-host";
/// Hardware addresses of the uplink's ends: on the host, then on the server's side.
pub(super) const UPLINK_ENDS: [&str; 2] = ["02:74:77:6c:67:01", "02:74:77:6c:67:02"];

/// Returns the name of the uplink's end on the host in emulation `id`.
pub(super) fn host_device(id: &str) -> String {
    format!("lab-{id}")
}

/// IPv4 and IPv6 addresses of the static neighbour at the other end of each device, which makes ARP
/// and neighbour discovery unnecessary. Its hardware address is arbitrary, because rattan sets the
/// right address in each packet.
const NEIGHBOURS: [&str; 2] = ["169.254.0.1", "fe80::1"];

/// Appends a line to each family's commands, with that family's values.
macro_rules! both {
    ($commands:ident, $format:literal, $(($four:expr, $six:expr)),* $(,)?) => {
        let _ = writeln!($commands.four, $format, $($four),*);
        let _ = writeln!($commands.six, $format, $($six),*);
    };
}

/// Returns the commands for the clients' side.
pub(super) fn clients(scenario: &Scenario, id: &str) -> Commands {
    let mut commands = Commands::default();
    let [via4, via6] = NEIGHBOURS;
    both!(commands, "link set {} up", ("lo", "lo"));
    for (index, path) in scenario.paths.iter().enumerate() {
        let device = device('L', index, id);
        let table = TABLE + index + 1;
        let [prefix4, prefix6] = [Family::Four, Family::Six].map(|family| family.prefix(path));
        let (client4, client6) = (path.client4(), path.client6());
        let (server4, server6) = (scenario.server4, scenario.server6);
        both!(commands, "neigh replace {} lladdr 38:7e:58:00:00:01 dev {device} nud permanent", (via4, via6));
        both!(commands, "addr add {} dev {device} {}", (client4, client6), ("", "nodad"));
        both!(commands, "route add local {} dev lo", (prefix4, prefix6));
        both!(
            commands,
            "route add {} via {} dev {device} onlink table {table}",
            (server4, server6),
            (via4, via6)
        );
        both!(commands, "rule add from {} table {table}", (prefix4, prefix6));
        if index == 0 {
            // Clients that do not bind an address use the first path.
            both!(
                commands,
                "route add {} via {} dev {device} onlink src {}",
                (server4, server6),
                (via4, via6),
                (client4, client6),
            );
        }
    }
    commands
}

/// Returns the commands for the server's side. If the server is on the host, this side has no
/// server address and forwards packets.
pub(super) fn server(scenario: &Scenario, id: &str, is_on_host: bool) -> Commands {
    let mut commands = Commands::default();
    let [via4, via6] = NEIGHBOURS;
    let (server4, server6) = (scenario.server4, scenario.server6);
    both!(commands, "link set {} up", ("lo", "lo"));
    let sources = if is_on_host {
        let [host, _] = UPLINK_ENDS;
        both!(commands, "link set {} up", (GATEWAY, GATEWAY));
        both!(commands, "neigh replace {} lladdr {host} dev {GATEWAY} nud permanent", (via4, via6));
        both!(commands, "route add {} via {} dev {GATEWAY} onlink", (server4, server6), (via4, via6));
        [String::new(), String::new()]
    } else {
        both!(commands, "addr add {} dev lo {}", (server4, server6), ("", "nodad"));
        [format!("src {server4}"), format!("src {server6}")]
    };
    let [source4, source6] = &sources;
    for (index, path) in scenario.paths.iter().enumerate() {
        let device = device('R', index, id);
        let [prefix4, prefix6] = [Family::Four, Family::Six].map(|family| family.prefix(path));
        both!(commands, "neigh replace {} lladdr 38:7e:58:00:00:01 dev {device} nud permanent", (via4, via6));
        both!(
            commands,
            "route add {} via {} dev {device} onlink {}",
            (prefix4, prefix6),
            (via4, via6),
            (source4, source6),
        );
    }
    commands
}

/// Returns the commands for a host that acts as the server: they add the server's address, and
/// routes to the clients' prefixes through the uplink.
pub(super) fn host(scenario: &Scenario, id: &str) -> Commands {
    let mut commands = Commands::default();
    let [via4, via6] = NEIGHBOURS;
    let (server4, server6) = (scenario.server4, scenario.server6);
    let (device, [_, gateway]) = (host_device(id), UPLINK_ENDS);
    both!(commands, "link set {} up", (&device, &device));
    both!(commands, "addr add {} dev {device} {}", (server4, server6), ("", "nodad"));
    both!(commands, "neigh replace {} lladdr {gateway} dev {device} nud permanent", (via4, via6));
    for path in &scenario.paths {
        let [prefix4, prefix6] = [Family::Four, Family::Six].map(|family| family.prefix(path));
        both!(
            commands,
            "route add {} via {} dev {device} onlink src {}",
            (prefix4, prefix6),
            (via4, via6),
            (server4, server6),
        );
    }
    commands
}
