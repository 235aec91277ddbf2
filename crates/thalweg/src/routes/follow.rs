//! `thalweg routes apply --follow`: as an edge follows its bundle, until a signal; the routes go with it.
//!
//! **Invariant:** a bundle that is refused changes nothing: the routes of the last good one stay, on the paths of now.
//! **Invariant:** what could not be done is told once. It is tried again at each look; what the kernel has refused, after a pause.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use thalweg_bundle::Bundle;
use thalweg_edge::{FileLook, WatchedFile};
use thalweg_tcp::routes::{Change, Changed, Error, Routes, Wanted, Watch};
use tokio::time::{MissedTickBehavior, interval};

use super::refused::Waiting;
use super::told::{Counts, exceptions, left_out, refusals, warnings};
use super::{Asked, look, none_refused, own, wanted};
use crate::shutdown::Signals;
use crate::{bundle, start_logging};

/// How often it is looked whether there is another, as an edge looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(super) fn run(file: &Path, asked: Asked, keeps: bool) -> anyhow::Result<()> {
    start_logging();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(follow(file, asked, keeps))
}

async fn follow(file: &Path, asked: Asked, keeps: bool) -> anyhow::Result<()> {
    let mut signals = Signals::catch().context("cannot catch signals")?;
    let mut follower = Follower::new(file, asked)?;
    let mut tick = interval(LOOK_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = signals.next() => break,
            _ = tick.tick() => follower.look()?,
        }
    }
    if keeps { Ok(()) } else { follower.remove() }
}

/// What is followed, and how far.
struct Follower {
    kernel: Routes,
    watch: Watch,
    file: WatchedFile,
    asked: Asked,
    good: Option<Good>,
    /// The routes may be others than they ought to be.
    is_due: bool,
    waiting: Waiting,
    of_file: Told,
    of_routes: Told,
}

/// The last good bundle.
struct Good {
    bundle: Bundle,
    wanted: Wanted,
}

impl Follower {
    fn new(file: &Path, asked: Asked) -> anyhow::Result<Self> {
        // Before the first look at the routes: what changes after it is heard.
        let watch = Watch::open()?;
        Ok(Self {
            kernel: Routes::open()?,
            watch,
            file: WatchedFile::new(file.to_owned()),
            asked,
            good: None,
            is_due: false,
            waiting: Waiting::default(),
            of_file: Told::default(),
            of_routes: Told::default(),
        })
    }

    /// Takes another bundle, if there is one, and makes the routes what they are to be.
    ///
    /// # Errors
    /// Where this process may not change routes: it never will.
    fn look(&mut self) -> anyhow::Result<()> {
        match self.file.look() {
            FileLook::Same | FileLook::StillNone => {}
            FileLook::Gone => {
                let path = self.file.path().display();
                self.of_file.now([format!("no bundle at {path}; what there was stays in force")]);
            }
            FileLook::Unreadable(reason) => self.of_file.now([format!("bundle refused: {reason}")]),
            FileLook::Document(document) => {
                let refused = self.take(&document).err();
                self.of_file.now(refused.map(|refusal| format!("bundle refused: {}", text_of(&refusal))));
            }
        }
        match self.make() {
            Ok(()) => {}
            Err(failure) if matches!(failure.downcast_ref(), Some(Error::NotPermitted)) => {
                return Err(failure);
            }
            Err(failure) => self.of_routes.now([format!("routes not changed: {}", text_of(&failure))]),
        }
        Ok(())
    }

    /// Takes a document, unless it is the bundle in force; what routes cannot do of it is told.
    fn take(&mut self, document: &[u8]) -> anyhow::Result<()> {
        let bundle = bundle::decode(self.file.path(), document)?;
        if self.good.as_ref().is_some_and(|good| good.bundle.checksum() == bundle.checksum()) {
            return Ok(());
        }
        let wanted = wanted(&bundle, &self.asked)?;
        let content = bundle.content();
        tracing::info!(
            number = content.number,
            rules = content.rules.len(),
            reason = content.reason,
            "bundle taken"
        );
        warnings(&bundle, self.asked.tenant.as_deref())
            .iter()
            .for_each(|warning| tracing::warn!("{warning}"));
        self.good = Some(Good { bundle, wanted });
        self.is_due = true;
        self.waiting = Waiting::default();
        Ok(())
    }

    /// Makes the routes what they are to be, if they may be others; what has to be left out is told.
    fn make(&mut self) -> anyhow::Result<()> {
        let Some(good) = &self.good else { return Ok(()) };
        let now = Instant::now();
        self.is_due |=
            self.watch.has_changed(|route| good.wanted.concerns(route))? || self.waiting.is_over(now);
        if !self.is_due {
            return Ok(());
        }
        let mut plan = look(&mut self.kernel, &good.wanted)?;
        self.waiting.hold_back(&mut plan.changes, now);
        let Changed { made, refused } = self.kernel.change(std::mem::take(&mut plan.changes))?;
        self.waiting.add(refused, now);
        self.is_due = false;
        if !made.is_empty() {
            let counts = Counts::of(&made, plan.kept, plan.skipped.len() + left_out(self.waiting.all()));
            tracing::info!(number = good.bundle.content().number, "routes changed: {counts}");
        }
        self.of_routes.now(exceptions(&plan).into_iter().chain(refusals(self.waiting.all())));
        Ok(())
    }

    fn remove(&mut self) -> anyhow::Result<()> {
        let changes =
            own(&mut self.kernel, Some(self.asked.table))?.into_iter().map(Change::Remove).collect();
        let Changed { made, refused } = self.kernel.change(changes)?;
        tracing::info!(routes = made.len(), "routes removed");
        refusals(&refused).iter().for_each(|refusal| tracing::warn!("{refusal}"));
        none_refused(&refused)
    }
}

/// What was told last of what cannot be done.
#[derive(Default)]
struct Told(BTreeSet<String>);

impl Told {
    /// This is so now: tells what was not so before.
    fn now(&mut self, messages: impl IntoIterator<Item = String>) {
        let now = BTreeSet::from_iter(messages);
        now.difference(&self.0).for_each(|message| tracing::warn!("{message}"));
        self.0 = now;
    }
}

fn text_of(failure: &anyhow::Error) -> String {
    format!("{failure:#}").trim_end().to_owned()
}
