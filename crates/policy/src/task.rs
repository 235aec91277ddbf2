//! What a subroutine works on: messages, settings, the connection, the host. The caller gives all of it and reads
//! what the policy has made of it; this crate opens no socket and reads no clock.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use thalweg_http::{Fields, RequestHead, ResponseHead};

use crate::modules::cookie::Cookies;
use crate::value::Failure;

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

/// Settings of a client's request; they live as long as it does, over restarts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Client {
    /// `client.identity`, if the policy has set it; else the address.
    pub identity: Option<String>,
    /// `req.backend_hint`.
    pub backend_hint: Backend,
    /// `req.grace`, seconds.
    pub grace_s: Option<f64>,
    /// `req.ttl`, seconds.
    pub ttl_s: Option<f64>,
    /// `req.hash_always_miss`.
    pub hash_always_miss: bool,
    /// `req.hash_ignore_busy`.
    pub hash_ignore_busy: bool,
    /// `req.hash_ignore_vary`.
    pub hash_ignore_vary: bool,
    /// `req.esi` of 4.0 switched off.
    pub no_esi: bool,
    /// `req.is_hitmiss`.
    pub is_hitmiss: bool,
    /// `req.is_hitpass`.
    pub is_hitpass: bool,
    /// `req.restarts`.
    pub restarts: u32,
    /// `req.storage`, if set.
    pub storage: Option<String>,
    /// `req.time`, unix seconds.
    pub time_s: f64,
    /// `req.xid`.
    pub xid: u64,
    /// What `hash_data` was given, each followed by a NUL.
    pub hash_data: Vec<u8>,
    /// `req.hash`: the digest of the key, once there is one.
    pub hash: Vec<u8>,
    /// `resp.reason`, if it is not that of the status.
    pub reason: Option<String>,
    /// `resp.do_esi`.
    pub do_esi: bool,
    /// `resp.filters`, if set.
    pub filters: Option<String>,
    /// `resp.is_streaming`.
    pub is_streaming: bool,
    /// `resp.time`, unix seconds.
    pub response_time_s: f64,
    /// `resp.body`, if the policy has made one.
    pub body: Option<Vec<u8>>,
}

/// Settings of a fetch.
#[derive(Debug, Clone, PartialEq)]
pub struct Fetch {
    /// `bereq.backend`.
    pub backend: Backend,
    /// `bereq.between_bytes_timeout`, seconds.
    pub between_bytes_timeout_s: f64,
    /// `bereq.connect_timeout`, seconds.
    pub connect_timeout_s: f64,
    /// `bereq.first_byte_timeout`, seconds.
    pub first_byte_timeout_s: f64,
    /// `bereq.is_bgfetch`.
    pub is_bgfetch: bool,
    /// `bereq.is_hitmiss`.
    pub is_hitmiss: bool,
    /// `bereq.is_hitpass`.
    pub is_hitpass: bool,
    /// `bereq.retries`.
    pub retries: u32,
    /// `bereq.time`, unix seconds.
    pub time_s: f64,
    /// `bereq.uncacheable`.
    pub is_pass: bool,
    /// `bereq.xid`.
    pub xid: u64,
    /// The request goes without its content: `unset bereq.body`.
    pub drop_body: bool,
    /// `beresp.backend`: the one that answered.
    pub answered: Backend,
    /// `beresp.backend.ip` of 4.0.
    pub answered_address: SocketAddr,
    /// `beresp.age`, seconds.
    pub age_s: f64,
    /// `beresp.ttl`, seconds.
    pub ttl_s: f64,
    /// `beresp.grace`, seconds.
    pub grace_s: f64,
    /// `beresp.keep`, seconds.
    pub keep_s: f64,
    /// `beresp.uncacheable`.
    pub uncacheable: bool,
    /// `beresp.do_esi`.
    pub do_esi: bool,
    /// `beresp.do_gzip`.
    pub do_gzip: bool,
    /// `beresp.do_gunzip`.
    pub do_gunzip: bool,
    /// `beresp.do_stream`.
    pub do_stream: bool,
    /// `beresp.filters`, if set.
    pub filters: Option<String>,
    /// `beresp.storage`, if set.
    pub storage: Option<String>,
    /// `beresp.time`, unix seconds.
    pub response_time_s: f64,
    /// `beresp.was_304`.
    pub was_304: bool,
    /// `beresp.reason`, if it is not that of the status.
    pub reason: Option<String>,
    /// `beresp.body`, if the policy has made one.
    pub body: Option<Vec<u8>>,
}

