//! Bundles: what control pushes to edges. Steering rules by client prefix, and experiments.
//!
//! A bundle is data, never code: one JSON document (`wire.rs`), checked as a whole (`check.rs`). Who is held out and who
//! gets which arm is a function of the bundle and the client alone (`place.rs`), so every edge, and whoever reads its
//! records, comes to the same.
//!
//! Pure: no clock, no socket, no file.
//!
//! **Invariant:** a [`Bundle`] is valid: prefixes of one tenant do not overlap, no host is in two tenants or two experiments, arms
//! share out all.
//! **Invariant:** what is wrong with a document is told all at once, each fault with its place.

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

/// The version of the document that this crate reads and writes, its member `format`. It changes with every change of
/// the document: an edge that ignored what it does not know might steer whom it should not.
pub const FORMAT: u32 = 3;
/// Bytes of a document.
pub const BYTES_MAX: usize = 8 << 20;
/// Rules of a bundle.
pub const RULES_MAX: usize = 10_000;
/// Experiments of a bundle.
pub const EXPERIMENTS_MAX: usize = 64;
/// Arms of an experiment.
pub const ARMS_MAX: usize = 16;
/// Tenants of a bundle.
pub const TENANTS_MAX: usize = 1_000;
/// Hosts of an experiment, of a tenant, and those that rules leave alone.
pub const HOSTS_MAX: usize = 256;
/// Bytes of a reason.
pub const REASON_BYTES_MAX: usize = 1024;
/// Bytes of the name of an experiment or an arm, and of a salt.
pub const NAME_BYTES_MAX: usize = 64;
/// Bytes of a host: what a DNS name can have.
pub const HOST_BYTES_MAX: usize = 253;
/// Bytes of the name of a congestion control: Linux' `TCP_CA_NAME_MAX` without its end.
pub const CONGESTION_CONTROL_BYTES_MAX: usize = 15;
/// The largest [`Rule::size_bytes_min`].
pub const SIZE_BYTES_MAX: u64 = 1 << 30;

/// What a bundle says, before it is checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// Counts up from 1, over all bundles of a controller.
    pub number: u64,
    /// When it was made, unix seconds.
    pub made_unix_s: u64,
    /// Why it was made, for people.
    pub reason: String,
    /// Hosts, in lower case and without ports, for whose responses no rule is ever due.
    pub hosts_left_alone: Vec<String>,
    /// Hosts that have rules of their own, and none but these. No host is in two, or left alone.
    pub tenants: Vec<Tenant>,
    /// Who is steered. No two prefixes of one tenant overlap.
    pub rules: Vec<Rule>,
    /// What is tried on whom. No two are about the same host.
    pub experiments: Vec<Experiment>,
}

/// Hosts that have rules of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Their names, in lower case and without ports. The first is the tenant's.
    pub hosts: Vec<String>,
}

/// A congestion control for the connections of a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The tenant whose hosts it is about; empty: hosts that no tenant has.
    pub tenant: String,
    /// The clients.
    pub prefix: Prefix,
    /// As the kernel names it.
    pub congestion_control: String,
    /// The least response, in bytes, for which it is set, or so much sent on the connection; `None`: the edge's setting.
    pub size_bytes_min: Option<u64>,
    /// The share of connections that stay as they are, for comparison.
    pub holdout: Share,
    /// Changes who is held out; may be empty.
    pub salt: String,
    /// Why, for people.
    pub reason: String,
}

/// A comparison of arms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Experiment {
    /// By which policies and records name it.
    pub name: String,
    /// The hosts whose requests it is about; any, if empty.
    pub hosts: Vec<String>,
    /// Changes who gets which arm.
    pub salt: String,
    /// What gets an arm.
    pub unit: Unit,
    /// What is compared; the shares are all there is.
    pub arms: Vec<Arm>,
}

/// An arm of an experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arm {
    /// By which policies and records name it.
    pub name: String,
    /// The share of units that get it.
    pub share: Share,
    /// As the kernel names it; `None`: as it would be without the experiment.
    pub congestion_control: Option<String>,
}

/// A valid bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    content: Content,
    /// The table of each host; of those that are left alone there is none.
    hosts: Hosts<Option<usize>>,
    /// Rules by address: of hosts that no tenant has, then of each tenant.
    tables: Vec<Table>,
    checksum: String,
}

impl Bundle {
    /// Checks `content`.
    ///
    /// # Errors
    /// Everything that is wrong with it, placed as in the document that it would make.
    pub fn new(content: Content) -> Result<Self, Faults> {
        wire::checked(content)
    }

    /// Reads a document.
    ///
    /// # Errors
    /// Everything that is wrong with it; what is no JSON, or not of the right shape, only to the first such fault.
    pub fn decode(document: &[u8]) -> Result<Self, Faults> {
        wire::decode(document)
    }

    /// The document, on one line with its end.
    pub fn encode(&self) -> String {
        wire::encode(self)
    }

    /// What it says.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// SHA-256 of the document without its checksum: `sha256:` and 64 lower-case hexadecimal digits.
    pub fn checksum(&self) -> &str {
        &self.checksum
    }

    /// The rule for a client's requests for `host`, a name without a port; an IPv4 address in IPv6 form counts as IPv4.
    pub fn rule(&self, client: IpAddr, host: &str) -> Option<&Rule> {
        let table = self.hosts.get(host).unwrap_or(Some(0))?;
        let rule = self.tables.get(table)?.find(client.to_canonical())?;
        self.content.rules.get(rule)
    }

    /// The experiment about requests for `host`, a name without a port.
    pub fn experiment(&self, host: &str) -> Option<&Experiment> {
        self.content.experiments.iter().find(|experiment| experiment.is_about(host))
    }
}

impl Rule {
    /// Whether the connection from this address and port stays as it is.
    pub fn holds_out(&self, client: SocketAddr) -> bool {
        let prefix = self.prefix;
        let salt = if self.salt.is_empty() { prefix.to_string() } else { format!("{prefix} {}", self.salt) };
        let place = place::of(&salt, &place::connection(client));
        place < self.holdout.millionths()
    }
}

impl Experiment {
    /// Whether requests for `host`, a name without a port, are in it.
    pub fn is_about(&self, host: &str) -> bool {
        self.hosts.is_empty() || self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
    }

    /// The arm of the connection from this address and port.
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
        arm.expect("the shares of a valid bundle's arms are all there is")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]
mod tests;
