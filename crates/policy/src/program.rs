//! Compiled policy: names are resolved to indices or references, constant strings are joined, and
//! regular expressions are compiled.
//!
//! **Invariant:** after `vcl_init`, a program never changes, except for its file cache and the
//! state of its objects. All workers share it.

use std::net::{IpAddr, SocketAddr};

use crate::acl::Acl;
use crate::ast::Operator;
use crate::files::Files;
use crate::functions::{Class, Function, Instance};
use crate::message::Header;
use crate::regex::Regex;
use crate::source::{File, Sources, Span};
use crate::step::{Action, Sub};
use crate::types::Type;
use crate::value::Value;
use crate::variables::Variable;

/// A declared backend.
#[derive(Debug, Clone, PartialEq)]
pub struct BackendRow {
    /// Name.
    pub name: String,
    /// Address; `None` for `backend NAME none;`, which always fails.
    pub address: Option<BackendAddress>,
    /// `.host_header`: the `Host` for requests without one.
    pub host_header: Option<String>,
    /// `.connect_timeout`, seconds.
    pub connect_timeout_s: Option<f64>,
    /// `.first_byte_timeout`, seconds.
    pub first_byte_timeout_s: Option<f64>,
    /// `.between_bytes_timeout`, seconds.
    pub between_bytes_timeout_s: Option<f64>,
    /// `.max_connections`.
    pub connections_max: Option<u64>,
    /// `.proxy_header`: version 1 or 2.
    pub proxy_header: Option<u8>,
    /// `.preamble`: the first bytes sent on each new connection.
    pub preamble: Vec<u8>,
    /// Index of the backend's probe in [`Program::probes`].
    pub probe: Option<u32>,
}

/// The address of a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendAddress {
    /// TCP: a host and a port.
    Host {
        /// A host name, or an IP address without brackets.
        host: String,
        /// The port; 80 by default.
        port: u16,
    },
    /// The path of a Unix socket.
    Path(String),
}

/// A declared probe.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeRow {
    /// Name; empty for an inline probe.
    pub name: String,
    /// `.url`, used if `request` is empty.
    pub url: String,
    /// `.request`: the lines of the request, without line ends.
    pub request: Vec<String>,
    /// `.expected_response`.
    pub expected_status: u16,
    /// `.timeout`, seconds.
    pub timeout_s: f64,
    /// `.interval`, seconds.
    pub interval_s: f64,
    /// `.initial`: number of successful probes assumed at the start.
    pub initial: u32,
    /// `.window`: number of most recent probes considered.
    pub window: u32,
    /// `.threshold`: number of probes in the window that must succeed for the backend to be
    /// healthy.
    pub threshold: u32,
}

/// A compiled policy.
pub struct Program {
    /// The language version of the main file: 40 or 41.
    pub(crate) version: u8,
    pub(crate) sources: Sources,
    pub(crate) backends: Vec<BackendRow>,
    pub(crate) default_backend: Option<u32>,
    pub(crate) probes: Vec<ProbeRow>,
    pub(crate) acls: Vec<Acl>,
    pub(crate) regexes: Vec<Regex>,
    pub(crate) subs: Vec<Routine>,
    /// The routine of each [`Sub`].
    pub(crate) entries: [u32; Sub::ALL.len()],
    pub(crate) objects: Vec<ObjectRow>,
    pub(crate) instances: Vec<Option<Instance>>,
    pub(crate) files: Files,
    /// Labels of the policies to which this policy may switch.
    pub(crate) labels: Vec<String>,
}

/// A subroutine: its definitions concatenated in source order, with the built-in definition last.
#[derive(Debug, Default)]
pub(crate) struct Routine {
    pub(crate) name: String,
    pub(crate) body: Block,
    /// Whether the policy adds statements of its own to this routine or to any routine that it
    /// calls.
    pub(crate) extends_builtin: bool,
}

/// An object created by `new`.
#[derive(Debug)]
pub(crate) struct ObjectRow {
    pub(crate) name: String,
    pub(crate) class: &'static Class,
}

/// Statements, in order.
pub(crate) type Block = Vec<Statement>;

/// One statement. The type must stay small, because CPU cache misses dominate the cost of
/// evaluation.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) operation: Operation,
    pub(crate) span: Span,
}

