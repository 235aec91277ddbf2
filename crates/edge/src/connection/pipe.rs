//! A connection handed through: after `return (pipe)` nothing more is understood of it.
//!
//! The request goes to the backend as it is, with `Connection: close` unless `vcl_pipe` says otherwise, and from then on
//! bytes go both ways until both sides have ended, one of them breaks off, or nothing has come or gone for a while.
//!
//! **Invariant:** pipes hold at most half of a worker's connections to backends, and none that is idle.
//! **Invariant:** what is handed through says that it came through this node (RFC 8586 §2): one that leads back here ends.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use thalweg_cache::Failure;
use thalweg_http::cache_status::Forward;
use thalweg_http::{Fields, RequestHead, write};
use thalweg_policy::step::Action;
use thalweg_record::{CacheResult, Cut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};

use super::policed::Turn;
use super::{Connection, Next, is_read};
use crate::answer::Refusal;
use crate::backend::Wanted;
use crate::hops::via;
use crate::policy::{Instead, Transaction};
use crate::sent::Sent;

/// How long a pipe may be idle, both ways: Varnish's `pipe_timeout`.
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);
/// Pipes of one worker, and no more than half of the connections to backends that it may have.
const PIPES_MAX: usize = 256;
/// Bytes of each way that are on their way.
const BUFFER_BYTES: usize = 16 * 1024;
/// What is for one connection, and is handed through all the same: the bytes that follow are as these say.
const HANDED_THROUGH: [&str; 2] = ["Transfer-Encoding", "Upgrade"];

const TOO_MANY: Refusal = Refusal::own(503, "too many connections are handed through");

thread_local! {
    /// Pipes of this thread's worker, which its connections never leave.
    static PIPES: Cell<usize> = const { Cell::new(0) };
}

/// A pipe that is counted.
struct Counted(());

impl Counted {
    /// One more, if there may be.
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

impl Connection {
    /// `vcl_pipe`, and the connection handed through.
    pub(super) async fn pipe(&mut self, transaction: &mut Transaction, out: &mut Vec<u8>) -> Turn {
        let mut bereq = self.piped_request(&transaction.req);
        let action = transaction.pipe(&mut bereq, &self.stream, &self.worker);
        if action != Action::Pipe {
            return self.instead(transaction, Instead::Action(action), Next::Close, out).await;
        }
        let pipes_max = PIPES_MAX.min(self.worker.config().backend_connections_max / 2).max(1);
        let Some(_counted) = Counted::new(pipes_max) else {
            tracing::warn!(limit = pipes_max, "too many pipes");
            return self.instead(transaction, TOO_MANY.into(), Next::Close, out).await;
        };
        let connected = match transaction.pipe_route(&mut bereq, &self.worker) {
            Some(route) => self.worker.connect(&route, Wanted::New).await,
            None => Err(Failure::Backend("no backend is healthy".into())),
        };
        let mut connection = match connected {
            Ok(connection) => {
                transaction.tell_backend(connection.backend());
                connection
            }
            Err(failure) => {
                let refusal = Refusal::failed(&failure, Forward::Bypass);
                return self.instead(transaction, refusal.into(), Next::Close, out).await;
            }
        };
        let mut first = self.piped_head(&bereq);
        first.extend_from_slice(&self.requests.take());
        let progress = Progress::new();
        let ended = progress.hand_through(self.stream.split(), connection.stream.split(), &first).await;
        let cut = ended.err();
        if cut.is_some() {
            // What was cut is not to look whole.
            let _ = socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        }
        let (cache, bytes) = (CacheResult::Pipe, progress.from_backend.load(Relaxed));
        Turn::Sent(Sent { status: 200, cache, detail: None, bytes, first_byte: None, cut, next: Next::Close })
    }

    /// The request as `vcl_pipe` gets it.
    fn piped_request(&self, req: &RequestHead) -> RequestHead {
        let mut bereq = req.clone();
        bereq.fields.remove_hop_by_hop();
        for name in HANDED_THROUGH {
            for value in req.fields.get_all(name) {
                bereq.fields.push(name, value);
            }
        }
        if is_read(self.request.method) {
            // Its content, if it had any, was read over.
            for name in ["Transfer-Encoding", "Content-Length", "Expect"] {
                bereq.fields.remove(name);
            }
        }
        bereq.fields.push("Connection", "close");
        bereq
    }

    /// The head that goes out.
    fn piped_head(&self, bereq: &RequestHead) -> Vec<u8> {
        let mut fields = Fields::new();
        fields.push("Host", bereq.authority.as_str());
        for (name, value) in bereq.fields.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")) {
            fields.push(name, value);
        }
        fields.append("Via", via(self.request.version));
        self.worker.node().sign(&mut fields);
        let mut head = Vec::new();
        write::write_request_head(&mut head, bereq.method_str(), bereq.target.as_str(), &fields);
        head
    }
}

