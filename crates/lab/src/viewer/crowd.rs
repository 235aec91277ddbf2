//! The viewers of one thread: each begins in its time, and all are looked at each second.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use anyhow::bail;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::session::{self, Plan};
use super::shared::{Behaviour, Shared};
use super::spread::Offsets;
use crate::load::connection::Timeouts;
use crate::load::engine::pass_on_panic;
use crate::load::response::Unread;
use crate::load::sources::Sources;
use crate::load::target::Target;
use crate::load::{Caller, Clock, Recorder};

/// How often all viewers are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What all viewers do.
#[derive(Debug, Clone)]
pub struct Orders {
    /// MPDs and playlists, at least one; viewers take turns.
    pub targets: Vec<Target>,
    /// How far behind the live edge.
    pub offsets: Offsets,
    /// Where they come from; they take turns.
    pub sources: Sources,
    /// How long what may take.
    pub timeouts: Timeouts,
    /// How they behave.
    pub behaviour: Behaviour,
}

/// Whether each manifest is there.
pub(crate) async fn probe(orders: &Orders) -> anyhow::Result<()> {
    let now = Clock::start();
    for target in &orders.targets {
        let recorder = Recorder::new(now, now.began, 0);
        let counted = recorder.begin(now.began);
        let mut caller = Caller::new(orders.sources.of(0), orders.timeouts, recorder);
        let mut request = Vec::new();
        target.write_request(None, "", &mut request);
        let done = caller.call(target, &request, counted, &mut Unread).await;
        match done.map_err(|no_response| no_response.failure)?.status {
            // A channel that goes on air now may be there soon.
            200 | 500.. => {}
            status => bail!("{}: answered with {status}", target.url),
        }
    }
    Ok(())
}

/// Lets viewers of these indexes, of so many in all, watch until all have seen the end, or `stop`.
pub(crate) async fn watch(
    orders: &Orders,
    starts: &[(usize, Duration)],
    of: usize,
    recorder: &Recorder,
    stop: impl Future<Output = ()>,
) {
    let shared = Rc::new(Shared::new(recorder.clone(), orders.behaviour.clone()));
    let targets: Vec<Rc<Target>> = orders.targets.iter().cloned().map(Rc::new).collect();
    let all = async {
        let mut viewers = JoinSet::new();
        for (index, start) in starts {
            let plan = plan(orders, &targets, *index, *start, of);
            viewers.spawn_local(session::watch(Rc::clone(&shared), plan));
        }
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    // On demand they are done fetching long before the end.
                    let is_over = shared.look();
                    if is_over && viewers.is_empty() {
                        return;
                    }
                }
                Some(ended) = viewers.join_next() => pass_on_panic(ended),
            }
        }
    };
    tokio::select! {
        () = all => {}
        () = stop => {}
    }
    shared.last_look();
}

fn plan(orders: &Orders, targets: &[Rc<Target>], index: usize, join: Duration, of: usize) -> Plan {
    // An address that comes again watches another presentation.
    let target = (index + orders.sources.rounds(index)) % targets.len();
    Plan {
        target: Rc::clone(&targets[target]),
        join,
        offset: orders.offsets.of(index as u64, of as u64),
        source: orders.sources.of(index),
        timeouts: orders.timeouts,
        session: if orders.behaviour.cmcd { session(rand::random()) } else { String::new() },
    }
}

/// A UUID (RFC 9562 §5.4) of random bits.
fn session(bits: u128) -> String {
    let bits = bits & !(0xf << 76) & !(3 << 62) | 4 << 76 | 2 << 62;
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
