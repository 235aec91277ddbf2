//! Validation of bundle documents. All faults are reported, not only the first: faults within each
//! section, then conflicts between sections.

use std::collections::HashMap;

use crate::fault::Faults;
use crate::hosts::Hosts;
use crate::share::Share;
use crate::table::Table;
use crate::wire::{WireArm, WireBundle, WireExperiment, WireRule, WireTenant, checksum, time};
use crate::{
    ARMS_MAX, Arm, Bundle, CONGESTION_CONTROL_BYTES_MAX, Content, EXPERIMENTS_MAX, Experiment,
    HOST_BYTES_MAX, HOSTS_MAX, INITIAL_WINDOW_MAX, NAME_BYTES_MAX, PERIOD_S_MAX, REASON_BYTES_MAX, RULES_MAX,
    Rule, SIZE_BYTES_MAX, TENANTS_MAX, Tenant,
};
use thalweg_record::{Prefix, parse_time};

/// Latest creation time of a bundle, in Unix seconds: 9999-12-30T22:00:00Z.
pub const MADE_UNIX_S_MAX: u64 = 253_402_207_200;

/// Fault message for an empty host list, which must be omitted instead.
const NO_HOST: &str = "must not be empty; omit it instead";

/// Checks a document and builds the bundle. Also verifies the checksum if the document was read
/// (`read`) rather than built in memory.
pub(crate) fn bundle(wire: &WireBundle, read: bool) -> Result<Bundle, Faults> {
    let mut faults = Faults::default();
    if wire.number == 0 {
        faults.add("/number", "must be at least 1");
    }
    let made_unix_s = made_at(&wire.made_at, &mut faults);
    reason("/reason", &wire.reason, &mut faults);
    let checksum = checksum(wire);
    if read && wire.checksum.as_deref() != Some(&checksum) {
        let found = wire.checksum.as_deref().map_or("missing", |_| "does not match the content");
        faults.add("/checksum", format!("{found}, expected {checksum}"));
    }
    hosts("/hosts_left_alone", wire.hosts_left_alone.as_deref(), NO_HOST, &mut faults);
    let tenants = tenants(wire, &mut faults);
    count("/rules", wire.rules.len(), RULES_MAX, &mut faults);
    let rules: Vec<_> =
        wire.rules.iter().take(RULES_MAX).enumerate().map(|it| rule(it, &mut faults)).collect();
    let tables = tables(wire, tenants, &rules, &mut faults);
    count("/experiments", wire.experiments.len(), EXPERIMENTS_MAX, &mut faults);
    let experiments = wire.experiments.iter().take(EXPERIMENTS_MAX).enumerate();
    let experiments: Vec<_> = experiments.map(|it| experiment(it, &mut faults)).collect();
    unique(
        wire.experiments
            .iter()
            .enumerate()
            .map(|(at, it)| (format!("/experiments/{at}/name"), it.name.as_str())),
        &mut faults,
    );
    hosts_of_all(&wire.experiments, &mut faults);
    let rules: Option<Vec<_>> = rules.into_iter().map(|rule| rule.1).collect();
    match (rules, experiments.into_iter().collect(), made_unix_s) {
        (Some(rules), Some(experiments), Some(made_unix_s)) if faults.is_empty() => {
            let content = Content {
                number: wire.number,
                made_unix_s,
                reason: wire.reason.clone(),
                hosts_left_alone: wire.hosts_left_alone.clone().unwrap_or_default(),
                tenants: tenants.iter().map(|it| Tenant { hosts: it.hosts.clone() }).collect(),
                rules,
                experiments,
            };
            Ok(Bundle { hosts: host_tables(&content), content, tables, checksum })
        }
        _ => Err(faults),
    }
}