/// How a pipe is doing.
struct Progress {
    begun: Instant,
    /// When the last byte was taken by either side, in milliseconds from `begun`.
    moved_ms: AtomicU64,
    /// Bytes that the client has taken.
    from_backend: AtomicU64,
    /// The backend has ended, and the client was told all of it.
    is_whole: AtomicBool,
}

impl Progress {
    fn new() -> Self {
        Self {
            begun: Instant::now(),
            moved_ms: AtomicU64::new(0),
            from_backend: AtomicU64::new(0),
            is_whole: AtomicBool::new(false),
        }
    }

    /// Hands `first`, then all that comes, from each side to the other until both have ended.
    ///
    /// # Errors
    /// When one breaks off, or the pipe is idle for too long, before the client has all that the backend says.
    async fn hand_through(
        &self,
        (mut from_client, mut to_client): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
        (mut from_backend, mut to_backend): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
        first: &[u8],
    ) -> Result<(), Cut> {
        let not_counted = AtomicU64::new(0);
        let there = async {
            let written = self.write(&mut to_backend, first, &not_counted).await;
            written.map_err(|_| Cut::BackendFailed)?;
            let breaks = (Cut::ClientClosed, Cut::BackendFailed);
            self.copy(&mut from_client, &mut to_backend, &not_counted, breaks).await
        };
        let back = async {
            let breaks = (Cut::BackendFailed, Cut::ClientClosed);
            self.copy(&mut from_backend, &mut to_client, &self.from_backend, breaks).await?;
            self.is_whole.store(true, Relaxed);
            Ok(())
        };
        let ended = tokio::select! {
            ended = async { tokio::try_join!(there, back) } => ended.map(|_| ()),
            () = self.idle() => Err(Cut::ClientStalled),
        };
        if self.is_whole.load(Relaxed) { Ok(()) } else { ended }
    }

    /// Until `from` ends, which `to` is told; or one of them breaks off, as these cuts are.
    async fn copy(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        bytes: &AtomicU64,
        (reading, writing): (Cut, Cut),
    ) -> Result<(), Cut> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            match from.read(&mut buffer).await.map_err(|_| reading)? {
                0 => return to.shutdown().await.map_err(|_| writing),
                length => self.write(to, &buffer[..length], bytes).await.map_err(|_| writing)?,
            }
        }
    }

    async fn write(
        &self,
        to: &mut (impl AsyncWrite + Unpin),
        mut rest: &[u8],
        bytes: &AtomicU64,
    ) -> io::Result<()> {
        while !rest.is_empty() {
            let taken = to.write(rest).await?;
            if taken == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            rest = &rest[taken..];
            bytes.fetch_add(taken as u64, Relaxed);
            let moved_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.moved_ms.store(moved_ms, Relaxed);
        }
        Ok(())
    }

    /// Until no byte has been taken for too long.
    async fn idle(&self) {
        loop {
            let moved = self.begun + Duration::from_millis(self.moved_ms.load(Relaxed));
            if moved.elapsed() >= IDLE_TIME_MAX {
                return;
            }
            sleep_until(moved + IDLE_TIME_MAX).await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::io::{duplex, split};

    use super::*;

    #[test]
    fn pipes_are_counted_while_they_last() {
        let first = Counted::new(2);
        let second = Counted::new(2);
        assert!(first.is_some() && second.is_some() && Counted::new(2).is_none());
        drop(first);
        assert!(Counted::new(2).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pipe_lasts_while_bytes_go_either_way_and_ends_once_it_is_idle() {
        let ((mut client, near), (far, mut backend)) = (duplex(64), duplex(64));
        let progress = Progress::new();
        let talk = async {
            let mut head = [0; 4];
            backend.read_exact(&mut head).await.unwrap();
            for _ in 0..3 {
                tokio::time::sleep(IDLE_TIME_MAX * 2 / 3).await;
                backend.write_all(b"b").await.unwrap();
                assert_eq!(client.read_u8().await.unwrap(), b'b');
            }
            (head, Instant::now())
        };
        let ((head, last), ended) =
            tokio::join!(talk, progress.hand_through(split(near), split(far), b"head"));
        assert_eq!(&head, b"head");
        assert_eq!(ended, Err(Cut::ClientStalled));
        assert_eq!((last.elapsed().as_secs(), progress.from_backend.load(Relaxed)), (60, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_takes_nothing_is_not_waited_for() {
        let ((_client, near), (far, mut backend)) = (duplex(64), duplex(64));
        let progress = Progress::new();
        let flood = async { while backend.write_all(&[0; 64]).await.is_ok() {} };
        let handed = progress.hand_through(split(near), split(far), b"");
        tokio::select! {
            () = flood => panic!("it was all taken"),
            ended = handed => assert_eq!(ended, Err(Cut::ClientStalled)),
        }
        assert_eq!(progress.begun.elapsed().as_secs(), 60);
    }
}
