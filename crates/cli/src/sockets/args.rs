//! Arguments and help of `thalweg sockets`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use thalweg_units::Span;

/// Filter syntax, for both help texts.
macro_rules! filter_help {
    () => {
        "\
A filter is a list of terms that must all match; a term matches if any of its values does.
The kernel applies the filter:
  state NAMES       established close-wait fin-wait-1 syn-sent time-wait listening ..., all
  sport PORTS       local port: 443, :443, 8000-8010, or several separated by commas
  dport PORTS       client port
  src PREFIXES      local address: 10.0.0.1, 10.0.0.0/8, 2001:db8::/32
  dst PREFIXES      client address
Without state: all but listening, time-wait, syn-recv and closed. An IPv4-mapped IPv6 address counts
as IPv4.
"
    };
}

/// Examples and notes printed after the help.
pub const HELP: &str = concat!(
    "\
Examples:
  thalweg sockets                                   all connections of this machine
  thalweg sockets sport = :443,8443 --sort rtt      clients of two ports, longest RTT first
  thalweg sockets state established dst 203.0.113.0/24,2001:db8::/32
  thalweg sockets state all --namespace edge --namespace /proc/4711/ns/net
  thalweg sockets --json | jq 'select(.tcp.min_rtt_us > 100000) | .client_prefix'
  thalweg sockets --save dump.bin && thalweg sockets --decode dump.bin --sort retrans
  thalweg sockets top sport = :443                  a live table of one port

",
    filter_help!(),
    "
Columns:
  PORT              local port
  CC                congestion control
  RTT, MIN          smoothed and minimum RTT
  CWND              congestion window in TCP segments
  DELIVERY          latest delivery rate; * if limited by the application
  PACING            pacing rate
  RETR              TCP segments retransmitted over the connection's life
  LOST              TCP segments in flight that are presumed lost
  ACKED             bytes acknowledged by the client
  BUSY              time with data to send
  RWND, SNDB        shares of this time limited by the client's window and by the send buffer
  SENDQ             bytes not yet acknowledged; of a listener, connections waiting to be accepted,
                    and their maximum"
);

/// Examples and notes printed after the help of `thalweg sockets top`, also its help screen.
pub(super) const TOP_HELP: &str = concat!(
    "\
Keys:
  /         edit the filter: Enter applies it, Esc cancels
  s         sort by the next column
  p, space  pause and resume
  ?, h      this help; any key leaves it
  q         quit
If standard output is not a terminal, each period prints a block.

",
    filter_help!(),
    "
Columns are as in thalweg sockets. SENDING is the rate of acknowledged bytes in the last period,
RETR/s the number of TCP segments retransmitted per second.

Example:
  thalweg sockets top sport = :443 --sort retrans --period 2s"
);

/// `thalweg sockets`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct SocketsArgs {
    #[command(subcommand)]
    pub(super) live: Option<Live>,
    #[command(flatten)]
    pub(super) which: Which,
    /// Print one JSON object per line
    #[arg(long)]
    pub(super) json: bool,
    /// Also write the kernel's messages to a file, for --decode
    #[arg(long, value_name = "FILE", conflicts_with = "decode")]
    pub(super) save: Option<PathBuf>,
    /// Print the sockets in a file written by --save or ss -D; - is standard input
    #[arg(long, value_name = "FILE|-", conflicts_with = "namespaces")]
    pub(super) decode: Option<PathBuf>,
    /// Sort by this column, largest first
    #[arg(long, value_name = "COLUMN")]
    pub(super) sort: Option<Sort>,
    /// Print at most this many sockets
    #[arg(long, value_name = "N")]
    pub(super) limit: Option<usize>,
}

/// Sockets to select.
#[derive(Debug, Args)]
pub(super) struct Which {
    /// Filter, such as: sport = :443 dst 203.0.113.0/24
    #[arg(value_name = "FILTER")]
    pub(super) filter: Vec<String>,
    /// Query this network namespace, by name or path, instead of the current one; may be repeated
    #[arg(long = "namespace", value_name = "NAME|PATH")]
    pub(super) namespaces: Vec<String>,
}

/// Subcommands that run until stopped.
#[derive(Debug, Subcommand)]
pub(super) enum Live {
    /// Show sockets live, with the activity of each period
    #[command(after_help = TOP_HELP)]
    Top(TopArgs),
}

/// `thalweg sockets top`.
#[derive(Debug, Args)]
pub(super) struct TopArgs {
    #[command(flatten)]
    pub(super) which: Which,
    /// Sort by this column, largest first
    #[arg(long, value_name = "COLUMN", default_value = "sending")]
    pub(super) sort: Sort,
    /// Time between updates
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = period)]
    pub(super) period: Span,
    /// Print at most this many sockets; on a terminal, as many as fit
    #[arg(long, value_name = "N")]
    pub(super) limit: Option<usize>,
    /// Stop after this many updates
    #[arg(long, value_name = "N")]
    pub(super) count: Option<u64>,
}

/// Minimum period, because a dump of many sockets takes several milliseconds.
const PERIOD_MS_MIN: u128 = 100;

fn period(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error: thalweg_units::Error| error.to_string())?;
    if span.duration.as_millis() < PERIOD_MS_MIN {
        return Err(format!("must be at least {PERIOD_MS_MIN}ms"));
    }
    Ok(span)
}

/// Column to sort by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Sort {
    /// Bytes acknowledged in the last period; without `top`, over the connection's life
    Sending,
    /// Smoothed RTT
    Rtt,
    /// Minimum RTT
    MinRtt,
    /// Congestion window
    Cwnd,
    /// Delivery rate
    Rate,
    /// Pacing rate
    Pacing,
    /// Retransmitted TCP segments; with `top`, those in the last period
    Retrans,
    /// TCP segments in flight considered lost
    Lost,
    /// Bytes acknowledged
    Acked,
    /// Time with data to send
    Busy,
    /// Bytes in the send queue
    Sendq,
    /// Client address, lowest first
    Client,
}

impl Sort {
    /// Returns the next column.
    pub(super) fn next(self) -> Self {
        let all = Self::value_variants();
        let at = all.iter().position(|sort| *sort == self).unwrap_or(0);
        all[(at + 1) % all.len()]
    }

    /// Returns the column's name on the command line.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}
