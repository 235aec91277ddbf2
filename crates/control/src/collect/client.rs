//! One client's connections that a rule decided in one redraw period, merged into one outcome.
//!
//! Connections of one client in one period share one draw, and depend on each other anyway, so they
//! are one unit. A connection that lives on keeps its arm, but its client is drawn again in the
//! next period. Its later responses therefore belong to the period of its own draw, not to the
//! period in which they end. Each (client, period) is reported once, in the first window with an
//! outcome: if steering has no effect, which window that is does not depend on any draw, so all
//! reported draws are independent.
//!
//! A client whose connections were in different arms in one period, because the rule changed, has
//! no outcome.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::connection::Connection;
use crate::sequential::Mean;
use crate::window::{Arm, Outcome};

/// Identifies an outcome: tenant, redraw period, and the client's address.
pub(super) type ClientKey = (usize, u64, IpAddr);

/// Clients with their connections of one window.
pub(super) type Clients = BTreeMap<ClientKey, Client>;

/// Connections of one client that a rule decided in one redraw period.
#[derive(Debug)]
pub(super) struct Client {
    bundle: u64,
    is_steered: bool,
    is_mixed: bool,
    ln_goodput: Mean,
    sent_bytes: u64,
    retrans_bytes: u64,
}

/// Adds a connection to its client if a rule decided it in a known period and its goodput was
/// measured.
pub(super) fn add(clients: &mut Clients, tenant: usize, connection: &Connection) {
    let Some(rule) = connection.rule.filter(|rule| rule.arm != Arm::Other) else { return };
    let Some(period) = rule.period.filter(|_| connection.ln_goodput.count > 0) else { return };
    let is_steered = rule.arm == Arm::Steered;
    let client = clients.entry((tenant, period, connection.address)).or_insert_with(|| Client {
        bundle: rule.bundle,
        is_steered,
        is_mixed: false,
        ln_goodput: Mean::default(),
        sent_bytes: 0,
        retrans_bytes: 0,
    });
    client.bundle = client.bundle.min(rule.bundle);
    client.is_mixed |= client.is_steered != is_steered;
    client.ln_goodput.merge(&connection.ln_goodput);
    client.sent_bytes = client.sent_bytes.saturating_add(connection.sent_bytes);
    client.retrans_bytes = client.retrans_bytes.saturating_add(connection.retrans_bytes);
}

impl Client {
    /// Returns the outcome, unless the connections were in different arms.
    pub(super) fn outcome(&self, period: u64) -> Option<Outcome> {
        let share = self.retrans_bytes as f64 / self.sent_bytes as f64;
        (!self.is_mixed).then_some(Outcome {
            bundle: self.bundle,
            period,
            is_steered: self.is_steered,
            ln_goodput: self.ln_goodput.mean,
            retransmitted_share: (self.sent_bytes > 0).then_some(share.min(1.0)),
        })
    }
}
