//! Records as rows: for each table its columns, once, in order, with what a record has for each. SQLite, ClickHouse, Parquet and
//! JSON lines all write what stands here; `schema/` has the tables.
//!
//! **Invariant:** `(host, epoch, number)` names a row in all tables together.

use std::borrow::Cow;
use std::net::IpAddr;
use std::num::NonZeroU32;

use crate::{Entry, LossRecord, Record, ResponseRecord, SocketRecord, Source};

/// A table of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Table {
    /// Samples of sockets.
    Sockets,
    /// Responses.
    Responses,
    /// Losses of either.
    Losses,
}

impl Table {
    /// Every table.
    pub const ALL: [Self; 3] = [Self::Sockets, Self::Responses, Self::Losses];

    /// Its name in a database.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sockets => "sockets",
            Self::Responses => "responses",
            Self::Losses => "losses",
        }
    }

    /// Its columns, in order.
    pub fn columns(self) -> &'static [Column] {
        match self {
            Self::Sockets => SOCKETS,
            Self::Responses => RESPONSES,
            Self::Losses => LOSSES,
        }
    }

    /// The table of a record.
    pub fn of(record: &Record) -> Self {
        match record {
            Record::Socket(_) => Self::Sockets,
            Record::Response(_) => Self::Responses,
            Record::Loss(_) => Self::Losses,
        }
    }
}

/// A column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Its name, the unit last.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Whether a row may have nothing there.
    pub is_nullable: bool,
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Yes or no.
    Bool,
    /// A number below 2^8.
    U8,
    /// A number below 2^16.
    U16,
    /// A number below 2^32.
    U32,
    /// A number below 2^64.
    U64,
    /// UTF-8 of few values, such as a name: worth a dictionary.
    Name,
    /// UTF-8.
    Text,
    /// Microseconds since the Unix epoch.
    Time,
    /// An address; IPv4 not in IPv6 form.
    Ip,
}

/// What a row has in a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value<'a> {
    /// Nothing.
    Null,
    /// Of [`Kind::Bool`].
    Bool(bool),
    /// Of a number's kind, and within it.
    Number(u64),
    /// Of [`Kind::Name`] or [`Kind::Text`].
    Text(Cow<'a, str>),
    /// Of [`Kind::Time`].
    Time(u64),
    /// Of [`Kind::Ip`].
    Ip(IpAddr),
}

/// Gives the values of an entry's row to `put`, in the order of its table's columns.
pub fn row<'a>(source: &'a Source, entry: &'a Entry, put: &mut impl FnMut(Value<'a>)) {
    match &entry.record {
        Record::Socket(record) => sockets(source, entry, record, put),
        Record::Response(record) => responses(source, entry, record, put),
        Record::Loss(record) => losses(source, entry, record, put),
    }
}

struct Time(u64);

impl From<Time> for Value<'_> {
    fn from(Time(unix_us): Time) -> Self {
        Value::Time(unix_us)
    }
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

impl From<IpAddr> for Value<'_> {
    fn from(value: IpAddr) -> Self {
        Value::Ip(value)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(value: &'a str) -> Self {
        Value::Text(Cow::Borrowed(value))
    }
}

impl From<String> for Value<'_> {
    fn from(value: String) -> Self {
        Value::Text(Cow::Owned(value))
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl From<$number> for Value<'_> {
            fn from(value: $number) -> Self {
                Value::Number(value.into())
            }
        }
    )*};
}

