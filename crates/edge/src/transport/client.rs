//! Client connection: state shared by the sessions of one connection, on any transport.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use thalweg_policy::task;

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
}

impl Client {
    pub(crate) fn new(address: SocketAddr, steering: Steering) -> Self {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        Self { address, steering: Mutex::new(steering), session: Mutex::default() }
    }

    /// Locks the connection's congestion control state.
    pub(crate) fn steering(&self) -> MutexGuard<'_, Steering> {
        self.steering.lock().unwrap_or_else(PoisonError::into_inner)
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
