//! Packets lost by the emulator itself, because it was too slow to receive them or the receiving
//! device was full. The cells never see such packets. The kernel counts them at the devices and at
//! the emulator's sockets.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;

use super::PathDirection;
use super::addresses::{device, inner_device};
use super::namespace::Namespace;

/// Column of the transmit drops in `/proc/net/dev`, counted from zero after the device name.
const TX_DROPPED: usize = 11;

/// Number of dropped packets by device name.
type Drops = HashMap<String, u64>;

/// The kernel's drop counters in the three namespaces.
pub(super) struct Missed {
    clients: Drops,
    server: Drops,
    inside: Drops,
    sockets: Drops,
}

impl Missed {
    /// Reads all counters.
    ///
    /// # Errors
    ///
    /// Returns an error if `ss` is missing, or the kernel does not report drops of packet sockets
    /// (`CONFIG_PACKET_DIAG`).
    pub(super) fn count(clients: &Namespace, server: &Namespace, inside: &Namespace) -> io::Result<Self> {
        let sent = |namespace: &Namespace| {
            // Use `thread-self`, because `/proc/net` shows the main thread's namespace.
            namespace.run(|| fs::read_to_string("/proc/thread-self/net/dev")).map(|text| of_devices(&text))
        };
        let sockets = inside.run(|| Command::new("ss").arg("-0mH").process_group(0).output())?;
        let sockets = of_sockets(&String::from_utf8_lossy(&sockets.stdout));
        if sockets.is_empty() {
            return Err(io::Error::other("`ss -0m` reports no drops: the kernel needs CONFIG_PACKET_DIAG"));
        }
        Ok(Self { clients: sent(clients)?, server: sent(server)?, inside: sent(inside)?, sockets })
    }

    /// Stores the counts of emulation `id` in `directions`, which has one entry per path in
    /// scenario order.
    pub(super) fn store(&self, directions: &[[PathDirection; 2]], id: &str) {
        for (index, directions) in directions.iter().enumerate() {
            for (direction, missed) in directions.iter().zip(self.of(index, id)) {
                direction.missed.store(missed, Relaxed);
            }
        }
    }

    /// Returns the down and up counts of path `index`, counted from zero, in emulation `id`.
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

/// Parses the transmit drops in `/proc/net/dev`.
fn of_devices(text: &str) -> Drops {
    let of_line = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        Some((name.trim().to_owned(), counts.split_whitespace().nth(TX_DROPPED)?.parse().ok()?))
    };
    text.lines().filter_map(of_line).collect()
}

/// Parses the drops in the output of `ss -0m`: `… *:DEVICE * skmem:(…,dDROPS)`.
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
    fn each_direction_has_its_own_count() {
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
