//! `thalweg purge`, `ban` and `bans`: remove stored responses from a running edge, over its admin
//! interface.

use std::fmt::Write as _;

use anyhow::bail;
use http::Request;
use serde_json::json;
use thalweg_edge::check_ban;

use crate::admin_args::EdgeAdmin;
use crate::{admin, print_stdout};

/// Examples and notes printed after the help of `thalweg purge`.
pub const PURGE_HELP: &str = "\
Examples:
  thalweg purge http://media.example/live/a/master.m3u8     every variant of a URL
  thalweg purge --tag channel-7 channel-8                   responses with either tag
  thalweg purge --soft --tag channel-7                      mark them stale, to be revalidated

The host and port are those of client requests. Tags are the names in a response's Surrogate-Key
and xkey. Clients may also send PURGE, if the edge's purge_from setting allows their address.";

/// Examples and notes printed after the help of `thalweg ban`.
pub const BAN_HELP: &str = "\
Examples:
  thalweg ban 'req.url ~ \"^/live/\" && obj.http.content-type == \"video/mp4\"'
  thalweg ban 'req.http.host == media.example && obj.status >= 400'
  thalweg ban 'obj.age > 2h'

Conditions are joined by &&. Names: req.url (path and query), req.http.NAME, obj.http.NAME with
== != and, for regular expressions, ~ !~; obj.status and obj.age with == != < > <= >=. An age is in
seconds, or has a unit: 90, 90s, 15m, 2h, 1d, 1w. A ban applies to responses that are stored or
being fetched now, not to later ones.";

/// `thalweg purge`.
#[derive(Debug, clap::Args)]
pub struct PurgeArgs {
    /// URLs to purge; the scheme may be omitted
    #[arg(value_name = "URL", required_unless_present = "tags", conflicts_with = "tags")]
    urls: Vec<String>,
    /// Tags to purge
    #[arg(long = "tag", value_name = "TAG", num_args = 1..)]
    tags: Vec<String>,
    /// Make responses stale instead of removing them: grace, stale-while-revalidate and validation
    /// apply
    #[arg(long)]
    soft: bool,
    #[command(flatten)]
    edge: EdgeAdmin,
}

/// `thalweg ban`.
#[derive(Debug, clap::Args)]
pub struct BanArgs {
    /// Ban expression
    #[arg(value_parser = expression)]
    expression: String,
    #[command(flatten)]
    edge: EdgeAdmin,
}

/// Validates a ban expression.
fn expression(text: &str) -> Result<String, String> {
    check_ban(text).map(|()| text.to_owned()).map_err(|error| error.marked())
}

/// Purges URLs and tags.
///
/// # Errors
///
/// Returns an error if no edge responds, or the edge refuses the request.
pub fn purge(args: &PurgeArgs) -> anyhow::Result<()> {
    let PurgeArgs { urls, tags, soft, edge } = args;
    if let Some(url) = tags.iter().find(|tag| tag.contains("://")) {
        bail!("{url} is a URL, not a tag: purge it separately, or put it before --tag");
    }
    let order = json!({"urls": urls, "tags": tags, "soft": soft});
    let answer = admin::request_edge(edge.admin, Request::post("/purge"), order.to_string())?;
    match answer["purged"].as_u64() {
        Some(1) => print_stdout("1 stored response purged\n"),
        Some(count) => print_stdout(&format!("{count} stored responses purged\n")),
        None => print_stdout(
            "purged; tagged responses are found on their next request, so their number is unknown\n",
        ),
    }
    Ok(())
}

/// Adds a ban.
///
/// # Errors
///
/// Returns an error if no edge responds, or the edge refuses the request.
pub fn ban(args: BanArgs) -> anyhow::Result<()> {
    admin::request_edge(args.edge.admin, Request::post("/bans"), args.expression)?;
    print_stdout("banned\n");
    Ok(())
}

/// Prints the active bans, oldest first.
///
/// # Errors
///
/// Returns an error if no edge responds.
pub fn bans(edge: &EdgeAdmin) -> anyhow::Result<()> {
    let answer = admin::request_edge(edge.admin, Request::get("/bans"), String::new())?;
    let mut text = String::new();
    for ban in answer["bans"].as_array().into_iter().flatten() {
        let made_ms = ban["made_unix_ms"].as_u64().unwrap_or_default();
        let age_s = admin::now_ms().saturating_sub(made_ms) / 1000;
        let expression = ban["expression"].as_str().unwrap_or_default();
        writeln!(text, "{age_s}s ago: {expression}").expect("writing to a String cannot fail");
    }
    print_stdout(&text);
    Ok(())
}
