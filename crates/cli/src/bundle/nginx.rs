//! A bundle's rules as nginx `geo` maps (ngx_http_geo_module), one per tenant, and a `map` that
//! selects one by host.
//!
//! Hosts are matched by regular expressions, because `map_hash_bucket_size`, a server-wide setting,
//! limits the length of exact names. nginx provides `$host` in lower case, without a port or
//! trailing dot.
//!
//! **Invariant:** no text from a bundle can end a comment or a word: a reason is one line, and
//! names and prefixes contain only letters, digits, `.`, `_`, `-`, `:` and `/`.

use std::fmt::Write as _;

use thalweg_bundle::{Bundle, Rule, Tenant};

use super::escaped;

/// Variable defined by the generated file.
const VARIABLE: &str = "$thalweg_cc";

pub(super) fn text(bundle: &Bundle) -> String {
    let content = bundle.content();
    let is_by_host = !content.hosts_left_alone.is_empty() || !content.tenants.is_empty();
    let mut text = format!(
        "\
# Written by `thalweg bundle nginx`; do not edit.
# Bundle {}, {}
# Reason: {}
#
# {VARIABLE} is the bundle's congestion control for the client's network and the host; empty without one, and for excluded
# hosts. nginx cannot set it: `thalweg routes apply` does. Use it in log_format, limit_rate, add_header or a module that
# sets it. It ignores the size limits and holdouts of rules: split_clients cannot compute the holdout hash.
",
        content.number,
        bundle.checksum(),
        content.reason,
    );
    let of_network = if is_by_host { "$thalweg_cc_of_network" } else { VARIABLE };
    text.push_str(&geo(of_network, "", &content.rules));
    if !is_by_host {
        return text;
    }
    let mut map = format!("map $host {VARIABLE} {{\n    default {of_network};\n");
    for name in escaped(&content.hosts_left_alone) {
        writeln!(map, "    ~^{name}$ \"\"; # excluded").expect("writing to a String cannot fail");
    }
    for (at, Tenant { hosts }) in content.tenants.iter().enumerate() {
        let of_tenant = format!("$thalweg_cc_of_tenant_{}", at + 1);
        text.push_str(&geo(&of_tenant, hosts.first().map_or("", String::as_str), &content.rules));
        for name in escaped(hosts) {
            writeln!(map, "    ~^{name}$ {of_tenant};").expect("writing to a String cannot fail");
        }
    }
    text + &map + "}\n"
}

/// Formats the `geo` map of a tenant's rules or, if `tenant` is empty, of the rules without a
/// tenant.
fn geo(variable: &str, tenant: &str, rules: &[Rule]) -> String {
    let mut text = format!("geo {variable} {{\n    default \"\";\n");
    for rule in rules.iter().filter(|rule| rule.tenant == tenant) {
        let (prefix, algorithm, reason) = (rule.prefix, &rule.congestion_control, &rule.reason);
        writeln!(text, "    {prefix} {algorithm}; # {reason}").expect("writing to a String cannot fail");
    }
    text + "}\n"
}
