//! What `thalweg routes` says: of what a bundle asks that routes cannot do, of what a plan leaves out, of what the kernel refuses.

use std::collections::BTreeSet;
use std::fmt;

use thalweg_bundle::{Bundle, Rule};
use thalweg_tcp::congestion;
use thalweg_tcp::routes::{Change, Plan, Refused, Skipped};

use super::rules;

/// Prefixes that are told one by one, of those left out or refused at a time.
const PREFIXES_TOLD_MAX: usize = 100;

/// What a bundle has for a tenant, or for hosts that none has, that routes cannot do, or this machine.
pub(super) fn warnings(bundle: &Bundle, tenant: Option<&str>) -> Vec<String> {
    let (content, rules) = (bundle.content(), rules(bundle, tenant));
    let (mut held_out, mut sized) = (0, 0);
    for rule in &rules {
        held_out += usize::from(rule.holdout.millionths() > 0);
        sized += usize::from(rule.size_bytes_min.is_some());
    }
    let warnings = [
        (
            held_out,
            "rules hold connections out, and a route steers all of its prefix: nothing is left to compare with",
        ),
        (sized, "rules have a size, and a route steers each connection from its first byte"),
        (
            content.hosts_left_alone.len(),
            "hosts are left alone, and a route knows no host: connections that ask for them are steered too",
        ),
        (
            content.rules.len() - rules.len(),
            "rules are about other hosts, and a route knows no host: connections that ask for those are steered as all are",
        ),
        (content.experiments.len(), "experiments: routes do none of them"),
    ];
    let told = warnings.iter().filter(|(count, _)| *count > 0);
    told.map(|(count, what)| format!("{count} {what}")).chain(unknown(&rules)).collect()
}

/// The algorithms that this kernel lacks, each with the first rule that asks for it.
fn unknown(rules: &[&Rule]) -> impl Iterator<Item = String> {
    let mut asked = BTreeSet::new();
    rules.iter().filter_map(move |rule| {
        if !asked.insert(&rule.congestion_control) {
            return None;
        }
        // Whether a process may choose it does not matter for a route.
        match rule.congestion_control.parse().and_then(congestion::check) {
            Err(unknown @ thalweg_tcp::Error::Unknown { .. }) => {
                Some(format!("rule {}: {unknown}", rule.prefix))
            }
            _ => None,
        }
    })
}

/// What a plan leaves out.
pub(super) fn exceptions(plan: &Plan) -> Vec<String> {
    let skipped = plan.skipped.iter().map(|(prefix, why)| match why {
        Skipped::Taken { protocol } => {
            format!("{prefix} is left as it is: there is a route of that prefix, of protocol {protocol}")
        }
        Skipped::NoRoute => format!("{prefix} is left out: no route leads there"),
        Skipped::Blackhole => format!("{prefix} is left out: the route there refuses packets"),
    });
    let within = plan.within.iter().map(|(prefix, count)| {
        format!("{prefix} has more specific routes within ({count}): connections there go by those")
    });
    first(skipped.chain(within))
}

/// What the kernel refuses.
pub(super) fn refusals<'a>(refused: impl IntoIterator<Item = &'a Refused>) -> Vec<String> {
    first(refused.into_iter().map(|refused| {
        let prefix = refused.change.route().prefix;
        match refused.change {
            Change::Remove(_) => {
                format!("{prefix} keeps its route: the kernel refuses to remove it: {refused}")
            }
            _ => format!("{prefix} is left out: the kernel refuses its route: {refused}"),
        }
    }))
}

/// The first ones, and how many more there are.
fn first(mut messages: impl Iterator<Item = String>) -> Vec<String> {
    let mut told: Vec<_> = messages.by_ref().take(PREFIXES_TOLD_MAX).collect();
    match messages.count() {
        0 => {}
        more => told.push(format!("and {more} more")),
    }
    told
}

/// How many routes of each kind there are.
#[derive(Debug)]
pub(super) struct Counts {
    added: usize,
    replaced: usize,
    removed: usize,
    kept: usize,
    left_out: usize,
}

impl Counts {
    pub(super) fn of(made: &[Change], kept: usize, left_out: usize) -> Self {
        let mut counts = Self { added: 0, replaced: 0, removed: 0, kept, left_out };
        for change in made {
            *match change {
                Change::Add(_) => &mut counts.added,
                Change::Replace { .. } => &mut counts.replaced,
                Change::Remove(_) => &mut counts.removed,
            } += 1;
        }
        counts
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { added, replaced, removed, kept, left_out } = self;
        write!(f, "{added} added, {replaced} replaced, {removed} removed, {kept} as they were")?;
        if *left_out > 0 {
            write!(f, ", {left_out} left out")?;
        }
        Ok(())
    }
}

/// How many prefixes the kernel's refusals leave without a route.
pub(super) fn left_out(refused: &[Refused]) -> usize {
    refused.iter().filter(|refused| !matches!(refused.change, Change::Remove(_))).count()
}
