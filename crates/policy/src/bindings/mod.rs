//! The modules that a policy may import: which Rust function each name stands for, and with which arguments.

mod blob;
mod cookie;
mod directors;
mod header;
mod querystring;
mod standard;
mod tcp;
mod thalweg;
mod xkey;

pub(crate) use directors::{Changed, Lazy};

use crate::functions::Module;
use crate::value::Failure;

/// All modules.
pub static MODULES: &[Module] = &[
    blob::MODULE,
    cookie::MODULE,
    directors::MODULE,
    header::MODULE,
    querystring::MODULE,
    standard::MODULE,
    tcp::MODULE,
    thalweg::MODULE,
    xkey::MODULE,
];

/// An error of a function as the end of the evaluation.
fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(error.to_string())
}
