//! Viewers of live and on-demand presentations.
//!
//! - [`playhead`]: what one viewer sees, and when it stalls; pure.
//! - [`choice`]: which track it takes; pure.
//! - [`manifest`]: what MPDs and playlists say; pure.
//! - [`chunks`] and [`transfer`]: what has come of a segment; pure.
//! - [`figures`]: what viewers have seen, in numbers.
//! - [`session`]: one viewer, on what it has in common with the others of its thread ([`shared`]).
//! - [`crowd`]: those of one thread, [`spread`] over offsets.
//!
//! They are clients of the [load generator](crate::load), which starts them, carries their requests and keeps their figures.

pub mod choice;
pub mod chunks;
pub mod crowd;
pub mod figures;
pub mod manifest;
pub mod playhead;
pub mod session;
pub mod shared;
pub mod spread;
pub mod transfer;
