//! Many viewers: spread over one thread for each core, each with a runtime of its own, and looked at each second.

use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::runtime;
use tokio::task::LocalSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::figures::Figures;
use super::session::{Plan, watch};
use super::shared::{Behaviour, Clock, Shared, Stream};
use super::spread::{Offsets, Source};

/// Viewers of one process; it has no more open files than that anyway.
pub const VIEWERS_MAX: u64 = 1_000_000;
/// How often all viewers are looked at.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What a crowd does.
#[derive(Debug, Clone)]
pub struct Orders {
    /// What to watch; viewers take turns.
    pub streams: Vec<Stream>,
    /// How many.
    pub viewers: u64,
    /// For how long.
    pub duration: Duration,
    /// Within which time all join, evenly.
    pub join_within: Duration,
    /// How far behind the live edge.
    pub offsets: Offsets,
    /// Where they come from; they take turns.
    pub sources: Vec<Source>,
    /// How they behave.
    pub behaviour: Behaviour,
    /// Threads; one for each core where it is 0.
    pub threads: usize,
}

/// A crowd that watches.
#[derive(Debug)]
pub struct Crowd {
    figures: Vec<Arc<Mutex<Figures>>>,
    threads: Vec<thread::JoinHandle<io::Result<()>>>,
}

impl Crowd {
    /// Lets it begin.
    ///
    /// # Errors
    /// No thread can be made.
    pub fn start(orders: &Orders) -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let count = if orders.threads == 0 { cores } else { orders.threads };
        let clock = Clock::start();
        let mut crowd = Crowd { figures: Vec::new(), threads: Vec::new() };
        for number in 0..count {
            let figures = Arc::new(Mutex::new(Figures::default()));
            crowd.figures.push(Arc::clone(&figures));
            let orders = orders.clone();
            let run = move || run(&orders, clock, (number as u64, count as u64), figures);
            crowd.threads.push(thread::Builder::new().name(format!("viewers-{number}")).spawn(run)?);
        }
        Ok(crowd)
    }

    /// All figures as of the last look.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let mut all = Figures::default();
        for figures in &self.figures {
            all.add(&figures.lock().unwrap_or_else(PoisonError::into_inner));
        }
        all
    }

    /// Whether all have left.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.threads.iter().all(thread::JoinHandle::is_finished)
    }

    /// Waits for the end; the figures of it all.
    ///
    /// # Errors
    /// A thread could not begin.
    pub fn finish(mut self) -> io::Result<Figures> {
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| io::Error::other("a thread of viewers has panicked"))??;
        }
        Ok(self.figures())
    }
}

/// One thread: each `count`th viewer, from `number` on.
fn run(
    orders: &Orders,
    clock: Clock,
    (number, count): (u64, u64),
    figures: Arc<Mutex<Figures>>,
) -> io::Result<()> {
    let mine = (number..orders.viewers).step_by(usize::try_from(count).unwrap_or(usize::MAX));
    let shared = Rc::new(Shared::new(clock, orders.behaviour.clone(), figures, mine.clone().count() as u64));
    let streams: Vec<Rc<Stream>> = orders.streams.iter().cloned().map(Rc::new).collect();
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    let all_done = local.run_until(async {
        let mut tasks = Vec::new();
        for index in mine {
            let plan = plan(orders, &streams, index);
            tasks.push(tokio::task::spawn_local(watch(Rc::clone(&shared), plan)));
        }
        let looking = Rc::clone(&shared);
        let looks = tokio::task::spawn_local(async move {
            let mut ticks = interval(LOOK_EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                looking.look();
            }
        });
        for task in tasks {
            // A panic of one viewer is told on standard error, and ends no other.
            let _ = task.await;
        }
        // What has come is still to be seen: on demand, viewers are done fetching long before.
        let _ = looks.await;
    });
    let end = Instant::from_std(clock.began + orders.duration);
    let _ = runtime.block_on(async { timeout_at(end, all_done).await });
    shared.look();
    Ok(())
}

fn plan(orders: &Orders, streams: &[Rc<Stream>], index: u64) -> Plan {
    let sources = orders.sources.len() as u64;
    let source = (sources > 0).then(|| {
        let source = orders.sources[usize::try_from(index % sources).expect("an index of a list")];
        source.address(index / sources)
    });
    let stream = &streams[usize::try_from(index % streams.len() as u64).expect("an index of a list")];
    Plan {
        stream: Rc::clone(stream),
        join: orders.join_within.mul_f64(index as f64 / orders.viewers.max(1) as f64),
        offset: orders.offsets.of(index, orders.viewers),
        source,
        session: if orders.behaviour.cmcd { session(rand::random()) } else { String::new() },
    }
}

/// A UUID (RFC 9562 §5.4) of random bits.
fn session(bits: u128) -> String {
    let bits = bits & !(0xf << 76) & !(3 << 62) | 4 << 76 | 2 << 62;
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
