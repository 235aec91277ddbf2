//! Batches as protobuf: `proto/telemetry.proto` documents the messages, `wire.rs` has their fields, and this file goes from one
//! form to the other by hand, so that each may change alone.
//!
//! **Invariant:** what is read is checked: addresses have 4 or 16 bytes, words are of their closed set, versions are known.

mod wire;

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;

use prost::Message;

use crate::{
    Batch, Bbr, CacheResult, Cause, Cmcd, Counters, Cut, Decider, Entry, Gauges, Heard, LOSS_VERSION, Line,
    LineTag, Lines, LossRecord, Network, Protocol, Record, ResponseRecord, SCHEMA_VERSION, SOCKET_VERSION,
    SocketRecord, Source, Stage, Steered, StreamType, TcpState,
};

/// Bytes that are no batch of this version.
#[derive(Debug)]
pub enum DecodeError {
    /// Not protobuf of the schema.
    Wire(prost::DecodeError),
    /// A field has a value that its record cannot have.
    Value {
        /// The message and the field.
        field: &'static str,
    },
    /// A record of a newer version.
    Version {
        /// The message.
        message: &'static str,
        /// The version that it states.
        found: u32,
        /// The newest version that is known.
        known: u32,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire(_) => f.write_str("not a telemetry batch"),
            Self::Value { field } => write!(f, "{field} has a value that it cannot have"),
            Self::Version { message, found, known } => {
                write!(f, "{message} of version {found}, and this program reads up to {known}")
            }
        }
    }
}

impl std::error::Error for DecodeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Wire(cause) => Some(cause),
            Self::Value { .. } | Self::Version { .. } => None,
        }
    }
}

impl Batch {
    /// Appends the batch to `out` as one `thalweg.Batch`, without a length before it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        Self::encode_some(&self.source, &self.entries, out);
    }

    /// As [`Batch::encode`], of entries that lie elsewhere.
    pub fn encode_some<'a>(source: &Source, entries: impl IntoIterator<Item = &'a Entry>, out: &mut Vec<u8>) {
        wire::Batch {
            host: source.host.clone(),
            pop: source.pop.clone(),
            epoch: source.epoch,
            entries: entries.into_iter().map(entry).collect(),
            heard: Vec::new(),
        }
        .encode(out)
        .expect("a Vec grows");
    }

    /// Reads what [`Batch::encode`] wrote, here or in another release.
    ///
    /// # Errors
    /// When it is no batch, or has a record that this release cannot read: nothing of it is given then.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let wire::Batch { host, pop, epoch, entries, heard: _ } =
            wire::Batch::decode(bytes).map_err(DecodeError::Wire)?;
        let entries = entries.into_iter().map(read_entry).collect::<Result<_, _>>()?;
        Ok(Self { source: Source { host, pop, epoch }, entries })
    }
}

impl Heard {
    /// Adds to a batch at the end of `out` how far edges were heard.
    pub fn encode<'a>(heard: impl Iterator<Item = &'a Self>, out: &mut Vec<u8>) {
        let heard = heard.map(|Self { edge, epoch, next }| wire::Heard {
            edge: edge.as_ref().to_owned(),
            epoch: *epoch,
            next: *next,
        });
        // Fields of a message may come in parts (protobuf's encoding, "Last One Wins").
        wire::Batch { heard: heard.collect(), ..wire::Batch::default() }.encode(out).expect("a Vec grows");
    }

    /// Reads of a batch how far edges were heard.
    ///
    /// # Errors
    /// When it is no batch.
    pub fn decode(bytes: &[u8]) -> Result<Vec<Self>, DecodeError> {
        let heard = wire::Batch::decode(bytes).map_err(DecodeError::Wire)?.heard.into_iter();
        Ok(heard
            .map(|heard| Self { edge: heard.edge.into(), epoch: heard.epoch, next: heard.next })
            .collect())
    }
}

fn entry(entry: &Entry) -> wire::Entry {
    let mut out = wire::Entry {
        number: entry.number,
        asn: entry.network.asn,
        region: entry.network.region.as_deref().map(str::to_owned),
        ..wire::Entry::default()
    };
    match &entry.record {
        Record::Socket(record) => out.socket = Some(socket(record)),
        Record::Response(record) => out.response = Some(response(record)),
        Record::Loss(record) => out.loss = Some(loss(record)),
    }
    out
}

