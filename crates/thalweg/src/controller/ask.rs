//! What is asked of a running controller.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::bail;
use hyper::Request;
use serde_json::{Value, json};

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

/// The sites of which something is known.
fn pops(scopes: &Value) -> BTreeSet<String> {
    let scopes = scopes["scopes"].as_array().into_iter().flatten();
    scopes.map(|scope| scope["pop"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The site, if there is one alone.
fn only_pop(addr: SocketAddr) -> anyhow::Result<String> {
    match Vec::from_iter(pops(&ask(addr, "/scopes")?)).as_slice() {
        [one] => Ok(one.clone()),
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
    let mut told = ask(addr, "/scopes")?;
    // A site's edges are told once, not with each of its tenants.
    for pop in pops(&told) {
        match ask(addr, &format!("/edges?pop={}", escaped(&pop))) {
            Ok(mut answer) => {
                let (edges, candidate) = (answer["edges"].take(), answer["candidate"].take());
                told["pops"][pop] = json!({ "edges": edges, "candidate": candidate });
            }
            Err(error) => eprintln!("thalweg: PoP {pop:?}: {error:#}"),
        }
    }
    print_or_gone(&if json { format!("{told}\n") } else { people(&told) });
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
    }
    for (pop, told) in answer["pops"].as_object().into_iter().flatten() {
        let candidate = &told["candidate"];
        if candidate.is_object() {
            tried.push(vec![named(pop), cell(&candidate["number"]), cell(&candidate["stage"])]);
        }
        for edge in told["edges"].as_array().into_iter().flatten() {
            let heard_s = (now_ms() / 1000).saturating_sub(edge["heard_unix_s"].as_u64().unwrap_or(0));
            edges.push(vec![
                named(pop),
                cell(&edge["name"]),
                cell(&edge["bundle"]),
                format!("{heard_s} s ago"),
                cell(&edge["refused"]["reason"]),
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
        Value::String(text) => named(text),
        value => value.to_string(),
    }
}

/// A name as a cell.
fn named(name: &str) -> String {
    if name.is_empty() { "-".to_owned() } else { name.to_owned() }
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
    use super::*;

    #[test]
    fn sites_and_edges_are_tables() {
        assert_eq!(escaped("203.0.113.0/24 ü"), "203.0.113.0%2F24%20%C3%BC");
        let heard = now_ms() / 1000;
        let answer = json!({"scopes": [{
            "pop": "fra1", "prefixes": 812, "steered": 17, "on_trial": 9, "proved": 8, "bundle": 42,
        }, {"pop": "", "prefixes": 3, "steered": 0, "on_trial": 0, "proved": 0, "bundle": null}], "pops": {"fra1": {
            "edges": [{"name": "edge-1", "bundle": 41, "heard_unix_s": heard + 60, "refused": {"reason": "too long"}}],
            "candidate": {"number": 43, "stage": "watched"},
        }}});
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
