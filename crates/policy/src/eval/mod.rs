//! Runs a subroutine on a task.
//!
//! **Invariant:** it ends: there are no loops, calls are bounded, and so are statements, texts and matches. What goes
//! wrong is a [`Failure`], never a panic.

mod expression;
mod text;

use std::borrow::Cow;

use crate::functions::{Call, Instance, Object};
use crate::program::{Does, Expression, Program, Returns, Statement};
use crate::step::{Action, Sub};
use crate::task::{Backend, HASH_BYTES_MAX, Tag, Task};
use crate::types::Type;
use crate::value::{Failure, Value, final_status};

/// Statements of one subroutine's run.
pub(crate) const STEPS_MAX: u32 = 10_000;
/// Directors within directors.
pub(crate) const DIRECTOR_DEPTH_MAX: usize = 16;

/// What comes after a statement.
enum Flow {
    Next,
    Leave,
    /// Boxed, as nearly every statement is followed by another.
    Return(Box<Action>),
}

/// A run under way.
struct Machine<'p, 'm, 't> {
    program: &'p Program,
    task: &'m mut Task<'t>,
    sub: Sub,
    steps: u32,
    /// Texts of the statement under way, one behind the other.
    buffer: Vec<u8>,
    /// The objects, while `vcl_init` makes them.
    own: Option<&'m mut Vec<Option<Instance>>>,
}

impl Program {
    /// Runs `sub`. An error ends the request with 503; it has been told in the task's log.
    pub fn run(&self, sub: Sub, task: &mut Task<'_>) -> Result<Action, Failure> {
        self.run_with(sub, task, None)
    }

    /// Runs `vcl_init`, which makes the objects: once, before anything else.
    pub fn init(&mut self, task: &mut Task<'_>) -> Result<Action, Failure> {
        let mut instances = std::mem::take(&mut self.instances);
        let result = self.run_with(Sub::Init, task, Some(&mut instances));
        for (row, instance) in self.objects.iter().zip(&mut instances) {
            if let (Some(ready), Some(instance)) = (row.class.ready, instance) {
                ready(&mut **instance);
            }
        }
        self.instances = instances;
        result
    }

    fn run_with<'m>(
        &self,
        sub: Sub,
        task: &'m mut Task<'_>,
        own: Option<&'m mut Vec<Option<Instance>>>,
    ) -> Result<Action, Failure> {
        let buffer = std::mem::take(&mut task.workspace.buffer);
        let mut machine = Machine { program: self, task, sub, steps: 0, buffer, own };
        let result = machine.routine(self.entries[sub as usize]);
        machine.buffer.clear();
        task.workspace.buffer = machine.buffer;
        match result {
            Ok(Flow::Return(action)) => match *action {
                Action::PassFor(_) if sub != Sub::BackendResponse => Ok(Action::Pass),
                action => Ok(action),
            },
            Ok(_) => Err(Failure::new(format!("{sub} ended without an action"))),
            Err(failure) => {
                task.tell(Tag::Error, failure.to_string());
                Err(failure)
            }
        }
    }

    /// The declared backend that `backend` stands for now: its own, or that which a director gives.
    pub fn resolve(&self, backend: Backend, task: &mut Task<'_>) -> Option<u32> {
        let mut backend = backend;
        for _ in 0..DIRECTOR_DEPTH_MAX {
            match backend {
                Backend::None => return None,
                Backend::Declared(index) => return Some(index),
                Backend::Director(object) => {
                    let resolve = self.objects.get(object as usize)?.class.resolve?;
                    backend = resolve(&**self.instances.get(object as usize)?.as_ref()?, task);
                }
            }
        }
        None
    }
}

impl<'p> Machine<'p, '_, '_> {
    fn routine(&mut self, routine: u32) -> Result<Flow, Failure> {
        let program = self.program;
        self.block(&program.subs[routine as usize].body)
    }

