//! The fields that an expression can name: those of the record's JSON line (`record::wire`), and the logged lines.
//!
//! A name is the JSON line's with a dot for each level, or that without its unit, or that of the printed column; `tcpi` is
//! another name for `tcp`. Capitals do not matter, so the tags of lines are names as they are printed.

use serde_json::Value;
use thalweg_record::{CacheResult, Cut, Decider, LineTag, Protocol, StreamType};

use crate::config::nearest;
use thalweg_record::units::{SIZE_UNITS, SPAN_UNITS};

/// A field that can be named.
#[derive(Debug)]
pub(super) struct Field {
    /// As in the JSON line, but for lines by their tag.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

/// What a field holds, and with it what it can be compared with.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Text,
    /// One of these words.
    Word(fn() -> Vec<&'static str>),
    /// RFC 3339, compared as [`super::time::Moment`].
    Time,
    Truth,
    /// Has parts, whose names go on after a dot.
    Parts,
    Count,
    /// In bytes.
    Size,
    /// In microseconds.
    Span,
    /// In bytes per second.
    Rate,
    /// The texts of the lines that were logged, of one tag or of all.
    Lines(Option<LineTag>),
}

/// The words of a closed set of a record.
macro_rules! words {
    ($Set:ident) => {
        Kind::Word(|| $Set::ALL.iter().map(|word| word.as_str()).collect())
    };
}

const fn field(name: &'static str, kind: Kind) -> Field {
    Field { name, kind }
}

pub(super) static FIELDS: [Field; 51] = [
    field("time", Kind::Time),
    field("client", Kind::Text),
    field("method", Kind::Text),
    field("host", Kind::Text),
    field("path", Kind::Text),
    field("status", Kind::Count),
    field("bytes", Kind::Size),
    field("ttfb_us", Kind::Span),
    field("duration_us", Kind::Span),
    field("goodput_bytes_per_s", Kind::Rate),
    field("cache", words!(CacheResult)),
    field("detail", Kind::Text),
    field("backend", Kind::Text),
    field("protocol", words!(Protocol)),
    field("complete", Kind::Truth),
    field("cut", words!(Cut)),
    field("tcp", Kind::Parts),
    field("tcp.congestion_control", Kind::Text),
    field("tcp.congestion_control_start", Kind::Text),
    field("tcp.decider", words!(Decider)),
    field("tcp.rtt_us", Kind::Span),
    field("tcp.min_rtt_us", Kind::Span),
    field("tcp.snd_cwnd", Kind::Count),
    field("tcp.delivery_rate_bytes_per_s", Kind::Rate),
    field("tcp.retransmits", Kind::Count),
    field("tcp.lost", Kind::Count),
    field("tcp.pacing_rate_bytes_per_s", Kind::Rate),
    field("steered", Kind::Parts),
    field("steered.bundle", Kind::Count),
    field("steered.rule", Kind::Text),
    field("steered.holdout", Kind::Truth),
    field("steered.experiment", Kind::Text),
    field("steered.arm", Kind::Text),
    field("steered.refused", Kind::Text),
    field("cmcd", Kind::Parts),
    field("cmcd.sid", Kind::Text),
    field("cmcd.st", words!(StreamType)),
    field("cmcd.br_kbps", Kind::Count),
    field("cmcd.bl_ms", Kind::Count),
    field("cmcd.mtp_kbps", Kind::Count),
    field("cmcd.bs", Kind::Truth),
    field("xid", Kind::Count),
    field("restarts", Kind::Count),
    field("lines", Kind::Lines(None)),
    field("vcl_log", Kind::Lines(Some(LineTag::Log))),
    field("vcl_error", Kind::Lines(Some(LineTag::Error))),
    field("vcl_acl", Kind::Lines(Some(LineTag::Acl))),
    field("timestamp", Kind::Lines(Some(LineTag::Timestamp))),
    field("fetcherror", Kind::Lines(Some(LineTag::FetchError))),
    field("lines_lost", Kind::Count),
    field("v", Kind::Count),
];

/// Columns of `record::human` with a name of their own, and whose they are.
const COLUMNS: [(&str, &str); 10] = [
    ("st", "status"),
    ("content", "bytes"),
    ("total", "duration_us"),
    ("cc", "tcp.congestion_control"),
    ("rtt", "tcp.rtt_us"),
    ("min", "tcp.min_rtt_us"),
    ("cwnd", "tcp.snd_cwnd"),
    ("delivery", "tcp.delivery_rate_bytes_per_s"),
    ("retr", "tcp.retransmits"),
    ("lost", "tcp.lost"),
];

/// What Varnish's tools call it, and what it is here.
const ELSEWHERE: [(&str, &str); 6] = [
    ("respstatus", "status"),
    ("respproto", "protocol"),
    ("reqmethod", "method"),
    ("requrl", "path"),
    ("url", "path"),
    ("reqstart", "client"),
];

impl Field {
    /// The field that `name` means.
    pub(super) fn find(name: &str) -> Option<&'static Field> {
        let name = name.to_ascii_lowercase();
        let column = COLUMNS.iter().find(|(column, _)| *column == name);
        let name = match (column, name.strip_prefix("tcpi")) {
            (Some((_, field)), _) => (*field).to_owned(),
            (None, Some(rest)) => format!("tcp{rest}"),
            (None, None) => name,
        };
        FIELDS.iter().find(|field| field.name == name || field.short() == name)
    }

