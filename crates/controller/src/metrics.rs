//! The controller's Prometheus metrics.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use thalweg_control::{ClosedPairs, Voided};

/// The controller's counters and gauges.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics {
    pub(crate) records: Counter,
    pub(crate) repeated: Counter,
    pub(crate) messages_repeated: Counter,
    pub(crate) messages_refused: Counter,
    pub(crate) late: Counter,
    pub(crate) early: Counter,
    pub(crate) over_limit: Counter,
    pub(crate) foreign: Counter,
    pub(crate) invalid: Counter,
    pub(crate) unauthorized: Counter,
    pub(crate) forbidden: Counter,
    pub(crate) throttled: Counter,
    pub(crate) tls_handshakes_failed: Counter,
    pub(crate) pops_evicted: Counter,
    pub(crate) sampled_out: Counter,
    pub(crate) rounds: Counter,
    pub(crate) pairs: Counter,
    pub(crate) pairs_mixed: Counter,
    pub(crate) pairs_leftover: Counter,
    pub(crate) pairs_few: Counter,
    pub(crate) failures: Counter,
    pub(crate) polls: Counter,
    pub(crate) steered: Gauge<f64, AtomicU64>,
    pub(crate) edges: Gauge<f64, AtomicU64>,
    pub(crate) pops_silent: Gauge<f64, AtomicU64>,
    pub(crate) pops_paused: Gauge<f64, AtomicU64>,
}

impl Metrics {
    /// Counts the pairs of blocks closed in a round.
    pub(crate) fn count_pairs(&self, ClosedPairs { counted, voided }: ClosedPairs) {
        let Voided { mixed, leftover, few } = voided;
        for (counter, pairs) in [
            (&self.pairs, counted),
            (&self.pairs_mixed, mixed),
            (&self.pairs_leftover, leftover),
            (&self.pairs_few, few),
        ] {
            counter.inc_by(pairs.into());
        }
    }

    /// Builds a registry of all controller metrics.
    pub(crate) fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix("thalweg_controller");
        for (name, help, counter) in [
            ("records", "Records accepted", &self.records),
            ("records_repeated", "Records dropped because they were repeated", &self.repeated),
            (
                "messages_repeated",
                "Kafka messages dropped because they were repeated",
                &self.messages_repeated,
            ),
            ("messages_refused", "Kafka messages without valid records", &self.messages_refused),
            ("records_late", "Records dropped because their window had closed", &self.late),
            ("records_early", "Records dropped because their window had not started", &self.early),
            ("records_over_limit", "Records dropped because a limit was reached", &self.over_limit),
            (
                "records_foreign",
                "Records dropped because their host is not in the agent's list",
                &self.foreign,
            ),
            ("records_invalid", "Records dropped because of an invalid name", &self.invalid),
            (
                "unauthorized",
                "Requests refused because of a missing or wrong token or certificate",
                &self.unauthorized,
            ),
            (
                "forbidden",
                "Requests refused because the token or certificate does not allow them",
                &self.forbidden,
            ),
            ("throttled", "Requests refused because a limit was reached", &self.throttled),
            (
                "tls_handshakes_failed",
                "Connections closed because the TLS handshake failed or took too long",
                &self.tls_handshakes_failed,
            ),
            ("pops_evicted", "Idle PoPs removed to make room for others", &self.pops_evicted),
            (
                "records_sampled_out",
                "Records of clients that are not sampled: by a full window, or by their edge",
                &self.sampled_out,
            ),
            ("rounds", "Rounds decided", &self.rounds),
            ("pairs", "Pairs of blocks of switchbacks that count", &self.pairs),
            (
                "pairs_mixed",
                "Pairs of blocks excluded because another rule decided clients, for example on an edge without the bundle",
                &self.pairs_mixed,
            ),
            (
                "pairs_leftover",
                "Pairs of blocks excluded because connections were left over from the other arm",
                &self.pairs_leftover,
            ),
            ("pairs_few", "Pairs of blocks excluded because they had too few clients", &self.pairs_few),
            ("failures", "Failed attempts to store the state", &self.failures),
            ("polls", "Bundle requests by edges", &self.polls),
        ] {
            registry.register(name, help, counter.clone());
        }
        registry.register("steered", "Rules in the stable bundles of all PoPs", self.steered.clone());
        registry.register("edges", "Known edges", self.edges.clone());
        let silent = "PoPs whose records have been missing for at least two windows";
        registry.register("pops_silent", silent, self.pops_silent.clone());
        let paused = "PoPs in which the guardrail or a rollback has paused new trials";
        registry.register("pops_paused", paused, self.pops_paused.clone());
        registry
    }
}