fn read_entry(wire: wire::Entry) -> Result<Entry, DecodeError> {
    let record = match (wire.socket, wire.response, wire.loss) {
        (Some(socket), None, None) => Record::Socket(Box::new(read_socket(socket)?)),
        (None, Some(response), None) => Record::Response(Arc::new(read_response(response)?)),
        (None, None, Some(loss)) => Record::Loss(read_loss(&loss)?),
        _ => return Err(DecodeError::Value { field: "Entry" }),
    };
    let network = Network { asn: wire.asn, region: wire.region.map(Arc::from) };
    Ok(Entry { number: wire.number, network, record })
}

fn loss(record: &LossRecord) -> wire::Loss {
    wire::Loss {
        version: LOSS_VERSION,
        time_unix_us: record.time_unix_us,
        stage: record.stage.as_str().to_owned(),
        records: record.records,
    }
}

fn read_loss(wire: &wire::Loss) -> Result<LossRecord, DecodeError> {
    version("Loss", wire.version, LOSS_VERSION)?;
    let stage = word(&wire.stage, Stage::from_word, "Loss.stage")?;
    Ok(LossRecord { time_unix_us: wire.time_unix_us, stage, records: wire.records })
}

fn socket(record: &SocketRecord) -> wire::Socket {
    wire::Socket {
        version: SOCKET_VERSION,
        time_unix_us: record.time_unix_us,
        client_ip: ip(record.client),
        client_port: record.client.port().into(),
        local_ip: ip(record.local),
        local_port: record.local.port().into(),
        cookie: record.cookie,
        namespace: record.namespace.clone(),
        state: record.state.clone(),
        cause: record.cause.as_str().to_owned(),
        interval_us: record.interval_us,
        congestion_control: record.congestion_control.clone(),
        gauges: record.gauges.as_ref().map(wire::Gauges::from),
        counters: record.counters.as_ref().map(wire::Counters::from),
        bbr: record.bbr.as_ref().map(wire::Bbr::from),
        sample_one_in: record.sample_one_in.map(NonZeroU32::get),
    }
}

fn read_socket(wire: wire::Socket) -> Result<SocketRecord, DecodeError> {
    version("Socket", wire.version, SOCKET_VERSION)?;
    Ok(SocketRecord {
        time_unix_us: wire.time_unix_us,
        client: address(&wire.client_ip, wire.client_port, "Socket.client_ip")?,
        local: address(&wire.local_ip, wire.local_port, "Socket.local_ip")?,
        cookie: wire.cookie,
        namespace: wire.namespace,
        state: wire.state,
        cause: word(&wire.cause, Cause::from_word, "Socket.cause")?,
        sample_one_in: wire.sample_one_in.map(sample_one_in).transpose()?,
        interval_us: wire.interval_us,
        congestion_control: wire.congestion_control,
        gauges: wire.gauges.map(Gauges::try_from).transpose()?,
        counters: wire.counters.map(Counters::from),
        bbr: wire.bbr.map(Bbr::from),
    })
}

fn sample_one_in(wire: u32) -> Result<NonZeroU32, DecodeError> {
    NonZeroU32::new(wire).ok_or(DecodeError::Value { field: "Socket.sample_one_in" })
}

fn response(record: &ResponseRecord) -> wire::Response {
    wire::Response {
        version: SCHEMA_VERSION,
        time_unix_us: record.time_unix_us,
        client_ip: ip(record.client),
        client_port: record.client.port().into(),
        method: record.method.to_string(),
        host: record.host.clone(),
        path: record.path.clone(),
        status: record.status.into(),
        bytes: record.bytes,
        ttfb_us: record.ttfb_us,
        duration_us: record.duration_us,
        cache: record.cache.as_str().to_owned(),
        detail: record.detail.as_deref().map(str::to_owned),
        backend: record.backend.clone(),
        protocol: record.protocol.as_str().to_owned(),
        cut: record.cut.map(|cut| cut.as_str().to_owned()),
        tcp: record.tcp.as_ref().map(wire::Tcp::from),
        steered: record.steered.as_ref().map(wire::Steered::from),
        cmcd: record.cmcd.as_ref().map(wire::Cmcd::from),
        xid: record.xid,
        restarts: record.restarts,
        lines: record.lines.iter().map(wire::Line::from).collect(),
        lines_lost: record.lines.lost(),
    }
}

