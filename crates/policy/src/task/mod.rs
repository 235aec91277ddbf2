//! Task: the context in which a subroutine runs (messages, settings, connection, host).
//!
//! The caller provides the context and reads back the policy's changes. This crate opens no socket
//! and reads no clock.

mod outside;
mod settings;

use std::borrow::Cow;
use std::sync::OnceLock;

use thalweg_http::{Fields, RequestHead, ResponseHead};

use crate::message::{Header, Message};
use crate::modules::cookie::Cookies;
use crate::modules::directors::parameters::{ChangedSet, LazyCall};
use crate::value::Failure;

pub use outside::{Connection, Delivered, Geo, Host, NoHost, Storage, TcpInfo};
pub use settings::{Client, Fetch, Object, Session};

/// Maximum number of lines that a policy may log per request.
pub const LOG_LINES_MAX: usize = 100;
/// Maximum length of a log line in bytes.
pub const LOG_LINE_BYTES_MAX: usize = 4096;
/// Maximum number of bytes that a policy may hash per request.
pub const HASH_BYTES_MAX: usize = 16 * 1024;

/// The source of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogSource {
    /// `std.log`, or a module.
    Log,
    /// An evaluation failure.
    Error,
    /// `std.timestamp`.
    Timestamp,
    /// A look-up in an ACL with `+log`.
    Acl,
    /// The reason why a fetch failed, which the response does not state.
    FetchError,
}

/// A log line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Source of the line.
    pub tag: LogSource,
    /// Content of the line.
    pub text: String,
}

/// State retained between the subroutine calls of one request.
#[derive(Debug, Default)]
pub struct RequestState {
    /// The client's location, once looked up.
    pub(crate) geo: OnceLock<Box<Geo>>,
    /// The last error of `std.ban`.
    pub(crate) ban_error: String,
    /// The result of `cookie.parse`.
    pub(crate) cookies: Cookies,
    /// Arguments of `shard.backend(resolve = LAZY, …)`.
    pub(crate) shards: Vec<LazyCall>,
    /// `shard` parameters set in this task.
    pub(crate) shard_sets: Vec<ChangedSet>,
}

/// The context of a subroutine. Messages that a subroutine cannot access may be `None`; accessing
/// one is a [`Failure`].
pub struct Task<'t> {
    /// Current time in Unix seconds; constant during a subroutine.
    pub now_s: f64,
    /// The original, unmodified [`Task::req`] or, on the backend side, [`Task::bereq`].
    pub original: Option<&'t RequestHead>,
    /// The client's request.
    pub req: Option<&'t mut RequestHead>,
    /// The request to the backend.
    pub bereq: Option<&'t mut RequestHead>,
    /// The backend's response.
    pub beresp: Option<&'t mut ResponseHead>,
    /// The stored response.
    pub obj: Option<&'t ResponseHead>,
    /// The response to the client.
    pub resp: Option<&'t mut ResponseHead>,
    /// Settings of the client request.
    pub client: &'t mut Client,
    /// Settings of the fetch.
    pub fetch: &'t mut Fetch,
    /// Properties of the stored response.
    pub object: &'t Object,
    /// The connection's addresses and settings.
    pub session: &'t mut Session,
    /// The connection itself.
    pub connection: &'t mut dyn Connection,
    /// Services of the process.
    pub host: &'t dyn Host,
    /// Log lines, in order.
    pub log: &'t mut Vec<LogLine>,
    /// State retained between calls; the caller resets it for each new request.
    pub kept: &'t mut RequestState,
    /// Buffer for strings; reuse it across tasks to avoid allocation.
    pub workspace: &'t mut Workspace,
    /// State of the random number generator; each draw advances it.
    pub random: &'t mut u64,
}

/// Default maximum total size of the strings built for a request, in bytes.
pub const WORKSPACE_BYTES_MAX: usize = 64 * 1024;

/// Buffer in which strings are built.
#[derive(Debug, Clone)]
pub struct Workspace {
    /// Maximum number of bytes per request; [`WORKSPACE_BYTES_MAX`] by default.
    pub bytes_max: usize,
    /// Number of bytes used by this request; the caller resets the count to 0 for each new request.
    pub bytes_used: usize,
    pub(crate) buffer: Vec<u8>,
}

impl Default for Workspace {
    fn default() -> Workspace {
        Workspace { bytes_max: WORKSPACE_BYTES_MAX, bytes_used: 0, buffer: Vec::new() }
    }
}

