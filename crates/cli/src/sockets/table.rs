//! Rows of the socket table. Columns of unbounded width come last.

use std::fmt::Write as _;

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use thalweg_record::Colour;
use thalweg_tcp::diag::{Queues, Socket, State};
use thalweg_units::table::Column;
use thalweg_units::{Escaped, bit_rate, bit_rate_of_bytes, micros, or_dash, share, size};

use super::args::Sort;

const RED: Style = Style::new().fg(Color::Red);
const YELLOW: Style = Style::new().fg(Color::Yellow);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const PLAIN: Style = Style::new();

/// All columns. Their widths are fixed, because rows are written one by one and columns of a live
/// table must not move.
const COLUMNS: [Column<'_>; 18] = [
    Column::text("STATE").wide(10),
    Column::number("PORT").wide(5),
    Column::text("CC").wide(5),
    Column::number("SENDING").wide(11),
    Column::number("RETR/s").wide(7),
    Column::number("RTT").wide(7),
    Column::number("MIN").wide(7),
    Column::number("CWND").wide(5),
    Column::number("DELIVERY").wide(12),
    Column::number("PACING").wide(11),
    Column::number("RETR").wide(6),
    Column::number("LOST").wide(5),
    Column::number("ACKED").wide(8),
    Column::number("BUSY").wide(7),
    Column::number("RWND").wide(4),
    Column::number("SNDB").wide(4),
    Column::number("SENDQ").wide(8),
    Column::text("CLIENT"),
];
/// Columns shown only in a live table.
const LIVE: std::ops::Range<usize> = 3..5;

/// Table row of a socket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) socket: &'a Socket,
    /// Namespace of the socket, if not the process's own.
    pub(super) namespace: Option<&'a str>,
    /// Activity of the socket in the last period, in a live table.
    pub(super) since: Option<Since>,
}

/// Activity of a socket in one period.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Since {
    /// Bytes acknowledged by the client per second.
    pub(super) acked_bytes_per_s: f64,
    /// TCP segments retransmitted per second.
    pub(super) retrans_per_s: f64,
}

/// Formats the column names.
pub(super) fn header(is_live: bool) -> Line<'static> {
    let columns = COLUMNS.iter().enumerate().filter(|(at, _)| is_live || !LIVE.contains(at));
    Line::raw(columns.map(|(_, column)| column.pad(column.name)).collect::<Vec<_>>().join(" "))
}

impl Row<'_> {
    /// Formats this socket as a row aligned with [`header`].
    pub(super) fn line(&self, colour: Colour) -> Line<'static> {
        let styled = |text: String, style: Style| match colour {
            Colour::Always => Span::styled(text, style),
            Colour::Never => Span::raw(text),
        };
        let columns = COLUMNS.iter().enumerate().filter(|(at, _)| self.since.is_some() || !LIVE.contains(at));
        let mut spans = Vec::with_capacity(2 * COLUMNS.len());
        for ((_, column), (style, cell)) in columns.zip(self.cells()) {
            if !spans.is_empty() {
                spans.push(Span::raw(" "));
            }
            spans.push(styled(column.pad(&cell), style));
        }
        spans.extend(self.namespace.map(|namespace| styled(format!(" {}", Escaped(namespace)), DIM)));
        Line::from(spans)
    }

    /// Formats the cells of the row.
    fn cells(&self) -> Vec<(Style, String)> {
        let (socket, info) = (self.socket, self.socket.tcp_info.as_ref());
        let is_open = matches!(socket.state, State::Established | State::Listen);
        let mut cells = vec![
            (if is_open { PLAIN } else { YELLOW }, socket.state.to_string()),
            (PLAIN, socket.local.port().to_string()),
            (PLAIN, or_dash(socket.congestion_control, |name| name.to_string())),
        ];
        if let Some(since) = self.since {
            let style = if since.retrans_per_s > 0.0 { RED } else { PLAIN };
            cells.push((PLAIN, bit_rate(since.acked_bytes_per_s * 8.0)));
            cells.push((style, format!("{:.1}", since.retrans_per_s)));
        }
        let rate = |bytes_per_s: Option<u64>| or_dash(bytes_per_s, bit_rate_of_bytes);
        let is_app_limited = info.is_some_and(|info| info.delivery_rate_app_limited);
        let (style, mark) = if is_app_limited { (DIM, "*") } else { (PLAIN, " ") };
        let busy_us = info.and_then(|info| info.busy_time_us);
        let of_busy = |part: Option<u64>| or_dash(part.zip(busy_us), |(part, busy)| share(part, busy));
        let lost = info.map(|info| info.lost);
        cells.extend([
            (PLAIN, or_dash(info, |info| micros(info.rtt_us.into()))),
            (PLAIN, or_dash(info.and_then(|info| info.min_rtt_us), |us| micros(us.into()))),
            (PLAIN, or_dash(info, |info| info.snd_cwnd.to_string())),
            (style, rate(info.and_then(|info| info.delivery_rate_bytes_per_s)) + mark),
            (PLAIN, rate(info.and_then(|info| info.pacing_rate_bytes_per_s))),
            (PLAIN, or_dash(info, |info| info.total_retrans.to_string())),
            (
                if lost.is_some_and(|lost| lost > 0) { RED } else { PLAIN },
                or_dash(lost, |lost| lost.to_string()),
            ),
            (PLAIN, or_dash(info.and_then(|info| info.bytes_acked), size)),
            (PLAIN, or_dash(busy_us, micros)),
            (PLAIN, of_busy(info.and_then(|info| info.rwnd_limited_us))),
            (PLAIN, of_busy(info.and_then(|info| info.sndbuf_limited_us))),
            (PLAIN, queue(socket)),
            (PLAIN, socket.remote_unmapped().to_string()),
        ]);
        cells
    }

    /// Returns the sort key; larger values come first.
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
            (Sort::Sendq, _) => number(match self.socket.queues() {
                Queues::Bytes { sent, .. } => Some(sent.into()),
                Queues::Connections { .. } => None,
            }),
            (Sort::Client, _) => 0.0,
        }
    }
}

/// Formats the send queue or, for a listener, the queue of connections and its maximum.
fn queue(socket: &Socket) -> String {
    match socket.queues() {
        Queues::Bytes { sent, .. } => size(sent.into()),
        Queues::Connections { waiting, max } => format!("{waiting}/{max}"),
    }
}

/// Sorts the rows; ties are broken by the client address.
pub(super) fn sort(rows: &mut [Row<'_>], by: Sort) {
    rows.sort_by(|a, b| {
        let clients = || a.socket.remote_unmapped().cmp(&b.socket.remote_unmapped());
        b.key(by).total_cmp(&a.key(by)).then_with(clients)
    });
}

/// Formats a line for standard output, with escape codes for its styles.
pub(super) fn text(line: &Line<'_>) -> String {
    let mut text = String::new();
    for span in &line.spans {
        let code = match span.style.fg {
            Some(Color::Red) => Some(31),
            Some(Color::Yellow) => Some(33),
            _ => span.style.add_modifier.contains(Modifier::DIM).then_some(2),
        };
        match code {
            Some(code) => write!(text, "\x1b[{code}m{}\x1b[0m", span.content),
            None => write!(text, "{}", span.content),
        }
        .expect("writing to a String cannot fail");
    }
    text
}
