//! The JSON line of a record: a struct of its own, converted by hand, so that the memory form may change
//! alone.
//!
//! Times are UTC, RFC 3339 with milliseconds. Readers ignore fields they do not know; absent values are left
//! out.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    CacheResult, Cmcd, Cut, Decider, Error, Line, LineTag, Lines, Protocol, ResponseRecord, SCHEMA_VERSION,
    Steered, StreamType, TcpState,
};

/// The last millisecond of the year 9999, in microseconds: RFC 3339 has no later time. A later one is written
/// as this.
const TIME_UNIX_US_MAX: u64 = 253_402_300_799_999_000;

impl ResponseRecord {
    /// Appends the record to `out` as one JSON line, its newline included. For the log: one buffer, many
    /// records.
    pub fn append_json_line(&self, out: &mut Vec<u8>) {
        serde_json::to_writer(&mut *out, self).expect("a record has no map, and a Vec takes every write");
        out.push(b'\n');
    }

    /// The record as JSON on one line, without a newline.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a record has no map")
    }

    /// Reads one line.
    ///
    /// # Errors
    /// [`Error::Version`] if the line is a record of another version, else [`Error::Json`].
    pub fn from_json(line: &str) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Version {
            v: u32,
        }
        serde_json::from_str(line).map_err(|fault| match serde_json::from_str::<Version>(line) {
            Ok(Version { v }) if v != SCHEMA_VERSION => Error::Version { found: v },
            _ => Error::Json(fault),
        })
    }
}

#[derive(Serialize, Deserialize)]
struct WireRecord<'a> {
    v: u32,
    time: WireTime,
    client: SocketAddr,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    host: Cow<'a, str>,
    #[serde(borrow)]
    path: Cow<'a, str>,
    status: u16,
    bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ttfb_us: Option<u64>,
    duration_us: u64,
    #[serde(skip_deserializing)]
    goodput_bytes_per_s: u64,
    cache: CacheResult,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    detail: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    backend: Option<Cow<'a, str>>,
    protocol: Protocol,
    complete: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cut: Option<Cut>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    tcp: Option<WireTcp<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    steered: Option<WireSteered<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    cmcd: Option<WireCmcd<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    xid: Option<u64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    restarts: u32,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    lines: Vec<WireLine<'a>>,
    #[serde(default, skip_serializing_if = "is_zero")]
    lines_lost: u32,
}

#[derive(Serialize, Deserialize)]
struct WireLine<'a> {
    tag: LineTag,
    #[serde(borrow)]
    text: Cow<'a, str>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[derive(Serialize, Deserialize)]
struct WireSteered<'a> {
    bundle: u64,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    rule: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    holdout: bool,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    experiment: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    arm: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    refused: Option<Cow<'a, str>>,
}

#[derive(Serialize, Deserialize)]
struct WireCmcd<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    sid: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    st: Option<StreamType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    br_kbps: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bl_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mtp_kbps: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    bs: bool,
}

#[derive(Serialize, Deserialize)]
struct WireTcp<'a> {
    #[serde(borrow)]
    congestion_control: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    congestion_control_start: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    decider: Option<Decider>,
    rtt_us: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min_rtt_us: Option<u32>,
    snd_cwnd: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delivery_rate_bytes_per_s: Option<u64>,
    retransmits: u32,
    lost: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pacing_rate_bytes_per_s: Option<u64>,
}

impl Serialize for ResponseRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WireRecord {
            v: SCHEMA_VERSION,
            time: WireTime { unix_us: self.time_unix_us },
            client: self.client,
            method: Cow::Borrowed(&self.method),
            host: Cow::Borrowed(&self.host),
            path: Cow::Borrowed(&self.path),
            status: self.status,
            bytes: self.bytes,
            ttfb_us: self.ttfb_us,
            duration_us: self.duration_us,
            goodput_bytes_per_s: self.goodput_bytes_per_s(),
            cache: self.cache,
            detail: self.detail.as_deref().map(Cow::Borrowed),
            backend: self.backend.as_deref().map(Cow::Borrowed),
            protocol: self.protocol,
            complete: self.cut.is_none(),
            cut: self.cut,
            tcp: self.tcp.as_ref().map(WireTcp::from),
            steered: self.steered.as_ref().map(WireSteered::from),
            cmcd: self.cmcd.as_ref().map(WireCmcd::from),
            xid: self.xid,
            restarts: self.restarts,
            lines: self.lines.iter().map(WireLine::from).collect(),
            lines_lost: self.lines.lost(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ResponseRecord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = WireRecord::deserialize(deserializer)?;
        if wire.v != SCHEMA_VERSION {
            return Err(D::Error::custom(Error::Version { found: wire.v }));
        }
        if wire.complete != wire.cut.is_none() {
            return Err(D::Error::custom("a record is complete, or says in `cut` why not"));
        }
        Ok(Self {
            time_unix_us: wire.time.unix_us,
            client: wire.client,
            method: Cow::Owned(wire.method.into_owned()),
            host: wire.host.into_owned(),
            path: wire.path.into_owned(),
            status: wire.status,
            bytes: wire.bytes,
            ttfb_us: wire.ttfb_us,
            duration_us: wire.duration_us,
            cache: wire.cache,
            detail: wire.detail.map(|detail| Cow::Owned(detail.into_owned())),
            backend: wire.backend.map(Cow::into_owned),
            protocol: wire.protocol,
            cut: wire.cut,
            tcp: wire.tcp.map(TcpState::from),
            steered: wire.steered.map(Steered::from),
            cmcd: wire.cmcd.map(Cmcd::from),
            xid: wire.xid,
            restarts: wire.restarts,
            lines: Lines::read(wire.lines.into_iter().map(Line::from).collect(), wire.lines_lost),
        })
    }
}

