//! Runs a subroutine on a task.
//!
//! **Invariant:** it ends: there are no loops, calls are bounded, and so are statements, texts and matches. What goes
//! wrong is a [`Failure`], never a panic.

mod call;
mod director;
mod expression;
mod statement;
mod text;

use crate::functions::Instance;
use crate::program::Program;
use crate::step::{Action, Sub};
use crate::task::{Tag, Task};
use crate::value::Failure;

/// Statements of one subroutine's run.
pub(crate) const STEPS_MAX: u32 = 10_000;

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
                Action::Fail { reason } => {
                    let why = reason.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
                    task.tell(Tag::Error, format!("{sub} failed: {why}").trim_end_matches(": "));
                    Ok(Action::Fail { reason })
                }
                action => Ok(action),
            },
            Ok(_) => Err(Failure::new(format!("{sub} ended without an action"))),
            Err(failure) => {
                task.tell(Tag::Error, failure.to_string());
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
