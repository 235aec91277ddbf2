//! Reasons why a request to storage fails, by kind.

/// Kinds of failures. Each has a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum FailureKind {
    /// No connection: unknown name, refused, or not established in time.
    Connect,
    /// TLS failed.
    Tls,
    /// No slot became free in time.
    Slot,
    /// The response did not begin in time.
    FirstByte,
    /// The response paused for too long.
    BetweenBytes,
    /// The connection was closed before the end of the response.
    Closed,
    /// The server asked to slow down, or failed: 429, 500, 502, 503 or 504.
    SlowDown,
    /// The server refused access: 401 or 403.
    Denied,
    /// The object changed or was removed: 404, 410, 412 or 416.
    Changed,
    /// The response carries another range than requested.
    Range,
    /// The response carries another version than requested.
    Version,
    /// A listing that cannot be parsed, or another unexpected response.
    Protocol,
    /// No credentials.
    Credentials,
}

impl FailureKind {
    /// Every kind, in the order of declaration.
    pub(crate) const ALL: [FailureKind; 13] = [
        FailureKind::Connect,
        FailureKind::Tls,
        FailureKind::Slot,
        FailureKind::FirstByte,
        FailureKind::BetweenBytes,
        FailureKind::Closed,
        FailureKind::SlowDown,
        FailureKind::Denied,
        FailureKind::Changed,
        FailureKind::Range,
        FailureKind::Version,
        FailureKind::Protocol,
        FailureKind::Credentials,
    ];

    /// Returns the kind's label in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FailureKind::Connect => "connect",
            FailureKind::Tls => "tls",
            FailureKind::Slot => "slot",
            FailureKind::FirstByte => "first_byte",
            FailureKind::BetweenBytes => "between_bytes",
            FailureKind::Closed => "closed",
            FailureKind::SlowDown => "slow_down",
            FailureKind::Denied => "denied",
            FailureKind::Changed => "changed",
            FailureKind::Range => "range",
            FailureKind::Version => "version",
            FailureKind::Protocol => "protocol",
            FailureKind::Credentials => "credentials",
        }
    }

    /// Returns whether the same request may succeed when repeated.
    pub(crate) fn may_pass(self) -> bool {
        match self {
            FailureKind::Connect
            | FailureKind::FirstByte
            | FailureKind::BetweenBytes
            | FailureKind::Closed
            | FailureKind::SlowDown
            | FailureKind::Range => true,
            FailureKind::Tls
            | FailureKind::Slot
            | FailureKind::Denied
            | FailureKind::Changed
            | FailureKind::Version
            | FailureKind::Protocol
            | FailureKind::Credentials => false,
        }
    }
}

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Failure {
        Failure { kind, message: message.into() }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
