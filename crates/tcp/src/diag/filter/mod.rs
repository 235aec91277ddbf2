//! Socket filters by state, port and address prefix.
//!
//! A filter has three forms: text written by users ([`Filter::parse`], in `parse.rs`); bytecode
//! that the kernel runs on each socket before copying it ([`Filter::bytecode`], in `bytecode.rs`);
//! and [`Filter::holds`], for sockets not filtered by the kernel, such as those from events and
//! captures.
//!
//! **Invariant:** the bytecode and [`Filter::holds_ends`] agree on every socket.

mod bytecode;
mod parse;

pub use parse::FilterError;

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;

use super::{Socket, States};

/// Maximum number of alternatives in one filter list, limited by the kernel's 16-bit jumps (see
/// `bytecode.rs`).
pub const ALTERNATIVES_MAX: usize = 256;

/// Conditions on a socket. The state and all lists must match. A list matches if it is empty or any
/// of its values matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Accepted states.
    pub states: States,
    /// Accepted local ports.
    pub local_ports: Vec<RangeInclusive<u16>>,
    /// Accepted remote ports.
    pub remote_ports: Vec<RangeInclusive<u16>>,
    /// Accepted local addresses.
    pub local_prefixes: Vec<IpNet>,
    /// Accepted remote addresses.
    pub remote_prefixes: Vec<IpNet>,
}

impl Default for Filter {
    /// Matches all open connections ([`States::CONNECTED`]).
    fn default() -> Self {
        Self {
            states: States::CONNECTED,
            local_ports: Vec::new(),
            remote_ports: Vec::new(),
            local_prefixes: Vec::new(),
            remote_prefixes: Vec::new(),
        }
    }
}

impl Filter {
    /// Returns whether the socket matches.
    pub fn holds(&self, socket: &Socket) -> bool {
        self.states.contains(socket.state) && self.holds_ends(socket)
    }

    /// Returns whether the socket matches, ignoring its state. The state of a destroyed socket is
    /// meaningless.
    pub fn holds_ends(&self, socket: &Socket) -> bool {
        end_holds(&self.local_ports, &self.local_prefixes, socket.local)
            && end_holds(&self.remote_ports, &self.remote_prefixes, socket.remote)
    }
}

fn end_holds(ports: &[RangeInclusive<u16>], prefixes: &[IpNet], end: SocketAddr) -> bool {
    let address = end.ip().to_canonical();
    (ports.is_empty() || ports.iter().any(|ports| ports.contains(&end.port())))
        && (prefixes.is_empty() || prefixes.iter().any(|prefix| prefix.contains(&address)))
}

#[cfg(test)]
mod tests;
