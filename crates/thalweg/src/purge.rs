//! `thalweg purge`, `ban` and `bans`: what a running edge is no longer to serve, over its admin interface.

use std::fmt::Write as _;
use std::net::SocketAddr;

use anyhow::bail;
use hyper::Request;
use serde_json::json;

use crate::{admin, print_or_gone};

/// Purges URLs and tags.
///
/// # Errors
/// When no edge answers, or it refuses.
pub(crate) fn purge(addr: SocketAddr, urls: &[String], tags: &[String], soft: bool) -> anyhow::Result<()> {
    if let Some(url) = tags.iter().find(|tag| tag.contains("://")) {
        bail!("{url} is a URL, not a tag: purge it by itself, or before --tag");
    }
    let order = json!({"urls": urls, "tags": tags, "soft": soft});
    let answer = admin::ask(addr, Request::post("/purge"), order.to_string())?;
    match answer["purged"].as_u64() {
        Some(1) => print_or_gone("1 stored response purged\n"),
        Some(count) => print_or_gone(&format!("{count} stored responses purged\n")),
        None => print_or_gone(
            "purged; what has such a tag is found when it is asked for: how much there is, is not known\n",
        ),
    }
    Ok(())
}

/// Puts a ban in force.
///
/// # Errors
/// When no edge answers, or it refuses.
pub(crate) fn ban(addr: SocketAddr, expression: &str) -> anyhow::Result<()> {
    admin::ask(addr, Request::post("/bans"), expression.to_owned())?;
    print_or_gone("banned\n");
    Ok(())
}

/// Prints the bans in force, the oldest first.
///
/// # Errors
/// When no edge answers.
pub(crate) fn bans(addr: SocketAddr) -> anyhow::Result<()> {
    let answer = admin::ask(addr, Request::get("/bans"), String::new())?;
    let mut text = String::new();
    for ban in answer["bans"].as_array().into_iter().flatten() {
        let made_ms = ban["made_unix_ms"].as_u64().unwrap_or_default();
        let age_s = admin::now_ms().saturating_sub(made_ms) / 1000;
        let expression = ban["expression"].as_str().unwrap_or_default();
        writeln!(text, "{age_s}s ago: {expression}").expect("a String takes every write");
    }
    print_or_gone(&text);
    Ok(())
}
