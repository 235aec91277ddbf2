//! The viewers behind one path: a crowd from its prefix, and when those have left, the next.

use std::io;
use std::time::{Duration, Instant};

use thalweg_lab::emulation::{Emulation, Family, Side};
use thalweg_lab::load::engine::{Clients, Load, Running};
use thalweg_lab::load::figures::Figures;
use thalweg_lab::load::schedule::Population;
use thalweg_lab::load::sources::Sources;
use thalweg_lab::load::target::Target;
use thalweg_lab::viewer::crowd::Orders;
use thalweg_lab::viewer::figures::Now;
use thalweg_lab::viewer::shared::Behaviour;
use thalweg_lab::viewer::spread::Offsets;

use super::server::TIMEOUTS;

/// Viewers leave after so long, and as many come.
const VISIT: Duration = Duration::from_secs(40);
/// Within which they come.
const JOIN_WITHIN: Duration = Duration::from_secs(5);
/// Media that is fetched ahead of the playhead at most: little, so that a network that fails is felt soon.
const AHEAD: Duration = Duration::from_secs(10);

/// They and what they have seen.
pub(super) struct Behind<'a> {
    emulation: &'a Emulation,
    load: Load,
    crowd: Running,
    /// Of those who have left.
    left: Figures,
}

impl<'a> Behind<'a> {
    /// Lets viewers of the path of that number begin.
    pub(super) fn start(
        emulation: &'a Emulation,
        path: usize,
        (targets, family): (&[Target], Family),
        viewers: usize,
    ) -> io::Result<Self> {
        let source = prefix(emulation, path, family).parse().map_err(io::Error::other)?;
        let orders = Orders {
            targets: targets.to_vec(),
            offsets: Offsets::Even(Duration::ZERO, Duration::ZERO),
            sources: Sources(vec![source]),
            timeouts: TIMEOUTS,
            behaviour: Behaviour { threshold: None, ahead: AHEAD, range_bytes: None, cmcd: true },
        };
        let load = Load {
            clients: Clients::Viewers(orders),
            population: Population::new(viewers, JOIN_WITHIN, None, &[]).map_err(io::Error::other)?,
            rate: None,
            duration: Some(VISIT),
            requests: None,
            warm_up: Duration::ZERO,
            threads: 1,
            arguments: Vec::new(),
        };
        let crowd = begin(emulation, &load)?;
        Ok(Self { emulation, load, crowd, left: Figures::default() })
    }

    /// Lets the next come, if the time of these is up.
    pub(super) fn renew(&mut self) -> anyhow::Result<()> {
        if self.crowd.end().is_none_or(|end| Instant::now() < end) {
            return Ok(());
        }
        let next = begin(self.emulation, &self.load)?;
        let mut seen = std::mem::replace(&mut self.crowd, next).finish()?;
        if let Some(viewers) = &mut seen.viewers {
            viewers.now = Now::default();
        }
        // What the table has no use for and would grow for as long as the audience is there.
        seen.seconds.clear();
        seen.runs.clear();
        self.left.merge(&seen);
        Ok(())
    }

    /// How many they are at a time.
    pub(super) fn viewers(&self) -> usize {
        self.load.population.clients()
    }

    /// What those who are there have seen, and what all have.
    pub(super) fn figures(&self) -> (Figures, Figures) {
        let present = self.crowd.figures();
        let mut all = self.left.clone();
        all.merge(&present);
        (present, all)
    }
}

/// Its threads are on the side on which it was started.
fn begin(emulation: &Emulation, load: &Load) -> io::Result<Running> {
    emulation.on(Side::Clients, || Running::start(load).map_err(io::Error::other))
}

/// Where viewers of the path of that number come from.
pub(super) fn prefix(emulation: &Emulation, path: usize, family: Family) -> String {
    let path = &emulation.scenario().paths[path];
    match family {
        Family::Four => format!("{}/24", path.prefix4),
        Family::Six => format!("{}/56", path.prefix6),
    }
}
