//! Kafka topics of telemetry records: produce batches, follow a topic, or consume it as a group
//! member.
//!
//! ```text
//! agent ── Producer ──→ topic ──→ Follower: every partition from a time on (controller)
//!                             └─→ Member: some partitions, in crash-safe ranges (consumer)
//! ```
//!
//! A message contains the records of one client prefix from one batch, as protobuf. Its
//! [`Place`] header distinguishes it from its repeats. Brokers guarantee at-least-once delivery;
//! every reader drops repeats by place.
//!
//! **Invariant:** only this crate uses librdkafka.

mod cluster;
mod consume;
mod error;
mod follow;
mod place;
mod produce;

pub use cluster::{Cluster, DEFAULT_TOPIC, parse_property};
pub use consume::{ASK_TIMEOUT, Member, Message, Range, UNREAD_SECONDS_MAX};
pub use error::Error;
pub use follow::{Followed, Follower};
pub use place::Place;
pub use produce::Producer;
