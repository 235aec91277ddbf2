//! Positions: the next record number of each source, by which repeated records are recognised.
//!
//! A source is a host of a PoP and an epoch of its agent. At the limit, the sources that have sent
//! nothing for longest are forgotten first, so that new sources, however many, do not make the
//! controller forget a source that is sending.

use std::collections::HashMap;

use thalweg_record::Source;

/// Maximum number of sources.
const SOURCES_MAX: usize = 100_000;
/// Maximum number of epochs per host.
const EPOCHS_MAX: usize = 16;

/// A host of a PoP.
type Host = (String, String);

/// Positions of all sources.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    hosts: HashMap<Host, Vec<Position>>,
    sources: usize,
    /// Number of updates so far, used as a clock to find the sources that have not been updated for
    /// longest.
    updates: u64,
}

#[derive(Debug)]
struct Position {
    epoch: u64,
    next: u64,
    updated: u64,
}

impl Positions {
    /// Returns the next record number of a source, if known.
    pub(crate) fn next(&self, Source { host, pop, epoch }: &Source) -> Option<u64> {
        let positions = self.hosts.get(&(pop.clone(), host.clone()))?;
        positions.iter().find(|it| it.epoch == *epoch).map(|it| it.next)
    }

    /// Sets the next record number of a source.
    pub(crate) fn set(&mut self, Source { host, pop, epoch }: &Source, next: u64) {
        self.updates += 1;
        let (key, updated) = ((pop.clone(), host.clone()), self.updates);
        let positions = self.hosts.entry(key).or_default();
        if let Some(known) = positions.iter_mut().find(|it| it.epoch == *epoch) {
            (known.next, known.updated) = (next, updated);
            return;
        }
        if positions.len() == EPOCHS_MAX {
            positions.sort_unstable_by_key(|it| it.updated);
            positions.remove(0);
            self.sources -= 1;
        }
        positions.push(Position { epoch: *epoch, next, updated });
        self.sources += 1;
        if self.sources > SOURCES_MAX {
            self.forget();
        }
    }

    /// Forgets the 10 % of sources that were updated least recently.
    fn forget(&mut self) {
        let mut updated: Vec<_> = self.hosts.values().flatten().map(|it| it.updated).collect();
        let (_, oldest, _) = updated.select_nth_unstable(SOURCES_MAX / 10);
        let oldest = *oldest;
        self.hosts.retain(|_, positions| {
            positions.retain(|it| it.updated > oldest);
            !positions.is_empty()
        });
        self.sources = self.hosts.values().map(Vec::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(host: &str, epoch: u64) -> Source {
        Source { host: host.into(), pop: "here".into(), epoch }
    }

    #[test]
    fn new_sources_do_not_displace_one_that_is_sending() {
        let mut positions = Positions::default();
        for at in 0..3 * SOURCES_MAX as u64 {
            if at % 1_000 == 0 {
                positions.set(&source("real", 1), at + 1);
            }
            positions.set(&source(&at.to_string(), 1), 7);
        }
        assert!(positions.sources <= SOURCES_MAX);
        assert_eq!(positions.next(&source("real", 1)), Some(3 * SOURCES_MAX as u64 - 999));
        assert_eq!(positions.next(&source("0", 1)), None);
        assert_eq!(positions.next(&Source { pop: "there".into(), ..source("real", 1) }), None);
    }

    #[test]
    fn new_epochs_displace_the_oldest_epoch_of_the_same_host() {
        let mut positions = Positions::default();
        positions.set(&source("other", 1), 5);
        (0..10_000).for_each(|epoch| positions.set(&source("real", epoch), epoch));
        assert_eq!(positions.sources, EPOCHS_MAX + 1);
        assert_eq!(positions.next(&source("real", 9_999)), Some(9_999));
        assert_eq!(positions.next(&source("real", 9_983)), None);
        assert_eq!(positions.next(&source("other", 1)), Some(5));
    }
}