impl Default for Fetch {
    /// A fetch that streams, with the timeouts that Varnish has.
    fn default() -> Fetch {
        Fetch {
            backend: Backend::None,
            between_bytes_timeout_s: 60.0,
            connect_timeout_s: 3.5,
            first_byte_timeout_s: 60.0,
            is_bgfetch: false,
            is_hitmiss: false,
            is_hitpass: false,
            retries: 0,
            time_s: 0.0,
            is_pass: false,
            xid: 0,
            drop_body: false,
            answered: Backend::None,
            answered_address: UNKNOWN,
            age_s: 0.0,
            ttl_s: 0.0,
            grace_s: 0.0,
            keep_s: 0.0,
            uncacheable: false,
            do_esi: false,
            do_gzip: false,
            do_gunzip: false,
            do_stream: true,
            filters: None,
            storage: None,
            response_time_s: 0.0,
            was_304: false,
            reason: None,
            body: None,
        }
    }
}

/// What is known of the stored response.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Object {
    /// `obj.age`, seconds.
    pub age_s: f64,
    /// `obj.can_esi`.
    pub can_esi: bool,
    /// `obj.grace`, seconds.
    pub grace_s: f64,
    /// `obj.hits`.
    pub hits: u64,
    /// `obj.keep`, seconds.
    pub keep_s: f64,
    /// `obj.storage`.
    pub storage: Option<String>,
    /// `obj.time`, unix seconds.
    pub time_s: f64,
    /// `obj.ttl`, seconds.
    pub ttl_s: f64,
    /// `obj.uncacheable`.
    pub uncacheable: bool,
}

/// The connection's own: it lives over its requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// `client.ip`.
    pub client: SocketAddr,
    /// `server.ip`.
    pub server: SocketAddr,
    /// `local.ip`.
    pub local: SocketAddr,
    /// `remote.ip`.
    pub remote: SocketAddr,
    /// `server.hostname`.
    pub hostname: String,
    /// `server.identity`.
    pub identity: String,
    /// `local.endpoint`.
    pub endpoint: String,
    /// `local.socket`.
    pub socket: String,
    /// `sess.xid`.
    pub xid: u64,
    /// `sess.idle_send_timeout`, seconds.
    pub idle_send_timeout_s: f64,
    /// `sess.send_timeout`, seconds.
    pub send_timeout_s: f64,
    /// `sess.timeout_idle`, seconds.
    pub timeout_idle_s: f64,
    /// `sess.timeout_linger`, seconds.
    pub timeout_linger_s: f64,
}

/// What `remote.ip` is where there is none, as in Varnish.
const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl Default for Session {
    fn default() -> Session {
        Session {
            client: UNKNOWN,
            server: UNKNOWN,
            local: UNKNOWN,
            remote: UNKNOWN,
            hostname: String::new(),
            identity: String::new(),
            endpoint: String::new(),
            socket: String::new(),
            xid: 0,
            idle_send_timeout_s: 60.0,
            send_timeout_s: 600.0,
            timeout_idle_s: 5.0,
            timeout_linger_s: 0.05,
        }
    }
}

/// The kernel's numbers of a connection, as `struct tcp_info` has them; times in µs, rates in bytes per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of linux/tcp.h, whose page tcp(7) explains them")]
pub struct TcpInfo {
    pub advmss: u64,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub data_segs_in: u64,
    pub data_segs_out: u64,
    pub delivery_rate: u64,
    pub last_data_sent_ms: u64,
    pub lost: u64,
    pub max_pacing_rate: u64,
    pub min_rtt_us: u64,
    pub notsent_bytes: u64,
    pub pacing_rate: u64,
    pub pmtu: u64,
    pub rcv_mss: u64,
    pub rcv_rtt_us: u64,
    pub rcv_space: u64,
    pub rcv_ssthresh: u64,
    pub reordering: u64,
    pub retrans: u64,
    pub rtt_us: u64,
    pub rttvar_us: u64,
    pub segs_in: u64,
    pub segs_out: u64,
    pub snd_cwnd: u64,
    pub snd_mss: u64,
    pub snd_ssthresh: u64,
    pub total_retrans: u64,
    /// Since the last time that a policy looked.
    pub delta_retrans: u64,
}

/// The client's connection. Each reads or sets the socket itself.
pub trait Connection {
    /// The algorithm that the kernel says is in use.
    fn congestion_algorithm(&self) -> Option<String>;
    /// Asks for an algorithm; the error is told in the log, and the request goes on with what there is.
    fn set_congestion_algorithm(&mut self, name: &str) -> Result<(), String>;
    /// The most bytes a second that go out; `None` without a limit.
    fn pace_bytes_per_s(&self) -> Option<u64>;
    /// Sets that limit.
    fn set_pace_bytes_per_s(&mut self, pace: u64) -> Result<(), String>;
    /// Asks for a congestion window in packets, where the system lets one be set.
    fn set_cwnd(&mut self, packets: u64) -> Result<(), String>;
    /// What the kernel says now.
    fn tcp_info(&self) -> Option<TcpInfo>;
    /// Requests on this connection, this one among them.
    fn requests(&self) -> u64;
    /// Sets the type of service of what goes out.
    fn set_type_of_service(&mut self, value: u8) -> Result<(), String>;
}

