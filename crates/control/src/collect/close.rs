//! Window closing: groups a PoP's connections into one window per tenant.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use thalweg_record::Prefix;
use twox_hash::XxHash3_64;

use super::client::{self, Clients};
use super::{Counts, OpenWindow, Pop, ipv6, reported_windows};
use crate::figures::EdgeFigures;
use crate::settings::{PREFIXES_MAX, Settings};
use crate::window::{Sample, Window};

impl Pop {
    /// Closes `open`. Returns the window of the whole PoP, with its edges, and one window per
    /// tenant.
    pub(super) fn window(
        &mut self,
        settings: &Settings,
        number: u64,
        open: OpenWindow,
        counts: &mut Counts,
    ) -> (Window, Vec<(String, Window)>) {
        let mut prefixes: BTreeMap<(usize, Prefix), Sample> = BTreeMap::new();
        let mut clients = Clients::new();
        let window_weight = open.sampling.weight();
        let sampling_edges = sampling_edges(&open);
        let mut edges = vec![EdgeFigures::default(); open.edges.len()];
        for connection in open.connections.into_values() {
            let is_sampling = connection.edge.is_some_and(|edge| sampling_edges[edge]);
            if is_sampling && connection.responses == 0 {
                counts.sampled_out += u64::from(connection.records);
                continue;
            }
            let weight = window_weight.saturating_mul(connection.sample_one_in.max(1));
            match connection.edge {
                Some(edge) => connection.add_to_edge(&mut edges[edge], window_weight),
                None => counts.over_limit += 1,
            }
            if connection.is_left_alone {
                continue;
            }
            // Without a tenant, a connection cannot contribute to any decision.
            let tenant = match (settings.distinguishes_tenants(), connection.tenant) {
                (false, _) => 0,
                (true, Some(tenant)) => tenant,
                (true, None) => continue,
            };
            client::add(&mut clients, tenant, &connection);
            let sample = prefixes.entry((tenant, connection.prefix())).or_default();
            connection.add_to(sample, weight);
        }
        self.report(settings, &open.tenants, clients, &mut prefixes, number);
        let edges = open.edges.into_iter().map(|(name, at)| (name, std::mem::take(&mut edges[at])));
        let edges = Arc::new(edges.collect::<BTreeMap<_, _>>());
        let mut tenants: Vec<_> = open.tenants.into_iter().collect();
        if tenants.is_empty() && !settings.distinguishes_tenants() {
            tenants.push((String::new(), 0)); // only socket records
        }
        tenants.sort_unstable_by_key(|(_, at)| *at);
        let empty = Window {
            number,
            records: open.records,
            weight: window_weight,
            lost: open.lost,
            prefixes: Vec::new(),
            edges: edges.clone(),
        };
        let mut windows: Vec<_> = tenants.into_iter().map(|(tenant, _)| (tenant, empty.clone())).collect();
        for ((tenant, prefix), sample) in prefixes {
            let (_, window) = &mut windows[tenant];
            if window.prefixes.len() < PREFIXES_MAX {
                window.prefixes.push((prefix, sample));
            } else {
                counts.over_limit += u64::from(sample.connections());
            }
        }
        (empty, windows)
    }

    /// Adds the outcome of each client and redraw period that has not been reported yet. Outcomes
    /// of periods too long ago to be remembered, and of periods before a restart, are dropped.
    fn report(
        &mut self,
        settings: &Settings,
        tenants: &HashMap<String, usize>,
        clients: Clients,
        prefixes: &mut BTreeMap<(usize, Prefix), Sample>,
        number: u64,
    ) {
        // After the clock was set back, trials have new salts, so earlier reports do not matter. A
        // window that is read again after a restart is not decided again.
        let is_set_back = |last: u64| last.saturating_sub(number) > settings.history_windows.into();
        self.resumed_after = self.resumed_after.filter(|last| !is_set_back(*last));
        let remembered = number.saturating_sub(reported_windows(settings));
        let unreported = self.resumed_after.map_or(0, |last| last.saturating_add(1));
        let periods = remembered.max(unreported)..=number;
        self.reported.retain(|period, _| periods.contains(period));
        let names: HashMap<_, _> = tenants.iter().map(|(name, at)| (*at, name.as_str())).collect();
        for ((tenant, period, client), connections) in clients {
            if !periods.contains(&period) {
                continue;
            }
            // Tenants have other indices in other windows.
            let name = names.get(&tenant).copied().unwrap_or_default();
            let seed = XxHash3_64::oneshot(&ipv6(client).octets());
            let key = XxHash3_64::oneshot_with_seed(seed, name.as_bytes());
            let is_new = self.reported.entry(period).or_default().insert(key);
            let sample = prefixes.get_mut(&(tenant, Prefix::of_client(client))).filter(|_| is_new);
            if let Some((sample, outcome)) = sample.zip(connections.outcome(period)) {
                sample.outcomes.push(outcome);
            }
        }
    }
}

/// Returns, for each edge of the window, whether it records the responses of only some clients.
fn sampling_edges(open: &OpenWindow) -> Vec<bool> {
    let mut are_sampling = vec![false; open.edges.len()];
    for connection in open.connections.values().filter(|connection| connection.sample_one_in > 1) {
        connection.edge.into_iter().for_each(|edge| are_sampling[edge] = true);
    }
    are_sampling
}
