//! Test bundles.
#![allow(dead_code, reason = "each test program uses only some of these items")]

use thalweg_bundle::{Bundle, Content, Rule, Share, Tenant};

/// A valid reason made of tokens that have a meaning in other servers' config languages.
pub(crate) const HOSTILE: &str = r##"" } */ ; '); C{ system("x"); }C "} {" ${x} \ `id` # // é 漢"##;

/// Returns a rule with a hostile reason.
pub(crate) fn rule(prefix: &str, algorithm: &str) -> Rule {
    Rule {
        tenant: String::new(),
        prefix: prefix.parse().unwrap(),
        congestion_control: algorithm.to_owned(),
        size_bytes_min: None,
        initcwnd: None,
        initrwnd: None,
        salt: String::new(),
        holdout: Share::from_number(0.0).unwrap(),
        period_s: None,
        switchback_block_s: None,
        reason: HOSTILE.to_owned(),
    }
}

/// Returns a bundle document with these rules.
pub(crate) fn document(number: u64, rules: Vec<Rule>) -> String {
    document_but(number, rules, &[])
}

/// Returns a bundle document that excludes `hosts`.
pub(crate) fn document_but(number: u64, rules: Vec<Rule>, hosts: &[&str]) -> String {
    document_of(Content { number, rules, hosts_left_alone: owned(hosts), ..Content::default() })
}

/// Returns a bundle document with one tenant, which has `hosts`.
pub(crate) fn document_with(number: u64, rules: Vec<Rule>, hosts: &[&str]) -> String {
    let tenants = vec![Tenant { hosts: owned(hosts) }];
    document_of(Content { number, rules, tenants, ..Content::default() })
}

fn document_of(content: Content) -> String {
    Bundle::new(Content { reason: HOSTILE.to_owned(), ..content }).unwrap().encode()
}

fn owned(hosts: &[&str]) -> Vec<String> {
    hosts.iter().map(|&host| host.to_owned()).collect()
}

/// Returns a bundle document with a rule for each pair of prefix and algorithm.
pub(crate) fn of_rules(number: u64, rules: &[(&str, &str)]) -> String {
    document(number, rules.iter().map(|(prefix, algorithm)| rule(prefix, algorithm)).collect())
}
