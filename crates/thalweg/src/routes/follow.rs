//! `thalweg routes apply --follow`: as an edge follows its bundle, until a signal; the routes go with it.
//!
//! **Invariant:** a bundle that is refused changes nothing: the routes of the last good one stay, on the paths of now.
//! **Invariant:** what could not be done is tried again at each look, and told once.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use thalweg_tcp::routes::{Change, Error, Routes, Wanted, Watch};
use tokio::time::{MissedTickBehavior, interval};

use super::{Counts, exceptions, look, own, wanted, warnings};
use crate::shutdown::Signals;
use crate::{bundle, start_logging};

/// How often it is looked whether there is another, as an edge looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(super) fn run(file: &Path, table: u32, keeps: bool) -> anyhow::Result<()> {
    start_logging();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(follow(file, table, keeps))
}

async fn follow(file: &Path, table: u32, keeps: bool) -> anyhow::Result<()> {
    let mut signals = Signals::catch().context("cannot catch signals")?;
    let mut follower = Follower::new(table)?;
    let mut tick = interval(LOOK_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = signals.next() => break,
            _ = tick.tick() => follower.look(file)?,
        }
    }
    if keeps { Ok(()) } else { follower.remove() }
}

/// What is followed, and how far.
struct Follower {
    kernel: Routes,
    watch: Watch,
    table: u32,
    /// What the file had when it was last read.
    document: Vec<u8>,
    good: Option<Good>,
    /// The routes may be others than they ought to be.
    is_due: bool,
    of_file: Told,
    of_routes: Told,
}

/// The last good bundle.
struct Good {
    number: u64,
    wanted: Wanted,
}

impl Follower {
    fn new(table: u32) -> anyhow::Result<Self> {
        // Before the first look at the routes: what changes after it is heard.
        let watch = Watch::open()?;
        Ok(Self {
            kernel: Routes::open()?,
            watch,
            table,
            document: Vec::new(),
            good: None,
            is_due: false,
            of_file: Told::default(),
            of_routes: Told::default(),
        })
    }

    /// Takes another bundle, if there is one, and makes the routes what they are to be.
    ///
    /// # Errors
    /// Where this process may not change routes: it never will.
    fn look(&mut self, file: &Path) -> anyhow::Result<()> {
        match self.take(file) {
            Ok(warnings) => warnings.map_or((), |warnings| self.of_file.now(warnings)),
            Err(refusal) => self.of_file.now(vec![format!("bundle refused: {}", text_of(&refusal))]),
        }
        match self.make() {
            Ok(exceptions) => exceptions.map_or((), |exceptions| self.of_routes.now(exceptions)),
            Err(failure) if matches!(failure.downcast_ref(), Some(Error::NotPermitted)) => {
                return Err(failure);
            }
            Err(failure) => self.of_routes.now(vec![format!("routes not changed: {}", text_of(&failure))]),
        }
        Ok(())
    }

    /// The bundle in the file, if it is another than at the last look; what routes cannot do of it.
    fn take(&mut self, file: &Path) -> anyhow::Result<Option<Vec<String>>> {
        let document = match document(file) {
            Ok(document) if document == self.document => return Ok(None),
            Ok(document) => document,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.document.clear();
                return Ok(Some(vec![format!(
                    "no bundle at {}; what there was stays in force",
                    file.display()
                )]));
            }
            Err(error) => {
                self.document.clear();
                return Err(error).with_context(|| format!("cannot read {}", file.display()));
            }
        };
        let decoded = bundle::decode(file, &document);
        self.document = document;
        let bundle = decoded?;
        // An algorithm that the kernel lacks may come with a module: the bundle is looked at again.
        let wanted = wanted(&bundle, self.table).inspect_err(|_| self.document.clear())?;
        let content = bundle.content();
        tracing::info!(
            number = content.number,
            rules = content.rules.len(),
            reason = content.reason,
            "bundle taken"
        );
        self.good = Some(Good { number: content.number, wanted });
        self.is_due = true;
        Ok(Some(warnings(&bundle)))
    }

    /// Makes the routes what they are to be, if they may be others; what had to be left out.
    fn make(&mut self) -> anyhow::Result<Option<Vec<String>>> {
        let Some(good) = &self.good else { return Ok(None) };
        self.is_due |= self.watch.has_changed(|route| good.wanted.concerns(route))?;
        if !self.is_due {
            return Ok(None);
        }
        let plan = look(&mut self.kernel, &good.wanted)?;
        self.kernel.change(&plan.changes)?;
        self.is_due = false;
        if !plan.changes.is_empty() {
            tracing::info!(number = good.number, "routes changed: {}", Counts::of(&plan).text(false));
        }
        Ok(Some(exceptions(&plan)))
    }

    fn remove(&mut self) -> anyhow::Result<()> {
        let changes: Vec<_> =
            own(&mut self.kernel, Some(self.table))?.into_iter().map(Change::Remove).collect();
        self.kernel.change(&changes)?;
        tracing::info!(routes = changes.len(), "routes removed");
        Ok(())
    }
}

/// What was told last of what cannot be done.
#[derive(Default)]
struct Told(BTreeSet<String>);

impl Told {
    /// This is so now: tells what was not so before.
    fn now(&mut self, messages: Vec<String>) {
        let now = BTreeSet::from_iter(messages);
        now.difference(&self.0).for_each(|message| tracing::warn!("{message}"));
        self.0 = now;
    }
}

/// What a regular file has: to open another might wait for a writer.
fn document(file: &Path) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(file)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    bundle::read_document(file)
}

fn text_of(failure: &anyhow::Error) -> String {
    format!("{failure:#}").trim_end().to_owned()
}
