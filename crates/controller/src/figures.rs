//! The controller's own figures, for Prometheus.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Every figure there is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures {
    pub(crate) records: Counter,
    pub(crate) repeated: Counter,
    pub(crate) messages_repeated: Counter,
    pub(crate) messages_refused: Counter,
    pub(crate) late: Counter,
    pub(crate) early: Counter,
    pub(crate) over_limit: Counter,
    pub(crate) rounds: Counter,
    pub(crate) failures: Counter,
    pub(crate) polls: Counter,
    pub(crate) steered: Gauge<f64, AtomicU64>,
    pub(crate) edges: Gauge<f64, AtomicU64>,
}

impl Figures {
    /// All of them under their names.
    pub(crate) fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix("thalweg_controller");
        for (name, help, counter) in [
            ("records", "Records taken", &self.records),
            ("records_repeated", "Records that came again, dropped", &self.repeated),
            ("messages_repeated", "Kafka's messages that came again, dropped", &self.messages_repeated),
            ("messages_refused", "Kafka's messages that hold no records", &self.messages_refused),
            ("records_late", "Records of windows that were closed, left out", &self.late),
            ("records_early", "Records of windows that have not begun, left out", &self.early),
            ("records_over_limit", "Records beyond a limit, left out", &self.over_limit),
            ("rounds", "Rounds that were decided", &self.rounds),
            ("failures", "Times that what is known could not be written", &self.failures),
            ("polls", "Times that edges have asked for their bundle", &self.polls),
        ] {
            registry.register(name, help, counter.clone());
        }
        registry.register(
            "steered",
            "Rules of the bundles that all edges have but canaries, of all PoPs",
            self.steered.clone(),
        );
        registry.register("edges", "Edges that are known", self.edges.clone());
        registry
    }
}
