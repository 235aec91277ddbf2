//! What `thalweg routes` is asked, and the help that teaches it.

use std::path::PathBuf;

use clap::Subcommand;
use thalweg_tcp::routes::{TABLE_LOCAL, TABLE_MAIN};

/// What stands below the help.
pub(crate) const HELP: &str = "\
Examples:
  thalweg routes apply bundle.json --dry-run    what would change
  thalweg routes apply bundle.json
  thalweg routes apply --follow /var/lib/thalweg/bundle.json    each new one; ends with its routes
  thalweg routes show
  thalweg routes remove                         all that any apply has set, whatever became of it

Each rule becomes a route of its prefix, by the path that packets there take already, with the
rule's congestion control (ip route ... congctl). Connections made from then on have it, unless
their server chooses one itself. What is set has protocol 116 and metric 4000000000; routes without
that protocol are never touched. Changing routes needs CAP_NET_ADMIN.
What the kernel refuses is left out and told; the exit status is 1 then.
A route holds nobody out, and knows no sizes and no hosts: docs/actuators.md";

/// `thalweg routes`.
#[derive(Debug, Subcommand)]
pub(crate) enum RoutesCommand {
    /// Set the routes of a bundle, and remove those of the one before
    Apply {
        /// The bundle
        #[arg(value_name = "BUNDLE.json")]
        bundle: PathBuf,
        /// The routing table; one other than main is for whom an `ip rule` sends there
        #[arg(long, value_name = "N|main", default_value = "main", value_parser = table)]
        table: u32,
        /// Take the rules of the tenant that has this host; without it, those that are about hosts that no tenant has
        #[arg(long, value_name = "HOST")]
        tenant: Option<String>,
        /// Print what would change, and change nothing
        #[arg(long, conflicts_with = "follow")]
        dry_run: bool,
        /// Look once a second whether there is another bundle, or the paths there have changed, until SIGINT or SIGTERM;
        /// then remove the routes
        #[arg(long)]
        follow: bool,
        /// Leave the routes at the end
        #[arg(long, requires = "follow", conflicts_with = "dry_run")]
        keep: bool,
    },
    /// Print the routes that were set
    Show {
        /// Those of this routing table alone
        #[arg(long, value_name = "N|main", value_parser = table)]
        table: Option<u32>,
    },
    /// Remove all routes that were set
    Remove {
        /// Those of this routing table alone
        #[arg(long, value_name = "N|main", value_parser = table)]
        table: Option<u32>,
        /// Print what would be removed, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// The number of a routing table.
fn table(text: &str) -> Result<u32, String> {
    match text.parse() {
        _ if text == "main" => Ok(TABLE_MAIN),
        Ok(TABLE_LOCAL) => Err("table 255 is the kernel's own".to_owned()),
        Ok(number) if number > 0 => Ok(number),
        _ => Err("a routing table is main, or a number from 1 on".to_owned()),
    }
}
