//! Bundles: steering rules by client prefix, and experiments, which the controller pushes to edges.
//!
//! A bundle is data, never code: one JSON document (`wire.rs`), checked as a whole (`check.rs`).
//! Holdouts and arms depend only on the bundle and the client (`place.rs`), so every edge and every
//! reader of its records computes the same ones.
//!
//! Pure: no clock, no socket, no file.
//!
//! **Invariant:** a [`Bundle`] is valid: prefixes of one tenant do not overlap, no host is in two
//! tenants or two experiments, and the shares of arms sum to 1. **Invariant:** all faults in a
//! document are reported at once, each with its location.

mod check;
mod fault;
mod hosts;
mod place;
mod share;
mod table;
mod wire;

use std::net::{IpAddr, SocketAddr};

pub use check::{MADE_UNIX_S_MAX, is_host};
pub use fault::{FAULTS_MAX, Fault, Faults, Place};
pub use hosts::Hosts;
pub use share::Share;
pub use thalweg_record::{Prefix, PrefixError};
pub use wire::Unit;

pub use wire::{declared_checksum, is_checksum};

use table::Table;

/// Version of the document that this crate reads and writes, in the member `format`. It increases
/// with every change: an edge that ignored unknown members might steer the wrong clients.
pub const FORMAT: u32 = 3;
/// Maximum bytes of a document.
pub const BYTES_MAX: usize = 8 << 20;
/// Maximum rules in a bundle.
pub const RULES_MAX: usize = 10_000;
/// Maximum experiments in a bundle.
pub const EXPERIMENTS_MAX: usize = 64;
/// Maximum arms of an experiment.
pub const ARMS_MAX: usize = 16;
/// Maximum tenants in a bundle.
pub const TENANTS_MAX: usize = 1_000;
/// Maximum hosts in an experiment, in a tenant, and in `hosts_left_alone`.
pub const HOSTS_MAX: usize = 256;
/// Maximum bytes of a reason.
pub const REASON_BYTES_MAX: usize = 1024;
/// Maximum bytes of a salt and of the name of an experiment or an arm.
pub const NAME_BYTES_MAX: usize = 64;
/// Maximum bytes of a host name, as in DNS.
pub const HOST_BYTES_MAX: usize = 253;
/// Maximum bytes of a congestion control name: Linux's `TCP_CA_NAME_MAX` without the terminator.
pub const CONGESTION_CONTROL_BYTES_MAX: usize = 15;
/// Maximum of [`Rule::size_bytes_min`].
pub const SIZE_BYTES_MAX: u64 = 1 << 30;

/// The contents of a bundle before they are checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// Number of the bundle; counts up from 1 across all bundles of a controller.
    pub number: u64,
    /// Creation time in unix seconds.
    pub made_unix_s: u64,
    /// Why the bundle was created, for people.
    pub reason: String,
    /// Hosts to whose responses no rule ever applies, in lower case and without ports.
    pub hosts_left_alone: Vec<String>,
    /// The tenants. No host is in two tenants, or both in a tenant and left alone.
    pub tenants: Vec<Tenant>,
    /// The steering rules. No two prefixes of one tenant overlap.
    pub rules: Vec<Rule>,
    /// The experiments. No two apply to the same host.
    pub experiments: Vec<Experiment>,
}

/// Hosts that use only their own rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Host names, in lower case and without ports. The first also names the tenant.
    pub hosts: Vec<String>,
}

/// A steering rule: the congestion control for connections from a client prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Name of the tenant whose hosts the rule applies to; empty for hosts without a tenant.
    pub tenant: String,
    /// Prefix of the client addresses that the rule applies to.
    pub prefix: Prefix,
    /// The algorithm's name in the kernel.
    pub congestion_control: String,
    /// Minimum response size in bytes, or minimum bytes sent on the connection, for the rule to
    /// apply. `None` means the edge's setting.
    pub size_bytes_min: Option<u64>,
    /// Share of connections that keep the default, for comparison.
    pub holdout: Share,
    /// Changes which connections are held out; may be empty.
    pub salt: String,
    /// Why the rule exists, for people.
    pub reason: String,
}

/// An experiment, which compares arms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Experiment {
    /// Name used by policies and records.
    pub name: String,
    /// Hosts whose requests the experiment applies to; empty for any host.
    pub hosts: Vec<String>,
    /// Changes which units get which arm.
    pub salt: String,
    /// Unit of allocation.
    pub unit: Unit,
    /// The arms to compare; their shares sum to 1.
    pub arms: Vec<Arm>,
}

/// An arm of an experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arm {
    /// Name used by policies and records.
    pub name: String,
    /// Share of units that get the arm.
    pub share: Share,
    /// The algorithm's name in the kernel; `None` keeps the one that applies without the
    /// experiment.
    pub congestion_control: Option<String>,
}

/// A valid bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    content: Content,
    /// Table index of each host; `None` for a host that is left alone.
    hosts: Hosts<Option<usize>>,
    /// Rules by address: the first table for hosts without a tenant, then one for each tenant.
    tables: Vec<Table>,
    checksum: String,
}

impl Bundle {
    /// Creates a bundle if `content` is valid.
    ///
    /// # Errors
    /// All faults, each with its location in the document that `content` would encode to.
    pub fn new(content: Content) -> Result<Self, Faults> {
        wire::checked(content)
    }

    /// Decodes a document.
    ///
    /// # Errors
    /// All faults; for invalid JSON or a wrong shape, only the first.
    pub fn decode(document: &[u8]) -> Result<Self, Faults> {
        wire::decode(document)
    }

    /// Encodes the document on one line, including the newline.
    pub fn encode(&self) -> String {
        wire::encode(self)
    }

    /// Returns the contents.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Returns the SHA-256 of the document without its checksum: `sha256:` and 64 lower-case
    /// hexadecimal digits.
    pub fn checksum(&self) -> &str {
        &self.checksum
    }

    /// Returns the rule for a client's requests for `host`, a name without a port. An IPv4 address
    /// in IPv6 form counts as IPv4.
    pub fn rule(&self, client: IpAddr, host: &str) -> Option<&Rule> {
        let table = self.hosts.get(host).unwrap_or(Some(0))?;
        let rule = self.tables.get(table)?.find(client.to_canonical())?;
        self.content.rules.get(rule)
    }

    /// Returns the experiment that applies to requests for `host`, a name without a port.
    pub fn experiment(&self, host: &str) -> Option<&Experiment> {
        self.content.experiments.iter().find(|experiment| experiment.is_about(host))
    }
}

impl Rule {
    /// Returns whether the connection from this address and port is held out.
    pub fn holds_out(&self, client: SocketAddr) -> bool {
        let prefix = self.prefix;
        let salt = if self.salt.is_empty() { prefix.to_string() } else { format!("{prefix} {}", self.salt) };
        let place = place::of(&salt, &place::connection(client));
        place < self.holdout.millionths()
    }
}

impl Experiment {
    /// Returns whether the experiment applies to requests for `host`, a name without a port.
    pub fn is_about(&self, host: &str) -> bool {
        self.hosts.is_empty() || self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
    }

    /// Returns the arm for the connection from this address and port.
    pub fn arm(&self, client: SocketAddr) -> &Arm {
        let key = match self.unit {
            Unit::Client => place::client(client.ip()),
            Unit::Connection => place::connection(client),
        };
        let place = place::of(&self.salt, &key);
        let mut end = 0;
        let arm = self.arms.iter().find(|arm| {
            end += arm.share.millionths();
            place < end
        });
        arm.expect("the shares of a valid bundle's arms sum to 1")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
