//! Arguments and help of `thalweg routes`.

use std::path::PathBuf;

use clap::builder::RangedI64ValueParser;
use clap::{Subcommand, value_parser};
use thalweg_bundle::INITIAL_WINDOW_MAX;
use thalweg_tcp::routes::{TABLE_LOCAL, TABLE_MAIN};

/// Examples and notes printed after the help.
pub const HELP: &str = "\
Examples:
  thalweg routes apply bundle.json --dry-run    what would change
  thalweg routes apply bundle.json
  thalweg routes apply bundle.json --initcwnd 32
  thalweg routes apply --follow /var/lib/thalweg/bundle.json    each new bundle, until stopped
  thalweg routes show
  thalweg routes remove                         all routes set by earlier applies

Each rule becomes a route to its prefix, along the current path, with the rule's congestion control
(ip route ... congctl) and initial windows (initcwnd, initrwnd). New connections use them; a server
may choose another congestion control, but no other initial window. These routes have protocol 116
and metric 4000000000; routes of other protocols are never changed. Changing routes requires
CAP_NET_ADMIN. If the kernel refuses a route, it is reported and the exit status is 1.
A prefix that is held out as a whole gets no route. With --follow, the routes of switchbacks appear
and disappear with their blocks, by the clock. Routes cannot hold out single clients, or express
sizes or hosts: see docs/guides/steer-other-servers.md";

/// `thalweg routes`.
#[derive(Debug, Subcommand)]
pub enum RoutesCommand {
    /// Set the routes for a bundle, and remove the routes of the previous one
    Apply {
        /// Bundle file
        #[arg(value_name = "BUNDLE.json")]
        bundle: PathBuf,
        /// Routing table to change; tables other than main need an `ip rule` that refers to them
        #[arg(long, value_name = "N|main", default_value = "main", value_parser = table)]
        table: u32,
        /// Apply the rules of this host's tenant; if omitted, the rules for hosts without a tenant
        #[arg(long, value_name = "HOST")]
        tenant: Option<String>,
        /// Initial congestion window in TCP segments, for rules that set none; if omitted, these
        /// rules keep the window of the existing route
        #[arg(long, value_name = "N", value_parser = window())]
        initcwnd: Option<u16>,
        /// Initial receive window in TCP segments, for rules that set none; if omitted, these rules
        /// keep the window of the existing route
        #[arg(long, value_name = "N", value_parser = window())]
        initrwnd: Option<u16>,
        /// Print what would change, without changing anything
        #[arg(long, conflicts_with = "follow")]
        dry_run: bool,
        /// Check once a second for a new bundle or changed paths, until SIGINT or SIGTERM; then
        /// remove the routes
        #[arg(long)]
        follow: bool,
        /// Keep the routes when the command exits
        #[arg(long, requires = "follow", conflicts_with = "dry_run")]
        keep: bool,
    },
    /// Print the routes set by thalweg
    Show {
        /// Show only routes in this routing table
        #[arg(long, value_name = "N|main", value_parser = table)]
        table: Option<u32>,
    },
    /// Remove all routes set by thalweg
    Remove {
        /// Remove only routes in this routing table
        #[arg(long, value_name = "N|main", value_parser = table)]
        table: Option<u32>,
        /// Print what would be removed, without removing anything
        #[arg(long)]
        dry_run: bool,
    },
}

/// Returns the parser of an initial window.
fn window() -> RangedI64ValueParser<u16> {
    value_parser!(u16).range(1..=INITIAL_WINDOW_MAX.into())
}

/// Parses the number of a routing table.
fn table(text: &str) -> Result<u32, String> {
    match text.parse() {
        _ if text == "main" => Ok(TABLE_MAIN),
        Ok(TABLE_LOCAL) => Err("table 255 is reserved for the kernel".to_owned()),
        Ok(number) if number > 0 => Ok(number),
        _ => Err("must be main or a number of at least 1".to_owned()),
    }
}
