//! Socket activity between two dumps, formatted as lines. Uses neither a terminal nor a clock.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use ratatui::text::Line;
use thalweg_record::Colour;
use thalweg_tcp::diag::Socket;
use thalweg_units::bit_rate;

use crate::sockets::args::Sort;
use crate::sockets::table::{self, Row, Since};

/// Maximum number of congestion controls named in the summary, most used first.
const NAMES_MAX: usize = 4;

/// Sockets of the latest dump, and counters of the previous one.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    now: Vec<Sample>,
    /// Counters of the previous dump, by cookie.
    before: HashMap<u64, Counters>,
}

#[derive(Debug)]
struct Sample {
    socket: Socket,
    namespace: usize,
    since: Since,
}

/// Monotonic counters of a socket.
#[derive(Debug, Clone, Copy)]
struct Counters {
    bytes_acked: u64,
    total_retrans: u32,
}

impl Counters {
    fn of(socket: &Socket) -> Option<Self> {
        let info = socket.tcp_info.as_ref()?;
        Some(Self { bytes_acked: info.bytes_acked?, total_retrans: info.total_retrans })
    }
}

impl Sockets {
    /// Starts a new dump: the latest dump becomes the previous dump.
    pub(super) fn begin(&mut self) {
        self.before.clear();
        let counted = |sample: &Sample| Some((sample.socket.cookie, Counters::of(&sample.socket)?));
        self.before.extend(self.now.iter().filter_map(counted));
        self.now.clear();
    }

    /// Adds a socket of this dump, taken `elapsed` after the previous one. A new socket has no
    /// activity yet, because its start time is unknown.
    pub(super) fn add(&mut self, socket: &Socket, namespace: usize, elapsed: Duration) {
        let before = self.before.get(&socket.cookie);
        let seconds = elapsed.as_secs_f64();
        let since = match (Counters::of(socket), before) {
            (Some(now), Some(before)) if seconds > 0.0 => Since {
                acked_bytes_per_s: now.bytes_acked.saturating_sub(before.bytes_acked) as f64 / seconds,
                retrans_per_s: f64::from(now.total_retrans.saturating_sub(before.total_retrans)) / seconds,
            },
            _ => Since::default(),
        };
        self.now.push(Sample { socket: *socket, namespace, since });
    }

    /// Formats the summary, the column names, and up to `rows_max` rows of this dump.
    pub(super) fn lines<'a>(
        &'a self,
        names: &'a [Option<String>],
        display: &Display<'_>,
    ) -> Vec<Line<'static>> {
        let row = |sample: &'a Sample| Row {
            socket: &sample.socket,
            namespace: names[sample.namespace].as_deref(),
            since: Some(sample.since),
        };
        let mut rows: Vec<Row<'a>> = self.now.iter().map(row).collect();
        table::sort(&mut rows, display.sort);
        let mut lines = vec![Line::raw(self.summary(display)), table::header(true)];
        lines.extend(rows.iter().take(display.rows_max).map(|row| row.line(display.colour)));
        lines
    }

    /// Formats the summary, such as `18 sockets  bbr 12  cubic 6  98.8Mbit/s acknowledged  0.0
    /// retransmitted/s  sorted by rtt`.
    fn summary(&self, display: &Display<'_>) -> String {
        let mut by_name: HashMap<&str, usize> = HashMap::new();
        for sample in &self.now {
            let name = sample.socket.congestion_control.as_ref().map_or("none", |name| name.as_str());
            *by_name.entry(name).or_default() += 1;
        }
        let mut by_name: Vec<_> = by_name.into_iter().collect();
        by_name.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let mut text = format!("{} sockets", self.now.len());
        for (name, count) in by_name.iter().take(NAMES_MAX) {
            let _ = write!(text, "  {name} {count}");
        }
        let rate: f64 = self.now.iter().map(|sample| sample.since.acked_bytes_per_s).sum();
        // Adding 0.0 turns the -0.0 of an empty sum into 0.0.
        let retrans = self.now.iter().map(|sample| sample.since.retrans_per_s).sum::<f64>() + 0.0;
        let (rate, by, note) = (bit_rate(rate * 8.0), display.sort.name(), display.note);
        let _ = write!(text, "  {rate} acknowledged  {retrans:.1} retransmitted/s  sorted by {by}{note}");
        text
    }
}

/// Display options.
#[derive(Debug, Clone, Copy)]
pub(super) struct Display<'a> {
    pub(super) sort: Sort,
    pub(super) rows_max: usize,
    pub(super) colour: Colour,
    /// Text to append to the summary.
    pub(super) note: &'a str,
}

#[cfg(test)]
mod tests;
