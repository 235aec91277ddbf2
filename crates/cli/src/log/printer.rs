//! Log printer: JSON or human-readable text.

use std::error::Error as _;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use thalweg_record::{Colour, ResponseRecord, human_header};

use super::query::Query;

/// Printer of records that match a query.
#[derive(Debug)]
pub(super) struct Printer<W: Write> {
    out: W,
    query: Option<Query>,
    form: Form,
}

#[derive(Debug, Clone, Copy)]
enum Form {
    Json,
    /// Human-readable text; `headed` is set once the column names are printed.
    Human {
        colour: Colour,
        headed: bool,
    },
}

/// Returns whether to colour standard output: only on a terminal, and only if `NO_COLOR` is unset
/// or empty (no-color.org).
pub fn stdout_colour() -> Colour {
    let plain =
        !io::stdout().is_terminal() || std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
    if plain { Colour::Never } else { Colour::Always }
}

impl Printer<BufWriter<Stdout>> {
    /// Creates a printer on standard output.
    pub(super) fn stdout(query: Option<Query>, json: bool) -> Self {
        let form = if json { Form::Json } else { Form::Human { colour: stdout_colour(), headed: false } };
        Self { out: BufWriter::new(io::stdout()), query, form }
    }
}

impl<W: Write> Printer<W> {
    /// Prints a log line if the query matches. Reports a line that is not a record on standard
    /// error.
    pub(super) fn line(&mut self, line: &str) -> io::Result<()> {
        if self.query.is_none()
            && let Form::Json = self.form
        {
            return writeln!(self.out, "{line}");
        }
        let record = match ResponseRecord::from_json(line) {
            Ok(record) => record,
            Err(fault) => {
                let cause = fault.source().map(|cause| format!(": {cause}")).unwrap_or_default();
                eprintln!("thalweg: {fault}{cause}");
                return Ok(());
            }
        };
        if let Some(query) = &self.query {
            match query.holds(&serde_json::from_str(line)?) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(failure) => {
                    eprintln!("thalweg: {failure}");
                    return Ok(());
                }
            }
        }
        match &mut self.form {
            Form::Json => writeln!(self.out, "{line}"),
            Form::Human { colour, headed } => {
                if !*headed {
                    writeln!(self.out, "{}", human_header())?;
                    *headed = true;
                }
                writeln!(self.out, "{}", record.human(*colour))
            }
        }
    }

    /// Flushes the output. Call it when no more input is currently available.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
