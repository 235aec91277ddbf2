//! What has come of a PoP's connections, once their window closes: a window, or one for each tenant.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_record::Prefix;

use super::{Counts, Open, Pop, TOLD_WINDOWS};
use crate::figures::Figures;
use crate::settings::{PREFIXES_MAX, Settings};
use crate::window::{Sample, Window};

impl Pop {
    /// What was open: what is known of edges, and of each tenant.
    pub(super) fn window(
        &mut self,
        settings: &Settings,
        number: u64,
        open: Open,
        counts: &mut Counts,
    ) -> (Window, Vec<(String, Window)>) {
        self.told.retain(|_, window| number.saturating_sub(*window) <= TOLD_WINDOWS && *window <= number);
        let mut prefixes: BTreeMap<(usize, Prefix), Sample> = BTreeMap::new();
        let mut edges = vec![Figures::default(); open.edges.len()];
        for (key, connection) in open.connections {
            match connection.edge {
                Some(edge) => connection.add_to_edge(&mut edges[edge]),
                None => counts.over_limit += 1,
            }
            if let Some(window) = self.told.get_mut(&key) {
                *window = number;
            }
            if connection.is_left_alone {
                continue;
            }
            // Of a connection that no response tells the tenant of, nothing is known that could decide.
            let tenant = match (settings.tells_tenants(), connection.tenant) {
                (false, _) => 0,
                (true, Some(tenant)) => tenant,
                (true, None) => continue,
            };
            let sample = prefixes.entry((tenant, connection.prefix)).or_default();
            if connection.add_to(sample, !self.told.contains_key(&key)) {
                self.told.insert(key, number);
            }
        }
        let edges = open.edges.into_iter().map(|(name, at)| (name, std::mem::take(&mut edges[at])));
        let edges = Arc::new(edges.collect::<BTreeMap<_, _>>());
        let mut tenants: Vec<_> = open.tenants.into_iter().collect();
        if tenants.is_empty() && !settings.tells_tenants() {
            tenants.push((String::new(), 0)); // sockets alone
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