impl<'a> From<&'a TcpState> for WireTcp<'a> {
    fn from(tcp: &'a TcpState) -> Self {
        WireTcp {
            congestion_control: Cow::Borrowed(&tcp.congestion_control),
            congestion_control_start: tcp.congestion_control_start.as_deref().map(Cow::Borrowed),
            decider: tcp.decider,
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

impl From<WireTcp<'_>> for TcpState {
    fn from(wire: WireTcp<'_>) -> Self {
        TcpState {
            congestion_control: wire.congestion_control.into_owned(),
            congestion_control_start: wire.congestion_control_start.map(Cow::into_owned),
            decider: wire.decider,
            rtt_us: wire.rtt_us,
            min_rtt_us: wire.min_rtt_us,
            snd_cwnd: wire.snd_cwnd,
            delivery_rate_bytes_per_s: wire.delivery_rate_bytes_per_s,
            retransmits: wire.retransmits,
            lost: wire.lost,
            pacing_rate_bytes_per_s: wire.pacing_rate_bytes_per_s,
        }
    }
}

impl<'a> From<&'a Steered> for WireSteered<'a> {
    fn from(steered: &'a Steered) -> Self {
        WireSteered {
            bundle: steered.bundle,
            rule: steered.rule.as_deref().map(Cow::Borrowed),
            holdout: steered.is_holdout,
            experiment: steered.experiment.as_deref().map(Cow::Borrowed),
            arm: steered.arm.as_deref().map(Cow::Borrowed),
            refused: steered.refused.as_deref().map(Cow::Borrowed),
        }
    }
}

impl From<WireSteered<'_>> for Steered {
    fn from(wire: WireSteered<'_>) -> Self {
        Steered {
            bundle: wire.bundle,
            rule: wire.rule.map(Cow::into_owned),
            is_holdout: wire.holdout,
            experiment: wire.experiment.map(Cow::into_owned),
            arm: wire.arm.map(Cow::into_owned),
            refused: wire.refused.map(Cow::into_owned),
        }
    }
}

impl<'a> From<&'a Cmcd> for WireCmcd<'a> {
    fn from(cmcd: &'a Cmcd) -> Self {
        let &Cmcd { ref sid, st, br_kbps, bl_ms, mtp_kbps, bs } = cmcd;
        WireCmcd { sid: sid.as_deref().map(Cow::Borrowed), st, br_kbps, bl_ms, mtp_kbps, bs }
    }
}

impl From<WireCmcd<'_>> for Cmcd {
    fn from(WireCmcd { sid, st, br_kbps, bl_ms, mtp_kbps, bs }: WireCmcd<'_>) -> Self {
        Cmcd { sid: sid.map(Cow::into_owned), st, br_kbps, bl_ms, mtp_kbps, bs }
    }
}

impl<'a> From<&'a Line> for WireLine<'a> {
    fn from(line: &'a Line) -> Self {
        WireLine { tag: line.tag, text: Cow::Borrowed(&line.text) }
    }
}

impl From<WireLine<'_>> for Line {
    fn from(wire: WireLine<'_>) -> Self {
        Line { tag: wire.tag, text: wire.text.into_owned() }
    }
}

/// A time as RFC 3339 in UTC with milliseconds.
#[derive(Clone, Copy)]
pub(crate) struct WireTime {
    /// Microseconds since the Unix epoch.
    pub(crate) unix_us: u64,
}

impl WireTime {
    fn system_time(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(self.unix_us.min(TIME_UNIX_US_MAX))
    }
}

impl std::fmt::Display for WireTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        humantime::format_rfc3339_millis(self.system_time()).fmt(f)
    }
}

impl Serialize for WireTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for WireTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        let time = humantime::parse_rfc3339(&text)
            .map_err(|fault| D::Error::custom(format!("time {text:?}: {fault}")))?;
        let since_epoch = time.duration_since(UNIX_EPOCH).map_err(D::Error::custom)?;
        let unix_us = u64::try_from(since_epoch.as_micros()).expect("a four-digit year is in range");
        Ok(Self { unix_us })
    }
}

/// Words go over the wire as strings; one that is not in the set is an error that names the set.
macro_rules! word_serde {
    ($($name:ident),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word = Cow::<'de, str>::deserialize(deserializer)?;
                $name::from_word(&word).ok_or_else(|| {
                    let known: Vec<_> = $name::ALL.iter().map(|known| known.as_str()).collect();
                    D::Error::custom(format!("{word:?} is none of {}", known.join(", ")))
                })
            }
        }
    )*};
}

word_serde!(CacheResult, Cut, Decider, LineTag, Protocol, StreamType);
