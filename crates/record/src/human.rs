//! Human-readable form of records: aligned columns with scaled units, then values of any length.
//! Logged lines follow on lines of their own.
//!
//! **Invariant:** no client-supplied text reaches a terminal unescaped: control characters appear
//! as escapes.

use std::fmt::{self, Write as _};

use thalweg_units::{Escaped, bit_rate_of_bytes, micros, or_dash, size};

use crate::{CacheResult, Decider, ResponseRecord, Steered, TcpState, time};

/// Whether human-readable lines use ANSI colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// Plain text, for files, pipes and terminals with colour disabled.
    Never,
    /// ANSI colours for status, cache result and cut.
    Always,
}

const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

/// Returns the column names of [`ResponseRecord::human`], without a newline.
pub fn human_header() -> String {
    format!(
        "{:<12} {:<3} {:<9} {:>8} {:>7} {:>7} {:>11} {:<5} {:>7} {:>7} {:>5} {:>11} {:>5} {:>4} {:<21} REQUEST",
        "TIME (UTC)",
        "ST",
        "CACHE",
        "CONTENT",
        "TTFB",
        "WRITTEN",
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
    /// Formats the record as one line aligned with [`human_header`], followed by indented logged
    /// lines, without a final newline. `-` marks a value not provided by the kernel or the edge.
    /// Rates are in bits per second; sizes have binary prefixes. Notes from the policy and the
    /// cache follow the request. If a rule, an experiment or the policy decided the congestion
    /// control, the line names the decider and the previous algorithm. If a bundle affected the
    /// connection, the line names the bundle, its rule and the experiment arm.
    pub fn human(&self, colour: Colour) -> String {
        let time = format!("{:.3}", time(self.time_unix_us));
        let clock = time.split_once('T').map_or(time.as_str(), |(_, clock)| clock.trim_end_matches('Z'));
        let mut line = format!("{clock:<12} ");
        paint(&mut line, colour, status_colour(self.status), format_args!("{:<3}", self.status));
        line.push(' ');
        paint(&mut line, colour, cache_colour(self.cache), format_args!("{:<9}", self.cache));
        let ttfb = or_dash(self.ttfb_us, micros);
        let (written, goodput) =
            (micros(self.written_us), or_dash(self.goodput_bytes_per_s(), bit_rate_of_bytes));
        append(&mut line, format_args!(" {:>8} {ttfb:>7} {written:>7} {goodput:>11}", size(self.bytes)));
        tcp_columns(&mut line, self.tcp.as_ref());
        append(&mut line, format_args!(" {:<21} ", self.client.to_string()));
        append(
            &mut line,
            format_args!("{} {}{}", Escaped(&self.method), Escaped(&self.host), Escaped(&self.path)),
        );
        append(&mut line, format_args!("{}", Escaped(&self.notes())));
        if let Some(tcp) = &self.tcp
            && let Some(decider) = tcp.decider.filter(|decider| *decider != Decider::Default)
        {
            let (before, after) = (tcp.congestion_control_start.as_deref(), Escaped(&tcp.congestion_control));
            match before.filter(|before| *before != tcp.congestion_control) {
                Some(before) => {
                    append(&mut line, format_args!(" [{} to {after} by {decider}]", Escaped(before)));
                }
                None => append(&mut line, format_args!(" [{after} by {decider}]")),
            }
        }
        if let Some(steered) = &self.steered {
            append(&mut line, format_args!(" [{}]", Escaped(&steered.human())));
        }
        if let Some(cut) = self.cut {
            line.push(' ');
            paint(&mut line, colour, RED, format_args!("[cut: {}]", cut.as_str().replace('_', " ")));
        }
        for logged in self.lines.iter() {
            append(&mut line, format_args!("\n    {:<9} {}", logged.tag, Escaped(&logged.text)));
        }
        if self.lines.lost() > 0 {
            append(&mut line, format_args!("\n    {} more, dropped", self.lines.lost()));
        }
        line
    }

    /// Formats notes, such as ` [hit-for-miss, backend default, xid 7, restarts 1]`. Returns an
    /// empty string if the record has no notes.
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
    /// Formats the steering decision, such as `bundle 42: held out from 203.0.113.0/24,
    /// live-bbr/as-is`.
    fn human(&self) -> String {
        let mut text = format!("bundle {}:", self.bundle);
        if let Some(rule) = &self.rule {
            append(
                &mut text,
                format_args!("{}{rule}", if self.is_holdout { " held out from " } else { " " }),
            );
        }
        if let (Some(experiment), Some(arm)) = (&self.experiment, &self.arm) {
            append(
                &mut text,
                format_args!("{}{experiment}/{arm}", if self.rule.is_some() { ", " } else { " " }),
            );
        }
        if let Some(refused) = &self.refused {
            append(&mut text, format_args!(", refused: {refused}"));
        }
        text
    }
}

fn tcp_columns(line: &mut String, tcp: Option<&TcpState>) {
    let congestion_control = tcp.map_or("-", |tcp| tcp.congestion_control.as_str());
    let rtt = or_dash(tcp.map(|tcp| tcp.rtt_us), |us| micros(us.into()));
    let min_rtt = or_dash(tcp.and_then(|tcp| tcp.min_rtt_us), |us| micros(us.into()));
    let snd_cwnd = or_dash(tcp.map(|tcp| tcp.snd_cwnd), |n| n.to_string());
    let delivery_rate = or_dash(tcp.and_then(|tcp| tcp.delivery_rate_bytes_per_s), bit_rate_of_bytes);
    let retransmits = or_dash(tcp.map(|tcp| tcp.retransmits), |n| n.to_string());
    let lost = or_dash(tcp.map(|tcp| tcp.lost), |n| n.to_string());
    append(
        line,
        format_args!(
            " {:<5} {rtt:>7} {min_rtt:>7} {snd_cwnd:>5} {delivery_rate:>11} {retransmits:>5} {lost:>4}",
            Escaped(congestion_control).to_string()
        ),
    );
}

fn append(line: &mut String, text: fmt::Arguments<'_>) {
    line.write_fmt(text).expect("writing to a String cannot fail");
}

fn paint(line: &mut String, colour: Colour, code: &str, text: fmt::Arguments<'_>) {
    match colour {
        Colour::Never => append(line, text),
        Colour::Always => append(line, format_args!("{code}{text}{RESET}")),
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
