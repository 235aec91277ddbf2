//! Addresses and routes of both sides, as commands for `ip -batch`.
//!
//! The server has one address of each family. Each client prefix is behind a device of its own on the clients' side, which has
//! the whole prefix: a client may take any of its addresses. From where a packet comes says by which path it goes.

use std::fmt::Write as _;

use super::Family;
use crate::scenario::Scenario;

/// Routing tables of the clients' side begin after this number, one for each path.
const TABLE: usize = 100;

/// The device of a path (from zero) on the side `letter`, in the emulation `id`.
pub(super) fn device(letter: char, index: usize, id: &str) -> String {
    format!("v{letter}{}-{letter}-{id}", index + 1)
}

/// The other end of that device, where the emulation takes packets and lets them go.
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
    /// Those of one family, as `ip` calls it, and they.
    pub(super) fn of(&self, family: Family) -> (&'static str, &str) {
        match family {
            Family::Four => ("-4", &self.four),
            Family::Six => ("-6", &self.six),
        }
    }
}

/// The end of the way to the host that is on the server's side, in its namespace.
pub(super) const GATEWAY: &str = "to-host";
/// The hardware addresses of that way's ends: the host's, and the one on the server's side.
pub(super) const UPLINK_ENDS: [&str; 2] = ["02:74:77:6c:67:01", "02:74:77:6c:67:02"];

/// The host's end of the way to it, in the emulation `id`.
pub(super) fn host_device(id: &str) -> String {
    format!("lab-{id}")
}

/// Who is at the other end of each device: a neighbour that needs not be asked for. Rattan puts the right hardware address into
/// each packet, so any does here.
const NEIGHBOURS: [&str; 2] = ["169.254.0.1", "fe80::1"];

/// Appends a line to the commands of each family, of its addresses.
macro_rules! both {
    ($commands:ident, $format:literal, $(($four:expr, $six:expr)),* $(,)?) => {
        let _ = writeln!($commands.four, $format, $($four),*);
        let _ = writeln!($commands.six, $format, $($six),*);
    };
}

/// What the clients' side needs.
pub(super) fn clients(scenario: &Scenario, id: &str) -> Commands {
    let mut commands = Commands::default();
    let [via4, via6] = NEIGHBOURS;
    both!(commands, "link set {} up", ("lo", "lo"));
    for (index, path) in scenario.paths.iter().enumerate() {
        let device = device('L', index, id);
        let table = TABLE + index + 1;
        let (prefix4, prefix6) = (format!("{}/24", path.prefix4), format!("{}/56", path.prefix6));
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
            // Whoever takes no address of its own is a client of the first path.
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

/// What the server's side needs. With the server on the host it has no address of its own, and hands packets on.
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
        let (prefix4, prefix6) = (format!("{}/24", path.prefix4), format!("{}/56", path.prefix6));
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

/// What the host needs to be the server: its address, and the clients' prefixes behind the other end.
pub(super) fn host(scenario: &Scenario, id: &str) -> Commands {
    let mut commands = Commands::default();
    let [via4, via6] = NEIGHBOURS;
    let (server4, server6) = (scenario.server4, scenario.server6);
    let (device, [_, gateway]) = (host_device(id), UPLINK_ENDS);
    both!(commands, "link set {} up", (&device, &device));
    both!(commands, "addr add {} dev {device} {}", (server4, server6), ("", "nodad"));
    both!(commands, "neigh replace {} lladdr {gateway} dev {device} nud permanent", (via4, via6));
    for path in &scenario.paths {
        let (prefix4, prefix6) = (format!("{}/24", path.prefix4), format!("{}/56", path.prefix6));
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
