//! Values that only the agent's settings have.

use std::path::{Path, PathBuf};

use thalweg_http::Authority;
use thalweg_tcp::diag::Filter;
use thalweg_telemetry::kafka;

use super::secret;
use super::value::{Raw, Refused, Value};

/// Which sockets are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SocketFilter(pub(crate) Filter);

impl Value for SocketFilter {
    const FORM: &'static str = "a filter of sockets such as \"sport 80,443 dst 203.0.113.0/24\"";
    const PLACEHOLDER: &'static str = "FILTER";

    fn from_text(text: &str) -> Result<Self, String> {
        Filter::parse(text).map(Self).map_err(|fault| fault.message().to_owned())
    }
}

/// A network namespace: by the name that `ip netns` has for it, or by its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Namespace {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

impl Namespace {
    /// Where `ip netns` keeps them.
    const DIRECTORY: &'static str = "/run/netns";
}

impl Value for Namespace {
    const FORM: &'static str = "a network namespace such as \"edge\" or \"/proc/42/ns/net\"";
    const PLACEHOLDER: &'static str = "NAME|PATH";

    fn from_text(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err(format!("{text:?} is not {}", Self::FORM));
        }
        let directory = if text.contains('/') { Path::new("") } else { Path::new(Self::DIRECTORY) };
        Ok(Self { name: text.to_owned(), path: directory.join(text) })
    }
}

/// A Kafka broker to begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broker(pub(crate) String);

impl Value for Broker {
    const FORM: &'static str = "a broker such as \"kafka-1.example.com:9092\"";
    const PLACEHOLDER: &'static str = "HOST:PORT";

    fn from_text(text: &str) -> Result<Self, String> {
        match Authority::parse(text.as_bytes()) {
            Ok(authority) if authority.port().is_some() => Ok(Self(text.to_owned())),
            _ => Err(format!("{text:?} is not {}", Self::FORM)),
        }
    }
}

/// A property of librdkafka. Its value may be a password, and is not told in messages.
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

    fn from_text(text: &str) -> Result<Self, String> {
        let (key, value) = kafka::property(text)?;
        Ok(Self { key, value })
    }

    fn read(raw: &Raw, base: &Path) -> Result<Self, Vec<Refused>> {
        secret::read(raw, |text| {
            let Self { key, value } = Self::from_text(text)?;
            let value = secret::reveal(&value, base).map_err(|fault| format!("{key}: {fault}"))?;
            Ok(Self { key, value })
        })
    }
}

/// A ClickHouse server and database. It may have a password, and is not told in messages.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ClickHouseUrl(pub(crate) String);

impl std::fmt::Debug for ClickHouseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClickHouseUrl")
    }
}

impl Value for ClickHouseUrl {
    const FORM: &'static str = "a URL such as \"http://user:password@clickhouse:8123/thalweg\", or @FILE";
    const PLACEHOLDER: &'static str = "URL|@FILE";

    fn from_text(text: &str) -> Result<Self, String> {
        let has_scheme = ["http://", "https://"].iter().any(|scheme| text.starts_with(scheme));
        if has_scheme { Ok(Self(text.to_owned())) } else { Err(format!("not {}", Self::FORM)) }
    }

    fn read(raw: &Raw, base: &Path) -> Result<Self, Vec<Refused>> {
        secret::read(raw, |text| Self::from_text(&secret::reveal(text, base)?))
    }
}
