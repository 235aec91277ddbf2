//! Sockets as rows of a table, the unbounded parts last.

use std::fmt::{self, Write as _};

use thalweg_record::Colour;
use thalweg_tcp::TcpInfo;
use thalweg_tcp::diag::{Socket, State};

use super::args::Sort;
use super::format::{bit_rate, micros, or_dash, share, size};

const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

/// A socket of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) socket: &'a Socket,
    /// Where it is, if that is not here.
    pub(super) namespace: Option<&'a str>,
    /// What it did since the last look, in a live table.
    pub(super) since: Option<Since>,
}

/// What a socket did in a period.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Since {
    /// Acknowledged by the client.
    pub(super) acked_bytes_per_s: f64,
    /// TCP segments sent again.
    pub(super) retrans_per_s: f64,
}

/// The names of the columns, without a newline.
pub(super) fn header(is_live: bool) -> String {
    let live = if is_live { format!(" {:>11} {:>7}", "SENDING", "RETR/s") } else { String::new() };
    format!(
        "{:<10} {:>5} {:<5}{live} {:>7} {:>7} {:>5} {:>12} {:>11} {:>6} {:>5} {:>8} {:>7} {:>4} {:>4} {:>8} CLIENT",
        "STATE",
        "PORT",
        "CC",
        "RTT",
        "MIN",
        "CWND",
        "DELIVERY",
        "PACING",
        "RETR",
        "LOST",
        "ACKED",
        "BUSY",
        "RWND",
        "SNDB",
        "SENDQ"
    )
}

impl Row<'_> {
    /// The row, without a newline.
    pub(super) fn line(&self, colour: Colour) -> String {
        let mut line = Line { text: String::new(), colour };
        let (socket, info) = (self.socket, self.socket.tcp_info.as_ref());
        let is_open = matches!(socket.state, State::Established | State::Listen);
        line.cell(if is_open { "" } else { YELLOW }, format_args!("{:<10}", socket.state));
        let cc = or_dash(socket.congestion_control, |name| name.to_string());
        line.cell("", format_args!(" {:>5} {cc:<5}", socket.local.port()));
        if let Some(since) = self.since {
            let sending = bit_rate(since.acked_bytes_per_s as u64);
            line.cell("", format_args!(" {sending:>11}"));
            let colour = if since.retrans_per_s > 0.0 { RED } else { "" };
            line.cell(colour, format_args!(" {:>7.1}", since.retrans_per_s));
        }
        path_cells(&mut line, info);
        let lost = info.map_or(0, |info| info.lost);
        let retrans = or_dash(info, |info| info.total_retrans.to_string());
        line.cell("", format_args!(" {retrans:>6}"));
        line.cell(
            if lost > 0 { RED } else { "" },
            format_args!(" {:>5}", or_dash(info, |info| info.lost.to_string())),
        );
        busy_cells(&mut line, info);
        line.cell("", format_args!(" {:>8} {}", size(socket.wqueue_bytes.into()), socket.remote_unmapped()));
        if let Some(namespace) = self.namespace {
            line.cell(DIM, format_args!(" {}", Shown(namespace)));
        }
        line.text
    }

    /// What it is sorted by; the larger comes first.
    pub(super) fn key(&self, sort: Sort) -> f64 {
        let info = self.socket.tcp_info.as_ref();
        let number = |value: Option<u64>| value.map_or(-1.0, |value| value as f64);
        match (sort, self.since) {
            (Sort::Sending, Some(since)) => since.acked_bytes_per_s,
            (Sort::Retrans, Some(since)) => since.retrans_per_s,
            (Sort::Sending | Sort::Acked, _) => number(info.and_then(|info| info.bytes_acked)),
            (Sort::Retrans, None) => number(info.map(|info| info.total_retrans.into())),
            (Sort::Rtt, _) => number(info.map(|info| info.rtt_us.into())),
            (Sort::MinRtt, _) => number(info.and_then(|info| info.min_rtt_us).map(u64::from)),
            (Sort::Cwnd, _) => number(info.map(|info| info.snd_cwnd.into())),
            (Sort::Rate, _) => number(info.and_then(|info| info.delivery_rate_bytes_per_s)),
            (Sort::Pacing, _) => number(info.and_then(|info| info.pacing_rate_bytes_per_s)),
            (Sort::Lost, _) => number(info.map(|info| info.lost.into())),
            (Sort::Busy, _) => number(info.and_then(|info| info.busy_time_us)),
            (Sort::Sendq, _) => number(Some(self.socket.wqueue_bytes.into())),
            (Sort::Client, _) => 0.0,
        }
    }
}

/// Puts the rows in order; those that are alike by the client's address.
pub(super) fn sort(rows: &mut [Row<'_>], by: Sort) {
    rows.sort_by(|a, b| {
        let clients = || a.socket.remote_unmapped().cmp(&b.socket.remote_unmapped());
        b.key(by).total_cmp(&a.key(by)).then_with(clients)
    });
}

fn path_cells(line: &mut Line, info: Option<&TcpInfo>) {
    let rtt = or_dash(info, |info| micros(info.rtt_us.into()));
    let min_rtt = or_dash(info.and_then(|info| info.min_rtt_us), |us| micros(us.into()));
    let cwnd = or_dash(info, |info| info.snd_cwnd.to_string());
    line.cell("", format_args!(" {rtt:>7} {min_rtt:>7} {cwnd:>5}"));
    let is_app_limited = info.is_some_and(|info| info.delivery_rate_app_limited);
    let delivery = or_dash(info.and_then(|info| info.delivery_rate_bytes_per_s), bit_rate);
    let (colour, mark) = if is_app_limited { (DIM, "*") } else { ("", " ") };
    line.cell(colour, format_args!(" {delivery:>11}{mark}"));
    let pacing = or_dash(info.and_then(|info| info.pacing_rate_bytes_per_s), bit_rate);
    line.cell("", format_args!(" {pacing:>11}"));
}

fn busy_cells(line: &mut Line, info: Option<&TcpInfo>) {
    let acked = or_dash(info.and_then(|info| info.bytes_acked), size);
    let busy_us = info.and_then(|info| info.busy_time_us);
    let of_busy = |part: Option<u64>| or_dash(part.zip(busy_us), |(part, busy)| share(part, busy));
    let receiver = of_busy(info.and_then(|info| info.rwnd_limited_us));
    let sender = of_busy(info.and_then(|info| info.sndbuf_limited_us));
    line.cell("", format_args!(" {acked:>8} {:>7} {receiver:>4} {sender:>4}", or_dash(busy_us, micros)));
}

/// A line as it grows.
struct Line {
    text: String,
    colour: Colour,
}

impl Line {
    /// In the colour of this escape; none if that is empty.
    fn cell(&mut self, colour: &str, cell: fmt::Arguments<'_>) {
        let written = match self.colour {
            Colour::Always if !colour.is_empty() => write!(self.text, "{colour}{cell}{RESET}"),
            _ => self.text.write_fmt(cell),
        };
        written.expect("a String takes every write");
    }
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
