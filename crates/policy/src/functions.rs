//! Function tables: the declarations of module functions, and the interface by which they receive
//! arguments.
//!
//! A module is a [`Module`] in [`MODULES`](crate::bindings::MODULES). The Rust functions are
//! independent of VCL. The function `run` in a table row reads the arguments from a [`Call`], calls
//! the Rust function and wraps its result in a [`Value`].

use std::any::Any;
use std::borrow::Cow;
use std::net::SocketAddr;

use crate::message::Message;
use crate::program::Program;
use crate::step::{Sub, Subs};
use crate::task::Task;
use crate::types::Type;
use crate::value::{Backend, Failure, Value};

/// A module that a policy can `import`.
#[derive(Debug)]
pub struct Module {
    /// Name used in `import`.
    pub name: &'static str,
    /// Functions.
    pub functions: &'static [Function],
    /// Classes, instantiated with `new`.
    pub classes: &'static [Class],
}

/// A function or a method.
#[derive(Debug)]
pub struct Function {
    /// Name within the module or the class.
    pub name: &'static str,
    /// Parameters, in order.
    pub arguments: &'static [Argument],
    /// Return type.
    pub returns: Type,
    /// Subroutines allowed to call the function.
    pub allowed: Subs,
    /// Implementation.
    pub run: Run,
}

/// The implementation of a function. Its result has the row's return type.
pub type Run = fn(&mut Call<'_, '_>) -> Result<Value<'static>, Failure>;

/// The state of an object. All workers share it once `vcl_init` has completed.
pub type Instance = Box<dyn Any + Send + Sync>;
/// The constructor of a class.
pub type New = fn(&mut Call<'_, '_>) -> Result<Instance, Failure>;

/// A class of objects.
#[derive(Debug)]
pub struct Class {
    /// Name within the module.
    pub name: &'static str,
    /// The parameters of `new`.
    pub arguments: &'static [Argument],
    /// Constructor.
    pub new: New,
    /// Methods. Methods that use [`Call::object_mut`] are allowed in `vcl_init` only.
    pub methods: &'static [Function],
    /// Completes an object's setup after `vcl_init`.
    pub ready: Option<fn(&mut dyn Any)>,
    /// Director functions, if objects of this class can be used as backends.
    pub director: Option<Director>,
}

impl Class {
    pub(crate) const fn new(
        name: &'static str,
        arguments: &'static [Argument],
        new: New,
        methods: &'static [Function],
    ) -> Class {
        Class { name, arguments, new, methods, ready: None, director: None }
    }

    pub(crate) const fn ready(mut self, ready: fn(&mut dyn Any)) -> Class {
        self.ready = Some(ready);
        self
    }

    pub(crate) const fn director(mut self, director: Director) -> Class {
        self.director = Some(director);
        self
    }
}

/// Functions that let an object act as a backend.
#[derive(Debug)]
pub struct Director {
    /// Selects the backend for the current request.
    pub resolve: fn(ObjectRef<'_>, &mut Task<'_>) -> Backend,
    /// Returns all backends that the director may select. The director is healthy if any of them
    /// is.
    pub members: fn(ObjectRef<'_>) -> Vec<Backend>,
}

/// An object, borrowed outside a method call.
#[derive(Clone, Copy)]
pub struct ObjectRef<'p> {
    pub(crate) program: &'p Program,
    pub(crate) index: u32,
    object: &'p (dyn Any + Send + Sync),
}

impl<'p> ObjectRef<'p> {
    /// Returns the object at `index`, if `vcl_init` has created it.
    pub(crate) fn new(program: &'p Program, index: u32) -> Option<ObjectRef<'p>> {
        let object = &**program.instances.get(index as usize)?.as_ref()?;
        Some(ObjectRef { program, index, object })
    }

    /// Returns the object's state.
    ///
    /// # Panics
    ///
    /// Panics if `T` is not the type constructed by the class, which is a bug in the table row.
    pub fn object<T: Any>(&self) -> &'p T {
        self.object.downcast_ref().expect("the object has the type constructed by its class")
    }
}

impl std::fmt::Debug for ObjectRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ObjectRef({})", self.index)
    }
}

