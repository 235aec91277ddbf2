//! Error type of this crate: what failed and where, the cause, and whether a retry may help.

use std::fmt;

use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::fault::Faults;

/// A failed Kafka operation.
#[derive(Debug)]
pub struct Error {
    what: String,
    /// Error from the client library.
    pub cause: Box<dyn std::error::Error + Send + Sync>,
    /// Whether the operation may succeed later without an operator's intervention.
    pub is_passing: bool,
}

impl Error {
    pub(crate) fn new(what: impl Into<String>, cause: KafkaError) -> Self {
        Self { what: what.into(), is_passing: is_passing(&cause), cause: Box::new(cause) }
    }

    /// Creates an error whose cause is the client's latest connection fault, if that explains the
    /// failure.
    pub(crate) fn explained(what: impl Into<String>, cause: KafkaError, faults: &Faults) -> Self {
        match faults.explain(&cause) {
            Some(fault) => Self { what: what.into(), is_passing: false, cause: Box::new(fault) },
            None => Self::new(what, cause),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.cause)
    }
}

/// Returns whether an error may be temporary. Errors about permissions, sizes, names and properties
/// need an operator; any other error may resolve itself.
fn is_passing(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    if matches!(error, KafkaError::ClientConfig(..) | KafkaError::ClientCreation(_)) {
        return false;
    }
    !matches!(
        error.rdkafka_error_code(),
        Some(
            Code::Authentication
                | Code::TopicAuthorizationFailed
                | Code::ClusterAuthorizationFailed
                | Code::SaslAuthenticationFailed
                | Code::UnknownTopicOrPartition
                | Code::UnknownTopic
                | Code::MessageSizeTooLarge
                | Code::InvalidTopic
                | Code::InvalidReplicationFactor
                | Code::InvalidPartitions
        )
    )
}
