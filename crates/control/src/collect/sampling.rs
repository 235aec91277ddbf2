//! Sampling of clients in a window with too many connections.
//!
//! A window starts with all clients. Each time it is full, the sampled share is halved: only
//! clients whose hash is below the new threshold remain, and the connections of the others are
//! dropped. A client is either sampled with all of its connections or not at all, and clients that
//! came early are as likely to be sampled as those that came late. The hash depends on the window,
//! so no client is favoured for long, and not on the draw of any rule. Its seed is secret.
//! Otherwise, an attacker could send from addresses that are always sampled.

use std::net::IpAddr;

use twox_hash::XxHash3_64;

use super::ipv6;

/// Maximum number of halvings. A window that is full even then has room for no more connections.
const HALVINGS_MAX: u32 = 16;

/// The clients sampled in a window.
#[derive(Debug, Default)]
pub(super) struct Sampling {
    seed: u64,
    halvings: u32,
}

impl Sampling {
    /// Samples all clients of window `number`. `seed` is the collector's.
    pub(super) fn new(seed: u64, number: u64) -> Self {
        Self { seed: XxHash3_64::oneshot_with_seed(seed, &number.to_be_bytes()), halvings: 0 }
    }

    /// Returns whether a client is sampled.
    pub(super) fn keeps(&self, client: IpAddr) -> bool {
        let hash = XxHash3_64::oneshot_with_seed(self.seed, &ipv6(client).octets());
        hash.leading_zeros() >= self.halvings
    }

    /// Halves the sampled share. Returns whether that was possible.
    pub(super) fn halve(&mut self) -> bool {
        let can_halve = self.halvings < HALVINGS_MAX;
        self.halvings += u32::from(can_halve);
        can_halve
    }

    /// Returns the number of connections for which each sampled one stands.
    pub(super) fn weight(&self) -> u32 {
        1 << self.halvings
    }
}
