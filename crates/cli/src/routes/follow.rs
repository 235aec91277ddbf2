//! `thalweg routes apply --follow`: applies each new bundle in a file until a signal, then removes
//! the routes. A switchback's routes are set and removed when its blocks begin and end.
//!
//! **Invariant:** a rejected bundle changes nothing: the routes of the last good bundle stay and
//! follow the current paths. **Invariant:** a repeated failure is reported once. The operation is
//! retried every [`POLL_PERIOD`] or, if the kernel refused a route, after a pause.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use thalweg_bundle::Bundle;
use thalweg_edge::{FileCheck, WatchedFile};
use thalweg_tcp::routes::{Change, Changed, Error, Routes, Watch};
use thalweg_tcp::sysctl;
use tokio::time::sleep;

use super::due::{Due, unix_time};
use super::messages::{Counts, exceptions, left_out, refusals, warnings};
use super::refused::Waiting;
use super::{Target, none_refused, own, plan_changes};
use crate::Signals;
use crate::{bundle, start_logging};

/// Interval between checks of the file and the routes, the same as in an edge.
const POLL_PERIOD: Duration = Duration::from_secs(1);
/// Minimum pause before the end of a switchback's block.
const PAUSE_MIN: Duration = Duration::from_millis(1);

pub(super) fn run(file: &Path, target: Target, keep_routes: bool) -> anyhow::Result<()> {
    start_logging();
    if let Some(warning) = sysctl::metrics_save_warning() {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(follow(file, target, keep_routes))
}

async fn follow(file: &Path, target: Target, keep_routes: bool) -> anyhow::Result<()> {
    let mut signals = Signals::catch().context("cannot catch signals")?;
    let mut follower = Follower::new(file, target)?;
    loop {
        follower.poll()?;
        tokio::select! {
            () = signals.next() => break,
            () = sleep(follower.pause()) => {}
        }
    }
    if keep_routes { Ok(()) } else { follower.remove() }
}

/// Followed bundle file, and the state of its routes.
struct Follower {
    kernel: Routes,
    watch: Watch,
    file: WatchedFile,
    target: Target,
    good: Option<Good>,
    /// Whether the routes may need changes.
    needs_update: bool,
    waiting: Waiting,
    file_messages: Reported,
    route_messages: Reported,
}

/// Last good bundle.
struct Good {
    bundle: Bundle,
    due: Due,
}

impl Follower {
    fn new(file: &Path, target: Target) -> anyhow::Result<Self> {
        // Open the watch before the first dump of routes, so that no later change is missed.
        let watch = Watch::open()?;
        Ok(Self {
            kernel: Routes::open()?,
            watch,
            file: WatchedFile::new(file.to_owned()),
            target,
            good: None,
            needs_update: false,
            waiting: Waiting::default(),
            file_messages: Reported::default(),
            route_messages: Reported::default(),
        })
    }

    /// Accepts a new bundle, if any, and updates the routes.
    ///
    /// # Errors
    ///
    /// Returns an error if this process is not permitted to change routes, because retrying would
    /// not help.
    fn poll(&mut self) -> anyhow::Result<()> {
        match self.file.check() {
            FileCheck::Same | FileCheck::StillNone => {}
            FileCheck::Gone => {
                let path = self.file.path().display();
                self.file_messages
                    .report([format!("no bundle at {path}; the last good bundle stays in force")]);
            }
            FileCheck::Unreadable(reason) => self.file_messages.report([format!("bundle refused: {reason}")]),
            FileCheck::Document(document) => {
                let refused = self.accept(&document).err();
                self.file_messages
                    .report(refused.map(|refusal| format!("bundle refused: {}", text_of(&refusal))));
            }
        }
        match self.start_block().and_then(|()| self.update_routes()) {
            Ok(()) => {}
            Err(failure) if matches!(failure.downcast_ref(), Some(Error::NotPermitted)) => {
                return Err(failure);
            }
            Err(failure) => {
                self.route_messages.report([format!("routes not changed: {}", text_of(&failure))]);
            }
        }
        Ok(())
    }

    /// Accepts a document unless it is the current bundle, and logs what routes cannot express.
    fn accept(&mut self, document: &[u8]) -> anyhow::Result<()> {
        let bundle = bundle::decode(self.file.path(), document)?;
        if self.good.as_ref().is_some_and(|good| good.bundle.checksum() == bundle.checksum()) {
            return Ok(());
        }
        let due = Due::at(&bundle, &self.target, unix_time().as_secs())?;
        let content = bundle.content();
        tracing::info!(
            number = content.number,
            rules = content.rules.len(),
            reason = content.reason,
            "bundle accepted"
        );
        warnings(&bundle, self.target.tenant.as_deref())
            .iter()
            .for_each(|warning| tracing::warn!("{warning}"));
        self.good = Some(Good { bundle, due });
        self.needs_update = true;
        self.waiting = Waiting::default();
        Ok(())
    }

    /// Determines which prefixes are held out now if a switchback's block has ended or the clock
    /// was set.
    fn start_block(&mut self) -> anyhow::Result<()> {
        let Some(good) = &mut self.good else { return Ok(()) };
        let unix_s = unix_time().as_secs();
        if !good.due.span.contains(&unix_s) {
            good.due = Due::at(&good.bundle, &self.target, unix_s)?;
            // Retry refused changes now, so that they do not wait far into the block.
            self.waiting = Waiting::default();
            self.needs_update = true;
        }
        Ok(())
    }

    /// Returns the time until the next poll: the poll period, or less if a block ends earlier.
    fn pause(&self) -> Duration {
        let end = self.good.as_ref().map_or(u64::MAX, |good| good.due.span.end);
        Duration::from_secs(end).saturating_sub(unix_time()).clamp(PAUSE_MIN, POLL_PERIOD)
    }

    /// Updates the routes if they may need changes, and logs skipped prefixes.
    fn update_routes(&mut self) -> anyhow::Result<()> {
        let Some(good) = &self.good else { return Ok(()) };
        let now = Instant::now();
        self.needs_update |=
            self.watch.has_changed(|route| good.due.wanted.concerns(route))? || self.waiting.is_over(now);
        if !self.needs_update {
            return Ok(());
        }
        let mut plan = plan_changes(&mut self.kernel, &good.due.wanted)?;
        self.waiting.hold_back(&mut plan.changes, now);
        let Changed { made, refused } = self.kernel.change(std::mem::take(&mut plan.changes))?;
        self.waiting.add(refused, now);
        self.needs_update = false;
        if !made.is_empty() {
            let left_out = plan.skipped.len() + left_out(self.waiting.all());
            let counts = Counts::of(&made, plan.kept, left_out, good.due.held_out);
            tracing::info!(number = good.bundle.content().number, "routes changed: {counts}");
        }
        self.route_messages.report(exceptions(&plan).into_iter().chain(refusals(self.waiting.all())));
        Ok(())
    }

    fn remove(&mut self) -> anyhow::Result<()> {
        let changes =
            own(&mut self.kernel, Some(self.target.table))?.into_iter().map(Change::Remove).collect();
        let Changed { made, refused } = self.kernel.change(changes)?;
        tracing::info!(routes = made.len(), "routes removed");
        refusals(&refused).iter().for_each(|refusal| tracing::warn!("{refusal}"));
        none_refused(&refused)
    }
}

/// Messages last reported on one subject.
#[derive(Default)]
struct Reported(BTreeSet<String>);

impl Reported {
    /// Replaces the current messages, and logs the messages that are new.
    fn report(&mut self, messages: impl IntoIterator<Item = String>) {
        let now = BTreeSet::from_iter(messages);
        now.difference(&self.0).for_each(|message| tracing::warn!("{message}"));
        self.0 = now;
    }
}

fn text_of(failure: &anyhow::Error) -> String {
    format!("{failure:#}").trim_end().to_owned()
}
