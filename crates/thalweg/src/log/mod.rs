//! `thalweg log`: the request log for people, or as it is for programs.
//!
//! [`mod@file`] follows a log file, [`admin`] asks a running edge, [`query`] says which records, [`printer`] writes. A line that is no
//! record is told on standard error and passed over: one bad line hides no other.

mod admin;
mod file;
mod printer;
mod query;

use std::collections::VecDeque;
use std::io::{self, BufRead};
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;

use printer::Printer;

pub(crate) use printer::stdout_colour;
pub(crate) use query::{Query, reference};

/// Where the log is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum From<'a> {
    /// A file from so many of its last lines, to its end or for ever.
    File { path: &'a Path, lines: usize, follows: bool },
    /// Standard input to its end: all of it, or so many of its last lines.
    Stdin(Option<usize>),
    /// The admin address of an edge.
    Admin(SocketAddr),
}

/// Prints the records that `query` holds for, until there are no more, or the reader of standard output has gone.
///
/// # Errors
/// If the log cannot be read, or the output cannot be written.
pub(crate) fn run(from: From<'_>, query: Option<Query>, json: bool) -> anyhow::Result<()> {
    let mut printer = Printer::stdout(query, json);
    let outcome = match from {
        From::File { path, lines, follows: true } => file::follow(path, lines, &mut printer),
        From::File { path, lines, follows: false } => file::print(path, lines, &mut printer),
        From::Stdin(lines) => stdin(lines, &mut printer),
        From::Admin(addr) => admin::follow(addr, &mut printer),
    };
    match outcome {
        Err(failure) if is_broken_pipe(&failure) => Ok(()), // `| head` has what it wanted
        other => other,
    }
}

fn stdin(last: Option<usize>, printer: &mut Printer<impl io::Write>) -> anyhow::Result<()> {
    let mut kept = VecDeque::new();
    for line in io::stdin().lock().lines() {
        let line = line.context("cannot read standard input")?;
        let Some(last) = last else {
            printer.line(&line)?;
            continue;
        };
        kept.push_back(line);
        if kept.len() > last {
            kept.pop_front();
        }
    }
    kept.iter().try_for_each(|line| printer.line(line))?;
    printer.flush()?;
    Ok(())
}

/// Whether whoever read standard output has gone.
pub(crate) fn is_broken_pipe(failure: &anyhow::Error) -> bool {
    failure.downcast_ref::<io::Error>().is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
