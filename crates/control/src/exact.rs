//! Numbers with a fraction in JSON, as texts: what is read is what was written to the last bit, whatever reads it between, and
//! infinities and what is no number are refused.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// For `serde(with)`: a number.
pub(crate) fn serialize<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
    let number = text.parse::<f64>().map_err(serde::de::Error::custom)?;
    if number.is_finite() { Ok(number) } else { Err(serde::de::Error::custom("not a finite number")) }
}

#[derive(Serialize, Deserialize)]
struct Exact(#[serde(with = "self")] f64);

/// For `serde(with)`: a number, or null.
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

/// For `serde(with)`: so many numbers.
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
