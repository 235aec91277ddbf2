//! Arguments and help of `thalweg bundle`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Examples and notes printed after the help.
pub const HELP: &str = "\
Examples:
  thalweg bundle nginx bundle.json -o /etc/nginx/conf.d/thalweg-cc.conf && nginx -s reload
  thalweg bundle varnish bundle.json -o /etc/varnish/thalweg.vcl && varnishreload
Neither server can hold connections out. What each supports: docs/guides/steer-other-servers.md";

/// `thalweg bundle`.
#[derive(Debug, Subcommand)]
pub enum BundleCommand {
    /// Write the rules as a geo map that sets the variable $thalweg_cc
    #[command(after_help = "\
nginx cannot set a congestion control, but thalweg routes can.
$thalweg_cc shows in the nginx log which one applies.")]
    Nginx(Conversion),
    /// Write the rules as VCL: one address list per congestion control, applied in vcl_deliver
    #[command(after_help = "\
Requires vmod_tcp (varnish-modules or Varnish Enterprise). Include the file before your vcl_deliver:
  include \"thalweg.vcl\";")]
    Varnish(Conversion),
}

/// Input and output files.
#[derive(Debug, Args)]
pub struct Conversion {
    /// Bundle to convert
    #[arg(value_name = "BUNDLE.json")]
    pub(super) bundle: PathBuf,
    /// Output file, replaced atomically; standard output if omitted
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
}
