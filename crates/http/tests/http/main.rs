//! Integration tests: one test per RFC rule, property tests, and robustness against arbitrary
//! bytes.

#![allow(clippy::unwrap_used)]

mod any_bytes;
mod cache_control;
mod cache_status;
mod chunked;
mod conditions;
mod fields;
mod framing;
mod head;
mod range;
mod reference;
mod smuggling;
mod target;
mod trailer;

use proptest::test_runner::{Config, RngSeed};

/// Returns a configuration for `cases` test cases with a fixed seed, so that runs are reproducible.
/// `PROPTEST_RNG_SEED` overrides the seed.
fn cases(cases: u32) -> Config {
    let mut config = Config { cases, failure_persistence: None, ..Config::default() };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(0x7468_616c_7765_6721);
    }
    config
}

/// Formats bytes for a diff and escapes unprintable ones.
fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
