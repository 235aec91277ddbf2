//! A record as a line for people: aligned columns, scaled units, the unbounded parts last; what was logged of it on
//! lines of their own below.
//!
//! **Invariant:** nothing a client sent reaches a terminal unescaped: control characters are shown as escapes.

use std::fmt::{self, Write as _};

use crate::wire::WireTime;
use crate::{CacheResult, Decider, ResponseRecord, Steered, TcpState};

/// Whether a line for people carries ANSI colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// Plain text: for files, pipes and terminals that were asked not to.
    Never,
    /// Status and cache result in colour.
    Always,
}

const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

/// The names of the columns of [`ResponseRecord::human`], without a newline.
pub fn human_header() -> String {
    format!(
        "{:<12} {:<3} {:<9} {:>8} {:>7} {:>7} {:>11} {:<5} {:>7} {:>7} {:>5} {:>11} {:>5} {:>4} {:<21} REQUEST",
        "TIME (UTC)",
        "ST",
        "CACHE",
        "CONTENT",
        "TTFB",
        "TOTAL",
        "GOODPUT",
        "CC",
        "RTT",
        "MIN",
        "CWND",
        "DELIVERY",
        "RETR",
        "LOST",
        "CLIENT"
    )
}

impl ResponseRecord {
    /// The record on one line without a newline, under [`human_header`], and below it, indented, a line for each that
    /// was logged. `-` is what the kernel or the edge did not have; rates are bits per second, sizes count in 1,024.
    /// What a policy and the cache have to say of the request comes behind it. Where more than the settings decided on the
    /// congestion control, it says who, and what it was before if that was another; and of a bundle which rule and which arm.
    pub fn human(&self, colour: Colour) -> String {
        let time = WireTime { unix_us: self.time_unix_us }.to_string();
        let clock = time.split_once('T').map_or(time.as_str(), |(_, clock)| clock.trim_end_matches('Z'));
        let mut line = format!("{clock:<12} ");
        paint(&mut line, colour, status_colour(self.status), format_args!("{:<3}", self.status));
        line.push(' ');
        paint(&mut line, colour, cache_colour(self.cache), format_args!("{:<9}", self.cache));
        let ttfb = or_dash(self.ttfb_us, micros);
        let (total, goodput) = (micros(self.duration_us), bit_rate(self.goodput_bytes_per_s()));
        put(&mut line, format_args!(" {:>8} {ttfb:>7} {total:>7} {goodput:>11}", size(self.bytes)));
        tcp_columns(&mut line, self.tcp.as_ref());
        put(&mut line, format_args!(" {:<21} ", self.client.to_string()));
        put(&mut line, format_args!("{} {}{}", Shown(&self.method), Shown(&self.host), Shown(&self.path)));
        put(&mut line, format_args!("{}", Shown(&self.notes())));
        if let Some(tcp) = &self.tcp
            && let Some(decider) = tcp.decider.filter(|decider| *decider != Decider::Default)
        {
            let (before, after) = (tcp.congestion_control_start.as_deref(), Shown(&tcp.congestion_control));
            match before.filter(|before| *before != tcp.congestion_control) {
                Some(before) => put(&mut line, format_args!(" [{} to {after} by {decider}]", Shown(before))),
                None => put(&mut line, format_args!(" [{after} by {decider}]")),
            }
        }
        if let Some(steered) = &self.steered {
            put(&mut line, format_args!(" [{}]", Shown(&steered.human())));
        }
        if let Some(cut) = self.cut {
            line.push(' ');
            paint(&mut line, colour, RED, format_args!("[cut: {}]", cut.as_str().replace('_', " ")));
        }
        for logged in self.lines.iter() {
            put(&mut line, format_args!("\n    {:<9} {}", logged.tag, Shown(&logged.text)));
        }
        if self.lines.lost() > 0 {
            put(&mut line, format_args!("\n    {} more, too many to keep", self.lines.lost()));
        }
        line
    }

    /// As ` [hit-for-miss, backend default, xid 7, restarts 1]`; nothing where there is nothing to say.
    fn notes(&self) -> String {
        let notes = [
            self.detail.as_deref().map(str::to_owned),
            self.backend.as_ref().map(|backend| format!("backend {backend}")),
            self.xid.map(|xid| format!("xid {xid}")),
            (self.restarts > 0).then(|| format!("restarts {}", self.restarts)),
        ];
        let notes: Vec<_> = notes.into_iter().flatten().collect();
        if notes.is_empty() { String::new() } else { format!(" [{}]", notes.join(", ")) }
    }
}

