//! Bundles as edges get them, and what edges tell in return.

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::IF_NONE_MATCH;
use thalweg_bundle::Bundle;

use crate::carried::Acknowledged;

/// The request field in which an edge says which document it has refused, and why: the checksum, a space and the reason, with percent
/// signs where it is not visible ASCII.
pub(crate) const REFUSED_FIELD: &str = "thalweg-refused";
/// The request field with the number of the bundle that the edge goes by.
pub(crate) const NUMBER_FIELD: &str = "thalweg-bundle-number";
/// Entity tags of a request that are read.
const ETAGS_MAX: usize = 8;

/// A bundle with its text.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) text: String,
    /// Its checksum in quotes: an entity tag (RFC 9110 §8.8.3).
    pub(crate) etag: String,
}

impl Document {
    pub(crate) fn new(bundle: &Bundle) -> Arc<Self> {
        Arc::new(Self { text: bundle.encode(), etag: etag(bundle.checksum()) })
    }

    pub(crate) fn checksum(&self) -> &str {
        self.etag.trim_matches('"')
    }

    pub(crate) fn is_of(&self, bundle: &Bundle) -> bool {
        self.checksum() == bundle.checksum()
    }
}

fn etag(checksum: &str) -> String {
    format!("\"{checksum}\"")
}

/// What an edge says when it asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// The entity tags of what it has: what is in force first, then what it has refused.
    etags: Vec<String>,
    /// The number of what is in force.
    pub(crate) number: Option<u64>,
    /// The checksum of what it has refused, and why.
    pub(crate) refused: Option<(String, String)>,
}

impl Heard {
    pub(crate) fn of(fields: &HeaderMap) -> Self {
        let text = |name: &str| fields.get(name).and_then(|value| value.to_str().ok());
        let etags = text(IF_NONE_MATCH.as_str()).unwrap_or_default().split(',').map(str::trim);
        let refused = text(REFUSED_FIELD).and_then(|refused| {
            let (checksum, reason) = refused.split_once(' ')?;
            Some((checksum.to_owned(), plain(reason)))
        });
        Self {
            etags: etags.filter(|etag| !etag.is_empty()).take(ETAGS_MAX).map(str::to_owned).collect(),
            number: text(NUMBER_FIELD).and_then(|number| number.parse().ok()),
            refused: refused.filter(|(checksum, _)| checksum.starts_with("sha256:")),
        }
    }

    /// What an edge says in the topic over which bundles go.
    pub(crate) fn said(Acknowledged { in_force, number, refused }: Acknowledged) -> Self {
        let etags = in_force.iter().map(|checksum| etag(checksum)).collect();
        Self { etags, number, refused: refused.and_then(|refused| Some((refused.checksum?, refused.reason))) }
    }

    /// Whether it has this document, or has refused it.
    pub(crate) fn knows(&self, document: &Document) -> bool {
        self.etags.contains(&document.etag)
    }

    /// The checksum of what is in force, if anything is: an edge that has nothing but a refusal names an empty tag first.
    pub(crate) fn in_force(&self) -> Option<&str> {
        let first = self.etags.first()?.strip_prefix('"')?.strip_suffix('"')?;
        (!first.is_empty()).then_some(first)
    }
}

/// Text without its percent signs; what is no text then has replacement characters.
fn plain(text: &str) -> String {
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
#[allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]
mod tests {
    use thalweg_bundle::Content;

    use super::*;

    #[test]
    fn an_edge_says_what_it_has() {
        let bundle = Bundle::new(Content { number: 7, ..Content::default() }).unwrap();
        let document = Document::new(&bundle);
        assert!(document.is_of(&bundle));
        let heard = |etags: &str, refused: &str| {
            let mut fields = HeaderMap::new();
            fields.insert(IF_NONE_MATCH, etags.parse().unwrap());
            fields.insert(REFUSED_FIELD, refused.parse().unwrap());
            Heard::of(&fields)
        };
        assert_eq!(Heard::of(&HeaderMap::new()), Heard::default());
        let both =
            heard(&format!("\"sha256:0\", {}", document.etag), "sha256:1 zu lang: 8%20MiB %C3%BC %+5 %zz%");
        assert!(both.knows(&document));
        assert_eq!(both.in_force(), Some("sha256:0"));
        for (told, number) in [("41", Some(41)), ("-1", None), ("18446744073709551616", None), ("", None)] {
            let fields = HeaderMap::from_iter([(NUMBER_FIELD.parse().unwrap(), told.parse().unwrap())]);
            assert_eq!(Heard::of(&fields).number, number);
        }
        assert_eq!(both.refused, Some(("sha256:1".into(), "zu lang: 8 MiB ü %+5 %zz%".into())));
        let refused_alone = heard("\"\", \"sha256:1\"", "sha256:1 no");
        assert_eq!(refused_alone.in_force(), None);
        assert_eq!(heard("*", "nothing").in_force(), None);
        assert_eq!(heard("*", "no checksum").refused, None);
    }
}
