//! How a response went: what is noted while it is sent, and the record made of it.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use thalweg_cache::Piece;
use thalweg_http::{RequestHead, Version};
use thalweg_policy::modules::cmcd;
use thalweg_record::{CacheResult, Cmcd, Cut, Lines, Protocol, ResponseRecord, StreamType, TcpState};
use thalweg_tcp::congestion;
use thalweg_tcp::info::TcpInfo;
use tokio::net::TcpStream;

use crate::connection::Next;
use crate::steering::Steering;

/// How a response went, for its record.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) status: u16,
    pub(crate) cache: CacheResult,
    /// Why that, in a word, as in `Cache-Status`.
    pub(crate) detail: Option<&'static str>,
    pub(crate) bytes: u64,
    /// When the kernel took the first byte; `None` if it took none.
    pub(crate) first_byte: Option<Instant>,
    pub(crate) cut: Option<Cut>,
    pub(crate) next: Next,
}

impl Sent {
    pub(crate) fn count(&mut self, piece: &Piece, left: &mut Option<u64>) {
        self.bytes += piece.len() as u64;
        *left = left.map(|left| left - piece.len() as u64);
    }

    /// The record of the response to `request`, which had come at `begun`.
    pub(crate) fn record(
        &self,
        request: &RequestHead,
        client: SocketAddr,
        (stream, steering): (&TcpStream, &Steering),
        begun: Instant,
    ) -> ResponseRecord {
        let duration = begun.elapsed();
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let since_epoch =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        ResponseRecord {
            time_unix_us: micros(since_epoch.saturating_sub(duration)),
            client,
            method: request.method_str().to_owned().into(),
            host: request.authority.as_str().to_owned(),
            path: request.target.as_str().to_owned(),
            status: self.status,
            bytes: self.bytes,
            ttfb_us: self.first_byte.map(|at| micros(at.saturating_duration_since(begun))),
            duration_us: micros(duration),
            cache: self.cache,
            detail: self.detail.map(Cow::Borrowed),
            backend: None,
            xid: None,
            restarts: 0,
            protocol: match request.version {
                Version::Http10 => Protocol::Http10,
                Version::Http11 => Protocol::Http11,
            },
            cut: self.cut,
            tcp: tcp_state(stream, steering),
            steered: steering.steered().cloned(),
            cmcd: cmcd(request),
            lines: Lines::default(),
        }
    }
}

/// What the player says with the request, if it says anything of what a record has.
fn cmcd(request: &RequestHead) -> Option<Cmcd> {
    let said = cmcd::Cmcd::of_request(request.target.query().map(str::as_bytes), &request.fields);
    let st = said.st.map(|st| match st {
        cmcd::StreamType::Live => StreamType::Live,
        cmcd::StreamType::OnDemand => StreamType::OnDemand,
    });
    let (br_kbps, bl_ms, mtp_kbps) = (said.br_kbps, said.bl_ms, said.mtp_kbps);
    let cmcd = Cmcd { sid: said.sid, st, br_kbps, bl_ms, mtp_kbps, bs: said.bs };
    (cmcd != Cmcd::default()).then_some(cmcd)
}

/// What the kernel says of the connection now.
fn tcp_state(stream: &TcpStream, steering: &Steering) -> Option<TcpState> {
    let fd = stream.as_fd();
    let info = TcpInfo::read(fd).ok()?;
    Some(TcpState {
        congestion_control: congestion::get(fd).ok()?.to_string(),
        congestion_control_start: steering.start().map(|name| name.to_string()),
        decider: Some(steering.decider()),
        rtt_us: info.rtt_us,
        min_rtt_us: info.min_rtt_us,
        snd_cwnd: info.snd_cwnd,
        delivery_rate_bytes_per_s: info.delivery_rate_bytes_per_s,
        retransmits: info.total_retrans,
        lost: info.lost,
        pacing_rate_bytes_per_s: info.pacing_rate_bytes_per_s,
    })
}
