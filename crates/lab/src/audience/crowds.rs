//! Viewers behind one path: a crowd that connects from the path's prefix, replaced by a new one at
//! the end of its visit.

use std::io;
use std::time::{Duration, Instant};

use thalweg_load::engine::{Clients, Load, Running};
use thalweg_load::figures::Figures;
use thalweg_load::schedule::Population;
use thalweg_load::sources::Sources;
use thalweg_load::target::Target;
use thalweg_load::viewer::crowd::CrowdPlan;
use thalweg_load::viewer::figures::StateCounts;
use thalweg_load::viewer::shared::Behaviour;
use thalweg_load::viewer::spread::Offsets;
use thalweg_netem::emulation::{Emulation, Family, Side};

use super::server::TIMEOUTS;

/// How long a crowd watches before a new one replaces it.
const VISIT: Duration = Duration::from_secs(40);
/// Time over which a crowd's viewers join.
const JOIN_WITHIN: Duration = Duration::from_secs(5);
/// Maximum media fetched ahead of the playhead. It is small, so that a failing network soon causes
/// stalls.
const AHEAD: Duration = Duration::from_secs(10);

/// The current crowd behind one path, and the figures of all crowds so far.
pub(super) struct PathCrowd<'a> {
    emulation: &'a Emulation,
    load: Load,
    crowd: Running,
    /// Figures of earlier crowds.
    left: Figures,
}

impl<'a> PathCrowd<'a> {
    /// Starts `viewers` viewers behind path `path`.
    pub(super) fn start(
        emulation: &'a Emulation,
        path: usize,
        (targets, family): (&[Target], Family),
        viewers: usize,
    ) -> io::Result<Self> {
        let source = family.prefix(&emulation.scenario().paths[path]).parse().map_err(io::Error::other)?;
        let plan = CrowdPlan {
            targets: targets.to_vec(),
            offsets: Offsets::Even(Duration::ZERO, Duration::ZERO),
            sources: Sources(vec![source]),
            timeouts: TIMEOUTS,
            behaviour: Behaviour { threshold: None, ahead: AHEAD, range_bytes: None, cmcd: true },
        };
        let load = Load {
            clients: Clients::Viewers(plan),
            population: Population::new(viewers, JOIN_WITHIN, None, &[]).map_err(io::Error::other)?,
            rate: None,
            duration: Some(VISIT),
            requests: None,
            warm_up: Duration::ZERO,
            threads: 1,
            arguments: Vec::new(),
        };
        let crowd = start(emulation, &load)?;
        Ok(Self { emulation, load, crowd, left: Figures::default() })
    }

    /// Starts a new crowd if the current crowd's visit is over.
    pub(super) fn renew(&mut self) -> anyhow::Result<()> {
        if self.crowd.end().is_none_or(|end| Instant::now() < end) {
            return Ok(());
        }
        let next = start(self.emulation, &self.load)?;
        let mut seen = std::mem::replace(&mut self.crowd, next).finish()?;
        if let Some(viewers) = &mut seen.viewers {
            viewers.now = StateCounts::default();
        }
        // Drop the per-second counts and run descriptions: the table does not use them, and they
        // would accumulate without limit.
        seen.seconds.clear();
        seen.runs.clear();
        self.left.merge(&seen);
        Ok(())
    }

    /// Returns the number of concurrent viewers.
    pub(super) fn viewers(&self) -> usize {
        self.load.population.clients()
    }

    /// Returns the figures of the current crowd, and the merged figures of all crowds so far.
    pub(super) fn figures(&self) -> (Figures, Figures) {
        let present = self.crowd.figures();
        let mut all = self.left.clone();
        all.merge(&present);
        (present, all)
    }
}

/// Starts a crowd, whose threads run on the clients' side of the emulation.
fn start(emulation: &Emulation, load: &Load) -> io::Result<Running> {
    emulation.on(Side::Clients, || Running::start(load).map_err(io::Error::other))
}
