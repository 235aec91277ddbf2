//! Command line: commands, their flags, and their help texts.

use std::path::PathBuf;

use clap::{Arg, Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use hyper::Uri;
use thalweg_cli::admin_args::EdgeAdmin;
use thalweg_cli::backends::{self, BackendsArgs};
use thalweg_cli::bundle::args::BundleCommand;
use thalweg_cli::log::{self, LogArgs};
use thalweg_cli::origin;
use thalweg_cli::policies::{self, PolicyCommand};
use thalweg_cli::purge::{self, BanArgs, PurgeArgs};
use thalweg_cli::query::{self, QueryArgs};
use thalweg_cli::routes::RoutesCommand;
use thalweg_cli::schema::{self, SchemaCommand};
use thalweg_cli::sockets::SocketsArgs;
use thalweg_origin::IngestToken;

use crate::config::{Agent, Consumer, Edge, Flags, Origin, from_flag};
use crate::controller::ControllerCommand;
use crate::inspect::{self, InspectArgs};

/// The parsed command line.
#[derive(Debug, Parser)]
#[command(
    name = "thalweg",
    version,
    about = "Streaming media along the fastest line the network has",
    after_help = "Exit status: 0 success, 1 failure, 2 usage error.\n\
                  Messages are written to standard error. THALWEG_LOG=debug shows more of them,\n\
                  THALWEG_LOG=thalweg_edge=debug more from the edge alone."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run all roles of a config file in one process
    #[command(after_help = "\
Example: the bundled sample, on demand and as a live channel
  thalweg up --config demo.toml

To list all settings: thalweg check --settings
Stops cleanly on SIGINT (Ctrl-C) and SIGTERM.")]
    Up {
        /// The config file
        #[arg(long, value_name = "FILE", default_value = "thalweg.toml")]
        config: PathBuf,
    },

    /// Run an edge: an HTTP cache that relays responses while they are still arriving
    #[command(after_help = "\
Example: an edge with BBR in front of an origin, with its log in another terminal
  thalweg edge --listen 0.0.0.0:8080 --backend http://127.0.0.1:8081 --congestion-control bbr
  thalweg log")]
    Edge(Flags<Edge>),

    /// Run an origin: HLS and DASH, just in time, from CMAF files and from live ingest
    #[command(after_help = "\
Example: each directory in /srv/media is a presentation of fragmented MP4 files
  thalweg origin --listen 127.0.0.1:8081 --media /srv/media
  curl http://127.0.0.1:8081/vod/NAME/master.m3u8

Examples: the same in a bucket on AWS, or on another service
  thalweg origin --media s3://films/vod --s3-region eu-central-1
  thalweg origin --media s3://films/vod --s3-endpoint https://s3.example.com --s3-path-style

A live source pushes to http://127.0.0.1:8084/ingest/CHANNEL/, and the channel is
  http://127.0.0.1:8081/live/CHANNEL/manifest.mpd
Sources on other machines need a token:
  thalweg origin --ingest 0.0.0.0:8084 --ingest-token @/etc/thalweg/ingest-token

What is wrong with a presentation, and how to repair it:
  thalweg origin inspect /srv/media/NAME")]
    Origin(OriginArgs),

    /// Record every TCP socket as the kernel sees it, and the responses of edges
    #[command(after_help = "\
Examples:
  thalweg agent                                        all connections of this machine, to SQLite
  thalweg agent --sockets 'sport 80,443' --pop fra1    only those of a web server, at site fra1
  thalweg agent --edge 127.0.0.1:8082                  also the responses of a running edge
  thalweg query                                        list the predefined queries

Root is required to sample other network namespaces, and for an event queue large enough to record
large numbers of short connections.")]
    Agent(Flags<Agent>),

    /// Push a presentation to an origin as a live channel, in a loop and in real time
    #[command(after_help = "\
Example: the sample as channel `demo` of the origin on this machine
  thalweg source --media assets/sample --to http://127.0.0.1:8084/ingest/demo

Each track is one long PUT of CMAF chunks (DASH-IF Live Media Ingest, interface 1).
Timestamps continue across loops. Lost connections are reopened.")]
    Source {
        /// The presentation: a directory of CMAF tracks
        #[arg(long, value_name = "DIR/NAME")]
        media: PathBuf,
        /// The publishing point
        #[arg(long, value_name = "http://HOST:PORT/ingest/CHANNEL", value_parser = from_flag::<Uri>)]
        to: Uri,
        /// The origin's ingest token; @FILE reads it from a file
        #[arg(long, value_name = "TOKEN|@FILE", value_parser = from_flag::<IngestToken>)]
        token: Option<IngestToken>,
    },

    /// Check config files, policies and bundles, or list all settings
    #[command(after_help = "\
Examples:
  thalweg check thalweg.toml
  thalweg check live.vcl vod.vcl bundle.json
  thalweg check --settings

A file is a policy if its name ends in .vcl or it starts with vcl 4 or backend; it is a bundle if
its name ends in .json or it starts with {; otherwise it is a config file. Each error is reported
with its file, line and column or, in a bundle, its member. If there are any errors, the exit status
is 1. Warnings are printed but do not change the exit status.")]
    Check {
        /// Config files, policies, bundles
        #[arg(value_name = "FILE.toml|FILE.vcl|FILE.json", required_unless_present = "settings")]
        files: Vec<PathBuf>,
        /// Print every section and setting with its default and bounds
        #[arg(long, conflicts_with = "files")]
        settings: bool,
    },

    /// Follow the request log, with the kernel's view of each connection
    #[command(after_help = log::help())]
    Log(LogArgs),

    /// Show every TCP socket of this machine, with the kernel's view of its path
    #[command(after_help = thalweg_cli::sockets::HELP)]
    Sockets(SocketsArgs),

    /// Purge URLs or tags from a running edge's cache
    #[command(after_help = purge::PURGE_HELP)]
    Purge(PurgeArgs),

    /// Ban the stored responses of a running edge that match an expression
    #[command(after_help = purge::BAN_HELP)]
    Ban(BanArgs),

    /// List the bans of a running edge that still have responses to test
    Bans(EdgeAdmin),

    /// List, show, load, use or discard the policies of a running edge
    #[command(subcommand, after_help = policies::HELP)]
    Policy(PolicyCommand),

    /// List the backends of a running edge, or set the health of one
    #[command(after_help = backends::HELP)]
    Backends(BackendsArgs),

    /// Create, compare or print the ClickHouse tables for telemetry
    #[command(subcommand, after_help = schema::HELP)]
    Schema(SchemaCommand),

    /// Move telemetry from Kafka to ClickHouse, each record exactly once
    #[command(after_help = "\
Examples; run at most one consumer per partition of the topic:
  thalweg consumer --kafka kafka.example:9092 --clickhouse http://db.example:8123/telemetry
  thalweg consumer --kafka kafka.example:9092 --clickhouse @/run/secrets/clickhouse-url \\
    --kafka-set security.protocol=SASL_PLAINTEXT --kafka-set sasl.mechanism=PLAIN \\
    --kafka-set sasl.username=thalweg --kafka-set sasl.password=@/run/secrets/kafka

To create the tables: thalweg schema apply
Each block of rows is inserted atomically under its own token. After a crash, unconfirmed blocks are
resent, and ClickHouse drops those that it already has. Unreadable messages are stored in the
refused table.
Stops cleanly on SIGINT (Ctrl-C) and SIGTERM.")]
    Consumer(Flags<Consumer>),

    /// Query stored telemetry: predefined queries over five-minute windows of sockets and responses
    #[command(after_help = query::HELP)]
    Query(QueryArgs),

    /// Decide which client networks get another congestion control, and measure whether it helps
    #[command(subcommand)]
    Controller(ControllerCommand),

    /// Steer servers other than Thalweg: apply a bundle's rules as kernel routes
    #[command(subcommand, after_help = thalweg_cli::routes::HELP)]
    Routes(RoutesCommand),

    /// Convert a bundle's rules for a server other than Thalweg
    #[command(subcommand, after_help = thalweg_cli::bundle::args::HELP)]
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

/// Flags of `thalweg origin`, or one of its subcommands instead.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct OriginArgs {
    #[command(flatten)]
    pub(crate) flags: Flags<Origin>,
    #[command(subcommand)]
    pub(crate) command: Option<OriginCommand>,
}

/// Subcommands of `thalweg origin`.
#[derive(Debug, Subcommand)]
pub(crate) enum OriginCommand {
    /// Show what a presentation or file is, what is served of it, and how to repair it
    #[command(after_help = inspect::HELP)]
    Inspect(InspectArgs),
    /// Show a running origin's libraries and its connections to remote storage
    #[command(after_help = origin::STATUS_HELP)]
    Status(origin::StatusArgs),
}

/// Prepares `command` for a completion script: file names are offered only where a path is
/// expected.
pub(crate) fn completed(command: clap::Command) -> clap::Command {
    let hinted = |arg: Arg| match arg.get_value_hint() {
        ValueHint::Unknown if arg.get_action().takes_values() => arg.value_hint(ValueHint::Other),
        _ => arg,
    };
    command.mut_args(hinted).mut_subcommands(completed)
}

/// Commands with file arguments, and the index of the first word that may be a file.
const FILES: [(&str, usize); 7] = [
    ("check", 2),
    ("log", 2),
    ("origin__subcmd__inspect", 3),
    ("policy__subcmd__load", 4),
    ("routes__subcmd__apply", 3),
    ("bundle__subcmd__nginx", 3),
    ("bundle__subcmd__varnish", 3),
];

/// Adds file completion to clap's bash script, which offers only flags where a command expects
/// files.
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn help_lines_fit_one_hundred_columns() {
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
