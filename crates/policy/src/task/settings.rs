//! Settings of a request, a fetch and a connection, and properties of a stored response.
//!
//! Plain data, read and set by variables and acted on by the caller.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use sha2::{Digest, Sha256};

use crate::value::Backend;

/// Settings of a client request, kept when the policy restarts the request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Client {
    /// `client.identity`, if the policy has set it; otherwise the address is used.
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
    /// Whether `req.esi` (VCL 4.0) is false.
    pub no_esi: bool,
    /// `req.is_hitmiss`.
    pub is_hitmiss: bool,
    /// `req.is_hitpass`.
    pub is_hitpass: bool,
    /// `req.restarts`.
    pub restarts: u32,
    /// `req.storage`, if set.
    pub storage: Option<String>,
    /// `req.time`, Unix seconds.
    pub time_s: f64,
    /// Time of the last `std.timestamp` call, Unix seconds; 0 before the first call.
    pub timestamp_s: f64,
    /// `req.xid`.
    pub xid: u64,
    /// The arguments of all `hash_data` calls so far, each followed by a NUL.
    pub hash_data: Vec<u8>,
    /// `resp.do_esi`.
    pub do_esi: bool,
    /// `resp.filters`, if set.
    pub filters: Option<String>,
    /// `resp.is_streaming`.
    pub is_streaming: bool,
    /// `resp.time`, Unix seconds.
    pub response_time_s: f64,
    /// `resp.body`, if the policy has set it.
    pub body: Option<Vec<u8>>,
}

impl Client {
    /// `req.hash` and `bereq.hash`: the SHA-256 of the hashed data, as in Varnish; `None` if
    /// nothing was hashed.
    pub(crate) fn hash(&self) -> Option<[u8; 32]> {
        (!self.hash_data.is_empty()).then(|| Sha256::digest(&self.hash_data).0)
    }
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
    /// `bereq.time`, Unix seconds.
    pub time_s: f64,
    /// Time of the last `std.timestamp` call, Unix seconds; 0 before the first call.
    pub timestamp_s: f64,
    /// `bereq.uncacheable`.
    pub is_pass: bool,
    /// `bereq.xid`.
    pub xid: u64,
    /// Whether to send the request without content, set by `unset bereq.body`.
    pub drop_body: bool,
    /// `beresp.backend`: the backend that responded.
    pub answered: Backend,
    /// `beresp.backend.ip` of VCL 4.0.
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
    /// `beresp.time`, Unix seconds.
    pub response_time_s: f64,
    /// `beresp.was_304`.
    pub was_304: bool,
    /// `beresp.body`, if the policy has set it.
    pub body: Option<Vec<u8>>,
}

impl Default for Fetch {
    /// Creates a streaming fetch with Varnish's default timeouts.
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
            timestamp_s: 0.0,
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
            body: None,
        }
    }
}

/// Properties of a stored response.
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
    /// `obj.time`, Unix seconds.
    pub time_s: f64,
    /// `obj.ttl`, seconds.
    pub ttl_s: f64,
    /// `obj.uncacheable`.
    pub uncacheable: bool,
}

/// Settings of a connection, which apply to all of its requests.
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

/// `remote.ip` of an unknown peer, as in Varnish.
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
