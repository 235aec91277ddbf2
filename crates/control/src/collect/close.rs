//! Window closing: groups a PoP's connections into one window per tenant.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_record::Prefix;

use super::{Counts, OpenWindow, Pop, REPORTED_WINDOWS};
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
        self.reported
            .retain(|_, window| number.saturating_sub(*window) <= REPORTED_WINDOWS && *window <= number);
        let mut prefixes: BTreeMap<(usize, Prefix), Sample> = BTreeMap::new();
        let mut edges = vec![EdgeFigures::default(); open.edges.len()];
        for (key, connection) in open.connections {
            match connection.edge {
                Some(edge) => connection.add_to_edge(&mut edges[edge]),
                None => counts.over_limit += 1,
            }
            if let Some(window) = self.reported.get_mut(&key) {
                *window = number;
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
            let sample = prefixes.entry((tenant, connection.prefix)).or_default();
            if connection.add_to(sample, !self.reported.contains_key(&key)) {
                self.reported.insert(key, number);
            }
        }
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
}
