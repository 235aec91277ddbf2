//! Pipe: runs `vcl_pipe`, then connects the client connection to a backend connection.
//!
//! The request is forwarded unchanged, with `Connection: close` unless `vcl_pipe` changes it.
//!
//! **Invariant:** pipes use at most half of a worker's backend connections, and always new ones.
//! **Invariant:** a piped request contains this node's `CDN-Loop` member (RFC 8586 §2), so that
//! loops are detected.

use std::cell::Cell;

use thalweg_cache::Failure;
use thalweg_http::RequestHead;
use thalweg_http::cache_status::Forward;
use thalweg_policy::step::Action;
use thalweg_record::CacheResult;

use super::policy::RequestContext;
use super::{FAILED, Session, Step};
use crate::backend::Wanted;
use crate::fetch::forward;
use crate::refusal::Refusal;
use crate::sent::Sent;
use crate::session::synth::GeneratedResponse;
use crate::transport::{Incoming, Outgoing};
use crate::warnings::{WarningLimit, warn_limited};

/// Maximum number of pipes per worker. A further limit is half of the worker's backend connections.
const PIPES_MAX: usize = 256;
/// Hop-by-hop fields forwarded nevertheless, because they describe the bytes that follow.
const PASSED_ON: [&str; 2] = ["Transfer-Encoding", "Upgrade"];

const TOO_MANY: Refusal = Refusal::by_edge(503, "too many piped connections");

static REFUSALS: WarningLimit = WarningLimit::new();

thread_local! {
    /// Number of pipes on this thread's worker. Connections never move between workers.
    static PIPES: Cell<usize> = const { Cell::new(0) };
}

/// Guard that counts an open pipe until dropped.
struct Counted(());

impl Counted {
    /// Counts another pipe, unless the limit is reached.
    fn new(pipes_max: usize) -> Option<Self> {
        let pipes = PIPES.get();
        (pipes < pipes_max).then(|| {
            PIPES.set(pipes + 1);
            Self(())
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        PIPES.set(PIPES.get() - 1);
    }
}

impl<O: Outgoing> Session<'_, O> {
    pub(super) async fn pipe(&mut self, incoming: &mut impl Incoming) -> Step {
        let mut bereq = self.piped_request();
        let context = RequestContext { client: self.client, socket: self.out.socket(), worker: self.worker };
        let Some(policy) = &mut self.policy else {
            return Step::Generated(GeneratedResponse::refused(&FAILED));
        };
        let action = policy.pipe(&mut bereq, context);
        if action != Action::Pipe {
            return self.divert(action);
        }
        let pipes_max = PIPES_MAX.min(self.worker.config().backend_connections_max / 2).max(1);
        let Some(_counted) = Counted::new(pipes_max) else {
            warn_limited!(REFUSALS, limit = pipes_max, "too many pipes");
            return TOO_MANY.into();
        };
        let connected = match policy.pipe_route(&mut bereq, self.worker) {
            Some(route) => self.worker.connect(&route, Wanted::New).await,
            None => Err(Failure::Backend("no backend is healthy".into())),
        };
        let mut connection = match connected {
            Ok(connection) => connection,
            Err(failure) => return Refusal::failed(&failure, Forward::Bypass).into(),
        };
        policy.note_backend(connection.backend());
        let (host, client) = (bereq.authority.as_str(), self.client.address.ip());
        let head = forward::write_head(&bereq, host, &bereq.fields, client, self.worker.node());
        let piped = incoming.pipe(&mut connection.stream, head).await;
        Step::Done(Sent {
            status: 200,
            cache: CacheResult::Pipe,
            detail: None,
            bytes: piped.bytes,
            first_byte: None,
            cut: piped.cut,
        })
    }

    /// Creates the backend request for `vcl_pipe`.
    fn piped_request(&self) -> RequestHead {
        let req = self.request();
        let mut bereq = req.clone();
        bereq.fields.remove_hop_by_hop();
        for name in PASSED_ON {
            for value in req.fields.get_all(name) {
                bereq.fields.push(name, value);
            }
        }
        if self.is_read() {
            // The content, if any, has been read and discarded.
            for name in ["Transfer-Encoding", "Content-Length", "Expect"] {
                bereq.fields.remove(name);
            }
        }
        bereq.fields.push("Connection", "close");
        bereq
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_are_counted_until_dropped() {
        let first = Counted::new(2);
        let second = Counted::new(2);
        assert!(first.is_some() && second.is_some() && Counted::new(2).is_none());
        drop(first);
        assert!(Counted::new(2).is_some());
    }
}