/// A parameter of a function.
#[derive(Debug)]
pub struct Argument {
    /// Name, as used in `name = value`.
    pub name: &'static str,
    /// Type of the argument.
    pub kind: Type,
    /// Value used if the caller omits the argument.
    pub default: Default,
}

/// The value of an omitted argument.
#[derive(Debug, Clone, Copy)]
pub enum Default {
    /// No default: the argument cannot be omitted.
    Required,
    /// No value: the accessors report the argument as missing.
    Missing,
    /// A STRING.
    Text(&'static str),
    /// An INT.
    Int(i64),
    /// A REAL.
    Real(f64),
    /// A BOOL.
    Bool(bool),
    /// A word of an ENUM.
    Word(&'static str),
    /// A DURATION.
    Duration(f64),
}

impl Default {
    pub(crate) fn value(self) -> Option<Value<'static>> {
        Some(match self {
            Default::Required | Default::Missing => return None,
            Default::Text(text) => Value::text(text),
            Default::Int(value) => Value::Int(value),
            Default::Real(value) => Value::Real(value),
            Default::Bool(value) => Value::Bool(value),
            Default::Word(value) => Value::Word(value),
            Default::Duration(value) => Value::Duration(value),
        })
    }
}

/// Returns a required parameter.
pub const fn required(name: &'static str, kind: Type) -> Argument {
    Argument { name, kind, default: Default::Required }
}

/// Returns an optional parameter without a default.
pub const fn optional(name: &'static str, kind: Type) -> Argument {
    Argument { name, kind, default: Default::Missing }
}

/// Returns an optional parameter with a default.
pub const fn optional_or(name: &'static str, kind: Type, default: Default) -> Argument {
    Argument { name, kind, default }
}

/// Returns a table row for a function.
pub const fn function(
    name: &'static str,
    arguments: &'static [Argument],
    returns: Type,
    allowed: Subs,
    run: Run,
) -> Function {
    Function { name, arguments, returns, allowed, run }
}

/// A call in progress: its arguments and the context of the calling subroutine.
pub struct Call<'c, 't> {
    /// The task of the calling subroutine.
    pub task: &'c mut Task<'t>,
    /// The subroutine called by the edge.
    pub sub: Sub,
    pub(crate) arguments: Vec<Option<Value<'c>>>,
    pub(crate) object: Object<'c>,
    /// Index of the object, or of the object under construction.
    pub(crate) index: u32,
    pub(crate) program: &'c Program,
}

/// The object on which a method is called.
pub(crate) enum Object<'c> {
    None,
    Shared(&'c (dyn Any + Send + Sync)),
    Own(&'c mut (dyn Any + Send + Sync)),
}

/// Accessors take the parameter's index in the table row. Accessors never fail: the checker has
/// verified the types, and an argument of another type would be treated as missing.
impl<'c, 't> Call<'c, 't> {
    fn argument(&self, index: usize) -> Option<&Value<'c>> {
        self.arguments.get(index).and_then(Option::as_ref)
    }

    /// Returns a STRING or BLOB; `None` if the argument is missing or an unset header.
    pub fn maybe_text(&self, index: usize) -> Option<&[u8]> {
        match self.argument(index)? {
            Value::Text(text) => text.as_deref(),
            Value::Blob(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns a STRING; a missing argument or an unset header is empty.
    pub fn text(&self, index: usize) -> &[u8] {
        self.maybe_text(index).unwrap_or_default()
    }

    /// Returns a STRING as UTF-8; invalid sequences are replaced.
    pub fn str(&self, index: usize) -> Cow<'_, str> {
        String::from_utf8_lossy(self.text(index))
    }

    /// Returns a BOOL; false if missing.
    pub fn bool(&self, index: usize) -> bool {
        self.maybe_bool(index).unwrap_or_default()
    }

    /// Returns an INT or BYTES; 0 if missing.
    pub fn int(&self, index: usize) -> i64 {
        self.maybe_int(index).unwrap_or_default()
    }

    /// Returns a REAL, DURATION or TIME; 0 if missing.
    pub fn real(&self, index: usize) -> f64 {
        self.maybe_real(index).unwrap_or_default()
    }

    /// Returns a BOOL, if present.
    pub fn maybe_bool(&self, index: usize) -> Option<bool> {
        match self.argument(index)? {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns an INT or BYTES, if present.
    pub fn maybe_int(&self, index: usize) -> Option<i64> {
        match self.argument(index)? {
            Value::Int(value) | Value::Bytes(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns a REAL, DURATION or TIME, if present.
    pub fn maybe_real(&self, index: usize) -> Option<f64> {
        match self.argument(index)? {
            Value::Real(value) | Value::Duration(value) | Value::Time(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns an IP.
    pub fn ip(&self, index: usize) -> Option<SocketAddr> {
        match self.argument(index)? {
            Value::Ip(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns a BACKEND.
    pub fn backend(&self, index: usize) -> Option<Backend> {
        match self.argument(index)? {
            Value::Backend(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns a value of any type.
    pub(crate) fn value(&self, index: usize) -> Option<Value<'static>> {
        self.argument(index).cloned().map(Value::into_owned)
    }

    /// Returns whether the argument is present.
    pub(crate) fn is_given(&self, index: usize) -> bool {
        self.argument(index).is_some()
    }

    /// Returns the object index of the `shard_param` to which a BLOB refers.
    pub(crate) fn parameters(&self, index: usize) -> Option<u32> {
        match self.argument(index)? {
            Value::Parameters(object) => Some(*object),
            _ => None,
        }
    }

    /// Returns the message and the name of a HEADER.
    pub fn header(&self, index: usize) -> Option<(Message, &'c str)> {
        match self.argument(index)? {
            Value::Header(message, name) => Some((*message, name)),
            _ => None,
        }
    }

    /// Returns an HTTP.
    pub fn message(&self, index: usize) -> Option<Message> {
        match self.argument(index)? {
            Value::Http(message) => Some(*message),
            _ => None,
        }
    }

    /// Returns a predicate that tests whether the REGEX matches a string. A match that exceeds a
    /// limit counts as no match.
    pub fn matcher(&self, index: usize) -> impl Fn(&[u8]) -> bool + use<'c, 't> {
        let regex = self.regex(index);
        move |text| regex.is_some_and(|regex| regex.is_match(text).unwrap_or(false))
    }

    pub(crate) fn regex(&self, index: usize) -> Option<&'c crate::regex::Regex> {
        match self.argument(index)? {
            Value::Regex(regex) => self.program.regexes.get(*regex as usize),
            _ => None,
        }
    }

    /// Returns the word of an ENUM.
    pub fn word(&self, index: usize) -> &'static str {
        match self.argument(index) {
            Some(Value::Word(word)) => word,
            _ => "",
        }
    }

    /// Returns the state of the method's object.
    ///
    /// # Panics
    ///
    /// Panics if `T` is not the type constructed by the class, which is a bug in the table row.
    pub fn object<T: Any>(&self) -> &T {
        let object: Option<&T> = match &self.object {
            Object::None => None,
            Object::Shared(object) => object.downcast_ref(),
            Object::Own(object) => object.downcast_ref(),
        };
        object.expect("the object has the type constructed by its class")
    }

    /// Returns the mutable state of the method's object. Usable only in `vcl_init`, because objects
    /// are shared afterwards.
    ///
    /// # Panics
    ///
    /// Panics if `T` is not the type constructed by the class, or if the method runs outside
    /// `vcl_init`. Either is a bug in the table row.
    pub fn object_mut<T: Any>(&mut self) -> &mut T {
        let object: Option<&mut T> = match &mut self.object {
            Object::Own(object) => object.downcast_mut(),
            Object::None | Object::Shared(_) => None,
        };
        object.expect("the method runs in vcl_init, and the object has the type constructed by its class")
    }

    /// Returns the object as a BACKEND, to be resolved when a fetch starts.
    pub fn as_director(&self) -> Backend {
        Backend::Director(self.index)
    }

    /// Returns the name of a declared backend; empty for a director or no backend.
    pub fn backend_name(&self, backend: Backend) -> &str {
        match backend {
            Backend::Declared(index) => {
                self.program.backends.get(index as usize).map_or("", |row| row.name.as_str())
            }
            Backend::None | Backend::Director(_) => "",
        }
    }
}