    /// The known name that is most like this one.
    pub(super) fn nearest(name: &str) -> Option<String> {
        let name = name.to_ascii_lowercase();
        if let Some((_, field)) = ELSEWHERE.iter().find(|(elsewhere, _)| *elsewhere == name) {
            return Some((*field).to_owned());
        }
        // Names of policies have no dot there.
        if let Some(field) = name.strip_prefix("tcpi_").and_then(|part| Self::find(&format!("tcp.{part}"))) {
            return Some(field.short().to_owned());
        }
        let (prefix, name) = match name.strip_prefix("tcpi.") {
            Some(rest) => ("tcpi.", rest),
            None => ("", name.as_str()),
        };
        let known = FIELDS.iter().flat_map(|field| [field.short(), field.name]);
        if prefix.is_empty() {
            return nearest(name, known).map(str::to_owned);
        }
        nearest(name, known.filter_map(|known| known.strip_prefix("tcp.")))
            .map(|near| format!("{prefix}{near}"))
    }

    /// Its name without the unit.
    pub(super) fn short(&self) -> &'static str {
        self.unit().and_then(|unit| self.name.strip_suffix(unit)).unwrap_or(self.name)
    }

    /// How its name ends for its unit.
    pub(super) fn unit(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Span => Some("_us"),
            Kind::Rate => Some("_bytes_per_s"),
            _ => None,
        }
    }

    /// What a record has of it.
    pub(super) fn values<'r>(&self, record: &'r Value) -> Vec<&'r Value> {
        let Kind::Lines(tag) = self.kind else {
            let found = self.name.split('.').try_fold(record, |value, name| value.get(name));
            return found.into_iter().collect();
        };
        let lines = record.get("lines").and_then(Value::as_array).into_iter().flatten();
        let lines =
            lines.filter(|line| tag.is_none_or(|tag| line.get("tag").is_some_and(|is| is == tag.as_str())));
        lines.filter_map(|line| line.get("text")).collect()
    }
}

impl Kind {
    /// The operators that it can be compared with.
    pub(super) fn operators(self) -> &'static [&'static str] {
        match self {
            Kind::Text | Kind::Word(_) | Kind::Lines(_) => &["==", "!=", "~", "!~"],
            Kind::Parts => &[],
            Kind::Truth => &["==", "!="],
            Kind::Time => &["==", "!=", "<", "<=", ">", ">=", "~", "!~"],
            Kind::Count | Kind::Size | Kind::Span | Kind::Rate => &["==", "!=", "<", "<=", ">", ">="],
        }
    }

    /// How much of the record's unit one of `unit` is.
    pub(super) fn scale(self, unit: &str) -> Option<f64> {
        let of = |units: &[(&str, u64)], unit: &str| {
            units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale as f64)
        };
        match self {
            Kind::Size => of(SIZE_UNITS, unit),
            Kind::Span if unit == "us" => Some(1.0),
            Kind::Span => of(SPAN_UNITS, unit).map(|ms| ms * 1e3),
            Kind::Rate => of(BIT_RATES, unit)
                .map(|bits| bits / 8.0)
                .or_else(|| of(SIZE_UNITS, unit.strip_suffix("/s")?)),
            _ => None,
        }
    }

    /// The units that it can be given in.
    pub(super) fn units(self) -> &'static str {
        match self {
            Kind::Size => "B, KiB, MiB, GiB, TiB, kB, MB, GB, TB",
            Kind::Span => "us, ms, s, min, h",
            Kind::Rate => "bit/s, kbit/s, Mbit/s, Gbit/s, B/s, KiB/s, MiB/s, kB/s, MB/s",
            _ => "none",
        }
    }
}

/// Bits per second.
const BIT_RATES: &[(&str, u64)] =
    &[("bit/s", 1), ("kbit/s", 1_000), ("Mbit/s", 1_000_000), ("Gbit/s", 1_000_000_000)];

/// Columns of the terminal that lists keep to.
const WIDTH: usize = 96;

/// The short names of all fields, wrapped, each line after `indent`.
pub(crate) fn reference(indent: &str) -> String {
    let mut lines = vec![String::new()];
    for field in &FIELDS {
        let line = lines.last_mut().expect("there is a first line");
        if indent.len() + line.len() + field.short().len() > WIDTH {
            lines.push(String::new());
        }
        let line = lines.last_mut().expect("there is a first line");
        line.push_str(field.short());
        line.push(' ');
    }
    lines.iter().map(|line| format!("{indent}{}", line.trim_end())).collect::<Vec<_>>().join("\n")
}
