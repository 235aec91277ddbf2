//! Value types of agent settings. Secret values may be given as a file ([`thalweg_cli::secret`]).

use std::path::Path;

use thalweg_cli::secret::{ClickHouseUrl, reveal};
use thalweg_http::Authority;
use thalweg_tcp::diag::Filter;
use thalweg_telemetry::collect;

use super::value::{Value, is_not};

/// The sockets to record.
impl Value for Filter {
    const FORM: &'static str = "a socket filter such as \"sport 80,443 dst 203.0.113.0/24\"";
    const PLACEHOLDER: &'static str = "FILTER";

    fn from_text(text: &str, _: &Path) -> Result<Self, String> {
        Self::parse(text).map_err(|fault| fault.message().to_owned())
    }
}

/// Directory in which `ip netns` stores network namespaces.
const NAMESPACES: &str = "/run/netns";

/// A network namespace, by its `ip netns` name or by path.
impl Value for collect::Namespace {
    const FORM: &'static str = "a network namespace such as \"edge\" or \"/proc/42/ns/net\"";
    const PLACEHOLDER: &'static str = "NAME|PATH";

    fn from_text(text: &str, _: &Path) -> Result<Self, String> {
        if text.is_empty() {
            return Err(is_not::<Self>(text));
        }
        let directory = Path::new(if text.contains('/') { "" } else { NAMESPACES });
        Ok(Self { name: text.to_owned(), path: directory.join(text) })
    }
}

/// A Kafka bootstrap broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broker(pub(crate) String);

impl Value for Broker {
    const FORM: &'static str = "a broker such as \"kafka-1.example.com:9092\"";
    const PLACEHOLDER: &'static str = "HOST:PORT";

    fn from_text(text: &str, _: &Path) -> Result<Self, String> {
        match Authority::parse(text.as_bytes()) {
            Ok(authority) if authority.port().is_some() => Ok(Self(text.to_owned())),
            _ => Err(is_not::<Self>(text)),
        }
    }
}

/// A librdkafka property. Its value may be a password, so it never appears in messages.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct KafkaProperty {
    pub(crate) key: String,
    pub(crate) value: String,
}

impl std::fmt::Debug for KafkaProperty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}=…", self.key)
    }
}

impl Value for KafkaProperty {
    const FORM: &'static str = "a property such as \"linger.ms=50\", or \"sasl.password=@FILE\"";
    const PLACEHOLDER: &'static str = "KEY=VALUE|KEY=@FILE";

    fn from_text(text: &str, base: &Path) -> Result<Self, String> {
        let (key, value) = thalweg_kafka::parse_property(text)?;
        let value = reveal(&value, base).map_err(|fault| format!("{key}: {fault}"))?;
        Ok(Self { key, value })
    }
}

impl Value for ClickHouseUrl {
    const FORM: &'static str = "a URL such as \"http://user:password@clickhouse:8123/thalweg\", or @FILE";
    const PLACEHOLDER: &'static str = "URL|@FILE";

    fn from_text(text: &str, base: &Path) -> Result<Self, String> {
        let url = reveal(text, base)?;
        let has_scheme = ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme));
        if has_scheme { Ok(Self(url)) } else { Err(format!("expected {}", Self::FORM)) }
    }
}
