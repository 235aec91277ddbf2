//! Blocking ClickHouse client over HTTP: runs statements, returns results as text, and inserts each
//! block of rows exactly once, even if the block is sent repeatedly.
//!
//! **Invariant:** each block is sent with a deduplication token. Tables, and the target tables of
//! their materialized views, store the tokens of their latest blocks
//! (`non_replicated_deduplication_window`, `replicated_deduplication_window`) and drop a block
//! whose token is already stored. If a crash may have left a token without its block, the block is
//! verified.

mod doubt;
pub mod rowbinary;
pub(crate) mod server;
mod staging;
mod verify;

pub use doubt::Verified;
pub(crate) use doubt::{ATTEMPT_SECONDS_MAX, Doubt};
pub(crate) use server::Rows;
pub use server::Server;
pub(crate) use verify::Target;
