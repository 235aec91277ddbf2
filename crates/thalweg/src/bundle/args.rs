//! What `thalweg bundle` is asked, and the help that teaches it.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What stands below the help.
pub(crate) const HELP: &str = "\
Examples:
  thalweg bundle nginx bundle.json -o /etc/nginx/conf.d/thalweg-cc.conf && nginx -s reload
  thalweg bundle varnish bundle.json -o /etc/varnish/thalweg.vcl && varnishreload
What each server can do with it: docs/actuators.md. Neither holds connections out.";

/// `thalweg bundle`.
#[derive(Debug, Subcommand)]
pub(crate) enum BundleCommand {
    /// Write the rules as a geo map: the variable $thalweg_cc
    #[command(after_help = "\
nginx cannot set a congestion control: thalweg routes does. $thalweg_cc tells in its log which.")]
    Nginx(Written),
    /// Write the rules as VCL: a list of addresses for each congestion control, set in vcl_deliver
    #[command(after_help = "\
Needs vmod_tcp (varnish-modules, Varnish Enterprise). Include it before any vcl_deliver of yours:
  include \"thalweg.vcl\";")]
    Varnish(Written),
}

/// From where to where.
#[derive(Debug, Args)]
pub(crate) struct Written {
    /// The bundle
    #[arg(value_name = "BUNDLE.json")]
    pub(super) bundle: PathBuf,
    /// The file to put it into, replaced whole; standard output without it
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
}