/// The kind of a statement and its operands.
#[derive(Debug)]
pub(crate) enum Operation {
    SetHeader {
        header: Header,
        value: Expression,
    },
    UnsetHeader(Header),
    Set {
        variable: &'static Variable,
        value: Expression,
    },
    Unset(&'static Variable),
    Call(u32),
    If {
        condition: Expression,
        then: Block,
        /// The `elseif` and `else` branches, if any.
        rest: Option<Box<Rest>>,
    },
    Block(Block),
    New {
        object: u32,
        arguments: Vec<Option<Expression>>,
    },
    Do(Expression),
    HashData(Expression),
    Ban(Expression),
    Synthetic(Expression),
    /// `return;`
    Leave,
    /// `return (…)`
    Act(Action),
    Return(Box<Returns>),
}

/// The `elseif` and `else` branches.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) arms: Vec<(Expression, Block)>,
    pub(crate) otherwise: Block,
}

/// `return (…)` with operands evaluated at run time.
#[derive(Debug)]
pub(crate) enum Returns {
    Synth { status: Expression, reason: Option<Expression> },
    Error { status: Expression, reason: Option<Expression> },
    Fail(Expression),
    PassFor(Expression),
}

/// How two values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Text,
    Int,
    Real,
    Other,
}

/// A type-checked expression. Its type determines the evaluator function used.
#[derive(Debug)]
pub(crate) enum Expression {
    Constant(Value<'static>),
    Field(Header),
    /// A reference to a header, for a function that modifies it.
    Header(Header),
    Variable(&'static Variable),
    Storage {
        name: Box<str>,
        variable: &'static Variable,
    },
    /// Parts converted to strings and concatenated.
    Concat(Vec<Expression>),
    Not(Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
    /// A value converted to BOOL.
    Truth(Box<Expression>),
    Compare {
        how: Comparison,
        operator: Operator,
        /// Left and right operands.
        sides: Box<[Expression; 2]>,
    },
    Match {
        text: Box<Expression>,
        regex: u32,
        negated: bool,
    },
    Listed {
        ip: Box<Expression>,
        acl: u32,
        negated: bool,
    },
    /// Arithmetic on INT or BYTES, selected by `kind`.
    IntArithmetic {
        kind: Type,
        operator: Operator,
        left: Box<Expression>,
        right: Box<Expression>,
    },
    /// Arithmetic on REAL, DURATION or TIME.
    RealArithmetic {
        kind: Type,
        operator: Operator,
        left: Box<Expression>,
        right: Box<Expression>,
    },
    Substitute {
        text: Box<Expression>,
        regex: u32,
        with: Box<Expression>,
        all: bool,
    },
    /// `.upper()`, `.lower()`
    Case {
        text: Box<Expression>,
        upper: bool,
    },
    /// Resolves a director to a declared backend.
    Resolve(Box<Expression>),
    /// A BLOB converted to a string: base64 between colons.
    Encode(Box<Expression>),
    Call {
        function: &'static Function,
        object: Option<u32>,
        arguments: Vec<Option<Expression>>,
    },
}

impl Program {
    /// Returns the declared backends, indexed by
    /// [`Backend::Declared`](crate::value::Backend::Declared).
    pub fn backends(&self) -> &[BackendRow] {
        &self.backends
    }

    /// Returns the backend to use if none is set: the backend named `default`, or otherwise the
    /// first declared backend.
    pub fn default_backend(&self) -> Option<u32> {
        self.default_backend
    }

    /// Returns whether the policy may switch to the policy labelled `label`.
    pub fn may_switch_to(&self, label: &str) -> bool {
        self.labels.iter().any(|name| name == label)
    }

    /// Returns the source files: the main file, followed by its includes.
    pub fn files(&self) -> &[File] {
        self.sources.all().split_last().map_or(&[], |(_builtin, files)| files)
    }

    /// Returns the probes.
    pub fn probes(&self) -> &[ProbeRow] {
        &self.probes
    }

    /// Returns whether the policy adds statements to the built-in `sub`, directly or in a
    /// subroutine called from it.
    pub fn extends_builtin(&self, sub: Sub) -> bool {
        self.subs[self.entries[sub as usize] as usize].extends_builtin
    }

    /// Returns whether an ACL contains an address, and the line to log if the ACL has `+log`.
    pub(crate) fn acl_matches(&self, acl: u32, address: SocketAddr) -> (bool, Option<String>) {
        let acl = &self.acls[acl as usize];
        let address: IpAddr = address.ip().to_canonical();
        acl.matches(address)
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("backends", &self.backends.len()).finish_non_exhaustive()
    }
}
