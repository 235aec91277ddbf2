//! The kernel's answers about real sockets on loopback: what is asked, filtered and heard of is what there is.
#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

mod crowd;
mod dumps;
mod events;
mod filters;
mod namespace;
mod pairs;
mod ss;