impl Steered {
    /// As `bundle 42: held out from 203.0.113.0/24, live-bbr/as-is`.
    fn human(&self) -> String {
        let mut text = format!("bundle {}:", self.bundle);
        if let Some(rule) = &self.rule {
            put(&mut text, format_args!("{}{rule}", if self.is_holdout { " held out from " } else { " " }));
        }
        if let (Some(experiment), Some(arm)) = (&self.experiment, &self.arm) {
            put(
                &mut text,
                format_args!("{}{experiment}/{arm}", if self.rule.is_some() { ", " } else { " " }),
            );
        }
        if let Some(refused) = &self.refused {
            put(&mut text, format_args!(", refused: {refused}"));
        }
        text
    }
}

fn tcp_columns(line: &mut String, tcp: Option<&TcpState>) {
    let congestion_control = tcp.map_or("-", |tcp| tcp.congestion_control.as_str());
    let rtt = or_dash(tcp.map(|tcp| tcp.rtt_us), |us| micros(us.into()));
    let min_rtt = or_dash(tcp.and_then(|tcp| tcp.min_rtt_us), |us| micros(us.into()));
    let snd_cwnd = or_dash(tcp.map(|tcp| tcp.snd_cwnd), |n| n.to_string());
    let delivery_rate = or_dash(tcp.and_then(|tcp| tcp.delivery_rate_bytes_per_s), bit_rate);
    let retransmits = or_dash(tcp.map(|tcp| tcp.retransmits), |n| n.to_string());
    let lost = or_dash(tcp.map(|tcp| tcp.lost), |n| n.to_string());
    put(
        line,
        format_args!(
            " {:<5} {rtt:>7} {min_rtt:>7} {snd_cwnd:>5} {delivery_rate:>11} {retransmits:>5} {lost:>4}",
            Shown(congestion_control).to_string()
        ),
    );
}

fn put(line: &mut String, text: fmt::Arguments<'_>) {
    line.write_fmt(text).expect("a String takes every write");
}

fn paint(line: &mut String, colour: Colour, code: &str, text: fmt::Arguments<'_>) {
    match colour {
        Colour::Never => put(line, text),
        Colour::Always => put(line, format_args!("{code}{text}{RESET}")),
    }
}

fn status_colour(status: u16) -> &'static str {
    match status {
        500.. => RED,
        400..500 => YELLOW,
        _ => DIM,
    }
}

fn cache_colour(cache: CacheResult) -> &'static str {
    match cache {
        CacheResult::Hit | CacheResult::Join | CacheResult::Validated => GREEN,
        CacheResult::Miss | CacheResult::Pass | CacheResult::Stale => YELLOW,
        CacheResult::Purge | CacheResult::Synth | CacheResult::Pipe => DIM,
        CacheResult::Error => RED,
    }
}

fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

/// Microseconds in the unit that keeps the number short: `850us`, `1.90ms`, `12.0s`.
fn micros(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}us"),
        1_000..1_000_000 => format!("{}ms", three_digits(us as f64 / 1e3)),
        _ => format!("{}s", three_digits(us as f64 / 1e6)),
    }
}

/// Bytes in units of 1,024: `123B`, `1.14MiB`.
fn size(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0, ["B", "KiB", "MiB", "GiB", "TiB"])
}

/// Bytes per second as bits per second in units of 1,000, as links are named: `98.8Mbit/s`.
fn bit_rate(bytes_per_s: u64) -> String {
    scaled(bytes_per_s as f64 * 8.0, 1000.0, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

fn scaled(value: f64, step: f64, units: [&str; 5]) -> String {
    let mut value = value;
    let mut unit = 0;
    while value >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let number = if unit == 0 { format!("{value:.0}") } else { three_digits(value) };
    format!("{number}{}", units[unit])
}

/// A positive number with three significant digits, more if it has more before the point.
fn three_digits(value: f64) -> String {
    let decimals = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// Text from outside with its control characters escaped.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if c.is_control() { write!(f, "{}", c.escape_default())? } else { f.write_char(c)? }
        }
        Ok(())
    }
}