/// Checks the tenants and returns at most [`TENANTS_MAX`] of them. A host must not belong to two
/// tenants, or to a tenant and `hosts_left_alone`.
fn tenants<'a>(wire: &'a WireBundle, faults: &mut Faults) -> &'a [WireTenant] {
    let tenants = wire.tenants.as_deref();
    if tenants.is_some_and(<[_]>::is_empty) {
        faults.add("/tenants", "must not be empty; omit it instead");
    }
    let tenants = tenants.unwrap_or_default();
    count("/tenants", tenants.len(), TENANTS_MAX, faults);
    let tenants = &tenants[..tenants.len().min(TENANTS_MAX)];
    for (at, tenant) in tenants.iter().enumerate() {
        hosts(&format!("/tenants/{at}/hosts"), Some(&tenant.hosts), "must have at least one host", faults);
    }
    let left_alone = wire.hosts_left_alone.iter().map(|hosts| ("/hosts_left_alone".to_owned(), hosts));
    let own = tenants.iter().enumerate().map(|(at, it)| (format!("/tenants/{at}/hosts"), &it.hosts));
    let named = left_alone.chain(own).flat_map(|(list, hosts)| {
        let hosts = hosts.iter().take(HOSTS_MAX).enumerate();
        hosts.map(move |(at, host)| (format!("{list}/{at}"), host.as_str()))
    });
    unique(named, faults);
    tenants
}

/// Builds the rule tables: table 0 for hosts without a tenant, then one table per tenant.
fn tables(
    wire: &WireBundle,
    tenants: &[WireTenant],
    rules: &[(Option<Prefix>, Option<Rule>)],
    faults: &mut Faults,
) -> Vec<Table> {
    let own = tenants.iter().enumerate().filter_map(|(at, tenant)| Some((tenant.hosts.first()?, at + 1)));
    let own: HashMap<_, _> = own.collect();
    let mut prefixes = vec![Vec::new(); tenants.len() + 1];
    for (index, (prefix, _)) in rules.iter().enumerate() {
        let table = match &wire.rules[index].tenant {
            None => Some(0),
            Some(tenant) => own.get(tenant).copied(),
        };
        if table.is_none() {
            faults.add(format!("/rules/{index}/tenant"), "must be the first host of a tenant in /tenants");
        }
        table.zip(*prefix).into_iter().for_each(|(table, prefix)| prefixes[table].push((prefix, index)));
    }
    let table = |prefixes: Vec<_>| {
        Table::new(&prefixes).unwrap_or_else(|overlaps| {
            for (index, holder) in overlaps {
                let (own, its) = (&wire.rules[index].prefix, &wire.rules[holder].prefix);
                let message = format!("{own} overlaps {its} of /rules/{holder}");
                faults.add(format!("/rules/{index}/prefix"), message);
            }
            Table::default()
        })
    };
    prefixes.into_iter().map(table).collect()
}

/// Maps each listed host to its table index, or to `None` if it is in `hosts_left_alone`.
fn host_tables(content: &Content) -> Hosts<Option<usize>> {
    let left_alone = content.hosts_left_alone.iter().map(|host| (host.as_str(), None));
    let own = content.tenants.iter().enumerate();
    let own = own.flat_map(|(at, tenant)| tenant.hosts.iter().map(move |host| (host.as_str(), Some(at + 1))));
    Hosts::new(left_alone.chain(own))
}

fn made_at(text: &str, faults: &mut Faults) -> Option<u64> {
    let unix_s = parse_time(text).map(|unix_us| unix_us / 1_000_000).filter(|unix_s| time(*unix_s) == text);
    if unix_s.is_none() {
        faults.add("/made_at", "must be a UTC time to the second, such as 2026-11-20T23:00:00Z (RFC 3339)");
    }
    unix_s
}

