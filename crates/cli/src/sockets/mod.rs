//! `thalweg sockets`: the kernel's data on every TCP socket, as a table or as JSON, once or live.
//!
//! [`source`] queries the kernel or reads a capture, [`table`] and [`json`] write the sockets, and
//! [`top`] repeats the query.

mod args;
mod json;
mod source;
mod table;
mod top;

use std::fmt;
use std::fs;
use std::io::{BufWriter, Write, stdout};

use anyhow::Context;
use thalweg_tcp::diag::{Filter, FilterError, Socket, States, append_to_capture, end_capture};

use crate::log::{is_broken_pipe, stdout_colour};
use args::{Live, Which};
use source::Kernel;
use table::Row;

pub use args::{HELP, SocketsArgs};

/// Invalid filter, which is a usage error.
#[derive(Debug)]
pub struct BadFilter(FilterError);

impl fmt::Display for BadFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for BadFilter {}

/// Prints the selected sockets. Stops without an error if standard output is closed.
///
/// # Errors
///
/// Returns [`BadFilter`] if the filter is invalid, or another error if the kernel or capture cannot
/// be read or the output cannot be written.
pub fn run(args: SocketsArgs) -> anyhow::Result<()> {
    let outcome = match args.live {
        Some(Live::Top(top)) => top::run(&top),
        None => once(&args),
    };
    match outcome {
        Err(failure) if is_broken_pipe(&failure) => Ok(()), // as with `| head`
        other => other,
    }
}

fn filter(which: &Which, states: States) -> Result<Filter, BadFilter> {
    Filter::parse_with(&which.filter.join(" "), states).map_err(BadFilter)
}

fn once(args: &SocketsArgs) -> anyhow::Result<()> {
    // A capture contains only sockets that were selected when it was written.
    let states = if args.decode.is_some() { States::ALL } else { States::CONNECTED };
    let filter = filter(&args.which, states)?;
    // Read all sockets before printing, so that a slow reader does not prolong the dump.
    let mut sockets: Vec<(Socket, usize)> = Vec::new();
    if let Some(path) = &args.decode {
        let decoded = source::decode(path, &filter, |socket| sockets.push((*socket, 0)));
        print(args, &sockets, &[None])?;
        return decoded;
    }
    let mut capture = Vec::new();
    let mut kernel = Kernel::open(&args.which.namespaces)?;
    let is_complete = kernel.dump(&filter, |socket, namespace, message| {
        if args.save.is_some() {
            append_to_capture(message, &mut capture);
        }
        sockets.push((*socket, namespace));
    })?;
    if !is_complete {
        eprintln!("thalweg: the kernel's table changed during the dump: sockets may be missing");
    }
    if let Some(path) = &args.save {
        end_capture(&mut capture);
        fs::write(path, &capture).with_context(|| format!("cannot write {}", path.display()))?;
    }
    print(args, &sockets, kernel.names())
}

/// Prints the sockets, each with the index of its namespace in `names`.
fn print(args: &SocketsArgs, sockets: &[(Socket, usize)], names: &[Option<String>]) -> anyhow::Result<()> {
    let mut rows: Vec<Row<'_>> = sockets
        .iter()
        .map(|(socket, namespace)| Row { socket, namespace: names[*namespace].as_deref(), since: None })
        .collect();
    if let Some(by) = args.sort {
        table::sort(&mut rows, by);
    }
    let mut out = BufWriter::new(stdout().lock());
    let colour = stdout_colour();
    if !args.json {
        writeln!(out, "{}", table::header(false))?;
    }
    let mut line = Vec::new();
    for row in rows.iter().take(args.limit.unwrap_or(usize::MAX)) {
        if args.json {
            json::append_line(row.socket, row.namespace, &mut line);
            out.write_all(&line)?;
            line.clear();
        } else {
            writeln!(out, "{}", table::text(&row.line(colour)))?;
        }
    }
    Ok(out.flush()?)
}
