//! Bundles: per-prefix steering rules and experiments, sent by the controller to the edges.
//!
//! A bundle is data, never code: a single JSON document (`wire.rs`), validated in full before use
//! (`check.rs`). Holdouts depend only on the bundle, the client's address and the time (`draw.rs`),
//! and arms only on the bundle and the client's address and port (`place.rs`). Every edge and every
//! consumer of its records therefore computes the same assignment.
//!
//! The crate does no I/O and reads no clock.
//!
//! **Invariant:** every [`Bundle`] is valid: the prefixes of one tenant do not overlap, no host
//! belongs to two tenants or two experiments, and the arm shares of each experiment sum to 1.
//! **Invariant:** all faults in a well-formed document are reported together, each with its
//! location.

mod check;
mod draw;
mod fault;
mod hosts;
mod place;
mod share;
mod table;
mod wire;

use std::net::{IpAddr, SocketAddr};

pub use check::{MADE_UNIX_S_MAX, is_host};
pub use draw::is_block_held_out;
pub use fault::{FAULTS_MAX, Fault, Faults, Place};
pub use hosts::Hosts;
pub use share::Share;
pub use thalweg_record::{Prefix, PrefixError};
pub use wire::Unit;

pub use wire::{declared_checksum, is_checksum};

use table::Table;

/// Version of the document format, stored in the member `format`. Every change of the format
/// increases the version, because an edge that ignored an unknown member could steer the wrong
/// clients.
pub const FORMAT: u32 = 4;
/// Maximum document size, in bytes.
pub const BYTES_MAX: usize = 8 << 20;
/// Maximum number of rules per bundle.
pub const RULES_MAX: usize = 10_000;
/// Maximum number of experiments per bundle.
pub const EXPERIMENTS_MAX: usize = 64;
/// Maximum number of arms per experiment.
pub const ARMS_MAX: usize = 16;
/// Maximum number of tenants per bundle.
pub const TENANTS_MAX: usize = 1_000;
/// Maximum number of hosts in an experiment, in a tenant, or in `hosts_left_alone`.
pub const HOSTS_MAX: usize = 256;
/// Maximum length of a reason, in bytes.
pub const REASON_BYTES_MAX: usize = 1024;
/// Maximum length of a salt, an experiment name or an arm name, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Maximum length of a host name, in bytes, as in DNS.
pub const HOST_BYTES_MAX: usize = 253;
/// Maximum length of a congestion control name, in bytes: Linux's `TCP_CA_NAME_MAX` without the
/// terminating NUL.
pub const CONGESTION_CONTROL_BYTES_MAX: usize = 15;
/// Maximum value of [`Rule::initcwnd`] and [`Rule::initrwnd`], in TCP segments: about 1.4 MB.
pub const INITIAL_WINDOW_MAX: u16 = 1000;
/// Maximum value of [`Rule::size_bytes_min`].
pub const SIZE_BYTES_MAX: u64 = 1 << 30;
/// Maximum length of a redraw period or a switchback block, in seconds: a year.
pub const PERIOD_S_MAX: u32 = 366 * 86_400;

/// The contents of a bundle, not necessarily valid.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// Bundle number, counted from 1 across all bundles of a controller.
    pub number: u64,
    /// Creation time, in Unix seconds.
    pub made_unix_s: u64,
    /// Human-readable reason for creating the bundle.
    pub reason: String,
    /// Hosts whose responses are never steered by a rule. Lower case, without ports.
    pub hosts_left_alone: Vec<String>,
    /// Tenants. A host must not belong to two tenants, or to a tenant and `hosts_left_alone`.
    pub tenants: Vec<Tenant>,
    /// Steering rules. The prefixes of one tenant must not overlap.
    pub rules: Vec<Rule>,
    /// Experiments. No two may apply to the same host.
    pub experiments: Vec<Experiment>,
}

/// A tenant: a group of hosts with steering rules of their own. Other rules do not apply to these
/// hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Host names, in lower case and without ports. The first is also the tenant's name.
    pub hosts: Vec<String>,
}

/// A steering rule: the congestion control for connections from one client prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Name of the rule's tenant. Empty for a rule that applies to hosts without a tenant.
    pub tenant: String,
    /// Client prefix to which the rule applies.
    pub prefix: Prefix,
    /// Kernel name of the congestion control algorithm, such as `bbr`.
    pub congestion_control: String,
    /// Minimum size, in bytes: the rule applies to responses at least this large, and to
    /// connections that have sent at least this many bytes. `None` uses the edge's setting.
    pub size_bytes_min: Option<u64>,
    /// Initial congestion window of connections, in TCP segments, as set by `thalweg routes`. Edges
    /// cannot set this window. `None` keeps the window of the existing route.
    pub initcwnd: Option<u16>,
    /// Initial receive window of connections, in TCP segments, like [`Rule::initcwnd`].
    pub initrwnd: Option<u16>,
    /// Share of clients kept on the default for comparison.
    pub holdout: Share,
    /// Length of a redraw period, in seconds: in each period, clients are drawn anew. `None` draws
    /// each client once.
    pub period_s: Option<u32>,
    /// Makes the rule a switchback with blocks of this many seconds: in each block, the whole
    /// prefix is either steered or held out. A multiple of `period_s`.
    pub switchback_block_s: Option<u32>,
    /// Salt that varies which clients or blocks are held out. May be empty.
    pub salt: String,
    /// Human-readable reason for the rule.
    pub reason: String,
}

/// An experiment that compares arms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Experiment {
    /// Name used in policies and records.
    pub name: String,
    /// Hosts to which the experiment applies. Empty means any host.
    pub hosts: Vec<String>,
    /// Salt that varies the assignment of units to arms.
    pub salt: String,
    /// Unit of allocation.
    pub unit: Unit,
    /// Arms to compare. Their shares sum to 1.
    pub arms: Vec<Arm>,
}

/// An arm of an experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arm {
    /// Name used in policies and records.
    pub name: String,
    /// Share of units assigned to the arm.
    pub share: Share,
    /// Kernel name of the congestion control algorithm. `None` keeps the algorithm that would apply
    /// without the experiment.
    pub congestion_control: Option<String>,
}

/// A valid bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    content: Content,
    /// Table index of each listed host, or `None` if the host is in `hosts_left_alone`.
    hosts: Hosts<Option<usize>>,
    /// Rule indices by client address: table 0 for hosts without a tenant, then one table per
    /// tenant.
    tables: Vec<Table>,
    checksum: String,
}

impl Bundle {
    /// Validates `content` and creates a bundle from it.
    ///
    /// # Errors
    ///
    /// Returns all faults if `content` is invalid, each with its location in the encoded document.
    pub fn new(content: Content) -> Result<Self, Faults> {
        wire::checked(content)
    }

    /// Decodes and validates a document.
    ///
    /// # Errors
    ///
    /// Returns all faults if the document is invalid, but only the first if it is not JSON or a
    /// member is unknown, missing or of the wrong type.
    pub fn decode(document: &[u8]) -> Result<Self, Faults> {
        wire::decode(document)
    }

    /// Encodes the bundle as one line of JSON, including the final newline.
    pub fn encode(&self) -> String {
        wire::encode(self)
    }

    /// Returns the bundle's contents.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Returns the checksum: `sha256:` followed by the 64 lower-case hexadecimal digits of the
    /// SHA-256 of the document without its `checksum` member.
    pub fn checksum(&self) -> &str {
        &self.checksum
    }

    /// Returns the rule for requests from `client` for `host`, a name without a port. An
    /// IPv4-mapped IPv6 address is treated as IPv4.
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
