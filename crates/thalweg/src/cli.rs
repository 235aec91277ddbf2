//! The command line: commands, their flags, and the help that teaches them.

use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Arg, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use thalweg_edge::{Expression, ExpressionError, LoadError, Policies};
use thalweg_telemetry::query::{By, QUERIES};

use crate::bundle::args::BundleCommand;
use crate::config::{self, Agent, ClickHouseUrl, Consumer, Edge, Flags, IngestUrl, Origin, Value};
use crate::controller::ControllerCommand;
use crate::log::{Query, reference};
use crate::query::When;
use crate::routes::RoutesCommand;
use crate::sockets::SocketsArgs;

/// Everything after the program's name.
#[derive(Debug, Parser)]
#[command(
    name = "thalweg",
    version,
    about = "Streaming media along the fastest line the network has",
    after_help = "Exit status: 0 done, 1 failed, 2 wrong use.\n\
                  Messages go to standard error; THALWEG_LOG=debug shows more of them,\n\
                  THALWEG_LOG=thalweg_edge=debug those of one part."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run every role that a config file names, in one process
    #[command(after_help = "\
Example, the sample that comes with Thalweg on demand and as a live channel:
  thalweg up --config demo.toml

Settings of the file: thalweg check --settings
Stops cleanly on SIGINT (Ctrl-C) and SIGTERM.")]
    Up {
        /// The config file
        #[arg(long, value_name = "FILE", default_value = "thalweg.toml")]
        config: PathBuf,
    },

    /// Run an edge: an HTTP cache that relays a response to everyone while it is still arriving
    #[command(after_help = "\
Example: an edge with BBR in front of an origin, its log for people in another terminal:
  thalweg edge --listen 0.0.0.0:8080 --backend http://127.0.0.1:8081 --congestion-control bbr
  thalweg log")]
    Edge(Flags<Edge>),

    /// Run an origin: HLS and DASH, just in time, from CMAF files and from live ingest
    #[command(after_help = "\
Example: each directory in /srv/media is a presentation of fragmented MP4 files
  thalweg origin --listen 127.0.0.1:8081 --media /srv/media
  curl http://127.0.0.1:8081/vod/NAME/master.m3u8

A live source pushes to http://127.0.0.1:8081/ingest/CHANNEL/, and the channel is
  http://127.0.0.1:8081/live/CHANNEL/manifest.mpd")]
    Origin(Flags<Origin>),

    /// Record what the kernel says of every TCP socket, beside any server, and the responses of edges
    #[command(after_help = "\
Examples:
  thalweg agent                                        every connection of this machine, into SQLite
  thalweg agent --sockets 'sport 80,443' --pop fra1    those of a web server, with the site's name
  thalweg agent --edge 127.0.0.1:8082                  the responses of a running edge too
  thalweg query                                        what can be asked of it

Other network namespaces, and a queue for events of short connections that is large enough for
many, need root.")]
    Agent(Flags<Agent>),

    /// Push a presentation to an origin as a live channel: in a loop, in real time
    #[command(after_help = "\
Example: the sample as channel `demo` of the origin on this machine
  thalweg source --media assets/sample --to http://127.0.0.1:8081/ingest/demo

Each track is one long PUT of CMAF chunks (DASH-IF Live Media Ingest, interface 1).
Its timestamps go on over the loop; a lost connection is made again.")]
    Source {
        /// The presentation: a directory of CMAF tracks
        #[arg(long, value_name = "DIR/NAME")]
        media: PathBuf,
        /// The publishing point
        #[arg(long, value_name = "http://HOST:PORT/ingest/CHANNEL", value_parser = IngestUrl::from_text)]
        to: IngestUrl,
    },

    /// Check config files, policies and bundles, or print what can be set
    #[command(after_help = "\
Examples:
  thalweg check thalweg.toml
  thalweg check live.vcl vod.vcl bundle.json
  thalweg check --settings

