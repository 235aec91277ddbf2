//! TCP socket states (`include/net/tcp_states.h`) and sets of states.

use std::fmt;

/// Declares the states from one table: the kernel's number, the kernel's name, the name printed by
/// `ss`, and the name accepted by `ss`.
macro_rules! states {
    ($($(#[$doc:meta])* $name:ident = $number:literal $kernel:literal $printed:literal $taken:literal,)*) => {
        /// A TCP socket's state.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum State {
            $($(#[$doc])* $name = $number,)*
        }

        impl State {
            /// All states, in the kernel's order.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the state with this kernel number.
            pub fn from_kernel(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Returns the kernel's name without its `TCP_` prefix.
            pub fn kernel_name(self) -> &'static str {
                match self { $(Self::$name => $kernel,)* }
            }

            /// Returns the name printed by `ss`.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $printed,)* }
            }

            /// Returns the name used in filters, as in `ss`.
            pub fn filter_name(self) -> &'static str {
                match self { $(Self::$name => $taken,)* }
            }
        }
    };
}

states! {
    /// Open in both directions.
    Established = 1 "ESTABLISHED" "ESTAB" "established",
    /// SYN sent, no reply yet.
    SynSent = 2 "SYN_SENT" "SYN-SENT" "syn-sent",
    /// SYN-ACK sent, not yet acknowledged.
    SynRecv = 3 "SYN_RECV" "SYN-RECV" "syn-recv",
    /// Closed on this side, FIN not yet acknowledged.
    FinWait1 = 4 "FIN_WAIT1" "FIN-WAIT-1" "fin-wait-1",
    /// Closed on this side, open on the other.
    FinWait2 = 5 "FIN_WAIT2" "FIN-WAIT-2" "fin-wait-2",
    /// Closed on both sides and kept to absorb late TCP segments. No process owns the socket.
    TimeWait = 6 "TIME_WAIT" "TIME-WAIT" "time-wait",
    /// Not connected; also the state of a destroyed socket.
    Close = 7 "CLOSE" "UNCONN" "closed",
    /// Closed on the other side only.
    CloseWait = 8 "CLOSE_WAIT" "CLOSE-WAIT" "close-wait",
    /// Closed on both sides, this side last; FIN not yet acknowledged.
    LastAck = 9 "LAST_ACK" "LAST-ACK" "last-ack",
    /// Listening for connections.
    Listen = 10 "LISTEN" "LISTEN" "listening",
    /// Closed on both sides simultaneously; FIN not yet acknowledged.
    Closing = 11 "CLOSING" "CLOSING" "closing",
    /// Like `SynRecv`, but before a full socket exists. The kernel reports it as `SynRecv`.
    NewSynRecv = 12 "NEW_SYN_RECV" "SYN-RECV" "new-syn-recv",
    /// Bound but not connected (since Linux 6.8).
    BoundInactive = 13 "BOUND_INACTIVE" "UNCONN" "bound-inactive",
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A set of states: `idiag_states` in a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct States(u32);

impl States {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// All states that a dump may request.
    pub const ALL: Self = Self::of(State::ALL);
    /// The states of open connections, listed by `ss` by default: all except LISTEN, SYN-RECV,
    /// TIME-WAIT and unconnected.
    pub const CONNECTED: Self = Self::of(&[
        State::Established,
        State::SynSent,
        State::FinWait1,
        State::FinWait2,
        State::CloseWait,
        State::LastAck,
        State::Closing,
    ]);

    /// Creates a set of the given states.
    pub const fn of(states: &[State]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < states.len() {
            bits |= 1 << states[at] as u8;
            at += 1;
        }
        Self(bits)
    }

    /// Returns the union of `self` and `other`.
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether the set contains the state.
    pub fn contains(self, state: State) -> bool {
        self.0 & 1 << state as u8 != 0
    }

    /// Returns the kernel's representation, one bit per state.
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(State::ALL.iter().filter(|state| self.contains(**state))).finish()
    }
}
