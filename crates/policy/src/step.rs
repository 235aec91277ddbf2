//! The subroutines that a request goes through, and the actions that each may return.

use std::fmt;

/// A subroutine that the edge calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sub {
    /// A request has come.
    Recv,
    /// What the key of the content is made of.
    Hash,
    /// The connection is handed through.
    Pipe,
    /// The request goes past the cache.
    Pass,
    /// The content is there.
    Hit,
    /// It is not.
    Miss,
    /// The content has been purged.
    Purge,
    /// A response is about to go out.
    Deliver,
    /// One is made here.
    Synth,
    /// A request is about to go to a backend.
    BackendFetch,
    /// Its response has come.
    BackendResponse,
    /// None has come.
    BackendError,
    /// The policy begins.
    Init,
    /// It ends.
    Fini,
}

impl Sub {
    /// All, in the order of a request's way.
    pub const ALL: [Sub; 14] = [
        Sub::Recv,
        Sub::Hash,
        Sub::Pipe,
        Sub::Pass,
        Sub::Hit,
        Sub::Miss,
        Sub::Purge,
        Sub::Deliver,
        Sub::Synth,
        Sub::BackendFetch,
        Sub::BackendResponse,
        Sub::BackendError,
        Sub::Init,
        Sub::Fini,
    ];

    /// Its name, `vcl_recv`.
    pub fn as_str(self) -> &'static str {
        match self {
            Sub::Recv => "vcl_recv",
            Sub::Hash => "vcl_hash",
            Sub::Pipe => "vcl_pipe",
            Sub::Pass => "vcl_pass",
            Sub::Hit => "vcl_hit",
            Sub::Miss => "vcl_miss",
            Sub::Purge => "vcl_purge",
            Sub::Deliver => "vcl_deliver",
            Sub::Synth => "vcl_synth",
            Sub::BackendFetch => "vcl_backend_fetch",
            Sub::BackendResponse => "vcl_backend_response",
            Sub::BackendError => "vcl_backend_error",
            Sub::Init => "vcl_init",
            Sub::Fini => "vcl_fini",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Sub> {
        Sub::ALL.into_iter().find(|sub| sub.as_str() == name)
    }

    pub(crate) const fn bit(self) -> u16 {
        1 << self as u16
    }

    /// The actions that may be returned from here.
    pub(crate) fn actions(self) -> impl Iterator<Item = &'static ActionRule> {
        ACTIONS.iter().filter(move |rule| rule.from.contains(self))
    }
}

impl fmt::Display for Sub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Some of the subroutines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subs(u16);

impl Subs {
    /// No subroutine.
    pub const NONE: Subs = Subs(0);
    /// Each one.
    pub const ALL: Subs = Subs((1 << Sub::ALL.len()) - 1);
    /// The client's side.
    pub const CLIENT: Subs = Subs::of(&[
        Sub::Recv,
        Sub::Hash,
        Sub::Pipe,
        Sub::Pass,
        Sub::Hit,
        Sub::Miss,
        Sub::Purge,
        Sub::Deliver,
        Sub::Synth,
    ]);
    /// The backend's side.
    pub const BACKEND: Subs = Subs::of(&[Sub::BackendFetch, Sub::BackendResponse, Sub::BackendError]);
    /// Both sides.
    pub const REQUEST: Subs = Subs::CLIENT.and(Subs::BACKEND);
    /// Where there is a backend's response.
    pub const RESPONSE: Subs = Subs::of(&[Sub::BackendResponse, Sub::BackendError]);
    /// Where there is a response to the client.
    pub const REPLY: Subs = Subs::of(&[Sub::Deliver, Sub::Synth]);
    /// Where there is a stored response.
    pub const OBJECT: Subs = Subs::of(&[Sub::Hit, Sub::Deliver]);

    /// Those of `subs`.
    pub const fn of(subs: &[Sub]) -> Subs {
        let mut bits = 0;
        let mut index = 0;
        while index < subs.len() {
            bits |= subs[index].bit();
            index += 1;
        }
        Subs(bits)
    }

    /// These and `other`.
    pub const fn and(self, other: Subs) -> Subs {
        Subs(self.0 | other.0)
    }

