//! Messages of `thalweg routes`: unsupported parts of a bundle, skipped prefixes and kernel
//! refusals.

use std::collections::BTreeSet;
use std::fmt;

use thalweg_bundle::{Bundle, Rule, Share};
use thalweg_tcp::congestion;
use thalweg_tcp::routes::{Change, Plan, Refused, Skipped};

use super::rules;

/// Maximum number of prefixes named in one report of skipped or refused routes.
const PREFIXES_NAMED_MAX: usize = 100;

/// Returns warnings about rules that routes, or this machine, cannot implement. Covers the rules of
/// a tenant or, without one, the rules for hosts without a tenant.
pub(super) fn warnings(bundle: &Bundle, tenant: Option<&str>) -> Vec<String> {
    let (content, rules) = (bundle.content(), rules(bundle, tenant));
    let (mut held_out, mut sized) = (0, 0);
    for rule in &rules {
        // A switchback, or a rule that holds out all clients, holds out its whole prefix.
        let holds_out_clients = rule.switchback_block_s.is_none() && rule.holdout != Share::ALL;
        held_out += usize::from(holds_out_clients && rule.holdout.millionths() > 0);
        sized += usize::from(rule.size_bytes_min.is_some());
    }
    let warnings = [
        (held_out, "rules hold some clients out, but a route steers its whole prefix: no holdout remains"),
        (sized, "rules have a size, but a route steers each connection from its first byte"),
        (
            content.hosts_left_alone.len(),
            "hosts are excluded, but a route knows no host: their connections are steered too",
        ),
        (
            content.rules.len() - rules.len(),
            "rules are for other hosts, but a route knows no host: their connections are steered like all others",
        ),
        (content.experiments.len(), "experiments are not supported by routes"),
    ];
    let named = warnings.iter().filter(|(count, _)| *count > 0);
    named.map(|(count, what)| format!("{count} {what}")).chain(unknown(&rules)).collect()
}

/// Finds the algorithms that this kernel lacks, each with the first rule that uses it.
fn unknown(rules: &[&Rule]) -> impl Iterator<Item = String> {
    let mut seen = BTreeSet::new();
    rules.iter().filter_map(move |rule| {
        if !seen.insert(&rule.congestion_control) {
            return None;
        }
        // A route may use an algorithm that processes are not permitted to choose.
        match rule.congestion_control.parse().and_then(congestion::check) {
            Err(unknown @ thalweg_tcp::Error::Unknown { .. }) => {
                Some(format!("rule {}: {unknown}", rule.prefix))
            }
            _ => None,
        }
    })
}

/// Formats messages for prefixes that a plan skips, and for those with more specific routes.
pub(super) fn exceptions(plan: &Plan) -> Vec<String> {
    let skipped = plan.skipped.iter().map(|(prefix, why)| match why {
        Skipped::Taken { protocol } => {
            format!("{prefix} is skipped: protocol {protocol} has a route to it")
        }
        Skipped::NoRoute => format!("{prefix} is skipped: no route to it"),
        Skipped::Blackhole => format!("{prefix} is skipped: its route rejects packets"),
    });
    let within = plan.within.iter().map(|(prefix, count)| {
        format!("{prefix} contains more specific routes ({count}), which take precedence")
    });
    first(skipped.chain(within))
}

/// Formats messages for changes that the kernel refused.
pub(super) fn refusals<'a>(refused: impl IntoIterator<Item = &'a Refused>) -> Vec<String> {
    first(refused.into_iter().map(|refused| {
        let prefix = refused.change.route().prefix;
        match refused.change {
            Change::Remove(_) => {
                format!("{prefix} keeps its route: the kernel refuses to remove it: {refused}")
            }
            _ => format!("{prefix} is skipped: the kernel refuses its route: {refused}"),
        }
    }))
}

/// Returns the first messages, followed by the number of further messages.
fn first(mut messages: impl Iterator<Item = String>) -> Vec<String> {
    let mut named: Vec<_> = messages.by_ref().take(PREFIXES_NAMED_MAX).collect();
    match messages.count() {
        0 => {}
        more => named.push(format!("and {more} more")),
    }
    named
}

/// Number of routes for each kind of change.
#[derive(Debug)]
pub(super) struct Counts {
    added: usize,
    replaced: usize,
    removed: usize,
    kept: usize,
    left_out: usize,
    held_out: usize,
}

impl Counts {
    pub(super) fn of(made: &[Change], kept: usize, left_out: usize, held_out: usize) -> Self {
        let mut counts = Self { added: 0, replaced: 0, removed: 0, kept, left_out, held_out };
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
        let Self { added, replaced, removed, kept, left_out, held_out } = self;
        write!(f, "{added} added, {replaced} replaced, {removed} removed, {kept} unchanged")?;
        if *left_out > 0 {
            write!(f, ", {left_out} skipped")?;
        }
        if *held_out > 0 {
            write!(f, ", {held_out} held out")?;
        }
        Ok(())
    }
}

/// Counts the prefixes that have no route because the kernel refused it.
pub(super) fn left_out(refused: &[Refused]) -> usize {
    refused.iter().filter(|refused| !matches!(refused.change, Change::Remove(_))).count()
}