    fn block(&mut self, block: &'p [Statement]) -> Result<Flow, Failure> {
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
        match &statement.does {
            Does::SetHeader { message, name, value } => {
                self.with_text(value, |task, text| task.set_header(*message, name, text))?;
            }
            Does::UnsetHeader { message, name } => self.task.unset_header(*message, name)?,
            Does::Set { variable, value } => match variable.kind {
                Type::String | Type::Body if !matches!(value, Expression::Constant(Value::Blob(_))) => {
                    let put = variable.put;
                    self.with_text(value, |task, text| put(task, Value::Text(Some(Cow::Borrowed(text)))))?;
                }
                _ => {
                    let value = self.value(value)?;
                    (variable.put)(self.task, value)?;
                }
            },
            Does::Unset(variable) => (variable.drop)(self.task)?,
            Does::Call(routine) => {
                let flow = self.routine(*routine)?;
                if matches!(flow, Flow::Return(_)) {
                    return Ok(flow);
                }
            }
            Does::If { arms, otherwise } => {
                for (condition, block) in arms {
                    if self.truth(condition)? {
                        return self.block(block);
                    }
                }
                return self.block(otherwise);
            }
            Does::Block(block) => return self.block(block),
            Does::New { object, arguments } => self.make(*object, arguments)?,
            Does::Do(expression) => {
                self.value(expression)?;
            }
            Does::HashData(value) => self.with_text(value, |task, text| {
                let hashed = &mut task.client.hash_data;
                if hashed.len() + text.len() >= HASH_BYTES_MAX {
                    return Err(Failure::new(format!("more than {HASH_BYTES_MAX} bytes are hashed")));
                }
                hashed.extend_from_slice(text);
                hashed.push(0);
                Ok(())
            })?,
            Does::Ban(value) => self.with_text(value, |task, text| {
                if let Err(error) = task.host.ban(&String::from_utf8_lossy(text)) {
                    task.tell(Tag::Error, format!("ban: {error}"));
                }
                Ok(())
            })?,
            Does::Synthetic(value) => {
                let is_backend = self.sub == Sub::BackendError;
                self.with_text(value, |task, text| {
                    let body = if is_backend { &mut task.fetch.body } else { &mut task.client.body };
                    *body = Some(text.to_vec());
                    Ok(())
                })?;
            }
            Does::Leave => return Ok(Flow::Leave),
            Does::Return(returns) => {
                return self.returns(returns).map(|action| Flow::Return(Box::new(action)));
            }
        }
        Ok(Flow::Next)
    }

    fn returns(&mut self, returns: &'p Returns) -> Result<Action, Failure> {
        Ok(match returns {
            Returns::Action(action) => action.clone(),
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

    fn arguments(&mut self, given: &'p [Option<Expression>]) -> Result<Vec<Option<Value<'p>>>, Failure> {
        let mut arguments = Vec::with_capacity(given.len());
        for argument in given {
            arguments.push(match argument {
                Some(expression) => Some(self.value(expression)?),
                None => None,
            });
        }
        Ok(arguments)
    }

    fn make(&mut self, object: u32, arguments: &'p [Option<Expression>]) -> Result<(), Failure> {
        let row = &self.program.objects[object as usize];
        let arguments = self.arguments(arguments)?;
        let mut call = Call {
            task: self.task,
            sub: self.sub,
            arguments,
            object: Object::None,
            index: object,
            program: self.program,
        };
        let instance = (row.class.new)(&mut call)?;
        if let Some(own) = &mut self.own {
            own[object as usize] = Some(instance);
        }
        Ok(())
    }

    /// Calls a function or a method.
    fn call(
        &mut self,
        function: &'static crate::functions::Function,
        object: Option<u32>,
        arguments: &'p [Option<Expression>],
    ) -> Result<Value<'static>, Failure> {
        let arguments = self.arguments(arguments)?;
        let missing = |index: u32| {
            let name = &self.program.objects[index as usize].name;
            Failure::new(format!("object {name} was never made in vcl_init"))
        };
        let this = match (object, &mut self.own) {
            (None, _) => Object::None,
            (Some(index), Some(own)) => {
                Object::Own(&mut **own[index as usize].as_mut().ok_or_else(|| missing(index))?)
            }
            (Some(index), None) => {
                let instance = self.program.instances[index as usize].as_ref();
                Object::Shared(&**instance.ok_or_else(|| missing(index))?)
            }
        };
        let mut call = Call {
            task: self.task,
            sub: self.sub,
            arguments,
            object: this,
            index: object.unwrap_or_default(),
            program: self.program,
        };
        (function.run)(&mut call)
    }
}
