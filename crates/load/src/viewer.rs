//! Viewers of live and on-demand presentations.
//!
//! - [`playhead`]: playback and stalls of one viewer.
//! - [`choice`]: track selection.
//! - [`manifest`]: parses MPDs and playlists.
//! - [`chunks`] and [`transfer`]: progress of one segment.
//! - [`figures`]: viewer totals.
//! - [`session`]: one viewer; [`shared`]: state shared by the viewers of a thread.
//! - [`crowd`]: viewers of one thread; [`spread`]: their offsets behind the live edge.
//!
//! Viewers are clients of the [load generator](crate), which starts them, sends their requests and
//! records their figures.

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
