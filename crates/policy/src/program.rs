//! The compiled form: every name is an index or a reference, texts that are constant are one, regular expressions are
//! compiled. It is never changed after `vcl_init`, but for the files that it keeps, and shared by all workers.

use std::net::{IpAddr, SocketAddr};

use thalweg_http::name::Name;

use crate::acl::Acl;
use crate::ast::Operator;
use crate::files::Files;
use crate::functions::{Class, Function, Instance};
use crate::regex::Regex;
use crate::source::{File, Sources, Span};
use crate::step::{Action, Sub};
use crate::task::Message;
use crate::types::Type;
use crate::value::Value;
use crate::variables::Variable;

/// A backend as the policy declares it.
#[derive(Debug, Clone, PartialEq)]
pub struct BackendRow {
    /// Its name.
    pub name: String,
    /// Where it is; `None` for `backend NAME none;`, which always fails.
    pub address: Option<BackendAddress>,
    /// `.host_header`, for requests that have none.
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
    /// `.preamble`: what is sent on each new connection.
    pub preamble: Vec<u8>,
    /// Its probe, by its index in [`Program::probes`].
    pub probe: Option<u32>,
}

/// Where a backend is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendAddress {
    /// A host or an address, and a port.
    Host {
        /// A name or an address without brackets.
        host: String,
        /// 80 unless said.
        port: u16,
    },
    /// A socket in the file system.
    Path(String),
}

/// A probe as the policy declares it.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeRow {
    /// Its name; empty for one within a backend.
    pub name: String,
    /// `.url`, unless there is a request.
    pub url: String,
    /// `.request`: its lines, without their ends.
    pub request: Vec<String>,
    /// `.expected_response`.
    pub expected_status: u16,
    /// `.timeout`, seconds.
    pub timeout_s: f64,
    /// `.interval`, seconds.
    pub interval_s: f64,
    /// `.initial`: good probes to begin with.
    pub initial: u32,
    /// `.window`: the last probes that count.
    pub window: u32,
    /// `.threshold`: how many of them must be good.
    pub threshold: u32,
}

/// A compiled policy.
pub struct Program {
    /// 40 or 41: that of the main file.
    pub(crate) version: u8,
    pub(crate) sources: Sources,
    pub(crate) backends: Vec<BackendRow>,
    pub(crate) default_backend: Option<u32>,
    pub(crate) probes: Vec<ProbeRow>,
    pub(crate) acls: Vec<Acl>,
    pub(crate) regexes: Vec<Regex>,
    pub(crate) subs: Vec<Routine>,
    /// By [`Sub`].
    pub(crate) entries: [u32; Sub::ALL.len()],
    pub(crate) objects: Vec<ObjectRow>,
    pub(crate) instances: Vec<Option<Instance>>,
    pub(crate) files: Files,
    /// Policies that it may send requests to.
    pub(crate) labels: Vec<String>,
}

/// A subroutine, its parts in the order of the text, the built-in last.
#[derive(Debug, Default)]
pub(crate) struct Routine {
    pub(crate) name: String,
    pub(crate) body: Block,
    /// Whether the policy itself says anything in it or in what it calls.
    pub(crate) is_written: bool,
}

/// An object that `new` makes.
#[derive(Debug)]
pub(crate) struct ObjectRow {
    pub(crate) name: String,
    pub(crate) class: &'static Class,
}

/// Statements, one behind the other.
pub(crate) type Block = Vec<Statement>;

/// One statement. Small, as what a request costs is mostly how much of the policy goes through the processor's cache.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) does: Does,
    pub(crate) span: Span,
}

/// What a statement does.
#[derive(Debug)]
pub(crate) enum Does {
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
        /// What follows the first arm, if anything.
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

/// `elseif` and `else`.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) arms: Vec<(Expression, Block)>,
    pub(crate) otherwise: Block,
}

/// `return (…)` with what is computed when it is reached.
#[derive(Debug)]
pub(crate) enum Returns {
    Synth { status: Expression, reason: Option<Expression> },
    Error { status: Expression, reason: Option<Expression> },
    Fail(Expression),
    PassFor(Expression),
}

/// A header of a message.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) message: Message,
    pub(crate) name: Name,
    /// Whether it is a request's `Host`.
    pub(crate) is_host: bool,
}

impl Header {
    /// `None` if `name` is no header's name.
    pub(crate) fn new(message: Message, name: &str) -> Option<Header> {
        let is_host = matches!(message, Message::Req | Message::ReqTop | Message::Bereq)
            && name.eq_ignore_ascii_case("host");
        Some(Header { message, name: Name::new(name)?, is_host })
    }
}

/// How two values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Text,
    Int,
    Real,
    Other,
}

/// An expression; its type was settled by the checker, and decides with which function of the evaluator it is read.
#[derive(Debug)]
pub(crate) enum Expression {
    Constant(Value<'static>),
    Field(Header),
    /// A header itself, for a function that changes it.
    Header(Header),
    Variable(&'static Variable),
    Storage {
        name: Box<str>,
        variable: &'static Variable,
    },
    /// Parts as text, one behind the other.
    Concat(Vec<Expression>),
    Not(Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
    /// A value as BOOL.
    Truth(Box<Expression>),
    Compare {
        how: Comparison,
        operator: Operator,
        /// Left and right.
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
    /// INT and BYTES, of which `kind` says which.
    IntArithmetic {
        kind: Type,
        operator: Operator,
        left: Box<Expression>,
        right: Box<Expression>,
    },
    /// REAL, DURATION and TIME.
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
    Call {
        function: &'static Function,
        object: Option<u32>,
        arguments: Vec<Option<Expression>>,
    },
}

impl Program {
    /// The declared backends; [`Backend::Declared`](crate::task::Backend::Declared) is an index into it.
    pub fn backends(&self) -> &[BackendRow] {
        &self.backends
    }

    /// The backend that is meant where none is set: the one called `default`, else the first.
    pub fn default_backend(&self) -> Option<u32> {
        self.default_backend
    }

    /// Whether it sends requests to the policy called `label`.
    pub fn names(&self, label: &str) -> bool {
        self.labels.iter().any(|name| name == label)
    }

    /// What it was compiled from: the main file, then what that includes.
    pub fn files(&self) -> &[File] {
        self.sources.all().split_last().map_or(&[], |(_builtin, files)| files)
    }

    /// The probes.
    pub fn probes(&self) -> &[ProbeRow] {
        &self.probes
    }

    /// Whether the policy adds anything to what is built in for `sub`, there or in a subroutine called from there.
    pub fn is_written(&self, sub: Sub) -> bool {
        self.subs[self.entries[sub as usize] as usize].is_written
    }

    /// The name of an ACL's match, for its log line.
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