/// Where a client is, as far as a database knows.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs, reason = "the names say it; the variables' table has the rest")]
pub struct Geo<'h> {
    pub city: Option<Cow<'h, str>>,
    pub continent_code: Option<Cow<'h, str>>,
    pub country_code: Option<Cow<'h, str>>,
    pub country_name: Option<Cow<'h, str>>,
    pub latitude: Option<f64>,
    pub longitude: Option<f64>,
    pub metro_code: Option<u64>,
    pub postal_code: Option<Cow<'h, str>>,
    pub region: Option<Cow<'h, str>>,
}

/// What is known of a storage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Storage {
    /// Bytes free.
    pub free_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Whether it works.
    pub is_happy: bool,
}

/// What the process knows and a policy may ask. A host that does not know says so by default.
pub trait Host {
    /// Whether a backend, by its index, may be asked now.
    fn is_healthy(&self, _backend: u32) -> bool {
        true
    }
    /// Since when it has been so, unix seconds.
    fn changed_s(&self, _backend: u32) -> f64 {
        0.0
    }
    /// A storage by its name.
    fn storage(&self, _name: &str) -> Storage {
        Storage::default()
    }
    /// Where an address is.
    fn geo(&self, _address: IpAddr) -> Option<Geo<'_>> {
        None
    }
    /// A variable of the environment.
    fn environment(&self, _name: &str) -> Option<String> {
        None
    }
    /// A file's content; the host says which files a policy may read. It is not asked again while the program keeps it.
    fn read_file(&self, path: &str) -> Result<Vec<u8>, String> {
        Err(format!("{path}: a policy may read no file here"))
    }
    /// Whether there is a file, of whatever kind.
    fn file_exists(&self, _path: &str) -> bool {
        false
    }
    /// Puts a ban in force.
    fn ban(&self, _expression: &str) -> Result<(), String> {
        Err("a policy may not ban here".to_owned())
    }
    /// Purges what has one of the tags in `tags`; returns how many.
    ///
    /// # Errors
    /// When not all of it was done.
    fn purge_tags(&self, _tags: &str, _soft: bool) -> Result<u64, String> {
        Err("a policy may not purge here".to_owned())
    }
}

/// The host that knows nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl Host for Alone {}

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
}

/// A line for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What it is about.
    pub tag: Tag,
    /// Its text.
    pub text: String,
}

/// What modules keep from call to call within a task.
#[derive(Debug, Default)]
pub struct Kept {
    /// The last error of `std.ban`.
    pub(crate) ban_error: String,
    /// What `cookie.parse` found.
    pub(crate) cookies: Cookies,
}

/// A subroutine's surroundings. What a subroutine has no business with may be left out: asking for it ends in a fault.
pub struct Task<'t> {
    /// Unix seconds; the same for a whole subroutine.
    pub now_s: f64,
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
    /// What modules keep.
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
    pub(crate) fn header(&self, message: Message, name: &str) -> Result<Option<&[u8]>, Failure> {
        if let Message::Req | Message::ReqTop | Message::Bereq = message {
            let request = self.request(message)?;
            if name.eq_ignore_ascii_case("host") {
                let host = request.authority.as_str().as_bytes();
                return Ok((!host.is_empty()).then_some(host));
            }
            return Ok(request.fields.get(name));
        }
        Ok(self.response(message)?.fields.get(name))
    }

    /// Replaces a header by one line.
    pub(crate) fn set_header(&mut self, message: Message, name: &str, value: &[u8]) -> Result<(), Failure> {
        if let Message::Req | Message::Bereq = message
            && name.eq_ignore_ascii_case("host")
        {
            let request = self.request_mut(message)?;
            let refused =
                |error| Failure::new(format!("cannot set {}.http.{name}: {error}", message.as_str()));
            request.authority.set(value).map_err(refused)?;
            let RequestHead { authority, fields, .. } = request;
            fields.set("Host", authority.as_str());
            return Ok(());
        }
        self.fields_mut(message)?.set(name, value);
        Ok(())
    }

    /// Removes all lines of a header.
    pub(crate) fn unset_header(&mut self, message: Message, name: &str) -> Result<(), Failure> {
        if let Message::Req | Message::Bereq = message
            && name.eq_ignore_ascii_case("host")
        {
            self.request_mut(message)?.authority.clear();
        }
        self.fields_mut(message)?.remove(name);
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
