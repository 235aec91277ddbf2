//! Kafka topics of telemetry records: produce batches, follow a topic, or consume it as a group
//! member.
//!
//! ```text
//! agent ── Producer ──→ topic ──→ Follower: every partition, from a given time (controller)
//!                             └─→ Member: some partitions, in crash-safe ranges (consumer)
//! ```
//!
//! A message contains one client prefix's records from one batch, encoded as protobuf. Delivery is
//! at least once: a repeated message has the same [`Place`] header as the original, and every
//! reader drops repeats by that header.
//!
//! **Invariant:** only this crate uses librdkafka.

mod cluster;
mod consume;
mod error;
mod fault;
mod follow;
mod place;
mod produce;

pub use cluster::{Cluster, DEFAULT_TOPIC, parse_property};
pub use consume::{ASK_TIMEOUT, Member, Message, Range, UNREAD_SECONDS_MAX};
pub use error::Error;
pub use follow::{Followed, Follower};
pub use place::Place;
pub use produce::Producer;
