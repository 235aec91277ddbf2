//! HTTP/1.1 messages as bytes: fields, heads, framing, ranges, conditions and cache directives.
//!
//! Every function depends only on its arguments: there is no socket, no clock (callers pass Unix
//! seconds) and no environment. The edge, the cache and the origin build on this crate, which
//! depends on no other crate in the project.
//!
//! **Invariant:** a message parsed without error can be written again without changing its meaning.
//! Input that two parsers could interpret differently is never passed on (RFC 9112 §11).
//! **Invariant:** no parser panics on any input, and a named constant limits the data stored by
//! each.

pub mod authority;
pub mod cache_control;
pub mod cache_status;
pub mod chunked;
pub mod date;
mod error;
pub mod fields;
pub mod framing;
pub mod head;
pub mod method;
pub mod name;
pub mod number;
pub mod range;
pub mod reference;
pub mod status;
pub mod target;
pub mod token;
pub mod trailer;
pub mod validators;
pub mod version;
pub mod write;

pub use authority::Authority;
pub use error::Error;
pub use fields::Fields;
pub use framing::Framing;
pub use head::{Limits, RequestHead, ResponseHead};
pub use method::Method;
pub use target::Target;
pub use version::Version;
