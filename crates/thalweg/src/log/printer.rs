//! Lines of the log as lines of output.

use std::error::Error as _;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use thalweg_record::{Colour, ResponseRecord, human_header};

/// Prints records, as they are or for people.
#[derive(Debug)]
pub(super) struct Printer<W: Write> {
    out: W,
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

impl Printer<BufWriter<Stdout>> {
    /// To standard output; in colour if that is a terminal and NO_COLOR is not set (no-color.org).
    pub(super) fn stdout(json: bool) -> Self {
        let stdout = io::stdout();
        let plain = !stdout.is_terminal() || std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
        let colour = if plain { Colour::Never } else { Colour::Always };
        let form = if json { Form::Json } else { Form::Human { colour, headed: false } };
        Self { out: BufWriter::new(stdout), form }
    }
}

impl<W: Write> Printer<W> {
    /// Prints a line of the log. What is no record is told on standard error.
    pub(super) fn line(&mut self, line: &str) -> io::Result<()> {
        match &mut self.form {
            Form::Json => writeln!(self.out, "{line}"),
            Form::Human { colour, headed } => match ResponseRecord::from_json(line) {
                Ok(record) => {
                    if !*headed {
                        writeln!(self.out, "{}", human_header())?;
                        *headed = true;
                    }
                    writeln!(self.out, "{}", record.human(*colour))
                }
                Err(fault) => {
                    let cause = fault.source().map(|cause| format!(": {cause}")).unwrap_or_default();
                    eprintln!("thalweg: {fault}{cause}");
                    Ok(())
                }
            },
        }
    }

    /// Makes what was printed visible: called when there is no more for now.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
