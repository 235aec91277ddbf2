//! Viewers of live and on-demand presentations.
//!
//! - [`playhead`]: what one viewer sees, and when it stalls; pure.
//! - [`choice`]: which track it takes; pure.
//! - [`manifest`]: what MPDs and playlists say; pure.
//! - [`chunks`] and [`transfer`]: what has come of a segment; pure.
//! - [`cmcd`]: what a viewer tells the server; pure.
//! - [`figures`]: what viewers have seen, in numbers.
//! - [`http`]: a viewer's client.
//! - [`session`]: one viewer, on what it has in common with the others of its thread ([`shared`]).
//! - [`crowd`]: many, over threads, [`spread`] over offsets and addresses.

pub mod choice;
pub mod chunks;
pub mod cmcd;
pub mod crowd;
pub mod figures;
pub mod http;
pub mod manifest;
pub mod playhead;
pub mod session;
pub mod shared;
pub mod spread;
pub mod transfer;
