//! How a function of a module is bound to the language: its row in a table, and what it is given when it is called.
//!
//! A module is a [`Module`] in [`MODULES`](crate::bindings::MODULES). The Rust function behind a row knows nothing of the
//! language: the row's `run` takes its arguments out of a [`Call`], calls it and makes a [`Value`] of what it returns.

use std::any::Any;
use std::borrow::Cow;
use std::net::SocketAddr;

use crate::program::Program;
use crate::step::{Sub, Subs};
use crate::task::{Backend, Message, Task};
use crate::types::Type;
use crate::value::{Failure, Value};

/// A module that `import` names.
#[derive(Debug)]
pub struct Module {
    /// Its name.
    pub name: &'static str,
    /// What it does for a call.
    pub functions: &'static [Function],
    /// What `new` makes of it.
    pub classes: &'static [Class],
}

/// A function.
#[derive(Debug)]
pub struct Function {
    /// Its name within the module or the class.
    pub name: &'static str,
    /// What it takes, in order.
    pub arguments: &'static [Argument],
    /// What it gives.
    pub returns: Type,
    /// Where it may be called.
    pub allowed: Subs,
    /// Does it.
    pub run: Run,
}

/// The Rust side of a function: with a value of the type that the row says.
pub type Run = fn(&mut Call<'_, '_>) -> Result<Value<'static>, Failure>;

/// What an object is between calls; shared by all workers once `vcl_init` has ended.
pub type Instance = Box<dyn Any + Send + Sync>;
/// Makes one, of what `new` was given.
pub type New = fn(&mut Call<'_, '_>) -> Result<Instance, Failure>;

/// A class of objects.
#[derive(Debug)]
pub struct Class {
    /// Its name within the module.
    pub name: &'static str,
    /// What `new` takes.
    pub arguments: &'static [Argument],
    /// Makes one.
    pub new: New,
    /// What may be called of it. One with [`Call::object_mut`] is allowed in `vcl_init` alone.
    pub methods: &'static [Function],
    /// What is left to do once `vcl_init` has ended.
    pub ready: Option<fn(&mut dyn Any)>,
    /// For one that stands for a backend.
    pub director: Option<Director>,
}

/// What a director is asked.
#[derive(Debug)]
pub struct Director {
    /// Which backend it gives now, to one who asks for content.
    pub resolve: fn(Asked<'_>, &mut Task<'_>) -> Backend,
    /// All that it may give; it is healthy if one of them is.
    pub members: fn(Asked<'_>) -> Vec<Backend>,
}

/// An object that is asked outside of a call.
#[derive(Clone, Copy)]
pub struct Asked<'p> {
    pub(crate) program: &'p Program,
    pub(crate) index: u32,
    object: &'p (dyn Any + Send + Sync),
}

impl<'p> Asked<'p> {
    /// The object of this index, if `vcl_init` has made it.
    pub(crate) fn new(program: &'p Program, index: u32) -> Option<Asked<'p>> {
        let object = &**program.instances.get(index as usize)?.as_ref()?;
        Some(Asked { program, index, object })
    }

    /// The object.
    ///
    /// # Panics
    /// If `T` is not what the class makes: the row is wrong.
    pub fn object<T: Any>(&self) -> &'p T {
        self.object.downcast_ref().expect("an object is of its class")
    }
}

impl std::fmt::Debug for Asked<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Asked({})", self.index)
    }
}

/// One argument of a function.
#[derive(Debug)]
pub struct Argument {
    /// Its name, for `name = value`.
    pub name: &'static str,
    /// Its type.
    pub kind: Type,
    /// What it is if it is not given.
    pub default: Default,
}

