//! Client connection: state shared by the sessions of one connection, on any transport.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use thalweg_policy::task;

use super::socket::{Socket, Span};
use crate::delivery::Deliveries;
use crate::log::Deferred;
use crate::steering::Steering;

/// State shared by the requests of one connection.
#[derive(Debug)]
pub(crate) struct Client {
    /// Client address; IPv4-mapped IPv6 addresses are converted to IPv4.
    pub(crate) address: SocketAddr,
    // A mutex, because one connection may have several requests in progress; never held across an
    // await.
    steering: Mutex<Steering>,
    /// The connection's policy variables (`client.*`, `server.*`, `sess.*`); `None` until a policy
    /// has run.
    session: Mutex<Option<Box<task::Session>>>,
    /// Responses that wait for acknowledgement; `None` until a response is measured.
    deliveries: Mutex<Option<Box<Deliveries>>>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, steering: Steering) -> Self {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        Self {
            address,
            steering: Mutex::new(steering),
            session: Mutex::default(),
            deliveries: Mutex::default(),
        }
    }

    /// Locks the connection's congestion control state.
    pub(crate) fn steering(&self) -> MutexGuard<'_, Steering> {
        self.steering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the responses that wait for acknowledgement.
    fn deliveries(&self) -> MutexGuard<'_, Option<Box<Deliveries>>> {
        self.deliveries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a response waits for its acknowledgement.
    pub(crate) fn awaits_acks(&self) -> bool {
        self.deliveries().as_ref().is_some_and(|deliveries| deliveries.are_waiting())
    }

    /// Whether the delivery of the next response is to be measured, which starts at the position
    /// `written`.
    pub(crate) fn is_delivery_due(&self, written: u64) -> bool {
        self.deliveries().as_mut().is_none_or(|deliveries| deliveries.is_due(written))
    }

    /// Whether the path's state must be read at the start of the next response.
    pub(crate) fn needs_path_state(&self) -> bool {
        self.deliveries().as_ref().is_none_or(|deliveries| deliveries.needs_path_state())
    }

    /// Returns the rates of the newest response whose delivery was measured.
    pub(crate) fn last_delivery(&self) -> Option<task::Delivered> {
        self.deliveries().as_ref().and_then(|deliveries| deliveries.last())
    }

    /// Adds a written response, whose record waits for the acknowledgement.
    pub(crate) fn await_ack(&self, span: Span, record: Deferred, socket: &Socket, steering: &Steering) {
        self.deliveries().get_or_insert_default().push(span, record, socket, steering);
    }

    /// Writes the records of responses that have been acknowledged.
    pub(crate) fn collect_acks(&self, socket: &Socket) {
        if let Some(deliveries) = &mut *self.deliveries() {
            deliveries.collect(socket, &self.steering());
        }
    }

    /// Writes the records of all waiting responses, with the bytes of each that have been
    /// acknowledged.
    pub(crate) fn settle_deliveries(&self, socket: &Socket) {
        if let Some(deliveries) = &mut *self.deliveries() {
            deliveries.settle(socket, &self.steering());
        }
    }

    /// Takes the connection's policy variables for the duration of one request.
    pub(crate) fn take_session(&self) -> Option<Box<task::Session>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Puts back the policy variables taken by [`Client::take_session`].
    pub(crate) fn put_session(&self, session: Box<task::Session>) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    }
}
