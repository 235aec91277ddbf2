//! Bundles as edges get them, and what edges tell in return.

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::IF_NONE_MATCH;
use thalweg_bundle::Bundle;

/// The request field in which an edge says the number of the bundle that is in force there.
pub(crate) const NUMBER_FIELD: &str = "thalweg-bundle";
/// The request field in which an edge says which document it has refused, and why.
pub(crate) const REFUSED_FIELD: &str = "thalweg-refused";
/// Bytes of a refusal that are kept.
const REFUSED_BYTES_MAX: usize = 1024;

/// A bundle with its text.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) bundle: Bundle,
    pub(crate) text: String,
    /// Its checksum in quotes: an entity tag (RFC 9110 §8.8.3).
    pub(crate) etag: String,
}

impl Document {
    pub(crate) fn new(bundle: Bundle) -> Arc<Self> {
        let text = bundle.encode();
        let etag = format!("\"{}\"", bundle.checksum());
        Arc::new(Self { bundle, text, etag })
    }

    pub(crate) fn number(&self) -> u64 {
        self.bundle.content().number
    }
}

/// What an edge says when it asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// The entity tags of what it has: what is in force first, then what it has refused.
    pub(crate) etags: Vec<String>,
    /// The number of what is in force; 0 if nothing is, or it does not say.
    pub(crate) number: u64,
    /// What it has refused, and why.
    pub(crate) refused: Option<String>,
}

/// Entity tags of a request that are read.
const ETAGS_MAX: usize = 8;

impl Heard {
    pub(crate) fn of(fields: &HeaderMap) -> Self {
        let text = |name: &str| fields.get(name).and_then(|value| value.to_str().ok());
        let etags = text(IF_NONE_MATCH.as_str()).unwrap_or_default().split(',').map(str::trim);
        let refused = text(REFUSED_FIELD).map(|refused| {
            let end = refused.floor_char_boundary(REFUSED_BYTES_MAX);
            refused[..end].to_owned()
        });
        Self {
            etags: etags.filter(|etag| !etag.is_empty()).take(ETAGS_MAX).map(str::to_owned).collect(),
            number: text(NUMBER_FIELD).and_then(|number| number.parse().ok()).unwrap_or(0),
            refused,
        }
    }

    /// Whether it has this document, or has refused it.
    pub(crate) fn knows(&self, document: &Document) -> bool {
        self.etags.contains(&document.etag)
    }
}

#[cfg(test)]
mod tests {
    use thalweg_bundle::Content;

    use super::*;

    #[test]
    fn an_edge_says_what_it_has() {
        let document =
            Document::new(Bundle::new(Content { number: 7, ..Content::default() }).expect("it is"));
        let mut fields = HeaderMap::new();
        assert_eq!(Heard::of(&fields), Heard::default());
        let value = format!("\"sha256:0\", {}", document.etag);
        fields.insert(IF_NONE_MATCH, value.parse().expect("a value"));
        fields.insert(NUMBER_FIELD, "6".parse().expect("a value"));
        fields.insert(REFUSED_FIELD, "x".repeat(2000).parse().expect("a value"));
        let heard = Heard::of(&fields);
        assert!(heard.knows(&document));
        assert_eq!((heard.number, heard.refused.map(|text| text.len())), (6, Some(REFUSED_BYTES_MAX)));
        fields.insert(IF_NONE_MATCH, "*".parse().expect("a value"));
        assert!(!Heard::of(&fields).knows(&document));
    }
}
