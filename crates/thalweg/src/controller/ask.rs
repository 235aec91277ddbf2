//! What is asked of a running controller.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::bail;
use hyper::Request;
use serde_json::Value;

use crate::admin::{Asked, ask_of, now_ms};
use crate::print_or_gone;
use crate::query::table;

const CONTROLLER: Asked = Asked { what: "controller", flag: "--controller" };

/// Prints what is known of a prefix.
///
/// # Errors
/// When no controller answers, or it knows nothing of the site.
pub(crate) fn explain(
    addr: SocketAddr,
    (pop, tenant): (Option<&str>, Option<&str>),
    prefix: &str,
    json: bool,
) -> anyhow::Result<()> {
    let pop = match pop {
        Some(pop) => pop.to_owned(),
        None => only_pop(addr)?,
    };
    let (pop, prefix) = (escaped(&pop), escaped(prefix));
    let tenant = tenant.map(|tenant| format!("&tenant={}", escaped(&tenant.to_ascii_lowercase())));
    let target = format!("/explain?pop={pop}&prefix={prefix}{}", tenant.unwrap_or_default());
    let answer = ask(addr, &target)?;
    if json {
        print_or_gone(&format!("{answer}\n"));
    } else {
        print_or_gone(answer["text"].as_str().unwrap_or_default());
    }
    Ok(())
}

/// The site, if there is one alone.
fn only_pop(addr: SocketAddr) -> anyhow::Result<String> {
    let answer = ask(addr, "/scopes")?;
    let scopes = answer["scopes"].as_array().map_or(&[][..], Vec::as_slice);
    let pops: BTreeSet<_> = scopes.iter().map(|scope| scope["pop"].as_str().unwrap_or_default()).collect();
    match Vec::from_iter(pops).as_slice() {
        [one] => Ok((*one).to_owned()),
        [] => bail!("nothing was decided yet: the first round is after the first window"),
        several => {
            let names: Vec<_> = several.iter().map(|pop| format!("{pop:?}")).collect();
            bail!("there are {} sites, say which with --pop: {}", several.len(), names.join(", "))
        }
    }
}

/// Prints the sites and their edges.
///
/// # Errors
/// When no controller answers.
pub(crate) fn status(addr: SocketAddr, json: bool) -> anyhow::Result<()> {
    let mut scopes = ask(addr, "/scopes")?;
    let mut told = None;
    for scope in scopes["scopes"].as_array_mut().into_iter().flatten() {
        let pop = scope["pop"].as_str().unwrap_or_default().to_owned();
        // A site's edges are told once, not with each of its tenants.
        if told.as_ref() != Some(&pop) {
            let mut answer = ask(addr, &format!("/edges?pop={}", escaped(&pop)))?;
            scope["edges"] = answer["edges"].take();
            scope["candidate"] = answer["candidate"].take();
            told = Some(pop);
        }
    }
    print_or_gone(&if json { format!("{scopes}\n") } else { people(&scopes) });
    Ok(())
}

/// Tables of sites and edges, and the bundles that are tried.
fn people(answer: &Value) -> String {
    let scopes = answer["scopes"].as_array().map_or(&[][..], Vec::as_slice);
    if scopes.is_empty() {
        return "nothing was decided yet: the first round is after the first window\n".to_owned();
    }
    let row = |cells: &[&str]| cells.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>();
    let mut sites = vec![row(&["POP", "TENANT", "PREFIXES", "STEERED", "ON TRIAL", "SHOWN", "BUNDLE"])];
    let mut edges = vec![row(&["POP", "EDGE", "BUNDLE", "HEARD", "REFUSED"])];
    let mut tried = vec![row(&["POP", "TRIED", "STAGE"])];
    for scope in scopes {
        let candidate = &scope["candidate"];
        if candidate.is_object() {
            tried.push(vec![cell(&scope["pop"]), cell(&candidate["number"]), cell(&candidate["stage"])]);
        }
        let cell = |name: &str| cell(&scope[name]);
        sites.push(vec![
            cell("pop"),
            cell("tenant"),
            cell("prefixes"),
            cell("steered"),
            cell("on_trial"),
            cell("proved"),
            cell("bundle"),
        ]);
        for edge in scope["edges"].as_array().into_iter().flatten() {
            let heard_s = (now_ms() / 1000).saturating_sub(edge["heard_unix_s"].as_u64().unwrap_or(0));
            edges.push(vec![
                cell("pop"),
                self::cell(&edge["name"]),
                self::cell(&edge["bundle"]),
                format!("{heard_s} s ago"),
                self::cell(&edge["refused"]["reason"]),
            ]);
        }
    }
    let mut text = table(&sites);
    if edges.len() > 1 {
        text += &format!("\n{}", table(&edges));
    }
    if tried.len() > 1 {
        text += &format!("\n{}", table(&tried));
    }
    text
}

/// A value as a cell; what is not there or empty as a dash.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

fn ask(addr: SocketAddr, target: &str) -> anyhow::Result<Value> {
    ask_of(CONTROLLER, addr, Request::get(target), String::new())
}

/// Text as a value in a query.
fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sites_and_edges_are_tables() {
        assert_eq!(escaped("203.0.113.0/24 ü"), "203.0.113.0%2F24%20%C3%BC");
        let heard = now_ms() / 1000;
        let answer = json!({"scopes": [{
            "pop": "fra1", "prefixes": 812, "steered": 17, "on_trial": 9, "proved": 8, "bundle": 42,
            "edges": [{"name": "edge-1", "bundle": 41, "heard_unix_s": heard + 60, "refused": {"reason": "too long"}}],
            "candidate": {"number": 43, "stage": "watched"},
        }, {"pop": "", "prefixes": 3, "steered": 0, "on_trial": 0, "proved": 0, "bundle": null, "edges": []}]});
        expect_test::expect![[r#"
            POP   TENANT  PREFIXES  STEERED  ON TRIAL  SHOWN  BUNDLE
            fra1  -       812       17       9         8      42
            -     -       3         0        0         0      -

            POP   EDGE    BUNDLE  HEARD    REFUSED
            fra1  edge-1  41      0 s ago  too long

            POP   TRIED  STAGE
            fra1  43     watched
        "#]]
        .assert_eq(&people(&answer));
    }
}
