//! Subroutines called by the edge, and the actions that each may return.

use std::fmt;

use crate::words::words;

words! {
    /// A subroutine called by the edge.
    pub enum Sub {
        /// A client request has arrived.
        Recv = "vcl_recv",
        /// Computes the cache key.
        Hash = "vcl_hash",
        /// The connection is about to be piped.
        Pipe = "vcl_pipe",
        /// The request bypasses the cache.
        Pass = "vcl_pass",
        /// The lookup found a stored response.
        Hit = "vcl_hit",
        /// The lookup found no stored response.
        Miss = "vcl_miss",
        /// A purge has completed.
        Purge = "vcl_purge",
        /// A response is about to be sent to the client.
        Deliver = "vcl_deliver",
        /// A synthetic response is about to be sent.
        Synth = "vcl_synth",
        /// A request is about to be sent to a backend.
        BackendFetch = "vcl_backend_fetch",
        /// The response header section has arrived from the backend.
        BackendResponse = "vcl_backend_response",
        /// The fetch has failed.
        BackendError = "vcl_backend_error",
        /// The policy is being loaded.
        Init = "vcl_init",
        /// The policy is being discarded.
        Fini = "vcl_fini",
    }
}

impl Sub {
    pub(crate) const fn bit(self) -> u16 {
        1 << self as u16
    }

    /// Returns the actions allowed in this subroutine.
    pub(crate) fn actions(self) -> impl Iterator<Item = &'static ActionRule> {
        ACTIONS.iter().filter(move |rule| rule.from.contains(self))
    }
}

impl fmt::Display for Sub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of subroutines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subs(u16);

impl Subs {
    /// The empty set.
    pub const NONE: Subs = Subs(0);
    /// All subroutines.
    pub const ALL: Subs = Subs((1 << Sub::ALL.len()) - 1);
    /// Client-side subroutines.
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
    /// Backend-side subroutines.
    pub const BACKEND: Subs = Subs::of(&[Sub::BackendFetch, Sub::BackendResponse, Sub::BackendError]);
    /// Client-side and backend-side subroutines.
    pub const REQUEST: Subs = Subs::CLIENT.and(Subs::BACKEND);
    /// Subroutines that have a backend response.
    pub const RESPONSE: Subs = Subs::of(&[Sub::BackendResponse, Sub::BackendError]);
    /// Subroutines that have a response to the client.
    pub const REPLY: Subs = Subs::of(&[Sub::Deliver, Sub::Synth]);
    /// Subroutines that have a stored response.
    pub const OBJECT: Subs = Subs::of(&[Sub::Hit, Sub::Deliver]);

    /// Creates the set of `subs`.
    pub const fn of(subs: &[Sub]) -> Subs {
        let mut bits = 0;
        let mut index = 0;
        while index < subs.len() {
            bits |= subs[index].bit();
            index += 1;
        }
        Subs(bits)
    }

    /// Returns the union with `other`.
    pub const fn and(self, other: Subs) -> Subs {
        Subs(self.0 | other.0)
    }

    /// Returns whether the set contains `sub`.
    pub const fn contains(self, sub: Sub) -> bool {
        self.0 & sub.bit() != 0
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the subroutines, in order.
    pub fn iter(self) -> impl Iterator<Item = Sub> {
        Sub::ALL.into_iter().filter(move |sub| self.contains(*sub))
    }
}

impl fmt::Display for Subs {
    /// Formats the set as in the reference: `client`, `backend` and names of single subroutines.
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

/// The arguments of an action.
#[derive(Debug)]
pub(crate) enum ActionArguments {
    /// No arguments.
    None(Action),
    /// `synth(STATUS [, REASON])`
    StatusAndReason,
    /// Optional `(STATUS [, REASON])`.
    MaybeStatusAndReason,
    /// Optional `fail("REASON")`.
    MaybeReason,
    /// `vcl(LABEL)`
    Label,
    /// Optional `pass(DURATION)`.
    MaybeDuration,
}

/// An action, the subroutines that may return it, and its arguments.
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
        rule("abandon", &[BackendFetch, BackendResponse, BackendError], None(Action::Abandon)),
        rule("deliver", &[Hit, Deliver, Synth, BackendResponse, BackendError], None(Action::Deliver)),
        rule("error", &[BackendFetch, BackendResponse], MaybeStatusAndReason),
        ActionRule { name: "fail", from: Subs::REQUEST.and(Subs::of(&[Init])), arguments: MaybeReason },
        rule("fetch", &[Miss, Pass, BackendFetch], None(Action::Fetch)),
        rule("hash", &[Recv], None(Action::Hash)),
        rule("lookup", &[Hash], None(Action::Lookup)),
        rule("ok", &[Init, Fini], None(Action::Ok)),
        // The optional duration is the hit-for-pass time, so it has an effect only on the backend
        // side.
        rule("pass", &[Recv, Hit, Miss, BackendResponse], MaybeDuration),
        rule("pipe", &[Recv, Pipe], None(Action::Pipe)),
        rule("purge", &[Recv], None(Action::Purge)),
        rule("restart", &[Recv, Pass, Hit, Miss, Purge, Deliver, Synth], None(Action::Restart)),
        rule("retry", &[BackendResponse, BackendError], None(Action::Retry)),
        rule("synth", &[Recv, Pipe, Pass, Hit, Miss, Purge, Deliver], StatusAndReason),
        rule("vcl", &[Recv], Label),
    ]
};

/// A subroutine's decision.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Abandon the fetch; the client side continues without it.
    Abandon,
    /// Send the response.
    Deliver,
    /// Turn the fetch into an error response.
    Error {
        /// The status; 503 by default.
        status: u16,
        /// The reason phrase.
        reason: Option<Vec<u8>>,
    },
    /// End this request with 503, at the policy's request.
    Fail {
        /// The reason given by the policy.
        reason: Option<Vec<u8>>,
    },
    /// Fetch from a backend.
    Fetch,
    /// Look up the stored response.
    Hash,
    /// Look up the stored response by the hashed key.
    Lookup,
    /// Accept that the policy is loaded or discarded.
    Ok,
    /// Bypass the cache.
    Pass,
    /// Make the key hit-for-pass for this many seconds.
    PassFor(f64),
    /// Pipe the connection.
    Pipe,
    /// Purge the stored response.
    Purge,
    /// Restart with the modified request.
    Restart,
    /// Retry the fetch, possibly from another backend.
    Retry,
    /// Send a synthetic response.
    Synth {
        /// The status.
        status: u16,
        /// The reason phrase, if it is not the standard one for the status.
        reason: Option<Vec<u8>>,
    },
    /// Restart with the policy labelled with this string.
    Vcl(String),
}
