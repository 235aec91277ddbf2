//! Compact log entry: built by the worker without allocating, converted to a `ResponseRecord` by
//! the log writer.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use thalweg_http::{Fields, Method, RequestHead, Version};
use thalweg_policy::modules::cmcd::{self, ARGUMENT, FIELDS};
use thalweg_policy::task::LogSource;
use thalweg_record::{
    CacheResult, Cmcd, Cut, Delivery, LineTag, Lines, Protocol, ResponseRecord, Steered, StreamType,
};

use crate::sent::{MalformedLine, PolicyNotes, Sent};
use crate::steering::{Steering, Tcp};

/// A finished response, borrowed from its connection.
pub(crate) struct Entry<'a> {
    pub(crate) request: &'a RequestHead,
    /// The readable parts of a malformed request.
    pub(crate) malformed: Option<&'a MalformedLine>,
    pub(crate) client: SocketAddr,
    /// State of the connection; `None` if unknown, or if read later.
    pub(crate) tcp: Option<Tcp>,
    pub(crate) steering: &'a Steering,
    pub(crate) sent: &'a Sent,
    /// The policy's contribution to the record, if a policy ran.
    pub(crate) noted: Option<Box<PolicyNotes>>,
}

/// An entry as stored in the ring: fixed-size, with its strings in a second queue.
#[derive(Debug)]
pub(super) struct CompactEntry {
    began: Instant,
    pub(super) ended: Instant,
    client: SocketAddr,
    method: Method,
    version: Version,
    texts: TextBytes,
    status: u16,
    cache: CacheResult,
    detail: Option<&'static str>,
    bytes: u64,
    first_byte: Option<Instant>,
    cut: Option<Cut>,
    tcp: Option<Tcp>,
    delivery: Option<Delivery>,
    steered: Option<Arc<Steered>>,
    noted: Option<Box<PolicyNotes>>,
}

const _: () = assert!(size_of::<CompactEntry>() <= 320);

/// Lengths of an entry's strings in bytes, in storage order.
#[derive(Debug, Clone, Copy)]
struct TextBytes {
    /// Length of the method's name if it is [`Method::Other`], otherwise 0.
    method: u32,
    host: u32,
    path: u32,
    /// CMCD field values, each followed by [`CMCD_END`].
    cmcd: u32,
}

/// Terminator of a CMCD value; no field value contains this byte.
const CMCD_END: u8 = b'\n';

impl Entry<'_> {
    /// Converts the entry to its compact form, and appends its strings to `texts`, which must be
    /// empty.
    pub(super) fn compact(self, began: Instant, texts: &mut Vec<u8>) -> CompactEntry {
        let ended = Instant::now();
        let request = self.request;
        let (method, method_text, path) = match self.malformed {
            Some(line) => (Method::Other, &*line.method, &*line.target),
            None => (request.method, &*request.method_text, request.target.as_str()),
        };
        let mut append = |text: &[u8]| {
            texts.extend_from_slice(text);
            u32::try_from(text.len()).expect("a head is far smaller than 4 GiB")
        };
        let method_bytes = append(method_text.as_bytes());
        let (host, path) = (append(request.authority.as_str().as_bytes()), append(path.as_bytes()));
        CompactEntry {
            began,
            ended,
            client: self.client,
            method,
            version: request.version,
            texts: TextBytes { method: method_bytes, host, path, cmcd: append_cmcd(&request.fields, texts) },
            status: self.sent.status,
            cache: self.sent.cache,
            detail: self.sent.detail,
            bytes: self.sent.bytes,
            first_byte: self.sent.first_byte,
            cut: self.sent.cut,
            tcp: self.tcp,
            delivery: None,
            steered: self.steering.steered().cloned(),
            noted: self.noted,
        }
    }
}

/// Appends the CMCD field values. Most requests have none, so the field names are checked in one
/// pass first.
fn append_cmcd(fields: &Fields, texts: &mut Vec<u8>) -> u32 {
    let before = texts.len();
    let is_cmcd = |name: &str| {
        name.as_bytes().get(..ARGUMENT.len()).is_some_and(|start| start.eq_ignore_ascii_case(ARGUMENT))
    };
    if fields.iter().any(|(name, _)| is_cmcd(name)) {
        for text in FIELDS.iter().flat_map(|name| fields.get_all(name)) {
            texts.extend_from_slice(text);
            texts.push(CMCD_END);
        }
    }
    u32::try_from(texts.len() - before).expect("a head is far smaller than 4 GiB")
}

