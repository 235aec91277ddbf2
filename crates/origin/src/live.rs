//! Live channels.
pub(crate) mod channel;
