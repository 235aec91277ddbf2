//! Floating-point numbers as JSON strings, which round-trip exactly through any JSON reader.
//! Infinities and NaN are rejected.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Serializes a number, for `serde(with)`.
pub(crate) fn serialize<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
    let number = text.parse::<f64>().map_err(serde::de::Error::custom)?;
    if number.is_finite() { Ok(number) } else { Err(serde::de::Error::custom("expected a finite number")) }
}

#[derive(Serialize, Deserialize)]
struct Exact(#[serde(with = "self")] f64);

/// Optional numbers, for `serde(with)`.
pub(crate) mod option {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Exact;

    pub(crate) fn serialize<S: Serializer>(number: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        number.map(Exact).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        Ok(Option::<Exact>::deserialize(deserializer)?.map(|Exact(number)| number))
    }
}

/// Arrays of numbers, for `serde(with)`.
pub(crate) mod array {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Exact;

    pub(crate) fn serialize<S: Serializer>(numbers: &[f64; 4], serializer: S) -> Result<S::Ok, S::Error> {
        numbers.map(Exact).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[f64; 4], D::Error> {
        Ok(<[Exact; 4]>::deserialize(deserializer)?.map(|Exact(number)| number))
    }
}
