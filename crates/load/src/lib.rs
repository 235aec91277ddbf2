//! Load generator: clients, their schedules and requests, and the figures they measure.
//!
//! Modules without sockets or clocks:
//! - [`figures`]: measurements that can be merged without loss; [`report`] renders them;
//!   [`coarse`]: a small histogram.
//! - [`schedule`]: start times of clients and due times of requests.
//! - [`content`]: content derived from path and offset, so that every byte can be verified.
//! - [`response`]: parses one response as its bytes arrive.
//! - [`target`], [`sources`], [`cmcd`]: the request, the source address, and the player's CMCD
//!   fields.
//!
//! Modules that use sockets: [`connection`] (HTTP/1.1 and HTTP/2, cleartext and over TLS),
//! `caller`, [`client`], [`script`] (clients controlled by a wrk script), and [`engine`], which
//! also runs [viewers](crate::viewer). [`serve`] is a server with verifiable content and injected
//! faults.

/// Defines an enum whose variants have fixed names for JSON and tables.
macro_rules! named {
    ($(#[$of_all:meta])* pub enum $Kind:ident { $($(#[$of_one:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$of_all])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $Kind {
            $($(#[$of_one])* #[serde(rename = $name)] $variant,)*
        }

        impl $Kind {
            /// All variants, in display order.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the name used in JSON and tables.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

mod caller;
pub mod client;
pub mod cmcd;
pub mod coarse;
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
pub mod viewer;

pub(crate) use caller::{Caller, times};
pub use failure::{ErrorKind, Failure};
pub(crate) use recorder::micros;
pub use recorder::{Clock, Counted, Recorder};
pub use resources::{files_max, raise_files};
