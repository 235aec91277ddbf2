//! Time-dependent draws of a rule's holdout. A client is either held out or steered for a whole
//! redraw period, and is drawn again, independently, in the next period. A switchback draws the
//! whole prefix instead.
//!
//! The draw depends on the client's address but not on the port, so all connections of a player are
//! in the same arm. Periods and blocks are counted from the Unix epoch, so edges whose clocks agree
//! switch together, without a new bundle.
//!
//! The blocks of a switchback come in pairs. A fair coin, drawn from the salt and the number of the
//! pair, decides which of the two blocks is held out.

use std::net::IpAddr;
use std::ops::Range;

use crate::{Prefix, Rule, Share, place};

impl Rule {
    /// Returns the number of the redraw period at this time. `None` if clients are drawn once.
    pub fn period(&self, unix_s: u64) -> Option<u64> {
        self.period_s.map(|period_s| unix_s / u64::from(period_s))
    }

    /// Returns whether the rule holds out connections from this address that it decides at this
    /// time.
    pub fn holds_out(&self, client: IpAddr, unix_s: u64) -> bool {
        if self.switchback_block_s.is_some() {
            return self.holds_out_prefix(unix_s);
        }
        let key = place::address_in_period(client, self.period(unix_s).unwrap_or(0));
        place::of(&salt(self.prefix, &self.salt), &key) < self.holdout.millionths()
    }

    /// Returns whether the whole prefix is held out at this time: in a block of a switchback, or
    /// always if the rule holds out all clients.
    pub fn holds_out_prefix(&self, unix_s: u64) -> bool {
        match self.switchback_block_s {
            Some(block_s) => is_block_held_out(self.prefix, &self.salt, unix_s / u64::from(block_s)),
            None => self.holdout == Share::ALL,
        }
    }

    /// Returns the switchback block that contains this time, as a range of Unix seconds. `None` if
    /// the rule is not a switchback.
    pub fn block(&self, unix_s: u64) -> Option<Range<u64>> {
        let block_s = u64::from(self.switchback_block_s?);
        let start = unix_s / block_s * block_s;
        Some(start..start.saturating_add(block_s))
    }
}

/// Returns whether a switchback holds out the prefix in block number `block`: the block's start in
/// Unix seconds, divided by the block length.
pub fn is_block_held_out(prefix: Prefix, rule_salt: &str, block: u64) -> bool {
    let pair = block / 2;
    let coin = place::of(&format!("{} switchback", salt(prefix, rule_salt)), &pair.to_be_bytes());
    let is_first_held_out = coin < 500_000;
    is_first_held_out == block.is_multiple_of(2)
}

fn salt(prefix: Prefix, salt: &str) -> String {
    if salt.is_empty() { prefix.to_string() } else { format!("{prefix} {salt}") }
}
