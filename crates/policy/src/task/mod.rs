//! Task: everything a subroutine works on (messages, settings, connection, host).
//!
//! The caller provides everything and reads back the policy's changes; this crate opens no socket
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

pub use outside::{Alone, Connection, Geo, Host, Storage, TcpInfo};
pub use settings::{Client, Fetch, Object, Session};

/// Maximum lines that a policy may log per request.
pub const LOG_LINES_MAX: usize = 100;
/// Maximum bytes of a logged line.
pub const LOG_LINE_BYTES_MAX: usize = 4096;
/// Maximum bytes that a policy may hash per request.
pub const HASH_BYTES_MAX: usize = 16 * 1024;

/// The source of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// `std.log` and the modules.
    Log,
    /// An evaluation failure.
    Error,
    /// `std.timestamp`.
    Timestamp,
    /// An ACL with `+log`.
    Acl,
    /// Why a fetch failed; the response does not state the reason.
    FetchError,
}

/// A log line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Source of the line.
    pub tag: Tag,
    /// Text of the line.
    pub text: String,
}

/// State kept between the subroutine calls of one request.
#[derive(Debug, Default)]
pub struct Kept {
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
    /// Unix seconds; constant for the whole subroutine.
    pub now_s: f64,
    /// The original of [`Task::req`] or, on the backend side, of [`Task::bereq`].
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
    /// Settings of the request.
    pub client: &'t mut Client,
    /// Settings of the fetch.
    pub fetch: &'t mut Fetch,
    /// Properties of the stored response.
    pub object: &'t Object,
    /// The connection's addresses and settings.
    pub session: &'t mut Session,
    /// The connection itself.
    pub connection: &'t mut dyn Connection,
    /// The process.
    pub host: &'t dyn Host,
    /// Log lines, in order.
    pub log: &'t mut Vec<Line>,
    /// State kept between calls; the caller resets it for each new request.
    pub kept: &'t mut Kept,
    /// Buffer for texts; reuse it across tasks to avoid allocation.
    pub workspace: &'t mut Workspace,
    /// State of the random generator; each draw advances it.
    pub random: &'t mut u64,
}

/// Default maximum total size of the texts built for a request, in bytes.
pub const WORKSPACE_BYTES_MAX: usize = 64 * 1024;

/// Buffer in which texts are built.
#[derive(Debug, Clone)]
pub struct Workspace {
    /// Maximum bytes per request; default [`WORKSPACE_BYTES_MAX`].
    pub bytes_max: usize,
    /// Bytes used by this request; the caller resets the count to 0 for each new request.
    pub bytes_used: usize,
    pub(crate) buffer: Vec<u8>,
}

impl Default for Workspace {
    fn default() -> Workspace {
        Workspace { bytes_max: WORKSPACE_BYTES_MAX, bytes_used: 0, buffer: Vec::new() }
    }
}

impl Task<'_> {
    /// Returns the request that `message` names.
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

    /// Returns the response that `message` names.
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
    /// If `message` is not a request, or its original is unknown, as in `vcl_pipe`.
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
        // As in Varnish, modules lose their per-task state. The client's location cannot change, so
        // it is kept.
        *self.kept = Kept { geo: std::mem::take(&mut self.kept.geo), ..Kept::default() };
        Ok(())
    }

    /// Returns the fields of a message.
    pub(crate) fn fields(&self, message: Message) -> Result<&Fields, Failure> {
        match message {
            Message::Req | Message::ReqTop | Message::Bereq => Ok(&self.request(message)?.fields),
            Message::Beresp | Message::Obj | Message::Resp => Ok(&self.response(message)?.fields),
        }
    }

    /// Returns the fields of a mutable message.
    pub(crate) fn fields_mut(&mut self, message: Message) -> Result<&mut Fields, Failure> {
        match message {
            Message::Req | Message::ReqTop | Message::Bereq => Ok(&mut self.request_mut(message)?.fields),
            Message::Beresp | Message::Obj | Message::Resp => Ok(&mut self.response_mut(message)?.fields),
        }
    }

    /// Returns a header with all its lines joined as one list. The `Host` of a request is its
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

    /// Appends a log line, truncated to its limit. Lines beyond [`LOG_LINES_MAX`] are dropped.
    pub(crate) fn push_log(&mut self, tag: Tag, text: impl Into<String>) {
        if self.log.len() < LOG_LINES_MAX {
            let mut text = text.into();
            if text.len() > LOG_LINE_BYTES_MAX {
                let end = (0..=LOG_LINE_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
                text.truncate(end);
            }
            self.log.push(Line { tag, text });
        }
    }

    /// Draws a random number in [0, 1): SplitMix64, seeded by the task.
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
