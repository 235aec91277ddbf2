//! HTTP messages as bytes: fields, heads, framing, ranges, conditions and cache directives of HTTP/1.1.
//!
//! Everything here is a function of its arguments: no socket, no clock (a caller passes unix seconds), no
//! environment. The edge, the cache and the origin build on it; it depends on nothing of the project.
//!
//! **Invariant:** what is parsed without error can be written again without changing its meaning, and nothing
//! that two parsers could read differently is passed on (RFC 9112 §11).
//! **Invariant:** no parser panics on any bytes, and each one has a named limit on what it keeps.

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
