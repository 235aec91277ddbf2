//! Place: the message header by which readers recognise repeated messages.

use std::fmt;
use std::str::FromStr;

use rdkafka::message::{Header, Headers, OwnedHeaders};

/// Name of the message header.
const NAME: &str = "thalweg-place";

/// A message's batch and its index within that batch, written `BATCH_END/PART`. Within a partition,
/// the places of one source (host and epoch) increase, except for repeats. A reader therefore drops
/// every message whose place is not above the highest place so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Number of the batch's last record, plus one.
    pub batch_end: u64,
    /// Index of the message within the batch.
    pub part: u32,
}

impl Place {
    pub(crate) fn headers(self) -> OwnedHeaders {
        OwnedHeaders::new_with_capacity(1).insert(Header { key: NAME, value: Some(&self.to_string()) })
    }

    /// Parses the place in a message's headers. Returns `None` if the place is missing or
    /// malformed, as in a message not sent by a [`Producer`](crate::Producer).
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
