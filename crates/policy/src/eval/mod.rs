//! Evaluator: runs a subroutine on a task.
//!
//! **Invariant:** evaluation always terminates, because there are no loops, and calls, statements,
//! strings and matches are bounded. Errors are returned as a [`Failure`]; nothing panics.

mod call;
mod director;
mod expression;
mod statement;
mod text;

use crate::functions::Instance;
use crate::program::Program;
use crate::step::{Action, Sub};
use crate::task::{LogSource, Task};
use crate::value::Failure;

/// Maximum number of statements per run of a subroutine.
pub(crate) const STEPS_MAX: u32 = 10_000;

/// The control flow after a statement.
enum Flow {
    Next,
    Leave,
    /// The action is boxed, so that the type stays small for the common `Next`.
    Return(Box<Action>),
}

/// The state of one subroutine run.
struct Machine<'p, 'm, 't> {
    program: &'p Program,
    task: &'m mut Task<'t>,
    sub: Sub,
    steps: u32,
    /// Strings built by the current statement, one after another.
    buffer: Vec<u8>,
    /// Objects under construction; `None` outside `vcl_init`.
    own: Option<&'m mut Vec<Option<Instance>>>,
}

impl Program {
    /// Runs `sub`. On error, the caller must end the request with 503; the error is already in the
    /// task's log.
    pub fn run(&self, sub: Sub, task: &mut Task<'_>) -> Result<Action, Failure> {
        self.run_with(sub, task, None)
    }

    /// Runs `vcl_init`, which creates the objects. Call it once, before any other subroutine.
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
                Action::Fail { reason } => {
                    let why = reason.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
                    task.push_log(LogSource::Error, format!("{sub} failed: {why}").trim_end_matches(": "));
                    Ok(Action::Fail { reason })
                }
                action => Ok(action),
            },
            Ok(_) => Err(Failure::new(format!("{sub} ended without an action"))),
            Err(failure) => {
                task.push_log(LogSource::Error, failure.to_string());
                Err(failure)
            }
        }
    }
}

impl<'p> Machine<'p, '_, '_> {
    fn routine(&mut self, routine: u32) -> Result<Flow, Failure> {
        let program = self.program;
        self.block(&program.subs[routine as usize].body)
    }
}
