//! VCL policies: compiler and evaluator.
//!
//! Each stage is a module: [`source`] stores files and positions, `lex` produces tokens, `parse`
//! builds the `ast`, `check` resolves names and types, [`program`] is the compiled form, and `eval`
//! runs it on a [`task`]. [`variables`] and [`bindings`] are the tables of names available to
//! policies, and [`modules`] implements the functions in `bindings`. [`fault`] describes errors and
//! warnings in a policy, and `idioms` gives advice on names from other VCL dialects.
//!
//! A policy is compiled once and then shared by all workers. Compilation reports all faults
//! together. The edge calls [`Program::run`] with a [`Sub`] and a [`Task`] and acts on the
//! [`Action`]. A [`Failure`] ends that request with 503.
//!
//! **Invariant:** this crate accesses no socket, clock, file or environment variable: the caller
//! supplies the time, a [`Loader`], a [`Connection`] and a [`Host`].
//! **Invariant:** no policy source and no request causes a panic or an unbounded run.
//!
//! The language is VCL 4.0 and 4.1 of Varnish 7.1, as specified by vcl(7), vcl-var(7),
//! vcl-backend(7) and vcl-probe(7). Where these manual pages are silent, Thalweg behaves like
//! varnishd 7.1.1.

mod acl;
mod ast;
pub mod bindings;
mod check;
mod eval;
pub mod expression;
pub mod fault;
mod files;
pub mod functions;
#[cfg(test)]
mod golden;
mod idioms;
mod lex;
pub mod message;
pub mod modules;
mod parse;
pub mod program;
mod regex;
pub mod source;
pub mod step;
pub mod task;
pub mod types;
mod units;
pub mod value;
pub mod variables;
mod words;

pub use check::Known;
pub use fault::{Fault, Report, Severity};
pub use program::Program;
pub use source::{File, Loader};
pub use step::{Action, Sub};
pub use task::{Connection, Host, Task};
pub use value::{Failure, Value};

use fault::Faults;
use source::Sources;

/// File name of the built-in policy, as shown in faults.
pub const BUILTIN_NAME: &str = "builtin.vcl";
/// The built-in policy, appended to every policy.
pub const BUILTIN: &str = include_str!("../../../policies/builtin.vcl");

/// Compiles `main` and its includes. Returns the program and its warnings, or all faults if any is
/// an error.
pub fn compile(main: File, loader: &mut Loader<'_>, known: &Known) -> Result<(Program, Report), Report> {
    let mut faults = Faults::default();
    let mut sources = Sources::default();
    let mut items = parse::parse(main, &mut sources, loader, &mut faults);
    let builtin = File { name: BUILTIN_NAME.to_owned(), text: BUILTIN.to_owned() };
    let builtin_file = sources.count();
    items.extend(parse::parse(builtin, &mut sources, &mut |path, _| Err(path.to_owned()), &mut faults));
    // Check even if some parts failed to parse, so that syntax errors and other faults are reported
    // together.
    let program = check::check(&items, builtin_file, sources, known, &mut faults);
    let has_errors = faults.has_errors();
    let report = faults.report(&program.sources);
    if has_errors { Err(report) } else { Ok((program, report)) }
}
