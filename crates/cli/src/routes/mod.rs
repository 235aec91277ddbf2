//! `thalweg routes`: turns a bundle's rules into kernel routes with a congestion control and
//! initial windows, for other servers.
//!
//! **Invariant:** no route is changed before the bundle is checked and all changes are planned.

mod args;
mod due;
mod follow;
mod messages;
mod refused;

use std::path::Path;

use anyhow::bail;
use thalweg_bundle::{Bundle, Rule};
use thalweg_tcp::routes::{Change, Changed, Plan, Refused, Route, Routes, Wanted, plan};
use thalweg_tcp::sysctl;

use crate::{bundle, print_stdout};
use due::{Due, unix_time};
use messages::{Counts, exceptions, left_out, refusals, warnings};

pub use args::{HELP, RoutesCommand};

/// Maximum number of tenant names in a message.
const NAMES_MAX: usize = 10;

/// Runs the subcommand.
///
/// # Errors
///
/// Returns an error if the bundle is rejected, if the kernel refuses a change, or if routes cannot
/// be read or changed.
pub fn run(command: RoutesCommand) -> anyhow::Result<()> {
    match command {
        RoutesCommand::Apply { bundle, table, tenant, initcwnd, initrwnd, dry_run, follow, keep } => {
            let target = Target { table, tenant, initcwnd, initrwnd };
            if follow { follow::run(&bundle, target, keep) } else { apply(&bundle, &target, dry_run) }
        }
        RoutesCommand::Show { table } => {
            let mut kernel = Routes::open()?;
            let routes = own(&mut kernel, table)?;
            let lines = routes.iter().map(|route| format!("{}\n", kernel.shown(route)));
            print_stdout(&lines.collect::<String>());
            Ok(())
        }
        RoutesCommand::Remove { table, dry_run } => {
            let mut kernel = Routes::open()?;
            let changes: Vec<_> = own(&mut kernel, table)?.into_iter().map(Change::Remove).collect();
            let changed = make_changes(&mut kernel, changes, dry_run)?;
            refusals(&changed.refused).iter().for_each(|refusal| eprintln!("warning: {refusal}"));
            none_refused(&changed.refused)
        }
    }
}

/// Routing table to change, tenant whose rules are used, and values for all of its routes.
#[derive(Debug)]
struct Target {
    table: u32,
    /// Any host of the tenant.
    tenant: Option<String>,
    /// Initial windows for rules that set none.
    initcwnd: Option<u16>,
    initrwnd: Option<u16>,
}

/// Returns the rules of a tenant or, if `tenant` is `None`, the rules for hosts without a tenant.
/// Routes cannot distinguish hosts, so only one of these sets can apply.
fn rules<'a>(bundle: &'a Bundle, tenant: Option<&str>) -> Vec<&'a Rule> {
    let content = bundle.content();
    let has =
        |hosts: &[String]| hosts.iter().any(|host| tenant.is_some_and(|it| host.eq_ignore_ascii_case(it)));
    let name = content.tenants.iter().find(|it| has(&it.hosts)).and_then(|it| it.hosts.first());
    let is_selected = |rule: &&Rule| match (tenant, name) {
        (None, _) => rule.tenant.is_empty(),
        (Some(_), name) => name == Some(&rule.tenant),
    };
    content.rules.iter().filter(is_selected).collect()
}

/// Checks that the bundle has the tenant, because a mistyped tenant would have no rules, so that
/// all routes would be removed. A follower skips this check: a controller that decides per host
/// lists a tenant only while the tenant has rules.
///
/// # Errors
///
/// Returns an error if the bundle has no such tenant.
fn check_tenant(bundle: &Bundle, target: &Target) -> anyhow::Result<()> {
    let Some(host) = &target.tenant else { return Ok(()) };
    let tenants = &bundle.content().tenants;
    if tenants.iter().flat_map(|it| &it.hosts).any(|own| own.eq_ignore_ascii_case(host)) {
        return Ok(());
    }
    let names: Vec<_> = tenants.iter().filter_map(|it| it.hosts.first()).take(NAMES_MAX).collect();
    bail!("no tenant in the bundle has the host {host:?}; tenants in the bundle: {names:?}")
}

/// Returns the routes set by thalweg, in one table or in all.
fn own(kernel: &mut Routes, table: Option<u32>) -> anyhow::Result<Vec<Route>> {
    Ok(kernel.dump(|route| route.is_own() && table.is_none_or(|table| table == route.table))?)
}

fn apply(file: &Path, target: &Target, is_dry: bool) -> anyhow::Result<()> {
    let bundle = bundle::read(file)?;
    check_tenant(&bundle, target)?;
    let due = Due::at(&bundle, target, unix_time().as_secs())?;
    let mut kernel = Routes::open()?;
    let plan = plan_changes(&mut kernel, &due.wanted)?;
    let warn = |warning| eprintln!("{}: warning: {warning}", file.display());
    if let Some(warning) = sysctl::metrics_save_warning() {
        eprintln!("warning: {warning}");
    }
    let warnings = warnings(&bundle, target.tenant.as_deref()).into_iter();
    warnings.chain(due.warning()).chain(exceptions(&plan)).for_each(warn);
    let Changed { made, refused } = make_changes(&mut kernel, plan.changes, is_dry)?;
    refusals(&refused).into_iter().for_each(warn);
    let counts = Counts::of(&made, plan.kept, plan.skipped.len() + left_out(&refused), due.held_out);
    let dry = if is_dry { " (dry run: nothing was changed)" } else { "" };
    print_stdout(&format!("bundle {}: {counts}{dry}\n", bundle.content().number));
    none_refused(&refused)
}

fn plan_changes(kernel: &mut Routes, wanted: &Wanted) -> anyhow::Result<Plan> {
    Ok(plan(wanted, &kernel.dump(|route| wanted.concerns(route))?))
}

/// Applies the changes and prints the successful ones. In a dry run, prints all changes without
/// applying them.
fn make_changes(kernel: &mut Routes, changes: Vec<Change>, is_dry: bool) -> anyhow::Result<Changed> {
    let changed =
        if is_dry { Changed { made: changes, refused: Vec::new() } } else { kernel.change(changes)? };
    let lines = changed.made.iter().map(|change| match change {
        Change::Add(new) => format!("add {}\n", kernel.shown(new)),
        Change::Replace { new, .. } => format!("replace {}\n", kernel.shown(new)),
        Change::Remove(old) => format!("remove {}\n", kernel.shown(old)),
    });
    print_stdout(&lines.collect::<String>());
    Ok(changed)
}

/// Checks that the kernel accepted all changes.
///
/// # Errors
///
/// Returns an error if any change was refused.
fn none_refused(refused: &[Refused]) -> anyhow::Result<()> {
    match refused.len() {
        0 => Ok(()),
        count => bail!("the kernel refused changes: {count}"),
    }
}
