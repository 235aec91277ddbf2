//! What a subroutine works on: messages, settings, the connection, the host. The caller gives all of it and reads
//! what the policy has made of it; this crate opens no socket and reads no clock.

mod outside;
mod settings;

use std::sync::OnceLock;

use thalweg_http::{Fields, RequestHead, ResponseHead};

use crate::bindings::{Changed, Lazy};
use crate::modules::cookie::Cookies;
use crate::program::Header;
use crate::value::Failure;

pub use outside::{Alone, Connection, Geo, Host, Storage, TcpInfo};
pub use settings::{Client, Fetch, Object, Session};

/// Lines that a policy may log in a request.
pub const LOG_LINES_MAX: usize = 100;
/// Bytes of a logged line.
pub const LOG_LINE_BYTES_MAX: usize = 4096;
/// Bytes that a policy may hash in a request.
pub const HASH_BYTES_MAX: usize = 16 * 1024;

/// A backend as a policy names it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Backend {
    /// None: the default one is meant where one is needed.
    #[default]
    None,
    /// By its index in [`Program::backends`](crate::Program::backends).
    Declared(u32),
    /// A director, by its index among the objects; [`Program::resolve`](crate::Program::resolve) says which backend.
    Director(u32),
}

/// A message that a variable or a header belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// The client's request.
    Req,
    /// The same: there are no requests within requests.
    ReqTop,
    /// The request to the backend.
    Bereq,
    /// The backend's response.
    Beresp,
    /// The stored response.
    Obj,
    /// The response to the client.
    Resp,
}

impl Message {
    /// Its name in the language.
    pub fn as_str(self) -> &'static str {
        match self {
            Message::Req => "req",
            Message::ReqTop => "req_top",
            Message::Bereq => "bereq",
            Message::Beresp => "beresp",
            Message::Obj => "obj",
            Message::Resp => "resp",
        }
    }
}

/// What a line of the log is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// `std.log` and the modules.
    Log,
    /// A fault in evaluation.
    Error,
    /// `std.timestamp`.
    Timestamp,
    /// An ACL with `+log`.
    Acl,
    /// Why a fetch failed, which its response does not tell.
    FetchError,
}

/// A line for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What it is about.
    pub tag: Tag,
    /// Its text.
    pub text: String,
}

/// What is kept from call to call within a task.
#[derive(Debug, Default)]
pub struct Kept {
    /// Where the client is, once that was asked.
    pub(crate) geo: OnceLock<Box<Geo>>,
    /// The last error of `std.ban`.
    pub(crate) ban_error: String,
    /// What `cookie.parse` found.
    pub(crate) cookies: Cookies,
    /// What `shard.backend(resolve = LAZY, …)` was given.
    pub(crate) shards: Vec<Lazy>,
    /// Parameters of `shard` as this task has set them.
    pub(crate) shard_sets: Vec<Changed>,
}

/// A subroutine's surroundings. What a subroutine has no business with may be left out: asking for it ends in a fault.
pub struct Task<'t> {
    /// Unix seconds; the same for a whole subroutine.
    pub now_s: f64,
    /// What [`Task::req`] was in the beginning, or on the backend's side [`Task::bereq`].
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
    /// What is known of the stored response.
    pub object: &'t Object,
    /// The connection's addresses and settings.
    pub session: &'t mut Session,
    /// The connection itself.
    pub connection: &'t mut dyn Connection,
    /// The process.
    pub host: &'t dyn Host,
    /// Lines for the log, in order.
    pub log: &'t mut Vec<Line>,
    /// What is kept; the caller begins anew with a new request.
    pub kept: &'t mut Kept,
    /// Room for texts; keep it from task to task, so that it is allocated once.
    pub workspace: &'t mut Workspace,
    /// Changes with each number that is drawn.
    pub random: &'t mut u64,
}

/// Bytes of all texts that a request may make, unless set otherwise.
pub const WORKSPACE_BYTES_MAX: usize = 64 * 1024;

/// Where texts are made.
#[derive(Debug, Clone)]
pub struct Workspace {
    /// Bytes that one request may use; default [`WORKSPACE_BYTES_MAX`].
    pub bytes_max: usize,
    /// Bytes that this request has used; the caller sets it to 0 with a new request.
    pub bytes_used: usize,
    pub(crate) buffer: Vec<u8>,
}

impl Default for Workspace {
    fn default() -> Workspace {
        Workspace { bytes_max: WORKSPACE_BYTES_MAX, bytes_used: 0, buffer: Vec::new() }
    }
}

impl Task<'_> {
    /// The request that `message` names.
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

    /// The response that `message` names.
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

    /// Makes a request what it was in the beginning.
    ///
    /// # Errors
    /// Of a message that is no request, or where what it was is not known, as in `vcl_pipe`.
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
        // As on Varnish, modules forget what they keep of the task; where the client is does not change.
        *self.kept = Kept { geo: std::mem::take(&mut self.kept.geo), ..Kept::default() };
        Ok(())
    }

    /// The fields of a message.
    pub(crate) fn fields(&self, message: Message) -> Result<&Fields, Failure> {
        match message {
            Message::Req | Message::ReqTop | Message::Bereq => Ok(&self.request(message)?.fields),
            Message::Beresp | Message::Obj | Message::Resp => Ok(&self.response(message)?.fields),
        }
    }

    /// The fields of a message that may be changed.
    pub(crate) fn fields_mut(&mut self, message: Message) -> Result<&mut Fields, Failure> {
        match message {
            Message::Req | Message::ReqTop | Message::Bereq => Ok(&mut self.request_mut(message)?.fields),
            Message::Beresp | Message::Obj | Message::Resp => Ok(&mut self.response_mut(message)?.fields),
        }
    }

    /// A header's first line; `Host` of a request is its authority, which a parser has checked.
    pub(crate) fn header(&self, header: &Header) -> Result<Option<&[u8]>, Failure> {
        if header.is_host {
            let host = self.request(header.message)?.authority.as_str().as_bytes();
            return Ok((!host.is_empty()).then_some(host));
        }
        Ok(self.fields(header.message)?.get_named(&header.name))
    }

    /// Replaces a header by one line.
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

    /// Adds a line to the log, cut to its limit; past [`LOG_LINES_MAX`] none.
    pub(crate) fn tell(&mut self, tag: Tag, text: impl Into<String>) {
        if self.log.len() < LOG_LINES_MAX {
            let mut text = text.into();
            if text.len() > LOG_LINE_BYTES_MAX {
                let end = (0..=LOG_LINE_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
                text.truncate(end);
            }
            self.log.push(Line { tag, text });
        }
    }

    /// A number from 0 to below 1: SplitMix64 over the task's seed.
    pub(crate) fn draw(&mut self) -> f64 {
        *self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*self.random ^ (*self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn absent(message: Message) -> Failure {
    Failure::new(format!("there is no {} here", message.as_str()))
}
