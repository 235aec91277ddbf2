//! The modules that a policy may import, as plain functions of their arguments.
//!
//! Nothing here knows the language: text is bytes, as it came in a field, times are seconds since 1970, a member of a
//! director is whatever the caller says, health, randomness and regular expressions are closures. What a module does is
//! said by its manual page in Varnish 7.1, varnish-modules or libvmod-querystring, and where that leaves it open by what
//! Debian's varnishd 7.1.1 does; each file names its differences.
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
