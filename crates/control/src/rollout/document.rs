//! Stored form of a rollout: JSON that contains each bundle's document as a string, so that
//! decoding validates bundles as edges do.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use thalweg_bundle::{Bundle, FORMAT};

use super::{ROLLOUT_FORMAT, Rollout, check};
use crate::check::StateError;

/// Format version declared by a stored rollout or by a bundle in it.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

impl Rollout {
    /// Encodes the rollout as one line of JSON.
    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("every map key is a string")
    }

    /// Decodes the output of [`Rollout::encode`].
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are not JSON with the expected structure and format version,
    /// or a field is out of range. Returns [`StateError::Bundles`] if the bundles have another
    /// release's format; [`Rollout::decode_without_bundles`] can then recover the rest.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let Version { format } = serde_json::from_slice(bytes).map_err(StateError::Json)?;
        if format != ROLLOUT_FORMAT {
            return Err(StateError::Format { found: format, read: ROLLOUT_FORMAT });
        }
        let rollout = serde_json::from_slice(bytes).map_err(|error| match bundles_format(bytes) {
            Some(found) => StateError::Bundles { found, read: FORMAT },
            None => StateError::Json(error),
        })?;
        check::check(&rollout).map_err(StateError::Field)?;
        Ok(rollout)
    }

    /// Decodes a rollout but drops its bundles, as if none were active. The next decision issues a
    /// bundle with a number above all earlier numbers.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Rollout::decode`].
    pub fn decode_without_bundles(bytes: &[u8]) -> Result<Self, StateError> {
        let mut rollout: Value = serde_json::from_slice(bytes).map_err(StateError::Json)?;
        for name in ["stable", "candidate"] {
            rollout.get_mut(name).into_iter().for_each(|it| *it = Value::Null);
        }
        Self::decode(rollout.to_string().as_bytes())
    }
}

/// Returns the format version of the first bundle with an unsupported format.
fn bundles_format(rollout: &[u8]) -> Option<u32> {
    let rollout: Value = serde_json::from_slice(rollout).ok()?;
    let documents = [rollout.pointer("/stable"), rollout.pointer("/candidate/bundle")];
    let documents = documents.into_iter().flatten().filter_map(Value::as_str);
    let formats = documents.filter_map(|document| serde_json::from_str(document).ok());
    formats.map(|Version { format }| format).find(|format| *format != FORMAT)
}

pub(super) fn serialize<S: Serializer>(bundle: &Bundle, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&bundle.encode())
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bundle, D::Error> {
    let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
    Bundle::decode(text.as_bytes()).map_err(serde::de::Error::custom)
}

#[derive(Serialize, Deserialize)]
struct Document(#[serde(with = "self")] Bundle);

/// Optional bundles, for `serde(with)`.
pub(super) mod option {
    use super::{Bundle, Deserialize, Deserializer, Document, Serialize, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(
        bundle: &Option<Bundle>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        bundle.as_ref().map(Bundle::encode).serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Bundle>, D::Error> {
        Ok(Option::<Document>::deserialize(deserializer)?.map(|Document(bundle)| bundle))
    }
}
