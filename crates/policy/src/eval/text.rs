//! Evaluates strings: borrows them if possible, otherwise builds them in the workspace.

use std::borrow::Cow;

use super::Machine;
use crate::program::{Expression, Program};
use crate::task::Task;
use crate::value::{Backend, Failure, Value, write_int, write_ip, write_real, write_time};
use crate::variables::Variable;

impl<'p> Machine<'p, '_, '_> {
    /// Passes the string value of `expression` to `use_it`, then frees the buffer space of the
    /// string.
    pub(super) fn with_text(
        &mut self,
        expression: &'p Expression,
        use_it: impl FnOnce(&mut Task<'_>, &[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let start = self.buffer.len();
        if let Expression::Constant(Value::Text(Some(text))) = expression {
            // The task stores a copy, which counts towards the workspace limit.
            self.count(text.len())?;
            return use_it(self.task, text);
        }
        self.append(expression)?;
        self.count(self.buffer.len() - start)?;
        let result = use_it(self.task, &self.buffer[start..]);
        self.buffer.truncate(start);
        result
    }

    /// Counts `bytes` towards the workspace limit of the request. Fails if the limit is exceeded.
    pub(super) fn count(&mut self, bytes: usize) -> Result<(), Failure> {
        let workspace = &mut *self.task.workspace;
        workspace.bytes_used = workspace.bytes_used.saturating_add(bytes);
        if workspace.bytes_used > workspace.bytes_max { Err(full(workspace.bytes_max)) } else { Ok(()) }
    }

    /// Appends the string value of `expression` to the buffer; an unset string appends nothing.
    pub(super) fn append(&mut self, expression: &'p Expression) -> Result<(), Failure> {
        match expression {
            Expression::Constant(Value::Text(Some(text))) => self.buffer.extend_from_slice(text),
            Expression::Field(header) => {
                if let Some(text) = self.task.header(header)? {
                    self.buffer.extend_from_slice(&text);
                }
            }
            Expression::Variable(Variable { lend: Some(lend), .. }) => {
                self.buffer.extend_from_slice(lend(self.task)?);
            }
            Expression::Variable(variable) => {
                write(&(variable.get)(self.task)?, self.program, &mut self.buffer);
            }
            Expression::Concat(parts) => {
                for part in parts {
                    self.append(part)?;
                }
            }
            Expression::Substitute { text, regex, with, all } => self.substitute(text, *regex, with, *all)?,
            other => {
                let value = self.value(other)?;
                write(&value, self.program, &mut self.buffer);
            }
        }
        self.check_room()
    }

    fn check_room(&self) -> Result<(), Failure> {
        let workspace = &self.task.workspace;
        if workspace.bytes_used.saturating_add(self.buffer.len()) > workspace.bytes_max {
            return Err(full(workspace.bytes_max));
        }
        Ok(())
    }

    /// Borrows the string value of `expression`, empty if unset. Returns `None` if the string must
    /// be built.
    pub(super) fn lent<'s>(&'s self, expression: &'s Expression) -> Result<Option<&'s [u8]>, Failure> {
        Ok(self.lent_or_unset(expression)?.map(Option::unwrap_or_default))
    }

    /// Like [`lent`](Self::lent), but distinguishes an unset string, for which it returns
    /// `Some(None)`.
    pub(super) fn lent_or_unset<'s>(
        &'s self,
        expression: &'s Expression,
    ) -> Result<Option<Option<&'s [u8]>>, Failure> {
        Ok(match expression {
            Expression::Constant(Value::Text(text)) => Some(text.as_deref()),
            Expression::Field(header) => match self.task.header(header)? {
                Some(Cow::Owned(_)) => None,
                Some(Cow::Borrowed(text)) => Some(Some(text)),
                None => Some(None),
            },
            Expression::Variable(Variable { lend: Some(lend), .. }) => Some(Some(lend(self.task)?)),
            _ => None,
        })
    }

    /// Returns the string value of `expression`; `None` if unset. A copied string counts towards
    /// the workspace limit.
    pub(super) fn text(&mut self, expression: &'p Expression) -> Result<Option<Cow<'p, [u8]>>, Failure> {
        match expression {
            Expression::Constant(Value::Text(text)) => Ok(text.as_deref().map(Cow::Borrowed)),
            Expression::Field(header) => {
                let text = self.task.header(header)?.map(Cow::into_owned);
                self.count(text.as_ref().map_or(0, Vec::len))?;
                Ok(text.map(Cow::Owned))
            }
            _ => {
                let start = self.buffer.len();
                self.append(expression)?;
                let text = self.buffer[start..].to_vec();
                self.buffer.truncate(start);
                self.count(text.len())?;
                Ok(Some(Cow::Owned(text)))
            }
        }
    }

    /// Appends `text` with matches of `regex` replaced.
    fn substitute(
        &mut self,
        text: &'p Expression,
        regex: u32,
        with: &'p Expression,
        all: bool,
    ) -> Result<(), Failure> {
        let with = self.text(with)?.unwrap_or_default();
        let regex = &self.program.regexes[regex as usize];
        let bytes_max = self.task.workspace.bytes_max;
        let mut buffer = std::mem::take(&mut self.buffer);
        if let Some(text) = self.lent(text)? {
            regex.substitute(text, &with, all, bytes_max, &mut buffer)?;
            self.buffer = buffer;
            return Ok(());
        }
        self.buffer = buffer;
        let text = self.text(text)?.unwrap_or_default();
        regex.substitute(&text, &with, all, bytes_max, &mut self.buffer)
    }
}

fn full(bytes_max: usize) -> Failure {
    Failure::new(format!("the workspace of {bytes_max} bytes is full"))
}

/// Appends the string form of a value; types without a string form append nothing.
fn write(value: &Value<'_>, program: &Program, into: &mut Vec<u8>) {
    match value {
        Value::Text(text) => into.extend_from_slice(text.as_deref().unwrap_or_default()),
        Value::Int(value) | Value::Bytes(value) => write_int(*value, into),
        Value::Real(value) | Value::Duration(value) => write_real(*value, into),
        Value::Time(value) => write_time(*value, into),
        Value::Bool(value) => into.extend_from_slice(if *value { b"true" } else { b"false" }),
        Value::Ip(address) => write_ip(*address, into),
        Value::Backend(backend) => into.extend_from_slice(backend_name(*backend, program).as_bytes()),
        Value::Storage(name) => into.extend_from_slice(name.as_deref().unwrap_or_default().as_bytes()),
        Value::Word(word) => into.extend_from_slice(word.as_bytes()),
        Value::Blob(bytes) => into.extend_from_slice(bytes),
        Value::Void | Value::Header(..) | Value::Http(_) | Value::Parameters(_) | Value::Regex(_) => {}
    }
}

fn backend_name(backend: Backend, program: &Program) -> &str {
    match backend {
        Backend::None => "",
        Backend::Declared(index) => program.backends.get(index as usize).map_or("", |row| &row.name),
        Backend::Director(index) => program.objects.get(index as usize).map_or("", |row| &row.name),
    }
}
