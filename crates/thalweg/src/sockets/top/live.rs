//! What changed between two looks at the sockets, and the lines that show it. No terminal and no clock here.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use thalweg_record::Colour;
use thalweg_tcp::diag::Socket;

use crate::sockets::args::Sort;
use crate::sockets::format::bit_rate;
use crate::sockets::table::{self, Row, Since};

/// Congestion controls that the first line tells of by name, the most used first.
const NAMES_MAX: usize = 4;

/// The sockets of the newest look, beside those of the one before.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    now: Vec<Seen>,
    /// By cookie, of the look before.
    before: HashMap<u64, Counters>,
}

#[derive(Debug)]
struct Seen {
    socket: Socket,
    namespace: usize,
    since: Since,
}

/// What of a socket only grows.
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
    /// Begins a new look: what was seen is the one before.
    pub(super) fn begin(&mut self) {
        self.before.clear();
        let counted = |seen: &Seen| Some((seen.socket.cookie, Counters::of(&seen.socket)?));
        self.before.extend(self.now.iter().filter_map(counted));
        self.now.clear();
    }

    /// A socket of this look, `elapsed` after the one before. One that was not there then has done nothing yet: when it
    /// began is not known.
    pub(super) fn see(&mut self, socket: &Socket, namespace: usize, elapsed: Duration) {
        let before = self.before.get(&socket.cookie);
        let seconds = elapsed.as_secs_f64();
        let since = match (Counters::of(socket), before) {
            (Some(now), Some(before)) if seconds > 0.0 => Since {
                acked_bytes_per_s: now.bytes_acked.saturating_sub(before.bytes_acked) as f64 / seconds,
                retrans_per_s: f64::from(now.total_retrans.saturating_sub(before.total_retrans)) / seconds,
            },
            _ => Since::default(),
        };
        self.now.push(Seen { socket: *socket, namespace, since });
    }

    /// The lines of this look: how many there are, the columns, and up to `rows_max` rows.
    pub(super) fn lines<'a>(&'a self, names: &'a [Option<String>], show: &Shown<'_>) -> Vec<String> {
        let row = |seen: &'a Seen| Row {
            socket: &seen.socket,
            namespace: names[seen.namespace].as_deref(),
            since: Some(seen.since),
        };
        let mut rows: Vec<Row<'a>> = self.now.iter().map(row).collect();
        table::sort(&mut rows, show.sort);
        let mut lines = vec![self.summary(show), table::header(true)];
        lines.extend(rows.iter().take(show.rows_max).map(|row| row.line(show.colour)));
        lines
    }

    /// `18 sockets  bbr 12  cubic 6  98.8Mbit/s acknowledged  0.0 sent again/s  sorted by rtt`.
    fn summary(&self, show: &Shown<'_>) -> String {
        let mut by_name: HashMap<&str, usize> = HashMap::new();
        for seen in &self.now {
            let name = seen.socket.congestion_control.as_ref().map_or("none", |name| name.as_str());
            *by_name.entry(name).or_default() += 1;
        }
        let mut by_name: Vec<_> = by_name.into_iter().collect();
        by_name.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let mut text = format!("{} sockets", self.now.len());
        for (name, count) in by_name.iter().take(NAMES_MAX) {
            let _ = write!(text, "  {name} {count}");
        }
        let rate: f64 = self.now.iter().map(|seen| seen.since.acked_bytes_per_s).sum();
        let retrans = self.now.iter().map(|seen| seen.since.retrans_per_s).sum::<f64>() + 0.0; // an empty sum is -0.0
        let (rate, by, note) = (bit_rate(rate as u64), show.sort.name(), show.note);
        let _ = write!(text, "  {rate} acknowledged  {retrans:.1} sent again/s  sorted by {by}{note}");
        text
    }
}

/// How a look is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown<'a> {
    pub(super) sort: Sort,
    pub(super) rows_max: usize,
    pub(super) colour: Colour,
    /// What else the first line says.
    pub(super) note: &'a str,
}

#[cfg(test)]
mod tests;