fn read_response(wire: wire::Response) -> Result<ResponseRecord, DecodeError> {
    version("Response", wire.version, SCHEMA_VERSION)?;
    let lines = wire.lines.into_iter().map(Line::try_from).collect::<Result<_, _>>()?;
    Ok(ResponseRecord {
        time_unix_us: wire.time_unix_us,
        client: address(&wire.client_ip, wire.client_port, "Response.client_ip")?,
        method: Cow::Owned(wire.method),
        host: wire.host,
        path: wire.path,
        status: narrow(wire.status, "Response.status")?,
        bytes: wire.bytes,
        ttfb_us: wire.ttfb_us,
        duration_us: wire.duration_us,
        cache: word(&wire.cache, CacheResult::from_word, "Response.cache")?,
        detail: wire.detail.map(Cow::Owned),
        backend: wire.backend,
        protocol: word(&wire.protocol, Protocol::from_word, "Response.protocol")?,
        cut: optional_word(wire.cut.as_deref(), Cut::from_word, "Response.cut")?,
        tcp: wire.tcp.map(TcpState::try_from).transpose()?,
        steered: wire.steered.map(Steered::from),
        cmcd: wire.cmcd.map(Cmcd::try_from).transpose()?,
        xid: wire.xid,
        restarts: wire.restarts,
        lines: Lines::read(lines, wire.lines_lost),
    })
}

fn version(message: &'static str, found: u32, known: u32) -> Result<(), DecodeError> {
    if found == 0 {
        return Err(DecodeError::Value { field: message });
    }
    if found > known { Err(DecodeError::Version { message, found, known }) } else { Ok(()) }
}

fn word<T>(word: &str, read: fn(&str) -> Option<T>, field: &'static str) -> Result<T, DecodeError> {
    read(word).ok_or(DecodeError::Value { field })
}

fn optional_word<T>(
    text: Option<&str>,
    read: fn(&str) -> Option<T>,
    field: &'static str,
) -> Result<Option<T>, DecodeError> {
    text.map(|text| word(text, read, field)).transpose()
}

fn narrow<T: TryFrom<u32>>(number: u32, field: &'static str) -> Result<T, DecodeError> {
    T::try_from(number).map_err(|_| DecodeError::Value { field })
}

