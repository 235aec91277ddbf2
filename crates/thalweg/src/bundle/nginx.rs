//! A bundle's rules as a `geo` map of nginx (ngx_http_geo_module).
//!
//! **Invariant:** what a bundle says ends no comment and no word: reasons are of one line, names and prefixes of letters, digits,
//! `.`, `_`, `-`, `:` and `/`.

use std::fmt::Write as _;

use thalweg_bundle::Bundle;

pub(super) fn text(bundle: &Bundle) -> String {
    let content = bundle.content();
    let mut text = format!(
        "\
# Written by `thalweg bundle nginx`; do not edit.
# Bundle {}, {}
# Reason: {}
#
# $thalweg_cc is the congestion control that the bundle has for the client's network, empty where it has none. nginx cannot
# set it: `thalweg routes apply` does. For log_format, limit_rate, add_header or a module that sets it. Rules' sizes are not
# in it, nor hosts that are left alone, nor who is held out, by a hash that split_clients does not compute.
geo $thalweg_cc {{
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
    text
}
