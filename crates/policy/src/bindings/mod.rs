//! The modules that a policy may import: their functions, bound to the language.

mod tcp;

use crate::functions::Module;

/// All modules.
pub static MODULES: &[Module] = &[tcp::MODULE];
