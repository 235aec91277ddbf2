//! What is in the compacted topic over which bundles go: its keys, and what edges say of themselves there.
//!
//! ```text
//! bundle/POP               the bundle that all edges of a PoP have
//! bundle/POP/EDGE          that of a canary, as long as it is another
//! acknowledged/POP/EDGE    what an edge has, and has refused
//! ```
//!
//! Names have no slash ([`is_name`]), and all keys of a PoP are in one partition, in the order in which they were written.

use serde::{Deserialize, Serialize};
use thalweg_bundle::is_checksum;
use thalweg_record::is_name;

/// The version of an [`Acknowledged`].
const FORMAT: u32 = 1;
/// Bytes of an [`Acknowledged`] that are read.
const ACKNOWLEDGED_BYTES_MAX: usize = 8192;
/// Bytes of a reason that are told.
const REASON_BYTES_MAX: usize = 1024;

/// What a key is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The bundle of a PoP, or of one of its edges.
    Bundle(String, Option<String>),
    /// What an edge of a PoP says.
    Acknowledged(String, String),
}

impl Key {
    /// A key as text; nothing if it is none of these.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let (kind, pop, edge) = (parts.next()?, parts.next()?, parts.next());
        let is_fit = is_name(pop) && edge.is_none_or(is_name) && parts.next().is_none();
        let (pop, edge) = (pop.to_owned(), edge.map(str::to_owned));
        match (kind, edge) {
            ("bundle", edge) if is_fit => Some(Self::Bundle(pop, edge)),
            ("acknowledged", Some(edge)) if is_fit => Some(Self::Acknowledged(pop, edge)),
            _ => None,
        }
    }

    /// The PoP, of which all keys are in one partition.
    pub fn pop(&self) -> &str {
        match self {
            Self::Bundle(pop, _) | Self::Acknowledged(pop, _) => pop,
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bundle(pop, None) => write!(f, "bundle/{pop}"),
            Self::Bundle(pop, Some(edge)) => write!(f, "bundle/{pop}/{edge}"),
            Self::Acknowledged(pop, edge) => write!(f, "acknowledged/{pop}/{edge}"),
        }
    }
}

/// What an edge has and has not taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// The checksum of the bundle in force.
    pub in_force: Option<String>,
    /// Its number.
    pub number: Option<u64>,
    /// What was refused since the last good one.
    pub refused: Option<Refused>,
}

/// A document that an edge has refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Its checksum, as far as it is known.
    pub checksum: Option<String>,
    /// Why.
    pub reason: String,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    format: u32,
    in_force: Option<String>,
    number: Option<u64>,
    refused: Option<Refused>,
}

impl Acknowledged {
    /// As JSON. A long reason is cut.
    pub fn encode(&self) -> String {
        let refused = self.refused.clone().map(|Refused { checksum, mut reason }| {
            reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
            Refused { checksum, reason }
        });
        let wire = Wire { format: FORMAT, in_force: self.in_force.clone(), number: self.number, refused };
        serde_json::to_string(&wire).expect("it has no map")
    }

    /// From JSON; nothing if it is of another form, or version.
    pub fn decode(text: &[u8]) -> Option<Self> {
        let wire: Wire = serde_json::from_slice(text.get(..ACKNOWLEDGED_BYTES_MAX).unwrap_or(text)).ok()?;
        let refused = wire.refused.as_ref();
        let mut checksums = wire.in_force.iter().chain(refused.and_then(|refused| refused.checksum.as_ref()));
        let is_fit = wire.format == FORMAT
            && checksums.all(|checksum| is_checksum(checksum))
            && refused.is_none_or(|refused| refused.reason.len() <= REASON_BYTES_MAX);
        is_fit.then_some(Self { in_force: wire.in_force, number: wire.number, refused: wire.refused })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        for text in ["bundle/fra1", "bundle/fra1/edge-1.example", "acknowledged/fra1/edge-1"] {
            let key = Key::parse(text).unwrap();
            assert_eq!((key.to_string().as_str(), key.pop()), (text, "fra1"));
        }
        for text in [
            "",
            "bundle",
            "bundle/",
            "bundle/a/",
            "bundle/a/b/c",
            "bundle/a b",
            "acknowledged/a",
            "other/a/b",
        ] {
            assert_eq!(Key::parse(text), None, "{text}");
        }
    }

    #[test]
    fn acknowledgements() {
        let checksum = format!("sha256:{}", "0".repeat(64));
        let refused = Refused { checksum: Some(checksum.clone()), reason: "é\"".into() };
        let all = Acknowledged { in_force: Some(checksum), number: Some(7), refused: Some(refused) };
        for it in [Acknowledged::default(), all.clone()] {
            assert_eq!(Acknowledged::decode(it.encode().as_bytes()), Some(it));
        }
        let long = Refused { checksum: None, reason: "é".repeat(4000) };
        let long = Acknowledged { in_force: None, number: None, refused: Some(long) };
        let read = Acknowledged::decode(long.encode().as_bytes()).unwrap();
        assert_eq!(read.refused.unwrap().reason.len(), REASON_BYTES_MAX);
        for bad in [
            String::new(),
            "{}".into(),
            all.encode().replace("\"format\":1", "\"format\":2"),
            all.encode().replace("sha256:0", "sha256:x"),
            format!("{}{}", " ".repeat(ACKNOWLEDGED_BYTES_MAX), all.encode()),
        ] {
            assert_eq!(Acknowledged::decode(bad.as_bytes()), None, "{bad}");
        }
    }
}
