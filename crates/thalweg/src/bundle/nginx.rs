//! A bundle's rules as `geo` maps of nginx (ngx_http_geo_module), one for each tenant, and hosts as a `map` over these.
//!
//! Hosts are regular expressions: others would be bounded by `map_hash_bucket_size`, a setting of the whole server. `$host` is in lower
//! case, without port and without the dot that may end a name.
//!
//! **Invariant:** what a bundle says ends no comment and no word: reasons are of one line, names and prefixes of letters, digits,
//! `.`, `_`, `-`, `:` and `/`.

use std::fmt::Write as _;

use thalweg_bundle::{Bundle, Rule, Tenant};

use super::escaped;

/// What the file makes.
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
# {VARIABLE} is the congestion control that the bundle has for the client's network and the host, empty where it has none and for
# hosts that are left alone. nginx cannot set it: `thalweg routes apply` does. For log_format, limit_rate, add_header or a module
# that sets it. Rules' sizes are not in it, nor who is held out, by a hash that split_clients does not compute.
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
        writeln!(map, "    ~^{name}$ \"\"; # left alone").expect("a String takes every write");
    }
    for (at, Tenant { hosts }) in content.tenants.iter().enumerate() {
        let of_tenant = format!("$thalweg_cc_of_tenant_{}", at + 1);
        text.push_str(&geo(&of_tenant, hosts.first().map_or("", String::as_str), &content.rules));
        for name in escaped(hosts) {
            writeln!(map, "    ~^{name}$ {of_tenant};").expect("a String takes every write");
        }
    }
    text + &map + "}\n"
}

/// The map of a tenant's rules, or of those that no tenant has.
fn geo(variable: &str, tenant: &str, rules: &[Rule]) -> String {
    let mut text = format!("geo {variable} {{\n    default \"\";\n");
    for rule in rules.iter().filter(|rule| rule.tenant == tenant) {
        let (prefix, algorithm, reason) = (rule.prefix, &rule.congestion_control, &rule.reason);
        writeln!(text, "    {prefix} {algorithm}; # {reason}").expect("a String takes every write");
    }
    text + "}\n"
}