A file named .vcl, or that begins with vcl 4 or backend, is a policy; one named .json, or that
begins with {, a bundle; any other a config file. Every fault is told, with file, line and column,
or with its member of a bundle; the exit status is then 1.
Warnings about a policy are told and change nothing.")]
    Check {
        /// Config files, policies, bundles
        #[arg(value_name = "FILE.toml|FILE.vcl|FILE.json", required_unless_present = "settings")]
        files: Vec<PathBuf>,
        /// Print every section and setting with its default and bounds
        #[arg(long, conflicts_with = "files")]
        settings: bool,
    },

    /// Follow the request log, with what the kernel said of each connection
    #[command(after_help = log_help())]
    Log {
        /// A log file, or - for standard input; without it the edge is asked
        #[arg(value_name = "FILE|-", conflicts_with = "admin")]
        file: Option<PathBuf>,
        /// The edge's admin address
        #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8082")]
        admin: std::net::SocketAddr,
        /// How many last lines to begin with: 10 of a file, all of standard input
        #[arg(short = 'n', long, value_name = "N", requires = "file")]
        lines: Option<usize>,
        /// End with the file's last line instead of waiting for more
        #[arg(long, requires = "file")]
        no_follow: bool,
        /// Show only the records for which this holds
        #[arg(short, long, value_name = "EXPRESSION", value_parser = Query::parse)]
        query: Option<Query>,
        /// Print the records as they are, one JSON object a line
        #[arg(long)]
        json: bool,
    },

    /// Show every TCP socket of this machine, with what the kernel knows of its path
    #[command(after_help = crate::sockets::HELP)]
    Sockets(SocketsArgs),

    /// Take URLs or tags out of a running edge's cache
    #[command(after_help = "\
Examples:
  thalweg purge http://media.example/live/a/master.m3u8     every variant of a URL
  thalweg purge --tag channel-7 channel-8                   all with one of these tags
  thalweg purge --soft --tag channel-7                      make them stale: served while refreshed

The host and port are those that clients ask for. Tags are the names in a response's Surrogate-Key
and xkey. A client may also send PURGE, from where the edge's setting purge_from allows it.")]
    Purge {
        /// URLs; the scheme may be left out
        #[arg(value_name = "URL", required_unless_present = "tags", conflicts_with = "tags")]
        urls: Vec<String>,
        /// Tags
        #[arg(long = "tag", value_name = "TAG", num_args = 1..)]
        tags: Vec<String>,
        /// Make stale instead of taking away: grace, stale-while-revalidate and validation then apply
        #[arg(long)]
        soft: bool,
        /// The edge's admin address
        #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8082")]
        admin: std::net::SocketAddr,
    },

    /// Take out of a running edge's cache all that an expression holds for
    #[command(after_help = "\
Examples:
  thalweg ban 'req.url ~ \"^/live/\" && obj.http.content-type == \"video/mp4\"'
  thalweg ban 'req.http.host == media.example && obj.status >= 400'
  thalweg ban 'obj.age > 2h'

Conditions are joined by &&. Names: req.url (path and query), req.http.host, obj.http.NAME with
== != and, for regular expressions, ~ !~; obj.status and obj.age with == != < > <= >=. An age is in
seconds, or has a unit: 90, 90s, 15m, 2h, 1d, 1w. It is about what is stored now or being fetched,
not about what comes later.")]
    Ban {
        /// The expression
        #[arg(value_parser = expression)]
        expression: String,
        /// The edge's admin address
        #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8082")]
        admin: std::net::SocketAddr,
    },

    /// List the bans that a running edge has not tested everything against yet
    Bans {
        /// The edge's admin address
        #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8082")]
        admin: std::net::SocketAddr,
    },

    /// List, show, load, use or discard the policies of a running edge
    #[command(
        subcommand,
        after_help = "\
A request, and the fetch it causes, keep the policy that was in use when the request came.

Examples:
  thalweg policy load evening live.vcl
  thalweg policy use evening
  thalweg policy discard boot
  thalweg policy load --use night vod.vcl    both at once
  thalweg policy show evening                its files as they were loaded"
    )]
    Policy(PolicyCommand),

    /// List the backends of a running edge, or take one out or in
    #[command(after_help = "\
Examples:
  thalweg backends                   name, address, health, good probes of the last, what is set
  thalweg backends origin-2 sick     no request goes there any more
  thalweg backends origin-2 auto     its probe decides again; without one it is healthy

The name is that which a policy gives it; a configured backend's is its URL.")]
    Backends {
        /// Whose health to set; without it all are listed
        #[arg(requires = "health")]
        name: Option<String>,
        /// Its health from now on
        health: Option<Health>,
        /// The edge's admin address
        #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8082")]
        admin: std::net::SocketAddr,
    },

    /// Make, compare or print the tables that telemetry has in ClickHouse
    #[command(
        subcommand,
        after_help = "\
Examples:
  thalweg schema apply --clickhouse http://user:password@db.example:8123/telemetry
  thalweg schema diff --clickhouse http://db.example:8123/telemetry    exit status 1 if any"
    )]
    Schema(SchemaCommand),

    /// Bring telemetry from Kafka to ClickHouse, each record once
    #[command(after_help = "\
Example, as many of them as the topic has partitions at most:
  thalweg consumer --kafka kafka.example:9092 --clickhouse http://db.example:8123/telemetry
  thalweg consumer --kafka kafka.example:9092 --clickhouse @/run/secrets/clickhouse-url \\
    --kafka-set security.protocol=SASL_PLAINTEXT --kafka-set sasl.mechanism=PLAIN \\
    --kafka-set sasl.username=thalweg --kafka-set sasl.password=@/run/secrets/kafka

