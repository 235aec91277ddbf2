//! Bundles as tests write them.
#![allow(dead_code, reason = "each test file uses a part")]

use thalweg_bundle::{Bundle, Content, Rule, Share};

/// All that a reason may have and another language might take for its own.
pub(crate) const HOSTILE: &str = r##"" } */ ; '); C{ system("x"); }C "} {" ${x} \ `id` # // é 漢"##;

/// A rule with a hostile reason.
pub(crate) fn rule(prefix: &str, algorithm: &str) -> Rule {
    Rule {
        tenant: String::new(),
        prefix: prefix.parse().unwrap(),
        congestion_control: algorithm.to_owned(),
        size_bytes_min: None,
        salt: String::new(),
        holdout: Share::from_number(0.0).unwrap(),
        reason: HOSTILE.to_owned(),
    }
}

/// A bundle's document.
pub(crate) fn document(number: u64, rules: Vec<Rule>) -> String {
    let content = Content { number, reason: HOSTILE.to_owned(), rules, ..Content::default() };
    Bundle::new(content).unwrap().encode()
}

/// One of these prefixes, each with an algorithm.
pub(crate) fn of_rules(number: u64, rules: &[(&str, &str)]) -> String {
    document(number, rules.iter().map(|(prefix, algorithm)| rule(prefix, algorithm)).collect())
}