impl CompactEntry {
    pub(super) fn texts_bytes(&self) -> usize {
        let TextBytes { method, host, path, cmcd } = self.texts;
        (method + host + path + cmcd) as usize
    }

    /// Adds the connection state and the delivery measurement, once the delivery has ended. `acked`
    /// is when the last byte was acknowledged.
    pub(super) fn delivered(&mut self, tcp: Option<Tcp>, acked: Option<Instant>, delivery: Option<Delivery>) {
        self.tcp = tcp;
        let acked_us = acked.map(|at| micros(at.saturating_duration_since(self.began)));
        self.delivery = delivery.map(|delivery| Delivery { acked_us, ..delivery });
    }

    /// Builds the record from this entry and its strings, `texts`.
    pub(super) fn record(self, texts: &[u8], clock: &Clock) -> ResponseRecord {
        let (method, rest) = texts.split_at(self.texts.method as usize);
        let (host, rest) = rest.split_at(self.texts.host as usize);
        let (path, cmcd_fields) = rest.split_at(self.texts.path as usize);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut record = ResponseRecord {
            method: match self.method {
                Method::Other => text(method).into(),
                known => known.as_str().into(),
            },
            host: text(host),
            path: text(path),
            status: self.status,
            bytes: self.bytes,
            ttfb_us: self.first_byte.map(|at| micros(at.saturating_duration_since(self.began))),
            written_us: micros(self.ended - self.began),
            cache: self.cache,
            detail: self.detail.map(Cow::Borrowed),
            protocol: match self.version {
                Version::Http10 => Protocol::Http10,
                Version::Http11 => Protocol::Http11,
            },
            cut: self.cut,
            tcp: self.tcp.map(Into::into),
            delivery: self.delivery,
            steered: self.steered.map(Arc::unwrap_or_clone),
            cmcd: cmcd(path, cmcd_fields),
            ..ResponseRecord::new(clock.unix_us(self.began), self.client)
        };
        if let Some(noted) = self.noted {
            let PolicyNotes { xid, restarts, notes } = *noted;
            (record.xid, record.restarts) = (Some(xid), restarts);
            record.backend = notes.backend.map(|backend| backend.name().to_owned());
            let mut lines = Lines::default();
            for line in notes.lines {
                lines.push(tag(line.tag), line.text);
            }
            record.lines = lines;
        }
        record
    }
}

/// Converts a policy's log tag for the record.
fn tag(tag: LogSource) -> LineTag {
    match tag {
        LogSource::Log => LineTag::Log,
        LogSource::Error => LineTag::Error,
        LogSource::Timestamp => LineTag::Timestamp,
        LogSource::Acl => LineTag::Acl,
        LogSource::FetchError => LineTag::FetchError,
    }
}

/// Parses a request's CMCD; `None` if it contains no key that records store.
fn cmcd(path: &[u8], fields: &[u8]) -> Option<Cmcd> {
    let query = path.iter().position(|byte| *byte == b'?').map(|at| &path[at + 1..]);
    let mut parsed = cmcd::Cmcd::of_request(query, &Fields::new());
    for text in fields.split(|byte| *byte == CMCD_END) {
        parsed.read(text);
    }
    let st = parsed.st.map(|st| match st {
        cmcd::StreamType::Live => StreamType::Live,
        cmcd::StreamType::OnDemand => StreamType::OnDemand,
    });
    let (br_kbps, bl_ms, mtp_kbps) = (parsed.br_kbps, parsed.bl_ms, parsed.mtp_kbps);
    let cmcd = Cmcd { sid: parsed.sid, st, br_kbps, bl_ms, mtp_kbps, bs: parsed.bs };
    (cmcd != Cmcd::default()).then_some(cmcd)
}

/// Converts a recent `Instant` to wall-clock time. The writer reads both clocks once per round, so
/// workers read only the monotonic one.
pub(super) struct Clock {
    now: Instant,
    now_unix_us: u64,
}

impl Clock {
    pub(super) fn read() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { now: Instant::now(), now_unix_us: micros(since_epoch) }
    }

    /// Returns when the clock was read.
    pub(super) fn now(&self) -> Instant {
        self.now
    }

    fn unix_us(&self, at: Instant) -> u64 {
        self.now_unix_us.saturating_sub(micros(self.now.saturating_duration_since(at)))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
