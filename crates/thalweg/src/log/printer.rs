//! Lines of the log as lines of output.

use std::error::Error as _;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use thalweg_record::{Colour, ResponseRecord, human_header};

use super::query::Query;

/// Prints records, as they are or for people.
#[derive(Debug)]
pub(super) struct Printer<W: Write> {
    out: W,
    query: Option<Query>,
    form: Form,
}

#[derive(Debug, Clone, Copy)]
enum Form {
    Json,
    /// For people, and whether the names of the columns are printed.
    Human {
        colour: Colour,
        headed: bool,
    },
}

/// In colour if standard output is a terminal and NO_COLOR is not set (no-color.org).
pub(crate) fn stdout_colour() -> Colour {
    let plain =
        !io::stdout().is_terminal() || std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
    if plain { Colour::Never } else { Colour::Always }
}

impl Printer<BufWriter<Stdout>> {
    /// To standard output.
    pub(super) fn stdout(query: Option<Query>, json: bool) -> Self {
        let form = if json { Form::Json } else { Form::Human { colour: stdout_colour(), headed: false } };
        Self { out: BufWriter::new(io::stdout()), query, form }
    }
}

impl<W: Write> Printer<W> {
    /// Prints a line of the log, if the query holds for it. What is no record is told on standard error.
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
        if let Some(query) = &self.query
            && !query.holds(&serde_json::from_str(line)?)
        {
            return Ok(());
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

    /// Makes what was printed visible: called when there is no more for now.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
