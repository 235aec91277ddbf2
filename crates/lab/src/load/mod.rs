//! The load generator: many clients, what they ask for and when, and what they measured.
//!
//! Pure, without socket or clock:
//! - [`figures`]: what was measured, merged exactly; [`report`] is its text.
//! - [`schedule`]: when clients start and requests are due.
//! - [`content`]: content derived from path and offset, so that every byte can be verified.
//! - [`response`]: one response as its bytes arrive.
//! - [`target`], [`sources`], [`cmcd`]: what is asked for, from which addresses, and what is said of the player.
//!
//! Over sockets: [`connection`] (HTTP/1.1 and HTTP/2, plain and over TLS), `caller`, [`client`], [`script`] (clients that a script
//! of wrk directs), [`engine`], which also runs [viewers](crate::viewer); and [`serve`], a server whose content and misbehaviour are
//! known.

mod caller;
pub mod client;
pub mod cmcd;
pub mod connection;
pub mod content;
pub mod engine;
mod failure;
pub mod figures;
mod pacer;
mod recorder;
pub mod report;
mod resources;
pub mod response;
pub mod schedule;
pub mod script;
pub mod serve;
pub mod sources;
pub mod target;

pub(crate) use caller::{Caller, times};
pub use failure::{ErrorKind, Failure};
pub(crate) use recorder::micros;
pub use recorder::{Clock, Counted, Recorder};
pub use resources::raise_files;
