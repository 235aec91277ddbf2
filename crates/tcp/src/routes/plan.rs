//! Route planning: computes the changes that give each prefix a route with its steering.
//!
//! Each of our routes uses the path that packets to its prefix would take without it. This is the
//! path of the most specific route containing the whole prefix, in the same table or else in the
//! main table. The path is recomputed on each run, so our route follows path changes.

use std::collections::{BTreeMap, HashMap};

use ipnet::IpNet;

use super::{PRIORITY, Route, TABLE_MAIN};
use crate::CongestionControl;
use crate::diag::network;

/// Settings that a route applies to the connections that use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steering {
    /// The congestion control.
    pub congestion_control: CongestionControl,
    /// Initial congestion window, in TCP segments. `None` keeps the existing route's window.
    pub initcwnd: Option<u32>,
    /// Initial receive window, in TCP segments. `None` keeps the existing route's window.
    pub initrwnd: Option<u32>,
}

/// The desired steering of each prefix in one routing table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The routing table.
    pub table: u32,
    /// The steering of each prefix. No prefix contains another.
    pub prefixes: BTreeMap<IpNet, Steering>,
}

/// A change to one route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Adds a route.
    Add(Route),
    /// Atomically replaces a route with another for the same prefix, table and priority.
    Replace {
        /// The current route.
        old: Route,
        /// The new route.
        new: Route,
    },
    /// Removes a route.
    Remove(Route),
}

/// The reason a prefix gets no route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skipped {
    /// Another program has set a route to this exact prefix.
    Taken {
        /// Protocol of the other program's route.
        protocol: u8,
    },
    /// No route contains the prefix.
    NoRoute,
    /// The route containing the prefix drops or rejects packets.
    Blackhole,
}

/// The changes to apply, and the prefixes that need no change or get no route.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The changes in order, removals first.
    pub changes: Vec<Change>,
    /// Number of our routes that need no change.
    pub kept: usize,
    /// Prefixes that get no route, each with the reason.
    pub skipped: Vec<(IpNet, Skipped)>,
    /// For each prefix, the number of more specific routes set by other programs. Connections to
    /// their addresses do not use our route.
    pub within: BTreeMap<IpNet, usize>,
}

impl Wanted {
    /// Returns whether a route affects the plan because it is ours or overlaps a wanted prefix.
    pub fn concerns(&self, route: &Route) -> bool {
        if route.is_own() {
            return route.table == self.table;
        }
        (route.table == self.table || route.table == TABLE_MAIN)
            && (self.holder(route.prefix).is_some() || self.held(route.prefix))
    }

    /// Returns the wanted prefix that contains `prefix`. Since no wanted prefix contains another,
    /// only the last wanted prefix that does not sort after `prefix` can contain it.
    fn holder(&self, prefix: IpNet) -> Option<IpNet> {
        let (holder, _) = self.prefixes.range(..=prefix).next_back()?;
        holder.contains(&prefix.addr()).then_some(*holder)
    }

    /// Returns whether `prefix` contains any wanted prefix.
    fn held(&self, prefix: IpNet) -> bool {
        self.prefixes.range(prefix..).next().is_some_and(|(held, _)| prefix.contains(&held.addr()))
    }
}

impl Change {
    /// Returns the route set or removed by the change.
    pub fn route(&self) -> &Route {
        match self {
            Self::Add(route) | Self::Replace { new: route, .. } | Self::Remove(route) => route,
        }
    }
}

/// Computes the plan. `routes` must contain the kernel's routes that satisfy [`Wanted::concerns`].
pub fn plan(wanted: &Wanted, routes: &[Route]) -> Plan {
    let mut plan = Plan::default();
    let mut others: HashMap<IpNet, Vec<&Route>> = HashMap::new();
    let mut own: BTreeMap<IpNet, &Route> = BTreeMap::new();
    let mut set = Vec::new();
    for route in routes {
        if !route.is_own() {
            others.entry(route.prefix).or_default().push(route);
            let holder =
                wanted.holder(route.prefix).filter(|holder| holder.prefix_len() < route.prefix.prefix_len());
            if let Some(holder) = holder.filter(|_| route.table == wanted.table) {
                *plan.within.entry(holder).or_default() += 1;
            }
        } else if route.priority == PRIORITY {
            own.insert(route.prefix, route);
        } else {
            plan.changes.push(Change::Remove(route.clone())); // set by another version of this program
        }
    }
    for (prefix, steering) in &wanted.prefixes {
        let new = match path(*prefix, wanted.table, &others) {
            Ok(path) => path.along(*prefix, wanted.table, *steering),
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

/// Finds the route that packets to `prefix` would take without our route.
fn path<'a>(
    prefix: IpNet,
    table: u32,
    others: &HashMap<IpNet, Vec<&'a Route>>,
) -> Result<&'a Route, Skipped> {
    let of = |prefix: &IpNet, table: u32| {
        let routes = others.get(prefix).map_or(&[][..], Vec::as_slice);
        routes.iter().copied().filter(move |route| route.table == table)
    };
    if let Some(taken) = of(&prefix, table).next() {
        return Err(Skipped::Taken { protocol: taken.protocol });
    }
    let holders: Vec<_> = (0..=prefix.prefix_len()).rev().map(|bits| network(prefix.addr(), bits)).collect();
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
