//! Calls functions and methods, and creates objects.

use super::Machine;
use crate::functions::{Call, Function, Object};
use crate::program::Expression;
use crate::value::{Failure, Value};

impl<'p> Machine<'p, '_, '_> {
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

    pub(super) fn make(&mut self, object: u32, arguments: &'p [Option<Expression>]) -> Result<(), Failure> {
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
    pub(super) fn call(
        &mut self,
        function: &'static Function,
        object: Option<u32>,
        arguments: &'p [Option<Expression>],
    ) -> Result<Value<'static>, Failure> {
        let arguments = self.arguments(arguments)?;
        let missing = |index: u32| {
            let name = &self.program.objects[index as usize].name;
            Failure::new(format!("object {name} was not created in vcl_init"))
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
