//! A bundle's rules as VCL for Varnish with vmod_tcp: one ACL for each combination of tenant,
//! congestion control and size.
//!
//! The VCL version is 4.0, so that policies in 4.0 and 4.1 can include the file. Varnish does not
//! let a policy ignore the result of a call, so the VCL logs a non-zero result.
//!
//! **Invariant:** no text from a bundle can end a comment or a string: a reason is one line, and
//! names and prefixes contain only letters, digits, `.`, `_`, `-`, `:` and `/`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::bail;
use thalweg_bundle::{Bundle, Rule};

use super::escaped;

/// Length in bytes at which a regular expression is full, so that the next host starts another
/// expression. The compiled form is slightly longer, and PCRE2 limits it to 64 KiB.
const HOSTS_BYTES_MAX: usize = 4096;

/// Formats the rules of a bundle as VCL.
///
/// # Errors
///
/// Returns an error if the name of an algorithm is invalid in VCL.
pub(super) fn text(bundle: &Bundle) -> anyhow::Result<String> {
    let content = bundle.content();
    let mut lists: BTreeMap<(Option<usize>, &str, u64), Vec<&Rule>> = BTreeMap::new();
    for rule in &content.rules {
        let size_bytes_min = rule.size_bytes_min.unwrap_or(0);
        let tenant = content.tenants.iter().position(|tenant| tenant.hosts.first() == Some(&rule.tenant));
        lists.entry((tenant, &rule.congestion_control, size_bytes_min)).or_default().push(rule);
    }
    let mut text = format!(
        "\
vcl 4.0;
# Written by `thalweg bundle varnish`; do not edit.
# Bundle {}, {}
# Reason: {}
#
# No holdouts: VCL cannot compute the holdout hash. Sizes are taken from Content-Length: responses without it are not steered.
",
        content.number,
        bundle.checksum(),
        content.reason,
    );
    if lists.is_empty() {
        return Ok(text); // import no unused module
    }
    text.push_str("\nimport std;\nimport tcp;\n");
    let own = content.tenants.iter().flat_map(|tenant| &tenant.hosts);
    let other_hosts: Vec<_> = content.hosts_left_alone.iter().chain(own).cloned().collect();
    let none_of_others = none_of(&other_hosts);
    let mut deliver = String::new();
    for ((tenant, algorithm, size_bytes_min), rules) in lists {
        if algorithm.contains('.') {
            bail!("{algorithm:?}: names with a dot are invalid in VCL");
        }
        let (of_tenant, hosts) = match tenant {
            None => (String::new(), none_of_others.clone()),
            Some(at) => ((at + 1).to_string(), one_of(&content.tenants[at].hosts)),
        };
        // Names are distinct because the tenant's index precedes the first `_` and the size follows
        // the last `_`.
        let name = format!("thalweg{of_tenant}_{algorithm}_{size_bytes_min}");
        write!(text, "\nacl {name} {{\n")?;
        for rule in rules {
            let (address, bits, reason) = (rule.prefix.first(), rule.prefix.bits(), &rule.reason);
            writeln!(text, "    \"{address}\"/{bits}; # {reason}")?;
        }
        text.push_str("}\n");
        let size = match size_bytes_min {
            0 => String::new(),
            size => format!(" && std.integer(resp.http.Content-Length, 0) >= {size}"),
        };
        write!(
            deliver,
            "    if (client.ip ~ {name}{size}{hosts}) {{
        if (tcp.congestion_algorithm(\"{algorithm}\") != 0) {{
            std.log(\"thalweg: the kernel refuses {algorithm}\");
        }}
    }}
"
        )?;
    }
    write!(text, "\nsub vcl_deliver {{\n{deliver}}}\n")?;
    Ok(text)
}

/// Formats a condition suffix that matches requests for any of these hosts.
fn one_of(hosts: &[String]) -> String {
    let one = expressions(hosts);
    let one: Vec<_> = one.iter().map(|expression| format!("req.http.host ~ \"{expression}\"")).collect();
    format!(" && ({})", one.join(" || "))
}

/// Formats a condition suffix that matches requests for none of these hosts.
fn none_of(hosts: &[String]) -> String {
    expressions(hosts).iter().map(|expression| format!(" && req.http.host !~ \"{expression}\"")).collect()
}

/// Returns regular expressions that match a `Host` field naming one of these hosts, in any case,
/// with or without a port and trailing dots.
fn expressions(hosts: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in escaped(hosts) {
        match names.last_mut().filter(|names| names.len() < HOSTS_BYTES_MAX) {
            Some(names) => {
                names.push('|');
                names.push_str(&name);
            }
            None => names.push(name),
        }
    }
    names.iter().map(|names| format!(r"(?i)^(?:{names})\.*(?::[0-9]*)?$")).collect()
}