/// What an argument is if it is not given.
#[derive(Debug, Clone, Copy)]
pub enum Default {
    /// It must be given.
    Required,
    /// It is missing, and the function sees that.
    Missing,
    /// A text.
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

/// An argument that must be given.
pub const fn needs(name: &'static str, kind: Type) -> Argument {
    Argument { name, kind, default: Default::Required }
}

/// An argument that may be missing.
pub const fn may(name: &'static str, kind: Type) -> Argument {
    Argument { name, kind, default: Default::Missing }
}

/// An argument with a default.
pub const fn with(name: &'static str, kind: Type, default: Default) -> Argument {
    Argument { name, kind, default }
}

/// The row of a function.
pub const fn function(
    name: &'static str,
    arguments: &'static [Argument],
    returns: Type,
    allowed: Subs,
    run: Run,
) -> Function {
    Function { name, arguments, returns, allowed, run }
}

/// A call under way.
pub struct Call<'c, 't> {
    /// What the subroutine works on.
    pub task: &'c mut Task<'t>,
    /// The subroutine that the edge called.
    pub sub: Sub,
    pub(crate) arguments: Vec<Option<Value<'c>>>,
    pub(crate) object: Object<'c>,
    /// The object's index, or that of the one being made.
    pub(crate) index: u32,
    pub(crate) program: &'c Program,
}

/// The object that a method belongs to.
pub(crate) enum Object<'c> {
    None,
    Shared(&'c (dyn Any + Send + Sync)),
    Own(&'c mut (dyn Any + Send + Sync)),
}

/// Arguments, by their index in the row. What the checker has made sure of has no error here: an argument of another
/// type than the one asked for reads as missing.
impl<'c, 't> Call<'c, 't> {
    fn argument(&self, index: usize) -> Option<&Value<'c>> {
        self.arguments.get(index).and_then(Option::as_ref)
    }

    /// A STRING; `None` if it is missing or an unset header.
    pub fn maybe_text(&self, index: usize) -> Option<&[u8]> {
        match self.argument(index)? {
            Value::Text(text) => text.as_deref(),
            Value::Blob(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// A STRING; an unset header is empty.
    pub fn text(&self, index: usize) -> &[u8] {
        self.maybe_text(index).unwrap_or_default()
    }

    /// A STRING as UTF-8; what is none is replaced.
    pub fn str(&self, index: usize) -> Cow<'_, str> {
        String::from_utf8_lossy(self.text(index))
    }

    /// A BOOL.
    pub fn bool(&self, index: usize) -> Option<bool> {
        match self.argument(index)? {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// An INT or BYTES.
    pub fn int(&self, index: usize) -> Option<i64> {
        match self.argument(index)? {
            Value::Int(value) | Value::Bytes(value) => Some(*value),
            _ => None,
        }
    }

    /// A REAL, DURATION or TIME.
    pub fn real(&self, index: usize) -> Option<f64> {
        match self.argument(index)? {
            Value::Real(value) | Value::Duration(value) | Value::Time(value) => Some(*value),
            _ => None,
        }
    }

    /// An IP.
    pub fn ip(&self, index: usize) -> Option<SocketAddr> {
        match self.argument(index)? {
            Value::Ip(value) => Some(*value),
            _ => None,
        }
    }

    /// A BACKEND.
    pub fn backend(&self, index: usize) -> Option<Backend> {
        match self.argument(index)? {
            Value::Backend(value) => Some(*value),
            _ => None,
        }
    }

    /// Whether there is a value at all.
    pub(crate) fn is_given(&self, index: usize) -> bool {
        self.argument(index).is_some()
    }

    /// The set of parameters that a BLOB stands for, by its object.
    pub(crate) fn parameters(&self, index: usize) -> Option<u32> {
        match self.argument(index)? {
            Value::Parameters(object) => Some(*object),
            _ => None,
        }
    }

    /// A HEADER: its message and its name.
    pub fn header(&self, index: usize) -> Option<(Message, &'c str)> {
        match self.argument(index)? {
            Value::Header(message, name) => Some((*message, name)),
            _ => None,
        }
    }

    /// A HTTP.
    pub fn message(&self, index: usize) -> Option<Message> {
        match self.argument(index)? {
            Value::Http(message) => Some(*message),
            _ => None,
        }
    }

    /// Whether the REGEX is found in `text`; one that gives up is not.
    pub fn is_match(&self, index: usize, text: &[u8]) -> bool {
        self.regex(index).is_some_and(|regex| regex.is_match(text).unwrap_or(false))
    }

    pub(crate) fn regex(&self, index: usize) -> Option<&'c crate::regex::Regex> {
        match self.argument(index)? {
            Value::Regex(regex) => self.program.regexes.get(*regex as usize),
            _ => None,
        }
    }

    /// The word of an ENUM.
    pub fn word(&self, index: usize) -> &'static str {
        match self.argument(index) {
            Some(Value::Word(word)) => word,
            _ => "",
        }
    }

    /// The object that the method belongs to.
    ///
    /// # Panics
    /// If `T` is not what the class makes: the row is wrong.
    pub fn object<T: Any>(&self) -> &T {
        let object: Option<&T> = match &self.object {
            Object::None => None,
            Object::Shared(object) => object.downcast_ref(),
            Object::Own(object) => object.downcast_ref(),
        };
        object.expect("a method's object is of its class")
    }

    /// The object, to change it: in `vcl_init` alone, as it is shared afterwards.
    ///
    /// # Panics
    /// If `T` is not what the class makes, or the row allows the method elsewhere: the row is wrong.
    pub fn object_mut<T: Any>(&mut self) -> &mut T {
        let object: Option<&mut T> = match &mut self.object {
            Object::Own(object) => object.downcast_mut(),
            Object::None | Object::Shared(_) => None,
        };
        object
            .expect("a method that changes its object is called in vcl_init, and the object is of its class")
    }

    /// The object as a backend: what a director gives for later.
    pub fn as_director(&self) -> Backend {
        Backend::Director(self.index)
    }

    /// A backend's name.
    pub fn backend_name(&self, backend: Backend) -> &str {
        match backend {
            Backend::Declared(index) => {
                self.program.backends.get(index as usize).map_or("", |row| row.name.as_str())
            }
            Backend::None | Backend::Director(_) => "",
        }
    }
}
