//! What is in the topic over which bundles go: whoever may write there writes these.

use thalweg_bundle::is_checksum;
use thalweg_controller::carried::{Acknowledged, Key};
use thalweg_record::is_name;

/// A key: one that is understood is written as it was read, and what it names goes into log lines and files.
pub(crate) fn key(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Some(key) = Key::parse(text) else { return };
    assert_eq!(key.to_string(), text);
    let edge = match &key {
        Key::Bundle(_, edge) => edge.as_ref(),
        Key::Acknowledged(_, edge) => Some(edge),
    };
    assert!(is_name(key.pop()) && edge.is_none_or(|edge| is_name(edge)), "{key:?}");
}

/// What an edge says: it is written so that it is read as the same again.
pub(crate) fn acknowledged(input: &[u8]) {
    let Some(acknowledged) = Acknowledged::decode(input) else { return };
    let refused = acknowledged.refused.as_ref().and_then(|refused| refused.checksum.as_ref());
    for checksum in acknowledged.in_force.iter().chain(refused) {
        assert!(is_checksum(checksum), "{checksum:?}");
    }
    assert_eq!(Acknowledged::decode(acknowledged.encode().as_bytes()), Some(acknowledged));
}