/// Checks a rule. Returns its prefix even if other members are invalid, so that overlapping
/// prefixes are still reported.
fn rule((index, wire): (usize, &WireRule), faults: &mut Faults) -> (Option<Prefix>, Option<Rule>) {
    let at = format!("/rules/{index}");
    let prefix: Option<Prefix> =
        wire.prefix.parse().map_err(|error| faults.add(format!("{at}/prefix"), format!("{error}"))).ok();
    // The checksum covers the encoded document, so a prefix must have exactly one spelling.
    if let Some(written) = prefix.map(|prefix| prefix.to_string()).filter(|written| *written != wire.prefix) {
        faults.add(format!("{at}/prefix"), format!("must be written as {written}"));
    }
    congestion_control(&format!("{at}/congestion_control"), &wire.congestion_control, faults);
    if wire.size_bytes_min.is_some_and(|size| size > SIZE_BYTES_MAX) {
        faults.add(format!("{at}/size_bytes_min"), format!("must be at most {SIZE_BYTES_MAX}"));
    }
    for (name, window) in [("initcwnd", wire.initcwnd), ("initrwnd", wire.initrwnd)] {
        if window.is_some_and(|window| !(1..=INITIAL_WINDOW_MAX).contains(&window)) {
            faults
                .add(format!("{at}/{name}"), format!("must be from 1 to {INITIAL_WINDOW_MAX} TCP segments"));
        }
    }
    let holdout = share(&format!("{at}/holdout"), wire.holdout, faults);
    times(&at, wire, faults);
    if let Some(salt) = &wire.salt {
        name(&format!("{at}/salt"), salt, faults);
    }
    reason(&format!("{at}/reason"), &wire.reason, faults);
    let rule = prefix.zip(holdout).map(|(prefix, holdout)| Rule {
        tenant: wire.tenant.clone().unwrap_or_default(),
        prefix,
        congestion_control: wire.congestion_control.clone(),
        size_bytes_min: wire.size_bytes_min,
        initcwnd: wire.initcwnd,
        initrwnd: wire.initrwnd,
        holdout,
        period_s: wire.period_s,
        switchback_block_s: wire.switchback_block_s,
        salt: wire.salt.clone().unwrap_or_default(),
        reason: wire.reason.clone(),
    });
    (prefix, rule)
}

/// Checks the length of a rule's redraw period and of its switchback blocks.
fn times(at: &str, wire: &WireRule, faults: &mut Faults) {
    let is_length = |length_s: u32| (1..=PERIOD_S_MAX).contains(&length_s);
    if wire.period_s.is_some_and(|period_s| !is_length(period_s)) {
        faults.add(format!("{at}/period_s"), format!("must be from 1 to {PERIOD_S_MAX}"));
    }
    let Some(block_s) = wire.switchback_block_s else { return };
    let is_whole = wire.period_s.is_some_and(|period_s| period_s > 0 && block_s.is_multiple_of(period_s));
    if !is_length(block_s) || !is_whole {
        let message = format!("must be a multiple of period_s, from 1 to {PERIOD_S_MAX}");
        faults.add(format!("{at}/switchback_block_s"), message);
    }
    if wire.holdout.to_bits() != 0.5_f64.to_bits() {
        faults.add(format!("{at}/holdout"), "must be 0.5 in a switchback, which holds out one block in two");
    }
}

fn experiment((index, wire): (usize, &WireExperiment), faults: &mut Faults) -> Option<Experiment> {
    let at = format!("/experiments/{index}");
    name(&format!("{at}/name"), &wire.name, faults);
    name(&format!("{at}/salt"), &wire.salt, faults);
    let any = "must not be empty; omit it to match any host";
    hosts(&format!("{at}/hosts"), wire.hosts.as_deref(), any, faults);
    count(&format!("{at}/arms"), wire.arms.len(), ARMS_MAX, faults);
    let arms = arms(&at, &wire.arms, faults)?;
    Some(Experiment {
        name: wire.name.clone(),
        hosts: wire.hosts.clone().unwrap_or_default(),
        salt: wire.salt.clone(),
        unit: wire.unit,
        arms,
    })
}

/// Checks a host list, if present. `empty_message` is the fault message for an empty list.
fn hosts(at: &str, hosts: Option<&[String]>, empty_message: &str, faults: &mut Faults) {
    let Some(hosts) = hosts else { return };
    count(at, hosts.len(), HOSTS_MAX, faults);
    if hosts.is_empty() {
        faults.add(at, empty_message);
    }
    for (index, host) in hosts.iter().take(HOSTS_MAX).enumerate() {
        if !is_host(host) {
            faults
                .add(format!("{at}/{index}"), "must be a lower-case host name without port or trailing dot");
        }
    }
}

