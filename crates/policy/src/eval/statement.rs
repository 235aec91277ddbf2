//! Executes statements.

use std::borrow::Cow;

use super::{Flow, Machine, STEPS_MAX};
use crate::program::{Expression, Operation, Rest, Returns, Statement};
use crate::step::{Action, Sub};
use crate::task::{HASH_BYTES_MAX, LogSource};
use crate::types::Type;
use crate::value::{Failure, Value, final_status};
use crate::variables::Variable;

impl<'p> Machine<'p, '_, '_> {
    pub(super) fn block(&mut self, block: &'p [Statement]) -> Result<Flow, Failure> {
        for statement in block {
            self.steps += 1;
            let flow = if self.steps > STEPS_MAX {
                Err(Failure::new(format!("more than {STEPS_MAX} statements")))
            } else {
                self.statement(statement)
            };
            match flow {
                Ok(Flow::Next) => {}
                Ok(flow) => return Ok(flow),
                Err(failure) => return Err(failure.at(|| self.program.sources.place(statement.span))),
            }
        }
        Ok(Flow::Next)
    }

    fn statement(&mut self, statement: &'p Statement) -> Result<Flow, Failure> {
        match &statement.operation {
            Operation::SetHeader { header, value } => {
                self.with_text(value, |task, text| task.set_header(header, text))?;
            }
            Operation::UnsetHeader(header) => self.task.unset_header(header)?,
            Operation::Set { variable, value } => self.set(variable, value)?,
            Operation::Unset(variable) => (variable.drop)(self.task)?,
            Operation::If { condition, then, rest } => {
                if self.truth(condition)? {
                    return self.block(then);
                }
                if let Some(rest) = rest {
                    return self.rest(rest);
                }
            }
            Operation::Call(routine) => {
                let flow = self.routine(*routine)?;
                if matches!(flow, Flow::Return(_)) {
                    return Ok(flow);
                }
            }
            Operation::Block(block) => return self.block(block),
            Operation::Leave => return Ok(Flow::Leave),
            Operation::Act(action) => return Ok(Flow::Return(Box::new(action.clone()))),
            Operation::Return(returns) => return Ok(Flow::Return(Box::new(self.returns(returns)?))),
            Operation::New { object, arguments } => self.make(*object, arguments)?,
            Operation::Do(expression) => {
                self.value(expression)?;
            }
            Operation::HashData(value) => self.hash_data(value)?,
            Operation::Ban(value) => self.ban(value)?,
            Operation::Synthetic(value) => self.synthetic(value)?,
        }
        Ok(Flow::Next)
    }

    fn rest(&mut self, rest: &'p Rest) -> Result<Flow, Failure> {
        for (condition, block) in &rest.arms {
            if self.truth(condition)? {
                return self.block(block);
            }
        }
        self.block(&rest.otherwise)
    }

    fn set(&mut self, variable: &'static Variable, value: &'p Expression) -> Result<(), Failure> {
        let is_blob = matches!(value, Expression::Constant(Value::Blob(_)));
        if matches!(variable.kind, Type::String | Type::Body) && !is_blob {
            return self
                .with_text(value, |task, text| (variable.put)(task, Value::Text(Some(Cow::Borrowed(text)))));
        }
        let value = self.value(value)?;
        (variable.put)(self.task, value)
    }

    fn hash_data(&mut self, value: &'p Expression) -> Result<(), Failure> {
        let parts =
            if let Expression::Concat(parts) = value { &parts[..] } else { std::slice::from_ref(value) };
        for part in parts {
            self.hash_part(part)?;
        }
        self.task.client.hash_data.push(0);
        Ok(())
    }

    /// Appends `part` to the hashed data. An unset header is hashed as a NUL, so that the digest
    /// equals varnishd's.
    fn hash_part(&mut self, part: &'p Expression) -> Result<(), Failure> {
        let is_unset = matches!(part, Expression::Field(header) if self.task.header(header)?.is_none());
        self.with_text(part, |task, text| {
            let hashed = &mut task.client.hash_data;
            if hashed.len() + text.len() >= HASH_BYTES_MAX {
                return Err(Failure::new(format!("more than {HASH_BYTES_MAX} bytes hashed")));
            }
            hashed.extend_from_slice(if is_unset { b"\0" } else { text });
            Ok(())
        })
    }

    fn ban(&mut self, value: &'p Expression) -> Result<(), Failure> {
        self.with_text(value, |task, text| {
            if let Err(error) = task.host.ban(&String::from_utf8_lossy(text)) {
                task.push_log(LogSource::Error, format!("ban: {error}"));
            }
            Ok(())
        })
    }

    fn synthetic(&mut self, value: &'p Expression) -> Result<(), Failure> {
        let is_backend = self.sub == Sub::BackendError;
        self.with_text(value, |task, text| {
            let body = if is_backend { &mut task.fetch.body } else { &mut task.client.body };
            *body = Some(text.to_vec());
            Ok(())
        })
    }

    fn returns(&mut self, returns: &'p Returns) -> Result<Action, Failure> {
        Ok(match returns {
            Returns::Synth { status, reason } => {
                let (status, reason) = (self.status(status)?, self.reason(reason.as_ref())?);
                Action::Synth { status, reason }
            }
            Returns::Error { status, reason } => {
                let (status, reason) = (self.status(status)?, self.reason(reason.as_ref())?);
                Action::Error { status, reason }
            }
            Returns::Fail(reason) => Action::Fail { reason: self.reason(Some(reason))? },
            Returns::PassFor(duration) => Action::PassFor(self.real(duration)?),
        })
    }

    fn status(&mut self, status: &'p Expression) -> Result<u16, Failure> {
        let value = self.int(status)?;
        final_status(value)
    }

    fn reason(&mut self, reason: Option<&'p Expression>) -> Result<Option<Vec<u8>>, Failure> {
        let Some(reason) = reason else { return Ok(None) };
        let mut text = Vec::new();
        self.with_text(reason, |_, found| {
            text.extend_from_slice(found);
            Ok(())
        })?;
        Ok(Some(text))
    }
}