The tables come from: thalweg schema apply
A block is inserted whole under a token of its own: after a crash it is sent again, and dropped if
ClickHouse has it. Messages that cannot be read go into the table refused.
Stops cleanly on SIGINT (Ctrl-C) and SIGTERM.")]
    Consumer(Flags<Consumer>),

    /// Ask what has been kept of sockets and responses: ready queries over windows of five minutes
    #[command(after_help = "\
Examples:
  thalweg query                                            the queries there are
  thalweg query delivery_rate --by congestion_control      percentiles of the last hour
  thalweg query ttfb --since 24h --json
  thalweg query slowest_prefixes --since 2026-11-21T18:00:00Z --until 2026-11-21T19:00:00Z

A time is how long ago (ms, s, min, h: 90min, 24h), or RFC 3339. Windows that begin in between
count; the newest one is still being added to. Rates are bytes per second.")]
    Query {
        /// The query; without it all are listed
        #[arg(value_parser = PossibleValuesParser::new(QUERIES.map(|query| query.name)))]
        name: Option<String>,
        /// What rows are of
        #[arg(long, default_value = "prefix", requires = "name")]
        #[arg(value_parser = PossibleValuesParser::new(By::ALL.map(By::as_str)))]
        by: String,
        /// From when on
        #[arg(long, value_name = "SPAN|TIME", default_value = "1h", requires = "name")]
        since: When,
        /// Until when; now without it
        #[arg(long, value_name = "SPAN|TIME", requires = "name")]
        until: Option<When>,
        /// The file that an agent writes, beside its spool
        #[arg(long, value_name = "FILE", default_value = "thalweg-telemetry.sqlite", requires = "name")]
        sqlite: PathBuf,
        /// The ClickHouse server and database to ask, instead of a SQLite file: http://USER:PASSWORD@HOST:PORT/DATABASE, or
        /// @FILE, a file that has that
        #[arg(long, value_name = "URL|@FILE", value_parser = clickhouse_url)]
        #[arg(requires = "name", conflicts_with = "sqlite")]
        clickhouse: Option<ClickHouseUrl>,
        /// Print a JSON object for each row
        #[arg(long, requires = "name")]
        json: bool,
    },

    /// Decide which client networks get another congestion control, and whether that has helped them
    #[command(subcommand)]
    Controller(ControllerCommand),

    /// Steer servers that are not Thalweg: a bundle's rules as kernel routes with a congestion control
    #[command(subcommand, after_help = crate::routes::HELP)]
    Routes(RoutesCommand),

    /// Write a bundle's rules for a server that is not Thalweg
    #[command(subcommand, after_help = crate::bundle::args::HELP)]
    Bundle(BundleCommand),

    /// Print a completion script for a shell
    #[command(after_help = "\
Example for bash:
  mkdir -p ~/.local/share/bash-completion/completions
  thalweg completions bash > ~/.local/share/bash-completion/completions/thalweg")]
    #[command(alias = "completion")]
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// `command` for a completion script: only what is a path is completed as one.
pub(crate) fn completed(command: clap::Command) -> clap::Command {
    let hinted = |arg: Arg| match arg.get_value_hint() {
        ValueHint::Unknown if arg.get_action().takes_values() => arg.value_hint(ValueHint::Other),
        _ => arg,
    };
    command.mut_args(hinted).mut_subcommands(completed)
}

/// Commands that take files as they are, and the first word of theirs that may be one.
const FILES: [(&str, usize); 6] = [
    ("check", 2),
    ("log", 2),
    ("policy__subcmd__load", 4),
    ("routes__subcmd__apply", 3),
    ("bundle__subcmd__nginx", 3),
    ("bundle__subcmd__varnish", 3),
];

/// A completion script for bash that offers files where a command takes them: clap's own offers its flags alone.
pub(crate) fn bash_with_files(mut script: String) -> String {
    for (command, first) in FILES {
        let block = format!("\n        thalweg__subcmd__{command})\n");
        let Some(at) = script.find(&block) else { continue };
        let Some(test) = script[at..].find("            if [[").map(|test| at + test) else { continue };
        script.insert_str(
            test,
            &format!(
                r#"            if [[ ${{cur}} != -* && ${{prev}} != -* && ${{COMP_CWORD}} -ge {first} ]] ; then
                local IFS=$'\n'
                COMPREPLY=( $(compgen -f -- "${{cur}}") )
                compopt -o filenames 2>/dev/null
                return 0
            fi
"#
            ),
        );
    }
    script
}

