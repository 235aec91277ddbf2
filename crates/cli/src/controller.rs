//! `thalweg controller explain` and `status`: queries of a running controller.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::bail;
use http::Request;
use http::header::AUTHORIZATION;
use serde_json::{Value, json};
use thalweg_surface::{ClientTls, KeyPair, TokenFile};
use thalweg_units::table::Table;
use url::{Url, form_urlencoded};

use crate::admin::{Server, now_ms, request_json};
use crate::print_stdout;

/// Controller to query, and output format.
#[derive(Debug, clap::Args)]
pub struct ControllerArgs {
    /// The controller's address, or its URL if it speaks TLS
    #[arg(long, value_name = "ADDR:PORT|URL", default_value = "127.0.0.1:8083", value_parser = controller_url)]
    controller: Url,
    /// File with an operator's token, if the controller has identities
    #[arg(long, value_name = "FILE", value_parser = token_file)]
    token_file: Option<TokenFile>,
    /// PEM file with the authorities to trust for an https:// URL [default: those of the system]
    #[arg(long, value_name = "FILE")]
    controller_ca: Option<PathBuf>,
    /// PEM file with the client certificate, if the controller requires one
    #[arg(long, value_name = "FILE", requires = "controller_key")]
    controller_certificate: Option<PathBuf>,
    /// PEM file with the private key of the client certificate
    #[arg(long, value_name = "FILE", requires = "controller_certificate")]
    controller_key: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn token_file(path: &str) -> Result<TokenFile, String> {
    TokenFile::new(path.into())
}

/// Parses an address, or the URL of a server without a path.
fn controller_url(text: &str) -> Result<Url, String> {
    let url = match text.parse::<SocketAddr>() {
        Ok(addr) => format!("http://{addr}"),
        Err(_) => text.to_owned(),
    };
    let is_server = |url: &Url| {
        let is_known = matches!(url.scheme(), "http" | "https") && url.has_host();
        is_known && url.path() == "/" && url.query().is_none() && url.username().is_empty()
    };
    let url = Url::parse(&url).ok().filter(is_server);
    url.ok_or_else(|| "expected ADDR:PORT, or https://HOST:PORT".to_owned())
}

impl ControllerArgs {
    fn server(&self) -> anyhow::Result<Server> {
        let is_secure = self.controller.scheme() == "https";
        let pair = self.controller_certificate.clone().zip(self.controller_key.clone());
        let pair = pair.map(|(certificate, key)| KeyPair { certificate, key });
        if !is_secure && (self.controller_ca.is_some() || pair.is_some()) {
            bail!("--controller must be an https:// URL for --controller-ca and --controller-certificate");
        }
        let tls = is_secure.then(|| ClientTls::open(self.controller_ca.clone(), pair));
        Ok(Server {
            what: "controller",
            flag: "--controller",
            url: self.controller.as_str().trim_end_matches('/').to_owned(),
            tls: tls.transpose().map_err(anyhow::Error::msg)?,
        })
    }
}

/// Examples and notes printed after the help of `thalweg controller explain`.
pub const EXPLAIN_HELP: &str = "\
Examples:
  thalweg controller explain 203.0.113.0/24
  thalweg controller explain 2001:db8:7::1 --pop fra1 --json
  thalweg controller explain 203.0.113.7 --tenant video.example";

/// `thalweg controller explain`.
#[derive(Debug, clap::Args)]
pub struct ExplainArgs {
    /// Client network (/24 or /56), or an address in it
    #[arg(value_name = "PREFIX|ADDRESS")]
    prefix: String,
    /// PoP whose decisions to explain; optional if there is only one
    #[arg(long, value_name = "NAME")]
    pop: Option<String>,
    /// Tenant, by any of its hosts; if omitted, hosts without a tenant
    #[arg(long, value_name = "HOST")]
    tenant: Option<String>,
    #[command(flatten)]
    controller: ControllerArgs,
}

/// Prints the controller's explanation of a prefix.
///
/// # Errors
///
/// Returns an error if no controller responds, or the controller has no data on the PoP.
pub fn explain(args: &ExplainArgs) -> anyhow::Result<()> {
    let ControllerArgs { json, .. } = args.controller;
    let controller = &args.controller;
    let pop = match &args.pop {
        Some(pop) => pop.clone(),
        None => only_pop(controller)?,
    };
    let tenant = args.tenant.as_ref().map(|tenant| ("tenant", tenant.to_ascii_lowercase()));
    let parameters = [("pop", pop), ("prefix", args.prefix.clone())].into_iter().chain(tenant);
    let answer = get(controller, &target("/explain", parameters))?;
    if json {
        print_stdout(&format!("{answer}\n"));
    } else {
        print_stdout(answer["text"].as_str().unwrap_or_default());
    }
    Ok(())
}

/// Returns the names of the PoPs in the response.
fn pops(scopes: &Value) -> BTreeSet<String> {
    let scopes = scopes["scopes"].as_array().into_iter().flatten();
    scopes.map(|scope| scope["pop"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Returns the only PoP, or an error unless there is exactly one.
fn only_pop(controller: &ControllerArgs) -> anyhow::Result<String> {
    match Vec::from_iter(pops(&get(controller, "/scopes")?)).as_slice() {
        [one] => Ok(one.clone()),
        [] => bail!("no decisions yet: the first round follows the first window"),
        several => {
            let names: Vec<_> = several.iter().map(|pop| format!("{pop:?}")).collect();
            bail!("--pop must name one of {} PoPs: {}", several.len(), names.join(", "))
        }
    }
}

/// Prints the PoPs and their edges.
///
/// # Errors
///
/// Returns an error if no controller responds.
pub fn status(controller: &ControllerArgs) -> anyhow::Result<()> {
    let json = controller.json;
    let mut answer = get(controller, "/scopes")?;
    // Query the edges once per PoP, not once per tenant.
    for pop in pops(&answer) {
        match get(controller, &target("/edges", [("pop", pop.clone())])) {
            Ok(mut site) => {
                let (edges, candidate) = (site["edges"].take(), site["candidate"].take());
                answer["pops"][pop] = json!({ "edges": edges, "candidate": candidate });
            }
            Err(error) => eprintln!("thalweg: PoP {pop:?}: {error:#}"),
        }
    }
    print_stdout(&if json { format!("{answer}\n") } else { human(&answer) });
    Ok(())
}

/// Formats tables of PoPs, edges and candidate bundles.
fn human(answer: &Value) -> String {
    let scopes = answer["scopes"].as_array().map_or(&[][..], Vec::as_slice);
    if scopes.is_empty() {
        return "no decisions yet: the first round follows the first window\n".to_owned();
    }
    let mut sites = Table::of_texts(["POP", "TENANT", "PREFIXES", "STEERED", "ON TRIAL", "SHOWN", "BUNDLE"]);
    let mut edges = Table::of_texts(["POP", "EDGE", "BUNDLE", "HEARD", "REFUSED"]);
    let mut tried = Table::of_texts(["POP", "TRIED", "STAGE"]);
    for scope in scopes {
        let names = ["pop", "tenant", "prefixes", "steered", "on_trial", "proved", "bundle"];
        sites.push(names.map(|name| cell(&scope[name])));
    }
    for (pop, site) in answer["pops"].as_object().into_iter().flatten() {
        let candidate = &site["candidate"];
        if candidate.is_object() {
            tried.push([name_cell(pop), cell(&candidate["number"]), cell(&candidate["stage"])]);
        }
        for edge in site["edges"].as_array().into_iter().flatten() {
            let heard_s = (now_ms() / 1000).saturating_sub(edge["heard_unix_s"].as_u64().unwrap_or(0));
            edges.push([
                name_cell(pop),
                cell(&edge["name"]),
                cell(&edge["bundle"]),
                format!("{heard_s} s ago"),
                cell(&edge["refused"]["reason"]),
            ]);
        }
    }
    let tables = [sites, edges, tried].into_iter().filter(|table| !table.is_empty());
    tables.map(|table| table.to_string()).collect::<Vec<_>>().join("\n")
}

/// Formats a value as a cell; a dash if absent or empty.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => name_cell(text),
        value => value.to_string(),
    }
}

/// Formats a name as a cell; a dash if empty.
fn name_cell(name: &str) -> String {
    if name.is_empty() { "-".to_owned() } else { name.to_owned() }
}

/// Appends a query to a path.
fn target(path: &str, query: impl IntoIterator<Item = (&'static str, String)>) -> String {
    format!("{path}?{}", form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish())
}

fn get(controller: &ControllerArgs, target: &str) -> anyhow::Result<Value> {
    let mut request = Request::get(target);
    if let Some(token) = &controller.token_file {
        request = request.header(AUTHORIZATION, token.credentials().map_err(anyhow::Error::msg)?);
    }
    request_json(controller.server()?, request, String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pops_and_edges_are_tables() {
        let parameters = [("prefix", "203.0.113.0/24 ü".to_owned())];
        assert_eq!(target("/explain", parameters), "/explain?prefix=203.0.113.0%2F24+%C3%BC");
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
        .assert_eq(&human(&answer));
    }
}
