//! `thalweg routes`: a bundle's rules as kernel routes with a congestion control, for servers that are not Thalweg.
//!
//! **Invariant:** nothing is changed before the bundle is checked, and all changes are known.

mod args;
mod follow;
mod refused;
mod told;

use std::path::Path;

use anyhow::{Context, bail};
use thalweg_bundle::{Bundle, Rule};
use thalweg_tcp::diag::Prefix;
use thalweg_tcp::routes::{Change, Changed, Plan, Refused, Route, Routes, Wanted, plan};

use crate::{bundle, print_or_gone};
use told::{Counts, exceptions, left_out, refusals, warnings};

pub(crate) use args::{HELP, RoutesCommand};

/// Names of tenants that are told.
const NAMES_TOLD_MAX: usize = 10;

/// Does what is asked.
///
/// # Errors
/// A bundle that is refused; a change that the kernel refuses; where routes cannot be read or changed.
pub(crate) fn run(command: RoutesCommand) -> anyhow::Result<()> {
    match command {
        RoutesCommand::Apply { bundle, table, tenant, follow: true, keep, .. } => {
            follow::run(&bundle, Asked { table, tenant }, keep)
        }
        RoutesCommand::Apply { bundle, table, tenant, dry_run, .. } => {
            apply(&bundle, &Asked { table, tenant }, dry_run)
        }
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
            let changed = make(&mut kernel, changes, dry_run)?;
            refusals(&changed.refused).iter().for_each(|refusal| eprintln!("warning: {refusal}"));
            none_refused(&changed.refused)
        }
    }
}

/// Where routes go, and for whom.
#[derive(Debug)]
struct Asked {
    table: u32,
    /// A host of the tenant.
    tenant: Option<String>,
}

/// The rules of a tenant; without one, of hosts that no tenant has. A route knows no host, so it is one or the other.
fn rules<'a>(bundle: &'a Bundle, tenant: Option<&str>) -> Vec<&'a Rule> {
    let content = bundle.content();
    let has =
        |hosts: &[String]| hosts.iter().any(|host| tenant.is_some_and(|it| host.eq_ignore_ascii_case(it)));
    let name = content.tenants.iter().find(|it| has(&it.hosts)).and_then(|it| it.hosts.first());
    let is_asked = |rule: &&Rule| match (tenant, name) {
        (None, _) => rule.tenant.is_empty(),
        (Some(_), name) => name == Some(&rule.tenant),
    };
    content.rules.iter().filter(is_asked).collect()
}

/// Whether a bundle has the tenant that is asked for: of one without, all routes would go. A controller that has each host for a tenant
/// lists those alone that have rules, so who follows one goes on.
///
/// # Errors
/// If it has not.
fn has_tenant(bundle: &Bundle, asked: &Asked) -> anyhow::Result<()> {
    let Some(host) = &asked.tenant else { return Ok(()) };
    let tenants = &bundle.content().tenants;
    if tenants.iter().flat_map(|it| &it.hosts).any(|own| own.eq_ignore_ascii_case(host)) {
        return Ok(());
    }
    let names: Vec<_> = tenants.iter().filter_map(|it| it.hosts.first()).take(NAMES_TOLD_MAX).collect();
    bail!("no tenant of the bundle has {host:?}; its tenants are named {names:?}")
}

/// The routes of ours, in a table or in all.
fn own(kernel: &mut Routes, table: Option<u32>) -> anyhow::Result<Vec<Route>> {
    Ok(kernel.dump(|route| route.is_own() && table.is_none_or(|table| table == route.table))?)
}

fn apply(file: &Path, asked: &Asked, is_dry: bool) -> anyhow::Result<()> {
    let bundle = bundle::read(file)?;
    has_tenant(&bundle, asked)?;
    let wanted = wanted(&bundle, asked)?;
    let mut kernel = Routes::open()?;
    let plan = look(&mut kernel, &wanted)?;
    let warn = |warning| eprintln!("{}: warning: {warning}", file.display());
    warnings(&bundle, asked.tenant.as_deref()).into_iter().chain(exceptions(&plan)).for_each(warn);
    let Changed { made, refused } = make(&mut kernel, plan.changes, is_dry)?;
    refusals(&refused).into_iter().for_each(warn);
    let counts = Counts::of(&made, plan.kept, plan.skipped.len() + left_out(&refused));
    let dry = if is_dry { " (dry run: nothing was changed)" } else { "" };
    print_or_gone(&format!("bundle {}: {counts}{dry}\n", bundle.content().number));
    none_refused(&refused)
}

/// What a bundle asks of a routing table.
fn wanted(bundle: &Bundle, asked: &Asked) -> anyhow::Result<Wanted> {
    let algorithms = rules(bundle, asked.tenant.as_deref()).into_iter().map(|rule| {
        let algorithm = rule.congestion_control.parse().context("a bundle's names have the kernel's form")?;
        Ok((Prefix::of(rule.prefix.first(), rule.prefix.bits()), algorithm))
    });
    Ok(Wanted { table: asked.table, algorithms: algorithms.collect::<anyhow::Result<_>>()? })
}

fn look(kernel: &mut Routes, wanted: &Wanted) -> anyhow::Result<Plan> {
    Ok(plan(wanted, &kernel.dump(|route| wanted.concerns(route))?))
}

/// Makes the changes, and prints those that were made.
fn make(kernel: &mut Routes, changes: Vec<Change>, is_dry: bool) -> anyhow::Result<Changed> {
    let changed =
        if is_dry { Changed { made: changes, refused: Vec::new() } } else { kernel.change(changes)? };
    let lines = changed.made.iter().map(|change| match change {
        Change::Add(new) => format!("add {}\n", kernel.shown(new)),
        Change::Replace { new, .. } => format!("replace {}\n", kernel.shown(new)),
        Change::Remove(old) => format!("remove {}\n", kernel.shown(old)),
    });
    print_or_gone(&lines.collect::<String>());
    Ok(changed)
}

/// # Errors
/// If anything was refused.
fn none_refused(refused: &[Refused]) -> anyhow::Result<()> {
    match refused.len() {
        0 => Ok(()),
        count => bail!("not all was done: changes that the kernel refuses: {count}"),
    }
}