numbers! { u8 u16 u32 u64 }

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// Declares a table: its columns, and how a record fills them.
macro_rules! table {
    (
        $(#[$doc:meta])*
        $columns:ident $fill:ident($source:ident, $entry:ident, $record:ident: $record_type:ty) {
            $($column:ident: $kind:ident $(or $absent:ident)? = $value:expr;)*
        }
    ) => {
        $(#[$doc])*
        const $columns: &[Column] = &[
            $({
                const ABSENT: &[&str] = &[$(stringify!($absent))?];
                Column { name: stringify!($column), kind: Kind::$kind, is_nullable: !ABSENT.is_empty() }
            },)*
        ];

        fn $fill<'a>(
            $source: &'a Source,
            $entry: &'a Entry,
            $record: &'a $record_type,
            put: &mut impl FnMut(Value<'a>),
        ) {
            $(put(Value::from($value));)*
        }
    };
}

/// The prefix of an entry's client as text.
fn prefix(entry: &Entry) -> Option<String> {
    entry.prefix().map(|prefix| prefix.to_string())
}

table! {
    /// Samples of sockets: where the kernel gave no `tcp_info`, gauges and counters are absent.
    SOCKETS sockets(source, entry, record: SocketRecord) {
        time: Time = Time(record.time_unix_us);
        pop: Name = source.pop.as_str();
        host: Name = source.host.as_str();
        epoch: U64 = source.epoch;
        number: U64 = entry.number;
        prefix: Name = prefix(entry);
        asn: U32 or null = entry.network.asn;
        region: Name or null = entry.network.region.as_deref();
        client_ip: Ip = record.client.ip();
        client_port: U16 = record.client.port();
        local_ip: Ip = record.local.ip();
        local_port: U16 = record.local.port();
        cookie: U64 = record.cookie;
        namespace: Name or null = record.namespace.as_deref();
        state: Name = record.state.as_str();
        cause: Name = record.cause.as_str();
        sample_one_in: U32 or null = record.sample_one_in.map(NonZeroU32::get);
        interval_us: U64 or null = record.interval_us;
        congestion_control: Name or null = record.congestion_control.as_deref();
        rtt_us: U32 or null = record.gauges.as_ref().map(|gauges| gauges.rtt_us);
        rttvar_us: U32 or null = record.gauges.as_ref().map(|gauges| gauges.rttvar_us);
        min_rtt_us: U32 or null = record.gauges.as_ref().and_then(|gauges| gauges.min_rtt_us);
        rto_us: U32 or null = record.gauges.as_ref().map(|gauges| gauges.rto_us);
        snd_cwnd: U32 or null = record.gauges.as_ref().map(|gauges| gauges.snd_cwnd);
        snd_ssthresh: U32 or null = record.gauges.as_ref().and_then(|gauges| gauges.snd_ssthresh);
        snd_mss_bytes: U32 or null = record.gauges.as_ref().map(|gauges| gauges.snd_mss_bytes);
        pmtu_bytes: U32 or null = record.gauges.as_ref().map(|gauges| gauges.pmtu_bytes);
        unacked: U32 or null = record.gauges.as_ref().map(|gauges| gauges.unacked);
        lost: U32 or null = record.gauges.as_ref().map(|gauges| gauges.lost);
        reordering: U32 or null = record.gauges.as_ref().map(|gauges| gauges.reordering);
        ca_state: U8 or null = record.gauges.as_ref().map(|gauges| gauges.ca_state);
        delivery_rate_bytes_per_s: U64 or null =
            record.gauges.as_ref().and_then(|gauges| gauges.delivery_rate_bytes_per_s);
        delivery_rate_app_limited: Bool or null =
            record.gauges.as_ref().map(|gauges| gauges.delivery_rate_app_limited);
        pacing_rate_bytes_per_s: U64 or null =
            record.gauges.as_ref().and_then(|gauges| gauges.pacing_rate_bytes_per_s);
        notsent_bytes: U32 or null = record.gauges.as_ref().and_then(|gauges| gauges.notsent_bytes);
        snd_wnd_bytes: U32 or null = record.gauges.as_ref().and_then(|gauges| gauges.snd_wnd_bytes);
        bytes_acked: U64 or null = record.counters.as_ref().map(|counters| counters.bytes_acked);
        bytes_received: U64 or null = record.counters.as_ref().map(|counters| counters.bytes_received);
        bytes_sent: U64 or null = record.counters.as_ref().map(|counters| counters.bytes_sent);
        bytes_retrans: U64 or null = record.counters.as_ref().map(|counters| counters.bytes_retrans);
        segs_out: U32 or null = record.counters.as_ref().map(|counters| counters.segs_out);
        segs_in: U32 or null = record.counters.as_ref().map(|counters| counters.segs_in);
        data_segs_out: U32 or null = record.counters.as_ref().map(|counters| counters.data_segs_out);
        retransmits: U32 or null = record.counters.as_ref().map(|counters| counters.retransmits);
        delivered: U32 or null = record.counters.as_ref().map(|counters| counters.delivered);
        delivered_ce: U32 or null = record.counters.as_ref().map(|counters| counters.delivered_ce);
        dsack_dups: U32 or null = record.counters.as_ref().map(|counters| counters.dsack_dups);
        reord_seen: U32 or null = record.counters.as_ref().map(|counters| counters.reord_seen);
        timeouts: U32 or null = record.counters.as_ref().map(|counters| counters.timeouts);
        busy_us: U64 or null = record.counters.as_ref().map(|counters| counters.busy_us);
        rwnd_limited_us: U64 or null = record.counters.as_ref().map(|counters| counters.rwnd_limited_us);
        sndbuf_limited_us: U64 or null = record.counters.as_ref().map(|counters| counters.sndbuf_limited_us);
        bbr_bw_bytes_per_s: U64 or null = record.bbr.as_ref().map(|bbr| bbr.bw_bytes_per_s);
        bbr_min_rtt_us: U32 or null = record.bbr.as_ref().map(|bbr| bbr.min_rtt_us);
        bbr_pacing_gain_256th: U32 or null = record.bbr.as_ref().map(|bbr| bbr.pacing_gain_256th);
        bbr_cwnd_gain_256th: U32 or null = record.bbr.as_ref().map(|bbr| bbr.cwnd_gain_256th);
    }
}

table! {
    /// Responses: `host` is the machine's name, `request_host` the request's field.
    RESPONSES responses(source, entry, record: ResponseRecord) {
        time: Time = Time(record.time_unix_us);
        pop: Name = source.pop.as_str();
        host: Name = source.host.as_str();
        epoch: U64 = source.epoch;
        number: U64 = entry.number;
        prefix: Name = prefix(entry);
        asn: U32 or null = entry.network.asn;
        region: Name or null = entry.network.region.as_deref();
        client_ip: Ip = record.client.ip();
        client_port: U16 = record.client.port();
        method: Name = &*record.method;
        request_host: Name = record.host.as_str();
        path: Text = record.path.as_str();
        status: U16 = record.status;
        bytes: U64 = record.bytes;
        ttfb_us: U64 or null = record.ttfb_us;
        duration_us: U64 = record.duration_us;
        goodput_bytes_per_s: U64 = record.goodput_bytes_per_s();
        cache: Name = record.cache.as_str();
        detail: Name or null = record.detail.as_deref();
        backend: Name or null = record.backend.as_deref();
        protocol: Name = record.protocol.as_str();
        cut: Name or null = record.cut.map(crate::Cut::as_str);
        congestion_control: Name or null = record.tcp.as_ref().map(|tcp| tcp.congestion_control.as_str());
        congestion_control_start: Name or null =
            record.tcp.as_ref().and_then(|tcp| tcp.congestion_control_start.as_deref());
        decider: Name or null = record.tcp.as_ref().and_then(|tcp| tcp.decider).map(crate::Decider::as_str);
        rtt_us: U32 or null = record.tcp.as_ref().map(|tcp| tcp.rtt_us);
        min_rtt_us: U32 or null = record.tcp.as_ref().and_then(|tcp| tcp.min_rtt_us);
        snd_cwnd: U32 or null = record.tcp.as_ref().map(|tcp| tcp.snd_cwnd);
        delivery_rate_bytes_per_s: U64 or null =
            record.tcp.as_ref().and_then(|tcp| tcp.delivery_rate_bytes_per_s);
        retransmits: U32 or null = record.tcp.as_ref().map(|tcp| tcp.retransmits);
        lost: U32 or null = record.tcp.as_ref().map(|tcp| tcp.lost);
        pacing_rate_bytes_per_s: U64 or null = record.tcp.as_ref().and_then(|tcp| tcp.pacing_rate_bytes_per_s);
        bundle: U64 or null = record.steered.as_ref().map(|steered| steered.bundle);
        rule: Name or null = record.steered.as_ref().and_then(|steered| steered.rule.as_deref());
        is_holdout: Bool or null = record.steered.as_ref().map(|steered| steered.is_holdout);
        experiment: Name or null = record.steered.as_ref().and_then(|steered| steered.experiment.as_deref());
        arm: Name or null = record.steered.as_ref().and_then(|steered| steered.arm.as_deref());
        refused: Name or null = record.steered.as_ref().and_then(|steered| steered.refused.as_deref());
        cmcd_sid: Text or null = record.cmcd.as_ref().and_then(|cmcd| cmcd.sid.as_deref());
        cmcd_st: Name or null = record.cmcd.as_ref().and_then(|cmcd| cmcd.st).map(crate::StreamType::as_str);
        cmcd_br_kbps: U64 or null = record.cmcd.as_ref().and_then(|cmcd| cmcd.br_kbps);
        cmcd_bl_ms: U64 or null = record.cmcd.as_ref().and_then(|cmcd| cmcd.bl_ms);
        cmcd_mtp_kbps: U64 or null = record.cmcd.as_ref().and_then(|cmcd| cmcd.mtp_kbps);
        cmcd_bs: Bool or null = record.cmcd.as_ref().map(|cmcd| cmcd.bs);
        xid: U64 or null = record.xid;
        restarts: U32 = record.restarts;
        lines: Text or null = lines(record);
    }
}

table! {
    /// Records that were lost before they had a number.
    LOSSES losses(source, entry, record: LossRecord) {
        time: Time = Time(record.time_unix_us);
        pop: Name = source.pop.as_str();
        host: Name = source.host.as_str();
        epoch: U64 = source.epoch;
        number: U64 = entry.number;
        stage: Name = record.stage.as_str();
        records: U64 = record.records;
    }
}

/// What the policy logged, a line each, after its tag.
fn lines(record: &ResponseRecord) -> Option<String> {
    let mut lines: Vec<String> =
        record.lines.iter().map(|line| format!("{} {}", line.tag, line.text)).collect();
    if record.lines.lost() > 0 {
        lines.push(format!("({} more)", record.lines.lost()));
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}
