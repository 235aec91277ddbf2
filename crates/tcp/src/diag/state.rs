//! The states of a TCP socket (`include/net/tcp_states.h`), and sets of them.

use std::fmt;

/// Declares the states from one table: number, the kernel's name, the name that `ss` prints, that which it takes.
macro_rules! states {
    ($($(#[$doc:meta])* $name:ident = $number:literal $kernel:literal $printed:literal $taken:literal,)*) => {
        /// The state of a socket.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum State {
            $($(#[$doc])* $name = $number,)*
        }

        impl State {
            /// All that there are, in the kernel's order.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The state with the kernel's number.
            pub fn from_kernel(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The kernel's name, without `TCP_`.
            pub fn kernel_name(self) -> &'static str {
                match self { $(Self::$name => $kernel,)* }
            }

            /// The name that `ss` prints.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $printed,)* }
            }

            /// The name that a filter has, as that of `ss`.
            pub fn filter_name(self) -> &'static str {
                match self { $(Self::$name => $taken,)* }
            }
        }
    };
}

states! {
    /// Open on both sides.
    Established = 1 "ESTABLISHED" "ESTAB" "established",
    /// Asked for, not answered.
    SynSent = 2 "SYN_SENT" "SYN-SENT" "syn-sent",
    /// Answered, not confirmed.
    SynRecv = 3 "SYN_RECV" "SYN-RECV" "syn-recv",
    /// Closed on this side, which is not acknowledged.
    FinWait1 = 4 "FIN_WAIT1" "FIN-WAIT-1" "fin-wait-1",
    /// Closed on this side, open on the other.
    FinWait2 = 5 "FIN_WAIT2" "FIN-WAIT-2" "fin-wait-2",
    /// Closed on both sides, kept for late TCP segments: no socket of a process any more.
    TimeWait = 6 "TIME_WAIT" "TIME-WAIT" "time-wait",
    /// Not connected; the state of a socket that is destroyed.
    Close = 7 "CLOSE" "UNCONN" "closed",
    /// Closed on the other side alone.
    CloseWait = 8 "CLOSE_WAIT" "CLOSE-WAIT" "close-wait",
    /// Closed on both sides, here last, which is not acknowledged.
    LastAck = 9 "LAST_ACK" "LAST-ACK" "last-ack",
    /// Waiting for connections.
    Listen = 10 "LISTEN" "LISTEN" "listening",
    /// Closed on both sides at once, which is not acknowledged.
    Closing = 11 "CLOSING" "CLOSING" "closing",
    /// As `SynRecv`, before there is a socket; the kernel reports it as that.
    NewSynRecv = 12 "NEW_SYN_RECV" "SYN-RECV" "new-syn-recv",
    /// Bound and not connected, 6.8.
    BoundInactive = 13 "BOUND_INACTIVE" "UNCONN" "bound-inactive",
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A set of states: `idiag_states` of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct States(u32);

impl States {
    /// None.
    pub const NONE: Self = Self(0);
    /// Every one that a dump may ask for.
    pub const ALL: Self = Self::of(State::ALL);
    /// Those of connections that have, or have had, both sides: neither waiting for one nor over. What `ss` shows by
    /// itself.
    pub const CONNECTED: Self = Self::of(&[
        State::Established,
        State::SynSent,
        State::FinWait1,
        State::FinWait2,
        State::CloseWait,
        State::LastAck,
        State::Closing,
    ]);

    /// These.
    pub const fn of(states: &[State]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < states.len() {
            bits |= 1 << states[at] as u8;
            at += 1;
        }
        Self(bits)
    }

    /// Those of both.
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the state is among them.
    pub fn contains(self, state: State) -> bool {
        self.0 & 1 << state as u8 != 0
    }

    /// The kernel's form, a bit for each.
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(State::ALL.iter().filter(|state| self.contains(**state))).finish()
    }
}
