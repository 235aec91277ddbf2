//! Modules that a policy can import, implemented as plain functions independent of VCL.
//!
//! Text is bytes, as in a field; times are Unix seconds; a director's member is any type the caller
//! chooses; health, randomness and regular expressions are closures. Functions behave as specified
//! by the module's manual page in Varnish 7.1, varnish-modules or libvmod-querystring, or, where
//! the page is silent, as in Debian's varnishd 7.1.1. Each file lists any differences.
//!
//! **Invariant:** no function panics on any argument, opens anything or reads a clock.

pub mod blob;
pub mod cmcd;
pub mod cookie;
pub mod directors;
pub mod header;
pub mod pace;
pub mod querystring;
pub mod standard;
pub mod xkey;
