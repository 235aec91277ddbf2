//! `thalweg routes`: a bundle's rules as kernel routes with a congestion control, for servers that are not Thalweg.
//!
//! **Invariant:** nothing is changed before the bundle is checked, the kernel has each of its algorithms, and all changes are known.

mod args;
mod follow;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use thalweg_bundle::Bundle;
use thalweg_tcp::congestion::{self, CongestionControl};
use thalweg_tcp::diag::Prefix;
use thalweg_tcp::routes::{Change, Plan, Route, Routes, Skipped, Wanted, plan};

use crate::{bundle, print_or_gone};

pub(crate) use args::{HELP, RoutesCommand};

/// Does what is asked.
///
/// # Errors
/// A bundle that is refused; an algorithm that the kernel does not have; where routes cannot be read or changed.
pub(crate) fn run(command: RoutesCommand) -> anyhow::Result<()> {
    match command {
        RoutesCommand::Apply { bundle, table, follow: true, keep, .. } => follow::run(&bundle, table, keep),
        RoutesCommand::Apply { bundle, table, dry_run, .. } => apply(&bundle, table, dry_run),
        RoutesCommand::Show { table } => {
            let mut kernel = Routes::open()?;
            let routes = own(&mut kernel, table)?;
            let lines = routes.iter().map(|route| format!("{}\n", kernel.shown(route)));
            print_or_gone(&lines.collect::<String>());
            Ok(())
        }
        RoutesCommand::Remove { table, dry_run } => {
            let mut kernel = Routes::open()?;
            let changes: Vec<_> = own(&mut kernel, table)?.into_iter().map(Change::Remove).collect();
            make(&mut kernel, &changes, dry_run)
        }
    }
}

/// The routes of ours, in a table or in all.
fn own(kernel: &mut Routes, table: Option<u32>) -> anyhow::Result<Vec<Route>> {
    Ok(kernel.dump(|route| route.is_own() && table.is_none_or(|table| table == route.table))?)
}

fn apply(file: &Path, table: u32, is_dry: bool) -> anyhow::Result<()> {
    let bundle = bundle::read(file)?;
    let wanted = wanted(&bundle, table)?;
    let mut kernel = Routes::open()?;
    let plan = look(&mut kernel, &wanted)?;
    for warning in warnings(&bundle).into_iter().chain(exceptions(&plan)) {
        eprintln!("{}: warning: {warning}", file.display());
    }
    make(&mut kernel, &plan.changes, is_dry)?;
    let text = format!("bundle {}: {}\n", bundle.content().number, Counts::of(&plan).text(is_dry));
    print_or_gone(&text);
    Ok(())
}

/// What a bundle asks of a routing table.
///
/// # Errors
/// When the kernel lacks one of its algorithms.
fn wanted(bundle: &Bundle, table: u32) -> anyhow::Result<Wanted> {
    let mut algorithms = BTreeMap::new();
    let mut known: Vec<CongestionControl> = Vec::new();
    for rule in &bundle.content().rules {
        let algorithm = rule.congestion_control.parse().context("a bundle's names have the kernel's form")?;
        if !known.contains(&algorithm) {
            // Whether a process may choose it does not matter for a route.
            if let Err(unknown @ thalweg_tcp::Error::Unknown { .. }) = congestion::check(algorithm) {
                return Err(unknown).with_context(|| format!("rule {}", rule.prefix));
            }
            known.push(algorithm);
        }
        algorithms.insert(Prefix::of(rule.prefix.first(), rule.prefix.bits()), algorithm);
    }
    Ok(Wanted { table, algorithms })
}

fn look(kernel: &mut Routes, wanted: &Wanted) -> anyhow::Result<Plan> {
    Ok(plan(wanted, &kernel.dump(|route| wanted.concerns(route))?))
}

/// Makes the changes, all or none, and prints them.
fn make(kernel: &mut Routes, changes: &[Change], is_dry: bool) -> anyhow::Result<()> {
    let lines = changes.iter().map(|change| match change {
        Change::Add(new) => format!("add {}\n", kernel.shown(new)),
        Change::Replace { new, .. } => format!("replace {}\n", kernel.shown(new)),
        Change::Remove(old) => format!("remove {}\n", kernel.shown(old)),
    });
    let text: String = lines.collect();
    if !is_dry {
        kernel.change(changes)?;
    }
    print_or_gone(&text);
    Ok(())
}

/// What a bundle has that routes cannot do.
fn warnings(bundle: &Bundle) -> Vec<String> {
    let content = bundle.content();
    let (mut held_out, mut sized) = (0, 0);
    for rule in &content.rules {
        held_out += usize::from(rule.holdout.millionths() > 0);
        sized += usize::from(rule.size_bytes_min.is_some());
    }
    let warnings = [
        (
            held_out,
            "rules hold connections out, and a route steers all of its prefix: nothing is left to compare with",
        ),
        (sized, "rules have a size, and a route steers each connection from its first byte"),
        (content.experiments.len(), "experiments: routes do none of them"),
    ];
    let told = warnings.iter().filter(|(count, _)| *count > 0);
    told.map(|(count, what)| format!("{count} {what}")).collect()
}

/// What a plan leaves out.
fn exceptions(plan: &Plan) -> Vec<String> {
    let skipped = plan.skipped.iter().map(|(prefix, why)| match why {
        Skipped::Taken { protocol } => {
            format!("{prefix} is left as it is: there is a route of that prefix, of protocol {protocol}")
        }
        Skipped::NoRoute => format!("{prefix} is left out: no route leads there"),
        Skipped::Refused => format!("{prefix} is left out: the route there refuses packets"),
    });
    let within = plan.within.iter().map(|(prefix, count)| {
        format!("{prefix} has more specific routes within ({count}): connections there go by those")
    });
    skipped.chain(within).collect()
}

/// How many routes of each kind a plan has.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    added: usize,
    replaced: usize,
    removed: usize,
    kept: usize,
    skipped: usize,
}

impl Counts {
    fn of(plan: &Plan) -> Self {
        let mut counts = Self { kept: plan.kept, skipped: plan.skipped.len(), ..Self::default() };
        for change in &plan.changes {
            *match change {
                Change::Add(_) => &mut counts.added,
                Change::Replace { .. } => &mut counts.replaced,
                Change::Remove(_) => &mut counts.removed,
            } += 1;
        }
        counts
    }

    fn text(self, is_dry: bool) -> String {
        let Self { added, replaced, removed, kept, skipped } = self;
        let mut text = format!("{added} added, {replaced} replaced, {removed} removed, {kept} as they were");
        if skipped > 0 {
            write!(text, ", {skipped} left out").expect("a String takes every write");
        }
        if is_dry {
            text.push_str(" (dry run: nothing was changed)");
        }
        text
    }
}
