//! Policies in VCL: from text to what happens to a request.
//!
//! A step of the way is a module: [`source`] files and places, `lex` tokens, `ast` and `parse` the tree, `check` names
//! and types, [`program`] the compiled form, `eval` its run on a [`task`]. [`variables`] and [`bindings`] are the tables of
//! what a policy may name, [`modules`] the functions behind the latter; [`fault`] is what it is told when it is wrong, with
//! `idioms` for names from elsewhere.
//!
//! A policy is compiled once, with every fault told at once, and then shared by all workers. The edge calls
//! [`Program::run`] with a [`Sub`] and a [`Task`] and acts on the [`Action`]; a [`Failure`] ends that request with 503.
//!
//! **Invariant:** no socket, clock, file or environment is touched here: a caller gives `now`, a loader of files, a
//! [`Connection`] and a [`Host`].
//! **Invariant:** no text of a policy and no request panics or runs without end.
//!
//! The language is that of Varnish 7.1, 4.0 and 4.1, as its manual pages vcl(7), vcl-var(7), vcl-backend(7) and
//! vcl-probe(7) say it, and where these leave it open, as varnishd 7.1.1 does it.

mod acl;
mod ast;
pub mod bindings;
mod check;
mod eval;
pub mod fault;
mod files;
pub mod functions;
#[cfg(test)]
mod golden;
mod idioms;
mod lex;
pub mod modules;
mod parse;
pub mod program;
mod regex;
pub mod source;
pub mod step;
pub mod task;
pub mod types;
pub mod value;
pub mod variables;

pub use check::Known;
pub use fault::{Fault, Report, Severity};
pub use program::Program;
pub use source::{File, Loader};
pub use step::{Action, Sub};
pub use task::{Connection, Host, Task};
pub use value::{Failure, Value};

use fault::Faults;
use source::Sources;

/// The name that the built-in policy has in faults.
pub const BUILTIN_NAME: &str = "builtin.vcl";
/// The policy that is appended to every other.
pub const BUILTIN: &str = include_str!("../../../policies/builtin.vcl");

/// The program of `main` and what it includes, with the warnings; or the faults.
pub fn compile(main: File, loader: &mut Loader<'_>, known: &Known) -> Result<(Program, Report), Report> {
    let mut faults = Faults::default();
    let mut sources = Sources::default();
    let mut items = parse::parse(main, &mut sources, loader, &mut faults);
    let builtin = File { name: BUILTIN_NAME.to_owned(), text: BUILTIN.to_owned() };
    let builtin_file = sources.count();
    items.extend(parse::parse(builtin, &mut sources, &mut |path, _| Err(path.to_owned()), &mut faults));
    // A policy with a part that cannot be read is checked all the same: both kinds of faults are told at once.
    let program = check::check(&items, builtin_file, sources, known, &mut faults);
    let has_errors = faults.has_errors();
    let report = faults.report(&program.sources);
    if has_errors { Err(report) } else { Ok((program, report)) }
}
