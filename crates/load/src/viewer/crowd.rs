//! Viewers of one thread: starts each viewer when it is due to join, and samples all viewers every
//! second.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use anyhow::bail;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::session::{self, Plan};
use super::shared::{Behaviour, Shared};
use super::spread::Offsets;
use crate::connection::Timeouts;
use crate::engine::propagate_panic;
use crate::response::Unread;
use crate::sources::Sources;
use crate::target::Target;
use crate::{Caller, Clock, Recorder};

/// Interval between samples of all viewers.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// Behaviour of all viewers in a crowd.
#[derive(Debug, Clone)]
pub struct CrowdPlan {
    /// MPDs and playlists, used in turn; at least one.
    pub targets: Vec<Target>,
    /// Distances behind the live edge.
    pub offsets: Offsets,
    /// Source addresses, used in turn.
    pub sources: Sources,
    /// Time limits.
    pub timeouts: Timeouts,
    /// Behaviour of the viewers.
    pub behaviour: Behaviour,
}

/// Checks that each manifest is available.
pub(crate) async fn probe(crowd: &CrowdPlan) -> anyhow::Result<()> {
    let now = Clock::start();
    for target in &crowd.targets {
        let recorder = Recorder::new(now, now.began, 0);
        let counted = recorder.begin(now.began);
        let mut caller = Caller::new(crowd.sources.of(0), crowd.timeouts, recorder);
        let mut request = Vec::new();
        target.write_request(None, "", &mut request);
        let done = caller.call(target, &request, counted, &mut Unread).await;
        match done.map_err(|no_response| no_response.failure)?.status {
            // Accept server errors, which are normal while a channel is starting.
            200 | 500.. => {}
            status => bail!("{}: responded with {status}", target.url),
        }
    }
    Ok(())
}

/// Runs the viewers with the given indexes and start times until all have finished or `stop`
/// completes. `of` is the number of viewers on all threads.
pub(crate) async fn watch(
    crowd: &CrowdPlan,
    starts: &[(usize, Duration)],
    of: usize,
    recorder: &Recorder,
    stop: impl Future<Output = ()>,
) {
    let shared = Rc::new(Shared::new(recorder.clone(), crowd.behaviour.clone()));
    let targets: Vec<Rc<Target>> = crowd.targets.iter().cloned().map(Rc::new).collect();
    let all = async {
        let mut viewers = JoinSet::new();
        for (index, start) in starts {
            let plan = plan(crowd, &targets, *index, *start, of);
            viewers.spawn_local(session::watch(Rc::clone(&shared), plan));
        }
        let mut ticks = interval(SAMPLE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    // On-demand viewers finish fetching long before they finish playing, so check
                    // both.
                    let is_over = shared.sample();
                    if is_over && viewers.is_empty() {
                        return;
                    }
                }
                Some(ended) = viewers.join_next() => propagate_panic(ended),
            }
        }
    };
    tokio::select! {
        () = all => {}
        () = stop => {}
    }
    shared.last_sample();
}

fn plan(crowd: &CrowdPlan, targets: &[Rc<Target>], index: usize, join: Duration, of: usize) -> Plan {
    // Use a different presentation each time a source address is reused.
    let target = (index + crowd.sources.rounds(index)) % targets.len();
    Plan {
        target: Rc::clone(&targets[target]),
        join,
        offset: crowd.offsets.of(index as u64, of as u64),
        source: crowd.sources.of(index),
        timeouts: crowd.timeouts,
        session: if crowd.behaviour.cmcd { session(rand::random()) } else { String::new() },
    }
}

/// Formats random bits as a version 4 UUID (RFC 9562 §5.4).
fn session(bits: u128) -> String {
    let bits = bits & !(0xf << 76) & !(3 << 62) | 4 << 76 | 2 << 62;
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
