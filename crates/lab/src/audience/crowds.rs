//! The viewers behind one path: a crowd from its prefix, and when those have left, the next.

use std::io;
use std::time::Duration;

use thalweg_lab::emulation::{Emulation, Family, Side};
use thalweg_lab::viewer::crowd::{Crowd, Orders};
use thalweg_lab::viewer::figures::{Figures, Now};
use thalweg_lab::viewer::shared::{Behaviour, Stream};
use thalweg_lab::viewer::spread::Offsets;

/// Viewers leave after so long, and as many come.
const VISIT: Duration = Duration::from_secs(40);
/// Within which they come.
const JOIN_WITHIN: Duration = Duration::from_secs(5);
/// Media that is fetched ahead of the playhead at most: little, so that a network that fails is felt soon.
const AHEAD: Duration = Duration::from_secs(10);

/// They and what they have seen.
pub(super) struct Behind<'a> {
    emulation: &'a Emulation,
    orders: Orders,
    crowd: Crowd,
    /// Of those who have left.
    left: Figures,
}

impl<'a> Behind<'a> {
    /// Lets viewers of the path of that number begin.
    pub(super) fn start(
        emulation: &'a Emulation,
        path: usize,
        (streams, family): (&[Stream], Family),
        viewers: u64,
    ) -> io::Result<Self> {
        let source = prefix(emulation, path, family).parse().map_err(io::Error::other)?;
        let orders = Orders {
            streams: streams.to_vec(),
            viewers,
            duration: VISIT,
            join_within: JOIN_WITHIN,
            offsets: Offsets::Even(Duration::ZERO, Duration::ZERO),
            sources: vec![source],
            behaviour: Behaviour { threshold: None, ahead: AHEAD, range_bytes: None, cmcd: true },
            threads: 1,
        };
        let crowd = begin(emulation, &orders)?;
        Ok(Self { emulation, orders, crowd, left: Figures::default() })
    }

    /// Lets the next come, if all have left.
    pub(super) fn renew(&mut self) -> io::Result<()> {
        if !self.crowd.has_ended() {
            return Ok(());
        }
        let next = begin(self.emulation, &self.orders)?;
        let mut seen = std::mem::replace(&mut self.crowd, next).finish()?;
        seen.now = Now::default();
        self.left.add(&seen);
        Ok(())
    }

    /// How many they are at a time.
    pub(super) fn viewers(&self) -> u64 {
        self.orders.viewers
    }

    /// What all have seen, and what those who are there do now.
    pub(super) fn figures(&self) -> Figures {
        let mut figures = self.left.clone();
        figures.add(&self.crowd.figures());
        figures
    }
}

/// A crowd's threads are on the side on which it was started.
fn begin(emulation: &Emulation, orders: &Orders) -> io::Result<Crowd> {
    emulation.on(Side::Clients, || Crowd::start(orders))
}

/// Where viewers of the path of that number come from.
pub(super) fn prefix(emulation: &Emulation, path: usize, family: Family) -> String {
    let path = &emulation.scenario().paths[path];
    match family {
        Family::Four => format!("{}/24", path.prefix4),
        Family::Six => format!("{}/56", path.prefix6),
    }
}
