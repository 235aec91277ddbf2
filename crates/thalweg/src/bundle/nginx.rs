//! A bundle's rules as a `geo` map of nginx (ngx_http_geo_module), and hosts that are left alone as a `map` over that.
//!
//! Hosts are regular expressions: others would be bounded by `map_hash_bucket_size`, a setting of the whole server. `$host` is in lower
//! case, without port and without the dot that may end a name.
//!
//! **Invariant:** what a bundle says ends no comment and no word: reasons are of one line, names and prefixes of letters, digits,
//! `.`, `_`, `-`, `:` and `/`.

use std::fmt::Write as _;

use thalweg_bundle::Bundle;

use super::escaped;

/// What the file makes.
const VARIABLE: &str = "$thalweg_cc";

pub(super) fn text(bundle: &Bundle) -> String {
    let content = bundle.content();
    let hosts = &content.hosts_left_alone;
    let of_network = if hosts.is_empty() { VARIABLE } else { "$thalweg_cc_of_network" };
    let mut text = format!(
        "\
# Written by `thalweg bundle nginx`; do not edit.
# Bundle {}, {}
# Reason: {}
#
# {VARIABLE} is the congestion control that the bundle has for the client's network, empty where it has none and for
# hosts that are left alone. nginx cannot set it: `thalweg routes apply` does. For log_format, limit_rate, add_header or a module
# that sets it. Rules' sizes are not in it, nor who is held out, by a hash that split_clients does not compute.
geo {of_network} {{
    default \"\";
",
        content.number,
        bundle.checksum(),
        content.reason,
    );
    for rule in &content.rules {
        let (prefix, algorithm, reason) = (rule.prefix, &rule.congestion_control, &rule.reason);
        writeln!(text, "    {prefix} {algorithm}; # {reason}").expect("a String takes every write");
    }
    text.push_str("}\n");
    if !hosts.is_empty() {
        write!(text, "map $host {VARIABLE} {{\n    default {of_network};\n")
            .expect("a String takes every write");
        for name in escaped(hosts) {
            writeln!(text, "    ~^{name}$ \"\"; # left alone").expect("a String takes every write");
        }
        text.push_str("}\n");
    }
    text
}