    /// Whether `sub` is one.
    pub const fn contains(self, sub: Sub) -> bool {
        self.0 & sub.bit() != 0
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Each one.
    pub fn iter(self) -> impl Iterator<Item = Sub> {
        Sub::ALL.into_iter().filter(move |sub| self.contains(*sub))
    }
}

impl fmt::Display for Subs {
    /// `client`, `backend` or names, as the reference says it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Subs::ALL {
            return f.write_str("all");
        }
        let mut rest = *self;
        let mut words = Vec::new();
        for (group, word) in [(Subs::CLIENT, "client"), (Subs::BACKEND, "backend")] {
            if rest.0 & group.0 == group.0 {
                rest = Subs(rest.0 & !group.0);
                words.push(word);
            }
        }
        words.extend(rest.iter().map(Sub::as_str));
        f.write_str(&words.join(", "))
    }
}

/// What an action's brackets take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ActionArguments {
    None,
    /// `synth(STATUS [, REASON])`
    StatusAndReason,
    /// As before, and may be left out.
    MaybeStatusAndReason,
    /// `fail("REASON")`, which may be left out.
    MaybeReason,
    /// `vcl(LABEL)`
    Label,
    /// `pass(DURATION)`, which may be left out.
    MaybeDuration,
}

/// One action: where it may be returned and what it takes.
#[derive(Debug)]
pub(crate) struct ActionRule {
    pub(crate) name: &'static str,
    pub(crate) from: Subs,
    pub(crate) arguments: ActionArguments,
}

const fn rule(name: &'static str, from: &[Sub], arguments: ActionArguments) -> ActionRule {
    ActionRule { name, from: Subs::of(from), arguments }
}

/// All actions of vcl-step(7) in 7.1.
pub(crate) static ACTIONS: [ActionRule; 15] = {
    use ActionArguments::{Label, MaybeDuration, MaybeReason, MaybeStatusAndReason, None, StatusAndReason};
    use Sub::{
        BackendError, BackendFetch, BackendResponse, Deliver, Fini, Hash, Hit, Init, Miss, Pass, Pipe, Purge,
        Recv, Synth,
    };
    [
        rule("abandon", &[BackendFetch, BackendResponse, BackendError], None),
        rule("deliver", &[Hit, Deliver, Synth, BackendResponse, BackendError], None),
        rule("error", &[BackendFetch, BackendResponse], MaybeStatusAndReason),
        ActionRule { name: "fail", from: Subs::REQUEST.and(Subs::of(&[Init])), arguments: MaybeReason },
        rule("fetch", &[Miss, Pass, BackendFetch], None),
        rule("hash", &[Recv], None),
        rule("lookup", &[Hash], None),
        rule("ok", &[Init, Fini], None),
        // The duration, for which the key is passed, means something on the backend's side alone.
        rule("pass", &[Recv, Hit, Miss, BackendResponse], MaybeDuration),
        rule("pipe", &[Recv, Pipe], None),
        rule("purge", &[Recv], None),
        rule("restart", &[Recv, Pass, Hit, Miss, Purge, Deliver, Synth], None),
        rule("retry", &[BackendResponse, BackendError], None),
        rule("synth", &[Recv, Pipe, Pass, Hit, Miss, Purge, Deliver], StatusAndReason),
        rule("vcl", &[Recv], Label),
    ]
};

/// What a subroutine has decided.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Give the fetch up; the client side goes on as it can.
    Abandon,
    /// Send the response.
    Deliver,
    /// Make an error of the fetch: status and reason.
    Error {
        /// The status, 503 unless said.
        status: u16,
        /// The reason phrase.
        reason: Option<Vec<u8>>,
    },
    /// End this request with 503: the policy says so.
    Fail {
        /// What the policy says of it.
        reason: Option<Vec<u8>>,
    },
    /// Ask a backend.
    Fetch,
    /// Look the content up.
    Hash,
    /// Look the content up by what was hashed.
    Lookup,
    /// The policy has begun, or ended.
    Ok,
    /// Go past the cache.
    Pass,
    /// Go past the cache for all requests of this key, for some seconds.
    PassFor(f64),
    /// Hand the connection through.
    Pipe,
    /// Take the content out of the cache.
    Purge,
    /// Begin again with the request as it is now.
    Restart,
    /// Ask again, perhaps another backend.
    Retry,
    /// Answer from here.
    Synth {
        /// The status.
        status: u16,
        /// The reason phrase, if not that of the status.
        reason: Option<Vec<u8>>,
    },
    /// Begin again with the policy of this label.
    Vcl(String),
}
