//! Packets that the emulator itself lost: that came while it had no time to take them, or that nobody had room for once it let
//! them go. No cell sees them; the kernel counts them, at the devices and at the emulator's sockets.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;

use super::Way;
use super::addresses::{device, inner_device};
use super::namespace::Namespace;

/// In the lines of `/proc/net/dev`, after the name: what was dropped while it was sent.
const TX_DROPPED: usize = 11;

/// Counts of drops by device.
type Drops = HashMap<String, u64>;

/// What the kernel has counted in the three namespaces.
pub(super) struct Missed {
    clients: Drops,
    server: Drops,
    inside: Drops,
    sockets: Drops,
}

impl Missed {
    /// Looks at all counts.
    ///
    /// # Errors
    /// Without `ss`, or where the kernel does not tell it the drops of such sockets (`CONFIG_PACKET_DIAG`).
    pub(super) fn count(clients: &Namespace, server: &Namespace, inside: &Namespace) -> io::Result<Self> {
        let sent = |namespace: &Namespace| {
            // That of this thread: `/proc/net` is the main thread's.
            namespace.run(|| fs::read_to_string("/proc/thread-self/net/dev")).map(|text| of_devices(&text))
        };
        let sockets = inside.run(|| Command::new("ss").arg("-0mH").process_group(0).output())?;
        let sockets = of_sockets(&String::from_utf8_lossy(&sockets.stdout));
        if sockets.is_empty() {
            return Err(io::Error::other("`ss -0m` tells no drops of AF_PACKET sockets"));
        }
        Ok(Self { clients: sent(clients)?, server: sent(server)?, inside: sent(inside)?, sockets })
    }

    /// Notes them at the ways of all paths, in the scenario's order, in the emulation `id`.
    pub(super) fn note(&self, ways: &[[Way; 2]], id: &str) {
        for (index, ways) in ways.iter().enumerate() {
            for (way, missed) in ways.iter().zip(self.of(index, id)) {
                way.missed.store(missed, Relaxed);
            }
        }
    }

    /// Those of a path (from zero) in the emulation `id`: down and up.
    fn of(&self, index: usize, id: &str) -> [u64; 2] {
        let of = |drops: &Drops, name: &str| drops.get(name).copied().unwrap_or_default();
        let [left, right] = ['L', 'R'].map(|side| inner_device(side, index, id));
        let down =
            of(&self.server, &device('R', index, id)) + of(&self.sockets, &right) + of(&self.inside, &left);
        let up =
            of(&self.clients, &device('L', index, id)) + of(&self.sockets, &left) + of(&self.inside, &right);
        [down, up]
    }
}

/// Of the text of `/proc/net/dev`.
fn of_devices(text: &str) -> Drops {
    let of_line = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        Some((name.trim().to_owned(), counts.split_whitespace().nth(TX_DROPPED)?.parse().ok()?))
    };
    text.lines().filter_map(of_line).collect()
}

/// Of what `ss -0m` prints: `… *:DEVICE * skmem:(…,dDROPS)`.
fn of_sockets(text: &str) -> Drops {
    let of_line = |line: &str| {
        let name = line.split_whitespace().nth(3)?.rsplit_once(':')?.1;
        let drops = line.rsplit_once(",d")?.1.trim_end().strip_suffix(')')?;
        Some((name.to_owned(), drops.parse().ok()?))
    };
    text.lines().filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_direction_has_its_own() {
        let head = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop\n";
        let device = |name, drops| format!("{head}{name}: 176 2 0 99 0 0 0 0 200 2 0 {drops} 0 0 0 0\n");
        let socket = |name, drops| {
            format!("p_raw 0      0      *:{name} * skmem:(r0,rb212992,t0,tb212992,f0,w0,o0,bl0,d{drops})\n")
        };
        let missed = Missed {
            clients: of_devices(&device("vL2-L-x", 1)),
            server: of_devices(&device("vR2-R-x", 10)),
            inside: of_devices(&(device("vL2-R-x", 100) + &device("  vR2-L-x", 1000))),
            sockets: of_sockets(&(socket("vL2-R-x", 10_000) + &socket("vR2-L-x", 100_000))),
        };
        assert_eq!(missed.of(1, "x"), [100_110, 11_001]);
        assert_eq!(missed.of(0, "x"), [0, 0]);
    }
}
