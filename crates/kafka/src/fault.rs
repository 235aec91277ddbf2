//! Connection faults: a broker refused the login, or the TLS handshake failed. The client library
//! reports the reason for a fault separately from the operation that fails because of it.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

/// Maximum wait for the client's next event.
const EVENT_WAIT: Duration = Duration::from_millis(20);
/// Maximum number of events read in search of a fault.
const EVENTS_MAX: usize = 100;

/// Maximum age of a fault that explains a failure. While a fault lasts, the client library reports
/// it at each attempt to connect, at least every ten seconds.
const FAULT_MAX_AGE: Duration = Duration::from_secs(60);

/// Why a connection to a broker failed. Retrying cannot succeed without an operator's intervention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The broker refused the user name, the password or the SASL mechanism.
    Login(String),
    /// The TLS handshake failed.
    Tls(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Login(reason) => {
                write!(f, "login refused (check sasl.username, sasl.password and sasl.mechanism): {reason}")
            }
            Self::Tls(reason) => write!(f, "TLS failed (check ssl.ca.location): {reason}"),
        }
    }
}

impl std::error::Error for Fault {}

impl Fault {
    /// Converts an error reported by the client library to a fault, if it is a login or TLS error.
    fn of(error: &KafkaError, reason: &str) -> Option<Self> {
        // Cut off the duration of the attempt, which would make every report of the same fault
        // different.
        let reason = reason.split(" (after ").next().unwrap_or(reason).to_owned();
        match error.rdkafka_error_code()? {
            RDKafkaErrorCode::Authentication => Some(Self::Login(reason)),
            RDKafkaErrorCode::SSL => Some(Self::Tls(reason)),
            _ => None,
        }
    }
}

/// The latest fault of a client's connections.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Option<(Instant, Fault)>>);

impl Faults {
    fn latest(&self) -> MutexGuard<'_, Option<(Instant, Fault)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a reported error if it is a fault. A failed handshake is reported twice, first with
    /// the advice for the operator; the shorter report is dropped.
    pub(crate) fn note(&self, error: &KafkaError, reason: &str) {
        let Some(fault) = Fault::of(error, reason) else { return };
        let mut latest = self.latest();
        match (&*latest, &fault) {
            (Some((at, Fault::Tls(known))), Fault::Tls(new))
                if known.len() > new.len() && at.elapsed() < FAULT_MAX_AGE => {}
            _ => *latest = Some((Instant::now(), fault)),
        }
    }

    /// Forgets the latest fault after a success.
    pub(crate) fn clear(&self) {
        self.latest().take();
    }

    /// Returns the latest fault if it explains the failure of an operation.
    pub(crate) fn explain(&self, failure: &KafkaError) -> Option<Fault> {
        use RDKafkaErrorCode as Code;
        let is_of_connection = matches!(
            failure.rdkafka_error_code(),
            Some(
                Code::AllBrokersDown
                    | Code::Authentication
                    | Code::BrokerTransportFailure
                    | Code::OperationTimedOut
                    | Code::SSL
            )
        );
        let latest = self.latest().clone().filter(|(at, _)| is_of_connection && at.elapsed() < FAULT_MAX_AGE);
        latest.map(|(_, fault)| fault)
    }
}

/// Logs a line of the client library. The library logs a fault again at each attempt to connect;
/// these lines are dropped, because the failed operation reports the fault.
pub(crate) fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    let is_fault = facility == "FAIL" && ["SSL", "SASL"].iter().any(|word| message.contains(word));
    if !is_fault {
        DefaultClientContext.log(level, facility, message);
    }
}

impl ClientContext for Faults {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.note(&error, reason);
    }
}

impl ConsumerContext for Faults {}

/// Reads the events of a client that has no partitions, until its context has a fault.
pub(crate) fn read_events(client: &BaseConsumer<Faults>) {
    for _ in 0..EVENTS_MAX {
        if client.context().latest().is_some() || client.poll(EVENT_WAIT).is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_explains_only_failed_connections() {
        let faults = Faults::default();
        let report = KafkaError::Global(RDKafkaErrorCode::Authentication);
        faults.note(&report, "sasl_ssl://b:9093/1: invalid credentials (after 3ms in state AUTH_REQ)");
        let explained = |code| faults.explain(&KafkaError::MetadataFetch(code));
        assert_eq!(
            explained(RDKafkaErrorCode::BrokerTransportFailure),
            Some(Fault::Login("sasl_ssl://b:9093/1: invalid credentials".into()))
        );
        assert_eq!(explained(RDKafkaErrorCode::UnknownTopic), None);
        faults.note(&KafkaError::Global(RDKafkaErrorCode::AllBrokersDown), "1/1 brokers are down");
        assert!(explained(RDKafkaErrorCode::OperationTimedOut).is_some());
        let report = KafkaError::Global(RDKafkaErrorCode::SSL);
        faults.note(&report, "b: SSL handshake failed: verify ssl.ca.location (after 2ms in state X)");
        faults.note(&report, "b: certificate verify failed (after 3ms in state X)");
        assert_eq!(
            explained(RDKafkaErrorCode::SSL),
            Some(Fault::Tls("b: SSL handshake failed: verify ssl.ca.location".into()))
        );
        faults.clear();
        assert_eq!(explained(RDKafkaErrorCode::BrokerTransportFailure), None);
    }
}
