//! Bindings of the modules available to policies: the parameters and the Rust function of each
//! name.

mod blob;
mod cookie;
mod directors;
mod header;
mod querystring;
mod standard;
mod tcp;
mod thalweg;
mod xkey;

use crate::functions::Module;

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
