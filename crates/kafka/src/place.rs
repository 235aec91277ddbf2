//! Place: the message header that distinguishes a message from its repeats.

use std::fmt;
use std::str::FromStr;

use rdkafka::message::{Header, Headers, OwnedHeaders};

/// Name of the message header.
const NAME: &str = "thalweg-place";

/// Identifies a message by its batch and its index in the batch; written `BATCH_END/PART`. Within a
/// partition, the places of one source (host and epoch) increase except for repeats, so a reader
/// drops every message at or below the highest place so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Number after the last record in the batch.
    pub batch_end: u64,
    /// The message's index in the batch.
    pub part: u32,
}

impl Place {
    pub(crate) fn headers(self) -> OwnedHeaders {
        OwnedHeaders::new_with_capacity(1).insert(Header { key: NAME, value: Some(&self.to_string()) })
    }

    /// Reads the place from a message's headers; `None` if no [`Producer`](crate::Producer) sent
    /// it.
    pub(crate) fn of(headers: &impl Headers) -> Option<Self> {
        let header = headers.iter().find(|header| header.key == NAME)?;
        std::str::from_utf8(header.value?).ok()?.parse().ok()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.batch_end, self.part)
    }
}

impl FromStr for Place {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (batch_end, part) = text.split_once('/').unwrap_or((text, ""));
        Ok(Self { batch_end: batch_end.parse()?, part: part.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_round_trips_through_headers() {
        let place = Place { batch_end: u64::MAX, part: 7 };
        assert_eq!(Place::of(&place.headers()), Some(place));
        for wrong in ["", "7", "7/", "/7", "a/7", "7/-1", "7/8/9"] {
            let headers = OwnedHeaders::new().insert(Header { key: NAME, value: Some(wrong) });
            assert_eq!(Place::of(&headers), None, "{wrong}");
        }
        assert_eq!(Place::of(&OwnedHeaders::new()), None);
        assert!(Place { batch_end: 8, part: 0 } > Place { batch_end: 7, part: 9 });
    }
}
