//! Which sockets are told of: by state, ports and prefixes. Pure.
//!
//! One filter has three forms: a text that people write ([`Filter::parse`], in `parse.rs`), bytecode that the kernel
//! runs on each socket before anything is copied ([`Filter::bytecode`], in `bytecode.rs`), and [`Filter::holds`], for
//! what the kernel does not filter: events, and what was captured.
//!
//! **Invariant:** the bytecode and [`Filter::holds_ends`] say the same of every socket.

mod bytecode;
mod parse;

pub use parse::FilterError;

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use super::{Prefix, Socket, States};

/// The most alternatives that one list of a filter may have. The kernel reads jumps of 16 bits: see `bytecode.rs`.
pub const ALTERNATIVES_MAX: usize = 256;

/// What must hold of a socket: everything that is set; of a list, any. An empty list asks nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Its state is one of these.
    pub states: States,
    /// Its port on this side.
    pub local_ports: Vec<RangeInclusive<u16>>,
    /// Its port on the other side.
    pub remote_ports: Vec<RangeInclusive<u16>>,
    /// Its address on this side.
    pub local_prefixes: Vec<Prefix>,
    /// Its address on the other side.
    pub remote_prefixes: Vec<Prefix>,
}

impl Default for Filter {
    /// Every connection that is there: [`States::CONNECTED`].
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
    /// Whether it holds for the socket.
    pub fn holds(&self, socket: &Socket) -> bool {
        self.states.contains(socket.state) && self.holds_ends(socket)
    }

    /// Whether it holds but for the state: of a socket that is destroyed the state says nothing.
    pub fn holds_ends(&self, socket: &Socket) -> bool {
        end_holds(&self.local_ports, &self.local_prefixes, socket.local)
            && end_holds(&self.remote_ports, &self.remote_prefixes, socket.remote)
    }
}

fn end_holds(ports: &[RangeInclusive<u16>], prefixes: &[Prefix], end: SocketAddr) -> bool {
    (ports.is_empty() || ports.iter().any(|ports| ports.contains(&end.port())))
        && (prefixes.is_empty() || prefixes.iter().any(|prefix| prefix.contains(end.ip())))
}

#[cfg(test)]
mod tests;
