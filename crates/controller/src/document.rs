//! Bundle documents sent to edges, and the request fields in which edges report their status.

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::IF_NONE_MATCH;
use thalweg_bundle::Bundle;
use thalweg_control::Refusal;

/// Request field that reports a refused document: its checksum, a space, and the reason. Characters
/// of the reason other than visible ASCII are percent-encoded.
pub(crate) const REFUSED_FIELD: &str = "thalweg-refused";
/// Request field that reports the number of the bundle in force.
pub(crate) const NUMBER_FIELD: &str = "thalweg-bundle-number";
/// Maximum number of entity tags read from a request.
const ETAGS_MAX: usize = 8;

/// A bundle encoded for edges.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) text: String,
    /// The bundle's checksum in quotes, used as the entity tag (RFC 9110 §8.8.3).
    pub(crate) etag: String,
}

impl Document {
    pub(crate) fn new(bundle: &Bundle) -> Arc<Self> {
        Arc::new(Self { text: bundle.encode(), etag: format!("\"{}\"", bundle.checksum()) })
    }

    pub(crate) fn checksum(&self) -> &str {
        self.etag.trim_matches('"')
    }

    pub(crate) fn is_of(&self, bundle: &Bundle) -> bool {
        self.checksum() == bundle.checksum()
    }
}

/// Status reported by an edge when it polls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EdgeReport {
    /// Entity tags of the edge's documents: first the document in force, then refused documents.
    etags: Vec<String>,
    /// Number of the bundle in force.
    pub(crate) number: Option<u64>,
    /// Checksum of a refused bundle, and the reason for the refusal.
    pub(crate) refused: Option<Refusal>,
}

impl EdgeReport {
    pub(crate) fn of(fields: &HeaderMap) -> Self {
        let text = |name: &str| fields.get(name).and_then(|value| value.to_str().ok());
        let etags = text(IF_NONE_MATCH.as_str()).unwrap_or_default().split(',').map(str::trim);
        let refused = text(REFUSED_FIELD).and_then(|refused| {
            let (checksum, reason) = refused.split_once(' ')?;
            Some(Refusal { checksum: checksum.to_owned(), reason: percent_decoded(reason) })
        });
        Self {
            etags: etags.filter(|etag| !etag.is_empty()).take(ETAGS_MAX).map(str::to_owned).collect(),
            number: text(NUMBER_FIELD).and_then(|number| number.parse().ok()),
            refused: refused.filter(|refusal| refusal.checksum.starts_with("sha256:")),
        }
    }

    /// Returns whether the edge already has this document or has refused it.
    pub(crate) fn knows(&self, document: &Document) -> bool {
        self.etags.contains(&document.etag)
    }

    /// Returns the checksum of the bundle in force, if any. An edge with a refused bundle but none
    /// in force sends an empty tag first.
    pub(crate) fn in_force(&self) -> Option<&str> {
        let first = self.etags.first()?.strip_prefix('"')?.strip_suffix('"')?;
        (!first.is_empty()).then_some(first)
    }
}

/// Decodes percent-encoding. Bytes that are not valid UTF-8 become replacement characters.
fn percent_decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let is_escape =
            byte == b'%' && digits.is_some_and(|digits| digits.bytes().all(|it| it.is_ascii_hexdigit()));
        match digits.filter(|_| is_escape).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(escaped) => {
                out.push(escaped);
                rest = &after[2..];
            }
            None => {
                out.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use thalweg_bundle::Content;

    use super::*;

    #[test]
    fn parses_edge_reports() {
        let bundle = Bundle::new(Content { number: 7, ..Content::default() }).unwrap();
        let document = Document::new(&bundle);
        assert!(document.is_of(&bundle));
        let report = |etags: &str, refused: &str| {
            let mut fields = HeaderMap::new();
            fields.insert(IF_NONE_MATCH, etags.parse().unwrap());
            fields.insert(REFUSED_FIELD, refused.parse().unwrap());
            EdgeReport::of(&fields)
        };
        assert_eq!(EdgeReport::of(&HeaderMap::new()), EdgeReport::default());
        let both =
            report(&format!("\"sha256:0\", {}", document.etag), "sha256:1 zu lang: 8%20MiB %C3%BC %+5 %zz%");
        assert!(both.knows(&document));
        assert_eq!(both.in_force(), Some("sha256:0"));
        for (field, number) in [("41", Some(41)), ("-1", None), ("18446744073709551616", None), ("", None)] {
            let fields = HeaderMap::from_iter([(NUMBER_FIELD.parse().unwrap(), field.parse().unwrap())]);
            assert_eq!(EdgeReport::of(&fields).number, number);
        }
        assert_eq!(
            both.refused,
            Some(Refusal { checksum: "sha256:1".into(), reason: "zu lang: 8 MiB ü %+5 %zz%".into() })
        );
        let refused_alone = report("\"\", \"sha256:1\"", "sha256:1 no");
        assert_eq!(refused_alone.in_force(), None);
        assert_eq!(report("*", "nothing").in_force(), None);
        assert_eq!(report("*", "no checksum").refused, None);
    }
}