fn arms(at: &str, wire: &[WireArm], faults: &mut Faults) -> Option<Vec<Arm>> {
    let mut arms = Vec::new();
    for (index, arm) in wire.iter().take(ARMS_MAX).enumerate() {
        let at = format!("{at}/arms/{index}");
        name(&format!("{at}/name"), &arm.name, faults);
        if let Some(algorithm) = &arm.congestion_control {
            congestion_control(&format!("{at}/congestion_control"), algorithm, faults);
        }
        arms.push(share(&format!("{at}/share"), arm.share, faults).map(|share| Arm {
            name: arm.name.clone(),
            share,
            congestion_control: arm.congestion_control.clone(),
        }));
    }
    unique(
        wire.iter().enumerate().map(|(index, arm)| (format!("{at}/arms/{index}/name"), arm.name.as_str())),
        faults,
    );
    let arms: Vec<_> = arms.into_iter().collect::<Option<_>>()?;
    let sum: u32 = arms.iter().map(|arm: &Arm| arm.share.millionths()).sum();
    if sum != Share::ALL.millionths() {
        faults.add(format!("{at}/arms"), format!("shares must sum to 1, got {}", f64::from(sum) / 1e6));
    }
    Some(arms)
}

/// Checks that no two experiments apply to the same host.
fn hosts_of_all(experiments: &[WireExperiment], faults: &mut Faults) {
    if experiments.len() > 1 {
        for (index, _) in experiments.iter().enumerate().filter(|(_, experiment)| experiment.hosts.is_none())
        {
            faults.add(
                format!("/experiments/{index}"),
                "applies to any host, so it must be the only experiment",
            );
        }
    }
    let hosts = experiments.iter().enumerate().flat_map(|(index, experiment)| {
        let hosts = experiment.hosts.iter().flatten().take(HOSTS_MAX).enumerate();
        hosts.map(move |(at, host)| (format!("/experiments/{index}/hosts/{at}"), host.as_str()))
    });
    unique(hosts, faults);
}

/// Reports each repeated name.
fn unique<'a>(names: impl Iterator<Item = (String, &'a str)>, faults: &mut Faults) {
    let mut known = HashMap::new();
    for (at, name) in names {
        match known.get(name) {
            Some(first) => faults.add(at, format!("duplicate of {first}")),
            None => {
                known.insert(name, at);
            }
        }
    }
}

fn count(at: &str, found: usize, most: usize, faults: &mut Faults) {
    if found > most {
        faults.add(at, format!("must have at most {most} entries, got {found}"));
    }
}

fn share(at: &str, number: f64, faults: &mut Faults) -> Option<Share> {
    let share = Share::from_number(number);
    match share {
        None => faults.add(at, "must be from 0 to 1 with at most six decimals"),
        Some(share) if share.number().to_bits() != number.to_bits() => {
            faults.add(at, format!("must be written as {:?}", share.number()));
        }
        Some(_) => {}
    }
    share
}

fn reason(at: &str, text: &str, faults: &mut Faults) {
    if text.len() > REASON_BYTES_MAX || text.contains(char::is_control) {
        faults.add(at, format!("must be one line of at most {REASON_BYTES_MAX} bytes"));
    }
}

fn name(at: &str, text: &str, faults: &mut Faults) {
    if !is_word(text, NAME_BYTES_MAX) {
        let message = format!("must be 1 to {NAME_BYTES_MAX} letters, digits, \".\", \"_\" or \"-\"");
        faults.add(at, message);
    }
}

fn congestion_control(at: &str, text: &str, faults: &mut Faults) {
    if !is_word(text, CONGESTION_CONTROL_BYTES_MAX) {
        faults.add(at, "must be a congestion control name such as bbr");
    }
}

fn is_word(text: &str, bytes_max: usize) -> bool {
    (1..=bytes_max).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// Returns whether `text` is a host name as written in bundles: RFC 1123 §2.1 syntax in lower case,
/// without a port or a trailing dot. Also accepts `_`, which the RFC forbids but real host names
/// contain.
pub fn is_host(text: &str) -> bool {
    is_word(text, HOST_BYTES_MAX)
        && !text.ends_with('.')
        && !text.bytes().any(|byte| byte.is_ascii_uppercase())
}
