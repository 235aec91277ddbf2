//! Modules available to policies, implemented as plain functions independent of VCL.
//!
//! Strings are bytes, as in fields, and times are Unix seconds. The caller chooses the type of a
//! director's members, and passes health, randomness and regular expressions as closures. Functions
//! behave as specified by the module's manual page in Varnish 7.1, varnish-modules or
//! libvmod-querystring. Where the page is silent, they behave as in Debian's varnishd 7.1.1. Each
//! file lists any differences.
//!
//! **Invariant:** no function panics on any argument, opens a file or socket, or reads a clock.

pub mod blob;
pub mod cmcd;
pub mod cookie;
pub mod directors;
pub mod header;
pub mod pace;
pub mod querystring;
pub mod standard;
pub mod xkey;