fn ip(address: SocketAddr) -> Vec<u8> {
    match address.ip() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn address(bytes: &[u8], port: u32, field: &'static str) -> Result<SocketAddr, DecodeError> {
    let ip = if let Ok(octets) = <[u8; 4]>::try_from(bytes) {
        IpAddr::from(octets)
    } else {
        IpAddr::from(<[u8; 16]>::try_from(bytes).map_err(|_| DecodeError::Value { field })?)
    };
    Ok(SocketAddr::new(ip, narrow(port, field)?))
}

/// Declares the way there and back between a record's struct and its message, whose fields have the same names and types
/// but for those listed.
macro_rules! same_fields {
    ($($name:ident { $($field:ident),* $(,)? })*) => {$(
        impl From<&$name> for wire::$name {
            fn from(from: &$name) -> Self {
                let $name { $($field),* } = from.clone();
                Self { $($field),* }
            }
        }

        impl From<wire::$name> for $name {
            fn from(wire::$name { $($field),* }: wire::$name) -> Self {
                Self { $($field),* }
            }
        }
    )*};
}

same_fields! {
    Counters {
        bytes_acked, bytes_received, bytes_sent, bytes_retrans, segs_out, segs_in, data_segs_out, retransmits, delivered,
        delivered_ce, dsack_dups, reord_seen, timeouts, busy_us, rwnd_limited_us, sndbuf_limited_us,
    }
    Bbr { bw_bytes_per_s, min_rtt_us, pacing_gain_256th, cwnd_gain_256th }
    Steered { bundle, rule, is_holdout, experiment, arm, refused }
}

impl From<&Gauges> for wire::Gauges {
    fn from(gauges: &Gauges) -> Self {
        Self {
            rtt_us: gauges.rtt_us,
            rttvar_us: gauges.rttvar_us,
            min_rtt_us: gauges.min_rtt_us,
            rto_us: gauges.rto_us,
            snd_cwnd: gauges.snd_cwnd,
            snd_ssthresh: gauges.snd_ssthresh,
            snd_mss_bytes: gauges.snd_mss_bytes,
            pmtu_bytes: gauges.pmtu_bytes,
            unacked: gauges.unacked,
            lost: gauges.lost,
            reordering: gauges.reordering,
            ca_state: gauges.ca_state.into(),
            delivery_rate_bytes_per_s: gauges.delivery_rate_bytes_per_s,
            delivery_rate_app_limited: gauges.delivery_rate_app_limited,
            pacing_rate_bytes_per_s: gauges.pacing_rate_bytes_per_s,
            notsent_bytes: gauges.notsent_bytes,
            snd_wnd_bytes: gauges.snd_wnd_bytes,
        }
    }
}

impl TryFrom<wire::Gauges> for Gauges {
    type Error = DecodeError;

    fn try_from(wire: wire::Gauges) -> Result<Self, DecodeError> {
        Ok(Self {
            rtt_us: wire.rtt_us,
            rttvar_us: wire.rttvar_us,
            min_rtt_us: wire.min_rtt_us,
            rto_us: wire.rto_us,
            snd_cwnd: wire.snd_cwnd,
            snd_ssthresh: wire.snd_ssthresh,
            snd_mss_bytes: wire.snd_mss_bytes,
            pmtu_bytes: wire.pmtu_bytes,
            unacked: wire.unacked,
            lost: wire.lost,
            reordering: wire.reordering,
            ca_state: narrow(wire.ca_state, "Gauges.ca_state")?,
            delivery_rate_bytes_per_s: wire.delivery_rate_bytes_per_s,
            delivery_rate_app_limited: wire.delivery_rate_app_limited,
            pacing_rate_bytes_per_s: wire.pacing_rate_bytes_per_s,
            notsent_bytes: wire.notsent_bytes,
            snd_wnd_bytes: wire.snd_wnd_bytes,
        })
    }
}

impl From<&TcpState> for wire::Tcp {
    fn from(tcp: &TcpState) -> Self {
        Self {
            congestion_control: tcp.congestion_control.clone(),
            congestion_control_start: tcp.congestion_control_start.clone(),
            decider: tcp.decider.map(|decider| decider.as_str().to_owned()),
            rtt_us: tcp.rtt_us,
            min_rtt_us: tcp.min_rtt_us,
            snd_cwnd: tcp.snd_cwnd,
            delivery_rate_bytes_per_s: tcp.delivery_rate_bytes_per_s,
            retransmits: tcp.retransmits,
            lost: tcp.lost,
            pacing_rate_bytes_per_s: tcp.pacing_rate_bytes_per_s,
        }
    }
}

impl TryFrom<wire::Tcp> for TcpState {
    type Error = DecodeError;

    fn try_from(wire: wire::Tcp) -> Result<Self, DecodeError> {
        Ok(Self {
            congestion_control: wire.congestion_control,
            congestion_control_start: wire.congestion_control_start,
            decider: optional_word(wire.decider.as_deref(), Decider::from_word, "Tcp.decider")?,
            rtt_us: wire.rtt_us,
            min_rtt_us: wire.min_rtt_us,
            snd_cwnd: wire.snd_cwnd,
            delivery_rate_bytes_per_s: wire.delivery_rate_bytes_per_s,
            retransmits: wire.retransmits,
            lost: wire.lost,
            pacing_rate_bytes_per_s: wire.pacing_rate_bytes_per_s,
        })
    }
}

impl From<&Cmcd> for wire::Cmcd {
    fn from(cmcd: &Cmcd) -> Self {
        let &Cmcd { ref sid, st, br_kbps, bl_ms, mtp_kbps, bs } = cmcd;
        Self { sid: sid.clone(), st: st.map(|st| st.as_str().to_owned()), br_kbps, bl_ms, mtp_kbps, bs }
    }
}

impl TryFrom<wire::Cmcd> for Cmcd {
    type Error = DecodeError;

    fn try_from(wire: wire::Cmcd) -> Result<Self, DecodeError> {
        let wire::Cmcd { sid, st, br_kbps, bl_ms, mtp_kbps, bs } = wire;
        let st = optional_word(st.as_deref(), StreamType::from_word, "Cmcd.st")?;
        Ok(Self { sid, st, br_kbps, bl_ms, mtp_kbps, bs })
    }
}

impl From<&Line> for wire::Line {
    fn from(line: &Line) -> Self {
        Self { tag: line.tag.as_str().to_owned(), text: line.text.clone() }
    }
}

impl TryFrom<wire::Line> for Line {
    type Error = DecodeError;

    fn try_from(wire: wire::Line) -> Result<Self, DecodeError> {
        Ok(Self { tag: word(&wire.tag, LineTag::from_word, "Line.tag")?, text: wire.text })
    }
}