/// What the log command teaches.
fn log_help() -> String {
    format!(
        "\
Examples:
  thalweg log                          what the edge on this machine does now
  thalweg log /var/log/thalweg.json    a log file's last lines and what is added, over rotations
  thalweg log --no-follow -n 50 /var/log/thalweg.json    its last 50 lines
  thalweg log - < thalweg.json         standard input, to its end
  thalweg log -q 'tcpi.rtt > 100ms and path ~ \".m4s$\"'
  thalweg log -q 'not complete or status >= 500 or vcl_error'
  thalweg log --json | jq 'select(.ttfb_us > 50000)'

An expression joins tests by and, or, not and parentheses. A test is a field, an operator, a value:
  text     == != and, for regular expressions, ~ !~   path ~ \"^/live/\"   cache == hit
  numbers  == != < <= > >=                            bytes > 100kB   tcpi.rtt > 50ms
  time     == != < <= > >= ~ !~                       time > 16:40   time > 10min ago
A field alone holds where a record has it. Units: us ms s min h, B KiB MiB kB MB,
kbit/s Mbit/s MB/s. Fields have the names of the JSON record, their units may be left out, and
tcpi. is tcp. as well:
{}
lines are those that the policy and its modules logged; vcl_log, vcl_error, vcl_acl, timestamp and
fetcherror are those of one tag. Any line may do. Capitals do not matter, and the columns that are
printed are names too: CC == bbr.",
        reference("  ")
    )
}

/// A URL of ClickHouse, if it is one, or a file has it.
fn clickhouse_url(text: &str) -> Result<ClickHouseUrl, String> {
    let url = config::reveal(text, Path::new(""))?;
    match thalweg_telemetry::clickhouse::Server::at(&url) {
        Ok(_) => Ok(ClickHouseUrl(url)),
        Err(error) => Err(error.to_string()),
    }
}

/// What is done with the tables of ClickHouse.
#[derive(Debug, Subcommand)]
pub(crate) enum SchemaCommand {
    /// Make the tables, views and columns that a server lacks; nothing is dropped or changed
    Apply {
        /// The server and the database, http://USER:PASSWORD@HOST:PORT/DATABASE, or @FILE, a file that has that
        #[arg(long, value_name = "URL|@FILE", value_parser = clickhouse_url)]
        clickhouse: ClickHouseUrl,
    },
    /// Tell what a server lacks, has otherwise, or has more of
    Diff {
        /// The server and the database, http://USER:PASSWORD@HOST:PORT/DATABASE, or @FILE, a file that has that
        #[arg(long, value_name = "URL|@FILE", value_parser = clickhouse_url)]
        clickhouse: ClickHouseUrl,
    },
    /// Print the statements
    Print,
}

/// What an operator says of a backend.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Health {
    Sick,
    Healthy,
    Auto,
}

impl Health {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Sick => "sick",
            Self::Healthy => "healthy",
            Self::Auto => "auto",
        }
    }
}

/// The text of a ban, if it is one.
fn expression(text: &str) -> Result<String, ExpressionError> {
    Expression::parse(text).map(|_| text.to_owned())
}

/// The name of a policy, if it can be one.
fn policy_name(text: &str) -> Result<String, LoadError> {
    Policies::check_name(text).map(|()| text.to_owned())
}

/// What is done with the policies of a running edge.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum PolicyCommand {
    /// List the policies: name, whether new requests run through it, what still does, the file
    List {
        /// The edge's admin address
        #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8082")]
        admin: std::net::SocketAddr,
    },
    /// Print a policy as it was loaded, for reading: each file under its name, include statements too
    Show {
        /// The name
        #[arg(value_parser = policy_name)]
        name: String,
        /// The edge's admin address
        #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8082")]
        admin: std::net::SocketAddr,
    },
    /// Compile a file and keep it under a name; requests do not run through it yet
    Load {
        /// Have new requests run through it at once
        #[arg(long = "use")]
        use_it: bool,
        /// The name: a letter, then letters, digits, _ and -
        #[arg(value_parser = policy_name)]
        name: String,
        /// The file, as the edge can read it
        #[arg(value_name = "FILE.vcl")]
        file: std::path::PathBuf,
        /// The edge's admin address
        #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8082")]
        admin: std::net::SocketAddr,
    },
    /// Have new requests run through a policy
    Use {
        /// The name
        name: String,
        /// The edge's admin address
        #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8082")]
        admin: std::net::SocketAddr,
    },
    /// Forget a policy
    Discard {
        /// The name
        name: String,
        /// The edge's admin address
        #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8082")]
        admin: std::net::SocketAddr,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn no_line_of_help_is_wrapped_again() {
        fn check(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines() {
                assert!(line.len() <= 100, "{}: {line}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }
}
