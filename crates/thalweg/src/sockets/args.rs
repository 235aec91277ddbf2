//! What `thalweg sockets` is asked, and the help that teaches it.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use thalweg_record::units::Span;

/// What a filter may be, for both helps.
macro_rules! filter_help {
    () => {
        "\
A filter is made of terms that must all hold; of a list, any. The kernel tests it before it copies:
  state NAMES       established close-wait fin-wait-1 syn-sent time-wait listening ..., all
  sport PORTS       the port on this side: 443, :443, 8000-8010, with commas between them
  dport PORTS       the port on the client's side
  src PREFIXES      the address on this side: 10.0.0.1, 10.0.0.0/8, 2001:db8::/32
  dst PREFIXES      the client's address
Without state: all but listening, time-wait, syn-recv and closed. IPv4 in IPv6 form counts as IPv4.
"
    };
}

/// What stands below the help.
pub(crate) const HELP: &str = concat!(
    "\
Examples:
  thalweg sockets                                   every connection of this machine
  thalweg sockets sport = :443,8443 --sort rtt      clients of two ports, the farthest first
  thalweg sockets state established dst 203.0.113.0/24,2001:db8::/32
  thalweg sockets state all --namespace edge --namespace /proc/4711/ns/net
  thalweg sockets --json | jq 'select(.tcp.min_rtt_us > 100000) | .client_prefix'
  thalweg sockets --save dump.bin && thalweg sockets --decode dump.bin --sort retrans
  thalweg sockets top sport = :443                  the same, live

",
    filter_help!(),
    "
Columns: PORT on this side, CC the congestion control, RTT and MIN the round trip and its least,
CWND in TCP segments, DELIVERY the newest delivery rate, with * if the application limited it,
PACING the pacing rate, RETR TCP segments sent again, LOST of those in flight, ACKED bytes that the
client has, BUSY the time with something to send, RWND and SNDB the shares of it in which the
client's window and the send buffer held it back, SENDQ bytes not acknowledged yet."
);

/// What stands below the help of `thalweg sockets top`, and on the terminal where help is asked for there.
pub(super) const TOP_HELP: &str = concat!(
    "\
Keys:
  /         edit the filter: Enter applies it, Esc leaves it as it was
  s         sort by the next column
  p, space  pause, and go on
  ?, h      this help; any key leaves it
  q         end
Where standard output is no terminal, a block is printed for each period.

",
    filter_help!(),
    "
Columns as in thalweg sockets; SENDING is what the client acknowledged in the last period, RETR/s
what was sent again in it, in TCP segments.

Example:
  thalweg sockets top sport = :443 --sort retrans --period 2s"
);

/// `thalweg sockets`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SocketsArgs {
    #[command(subcommand)]
    pub(super) live: Option<Live>,
    #[command(flatten)]
    pub(super) which: Which,
    /// Print one JSON object a line
    #[arg(long)]
    pub(super) json: bool,
    /// Write what the kernel told to a file as well, for --decode
    #[arg(long, value_name = "FILE", conflicts_with = "decode")]
    pub(super) save: Option<PathBuf>,
    /// Print the sockets of a file that --save or ss -D has written; - is standard input
    #[arg(long, value_name = "FILE|-", conflicts_with = "namespaces")]
    pub(super) decode: Option<PathBuf>,
    /// Sort by this, the largest first
    #[arg(long, value_name = "COLUMN")]
    pub(super) sort: Option<Sort>,
    /// Print so many sockets at most
    #[arg(long, value_name = "N")]
    pub(super) limit: Option<usize>,
}

/// Which sockets.
#[derive(Debug, Args)]
pub(super) struct Which {
    /// What must hold of a socket, such as: sport = :443 dst 203.0.113.0/24
    #[arg(value_name = "FILTER")]
    pub(super) filter: Vec<String>,
    /// Ask in a network namespace, by its name or file, instead of this one; may be repeated
    #[arg(long = "namespace", value_name = "NAME|PATH")]
    pub(super) namespaces: Vec<String>,
}

/// What runs until it is stopped.
#[derive(Debug, Subcommand)]
pub(super) enum Live {
    /// Show sockets live, with what each did since the last look
    #[command(after_help = TOP_HELP)]
    Top(TopArgs),
}

/// `thalweg sockets top`.
#[derive(Debug, Args)]
pub(super) struct TopArgs {
    #[command(flatten)]
    pub(super) which: Which,
    /// Sort by this, the largest first
    #[arg(long, value_name = "COLUMN", default_value = "sending")]
    pub(super) sort: Sort,
    /// How often to look
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = period)]
    pub(super) period: Span,
    /// Print so many sockets at most; on a terminal as many as there is room for
    #[arg(long, value_name = "N")]
    pub(super) limit: Option<usize>,
    /// End after so many looks
    #[arg(long, value_name = "N")]
    pub(super) count: Option<u64>,
}

/// The shortest period: a dump of many sockets takes some milliseconds.
const PERIOD_MS_MIN: u128 = 100;

fn period(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error: thalweg_record::units::Error| error.to_string())?;
    if span.duration.as_millis() < PERIOD_MS_MIN {
        return Err(format!("a period has {PERIOD_MS_MIN}ms or more"));
    }
    Ok(span)
}

/// What rows are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Sort {
    /// What was acknowledged in the last period; without one, over the connection's life
    Sending,
    /// The round trip
    Rtt,
    /// The least round trip
    MinRtt,
    /// The congestion window
    Cwnd,
    /// The delivery rate
    Rate,
    /// The pacing rate
    Pacing,
    /// TCP segments sent again; live, those of the last period
    Retrans,
    /// TCP segments in flight taken for lost
    Lost,
    /// Bytes acknowledged
    Acked,
    /// Time busy
    Busy,
    /// The send queue
    Sendq,
    /// The client's address, the least first
    Client,
}

impl Sort {
    /// The one after this.
    pub(super) fn next(self) -> Self {
        let all = Self::value_variants();
        let at = all.iter().position(|sort| *sort == self).unwrap_or(0);
        all[(at + 1) % all.len()]
    }

    /// Its name on the command line.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}
