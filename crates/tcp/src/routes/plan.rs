//! What is to change so that prefixes have routes of ours with their algorithms. Pure.
//!
//! A route of ours takes the path that packets to the prefix take without it: that of the most specific route which has the whole
//! prefix, in the same table, else in the main one. It is made anew at each look, so ours never outlives that path for long.

use std::collections::{BTreeMap, HashMap};

use super::{PRIORITY, Route, TABLE_MAIN};
use crate::CongestionControl;
use crate::diag::Prefix;

/// What prefixes are to have. None lies in another.
pub type Algorithms = BTreeMap<Prefix, CongestionControl>;

/// Prefixes and their algorithms, in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The routing table.
    pub table: u32,
    /// What they are to have.
    pub algorithms: Algorithms,
}

/// A change of one route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Sets it.
    Add(Route),
    /// Sets one in place of another of the same prefix, table and priority, at once.
    Replace {
        /// What there is.
        old: Route,
        /// What there is to be.
        new: Route,
    },
    /// Takes it away.
    Remove(Route),
}

/// Why a prefix has no route of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skipped {
    /// Somebody else has set one of that very prefix.
    Taken {
        /// Its protocol.
        protocol: u8,
    },
    /// No route leads there.
    NoRoute,
    /// The route there is a blackhole, or another that refuses packets.
    Blackhole,
}

/// What is to change, and what not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// In their order: removals first.
    pub changes: Vec<Change>,
    /// Routes of ours that are as they are to be.
    pub kept: usize,
    /// Prefixes that cannot have a route.
    pub skipped: Vec<(Prefix, Skipped)>,
    /// More specific routes of others within prefixes, by prefix: connections to those addresses go by these.
    pub within: BTreeMap<Prefix, usize>,
}

impl Wanted {
    /// Whether a route has to do with any of it: it is of ours, or has a part of a prefix or all of it.
    pub fn concerns(&self, route: &Route) -> bool {
        if route.is_own() {
            return route.table == self.table;
        }
        (route.table == self.table || route.table == TABLE_MAIN)
            && (self.holder(route.prefix).is_some() || self.held(route.prefix))
    }

    /// The prefix that has all of `prefix`: of prefixes of which none lies in another, the last that does not begin behind it.
    fn holder(&self, prefix: Prefix) -> Option<Prefix> {
        let (holder, _) = self.algorithms.range(..=prefix).next_back()?;
        holder.contains(prefix.first()).then_some(*holder)
    }

    /// Whether any lies in `prefix`.
    fn held(&self, prefix: Prefix) -> bool {
        self.algorithms.range(prefix..).next().is_some_and(|(held, _)| prefix.contains(held.first()))
    }
}

impl Change {
    /// The route that it sets or takes away.
    pub fn route(&self) -> &Route {
        match self {
            Self::Add(route) | Self::Replace { new: route, .. } | Self::Remove(route) => route,
        }
    }
}

/// What is to change where these are the routes that [`Wanted::concerns`] holds for.
pub fn plan(wanted: &Wanted, routes: &[Route]) -> Plan {
    let mut plan = Plan::default();
    let mut others: HashMap<Prefix, Vec<&Route>> = HashMap::new();
    let mut own: BTreeMap<Prefix, &Route> = BTreeMap::new();
    let mut set = Vec::new();
    for route in routes {
        if !route.is_own() {
            others.entry(route.prefix).or_default().push(route);
            let holder = wanted.holder(route.prefix).filter(|holder| holder.bits() < route.prefix.bits());
            if let Some(holder) = holder.filter(|_| route.table == wanted.table) {
                *plan.within.entry(holder).or_default() += 1;
            }
        } else if route.priority == PRIORITY {
            own.insert(route.prefix, route);
        } else {
            plan.changes.push(Change::Remove(route.clone())); // another version's
        }
    }
    for (prefix, algorithm) in &wanted.algorithms {
        let new = match path(*prefix, wanted.table, &others) {
            Ok(path) => path.along(*prefix, wanted.table, *algorithm),
            Err(why) => {
                plan.skipped.push((*prefix, why));
                continue;
            }
        };
        match own.remove(prefix) {
            Some(old) if *old == new => plan.kept += 1,
            Some(old) => set.push(Change::Replace { old: old.clone(), new }),
            None => set.push(Change::Add(new)),
        }
    }
    plan.changes.extend(own.into_values().cloned().map(Change::Remove));
    plan.changes.extend(set);
    plan
}

/// The route by which packets to `prefix` go without ours.
fn path<'a>(
    prefix: Prefix,
    table: u32,
    others: &HashMap<Prefix, Vec<&'a Route>>,
) -> Result<&'a Route, Skipped> {
    let of = |prefix: &Prefix, table: u32| {
        let routes = others.get(prefix).map_or(&[][..], Vec::as_slice);
        routes.iter().copied().filter(move |route| route.table == table)
    };
    if let Some(taken) = of(&prefix, table).next() {
        return Err(Skipped::Taken { protocol: taken.protocol });
    }
    let holders: Vec<_> = (0..=prefix.bits()).rev().map(|bits| Prefix::of(prefix.first(), bits)).collect();
    let found = [table, TABLE_MAIN].into_iter().find_map(|table| {
        holders.iter().find_map(|holder| {
            of(holder, table)
                .filter(|route| !route.is_selective && !route.is_dead)
                .min_by_key(|route| route.priority)
        })
    });
    match found {
        None => Err(Skipped::NoRoute),
        Some(route) if !route.is_unicast() => Err(Skipped::Blackhole),
        Some(route) => Ok(route),
    }
}