impl Task<'_> {
    /// Returns the request named by `message`.
    pub(crate) fn request(&self, message: Message) -> Result<&RequestHead, Failure> {
        match message {
            Message::Bereq => self.bereq.as_deref(),
            _ => self.req.as_deref(),
        }
        .ok_or_else(|| absent(message))
    }

    pub(crate) fn request_mut(&mut self, message: Message) -> Result<&mut RequestHead, Failure> {
        match message {
            Message::Bereq => self.bereq.as_deref_mut(),
            _ => self.req.as_deref_mut(),
        }
        .ok_or_else(|| absent(message))
    }

    /// Returns the response named by `message`.
    pub(crate) fn response(&self, message: Message) -> Result<&ResponseHead, Failure> {
        match message {
            Message::Beresp => self.beresp.as_deref(),
            Message::Obj => self.obj,
            _ => self.resp.as_deref(),
        }
        .ok_or_else(|| absent(message))
    }

    pub(crate) fn response_mut(&mut self, message: Message) -> Result<&mut ResponseHead, Failure> {
        match message {
            Message::Beresp => self.beresp.as_deref_mut(),
            Message::Resp => self.resp.as_deref_mut(),
            _ => None,
        }
        .ok_or_else(|| absent(message))
    }

    /// Restores a request to its original state.
    ///
    /// # Errors
    ///
    /// Returns an error if `message` is not a request, or if its original state is unknown, as in
    /// `vcl_pipe`.
    pub(crate) fn roll_back(&mut self, message: Message) -> Result<(), Failure> {
        let request = match message {
            Message::Bereq => self.bereq.as_deref_mut(),
            Message::Req => self.req.as_deref_mut(),
            _ => None,
        };
        let (Some(request), Some(original)) = (request, self.original) else {
            return Err(Failure::new(format!("{} cannot be rolled back here", message.as_str())));
        };
        request.clone_from(original);
        // As in Varnish, discard the modules' per-task state. Keep the client's location, because
        // it cannot change.
        *self.kept = RequestState { geo: std::mem::take(&mut self.kept.geo), ..RequestState::default() };
        Ok(())
    }

    /// Returns the fields of a message.
    pub(crate) fn fields(&self, message: Message) -> Result<&Fields, Failure> {
        match message {
            Message::Req | Message::ReqTop | Message::Bereq => Ok(&self.request(message)?.fields),
            Message::Beresp | Message::Obj | Message::Resp => Ok(&self.response(message)?.fields),
        }
    }

    /// Returns the fields of a message, for modification.
    pub(crate) fn fields_mut(&mut self, message: Message) -> Result<&mut Fields, Failure> {
        match message {
            Message::Req | Message::ReqTop | Message::Bereq => Ok(&mut self.request_mut(message)?.fields),
            Message::Beresp | Message::Obj | Message::Resp => Ok(&mut self.response_mut(message)?.fields),
        }
    }

    /// Returns a header's value, with all its lines joined into one list. A request's `Host` is its
    /// parsed authority.
    pub(crate) fn header(&self, header: &Header) -> Result<Option<Cow<'_, [u8]>>, Failure> {
        if header.is_host {
            let host = self.request(header.message)?.authority.as_str().as_bytes();
            return Ok((!host.is_empty()).then_some(Cow::Borrowed(host)));
        }
        Ok(self.fields(header.message)?.get_joined(&header.name))
    }

    /// Replaces a header with a single line.
    pub(crate) fn set_header(&mut self, header: &Header, value: &[u8]) -> Result<(), Failure> {
        if !header.is_host {
            self.fields_mut(header.message)?.set_named(&header.name, value);
            return Ok(());
        }
        let RequestHead { authority, fields, .. } = self.request_mut(header.message)?;
        authority.set(value).map_err(|error| {
            let (message, name) = (header.message.as_str(), header.name.as_str());
            Failure::new(format!("cannot set {message}.http.{name}: {error}"))
        })?;
        fields.set("Host", authority.as_str());
        Ok(())
    }

    /// Removes all lines of a header.
    pub(crate) fn unset_header(&mut self, header: &Header) -> Result<(), Failure> {
        if header.is_host {
            self.request_mut(header.message)?.authority.clear();
        }
        self.fields_mut(header.message)?.remove_named(&header.name);
        Ok(())
    }

    /// Appends a log line, truncated to [`LOG_LINE_BYTES_MAX`]. Drops lines beyond
    /// [`LOG_LINES_MAX`].
    pub(crate) fn push_log(&mut self, tag: LogSource, text: impl Into<String>) {
        if self.log.len() < LOG_LINES_MAX {
            let mut text = text.into();
            if text.len() > LOG_LINE_BYTES_MAX {
                let end = (0..=LOG_LINE_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
                text.truncate(end);
            }
            self.log.push(LogLine { tag, text });
        }
    }

    /// Draws a random number in [0, 1) with SplitMix64, seeded by the caller.
    pub(crate) fn draw(&mut self) -> f64 {
        *self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*self.random ^ (*self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn absent(message: Message) -> Failure {
    Failure::new(format!("{} is not available here", message.as_str()))
}
