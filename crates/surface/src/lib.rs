//! Control surfaces: parts shared by the HTTP servers for operators and machines, and the HTTP
//! client for control traffic.
//!
//! A surface is an admin interface, the controller, the console or a metrics listener. [`serve`]
//! limits its connections, guards it against pages from other sites (`guard`) and gives all errors
//! the same form ([`Refusal`]). The controller may use TLS (`tls`). Most surfaces also have
//! [`vitals`].
//!
//! **Invariant:** every error response of a surface is JSON, `{"error": "…"}`, with `Cache-Control:
//! no-store`.
//! **Invariant:** every wait in the client has a named limit ([`Limits`]), and every error message
//! contains the URL.

mod answer;
pub mod client;
mod connections;
mod guard;
mod serve;
mod tls;
mod token;
mod vitals;

pub use answer::{Refusal, json};
pub use client::Limits;
pub use guard::Pages;
pub use serve::{Listener, serve};
pub use tls::{ClientTls, KeyPair, PeerNames, ServerTls, TlsSettings};
pub use token::TokenFile;
pub use vitals::{serve_vitals, split_vitals, vitals};

/// Media type of records and batches.
pub const PROTOBUF: &str = "application/x-protobuf";
