//! Active bundle: loaded from a watched file or polled from a server, replaced atomically, saved
//! across restarts.
//!
//! - [`source`]: the configured source. [`file`]: a watched file.
//! - [`poll`] and [`http`]: a bundle server, long-polled for new bundles and informed of the active
//!   and the refused bundle.
//! - [`saved`]: the last good bundle, in the state directory. [`status`]: refused bundles, and
//!   whether the source responds.
//!
//! **Invariant:** a refused bundle changes nothing: the last good bundle stays active, and the
//! refusal is reported with its reason.
//! **Invariant:** workers read the bundle without a lock; a separate runtime handles sockets and
//! files.
//! **Invariant:** a bundle is activated first, then saved, then acknowledged to the server, even if
//! saving fails.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use serde_json::{Value, json};
use thalweg_bundle::{Bundle, declared_checksum};
use thalweg_surface::{ClientTls, TokenFile};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::clock::now_ms;
use crate::config::Config;

mod file;
mod http;
mod poll;
mod saved;
mod source;
mod status;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
mod tests;

pub use file::{FileState as FileCheck, Watched as WatchedFile};
pub(crate) use saved::SavedBundle;
pub use source::{BundleSource, BundleSourceError, BundleUrl};

use file::{FileState, Watched};
use saved::BundleSaver;
use status::{RefusedBundle, Status};

/// Interval between file checks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The kind of source from which a bundle was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoadedFrom {
    File,
    Http,
    /// From the state directory, at startup.
    State,
}

impl LoadedFrom {
    fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Http => "http",
            Self::State => "kept",
        }
    }
}

/// An activated bundle.
#[derive(Debug)]
pub(crate) struct ActiveBundle {
    pub(crate) bundle: Bundle,
    loaded_from: LoadedFrom,
    at_ms: u64,
}

/// The configured bundle source.
#[derive(Debug)]
enum Source {
    File(Watched),
    Http(BundleServer),
}

/// A bundle server, and the token and TLS configuration that it requires, if any.
#[derive(Debug, Clone)]
struct BundleServer {
    url: BundleUrl,
    token: Option<TokenFile>,
    tls: Option<ClientTls>,
}

impl Source {
    fn name(&self) -> String {
        match self {
            Self::File(file) => file.path().display().to_string(),
            Self::Http(server) => server.url.to_string(),
        }
    }
}

/// The active bundle, and the source of new ones.
#[derive(Debug, Default)]
pub(crate) struct Bundles {
    source: Option<Source>,
    active: ArcSwapOption<ActiveBundle>,
    status: Mutex<Status>,
    saver: BundleSaver,
    /// Number of reported changes.
    changes: watch::Sender<u64>,
}

impl Bundles {
    /// Loads the bundle file or, failing that, the saved bundle; both may be missing. Without a
    /// source, no bundle is active.
    pub(crate) fn new(config: &Config, kept: Option<SavedBundle>) -> Self {
        let source = config.bundle.as_ref().map(|source| match source {
            BundleSource::File(path) => Source::File(Watched::new(path.clone())),
            BundleSource::Http(url) => Source::Http(BundleServer {
                url: url.clone(),
                token: config.bundle_token.clone(),
                tls: config.bundle_tls.clone(),
            }),
        });
        let bundles = Self { source, saver: BundleSaver::new(kept), ..Self::default() };
        bundles.check();
        bundles.load_saved();
        bundles
    }

    /// Returns the active bundle.
    pub(crate) fn active(&self) -> Guard<Option<Arc<ActiveBundle>>> {
        self.active.load()
    }

    /// Returns a counter that increases when a bundle is activated or refused, or the source is
    /// lost or regained.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Loads and saves each new bundle, forever.
    pub(crate) async fn watch(self: Arc<Self>) -> Infallible {
        tokio::select! {
            never = self.clone().watch_source() => never,
            never = self.retry_saving() => never,
        }
    }

    async fn watch_source(self: Arc<Self>) -> Infallible {
        match &self.source {
            None => std::future::pending().await,
            Some(Source::File(_)) => self.watch_file().await,
            Some(Source::Http(server)) => poll::run(self.clone(), server.clone()).await,
        }
    }

    /// Stops saving, so that another process may use the state directory. Waits for a save in
    /// progress.
    pub(crate) fn end(&self) {
        self.saver.end();
    }

    async fn watch_file(self: Arc<Self>) -> Infallible {
        let mut tick = interval(LOOK_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let bundles = self.clone();
            let looked = tokio::task::spawn_blocking(move || bundles.check()).await;
            if let Err(error) = looked {
                self.refuse(format!("file check failed: {error}"), None);
            }
        }
    }

    /// Loads the file if it has changed since the last check.
    fn check(&self) {
        let Some(Source::File(file)) = &self.source else { return };
        match file.check() {
            FileState::Same => self.record_reply(),
            FileState::StillNone => {}
            FileState::Gone => {
                tracing::info!(path = %file.path().display(), "no bundle file, active bundle unchanged");
            }
            FileState::Unreadable(reason) => {
                self.refuse(reason, None);
            }
            FileState::Document(document) => {
                self.record_reply();
                let _ = self.load_document(&document, None, LoadedFrom::File);
            }
        }
    }

    fn load_saved(&self) {
        if self.source.is_none() || self.active().is_some() {
            return;
        }
        let read = self.saver.read(|kept| (kept.path().display().to_string(), kept.read()));
        match read.map(|(path, read)| (path, read.map(|read| read.map(|document| Bundle::decode(&document)))))
        {
            None | Some((_, Ok(None))) => {}
            Some((_, Ok(Some(Ok(bundle))))) => self.activate(bundle, LoadedFrom::State),
            // Another version of this program may have saved the bundle.
            Some((path, Ok(Some(Err(faults))))) => {
                let fault = &faults.all()[0];
                tracing::warn!(path, %fault, "saved bundle is invalid, ignored");
            }
            Some((path, Err(error))) => tracing::warn!(path, %error, "cannot read saved bundle"),
        }
    }

    /// Activates the bundle in a document unless it is already active, and returns its checksum.
    /// `stated` is the checksum sent by the server, if any.
    fn load_document(
        &self,
        document: &[u8],
        stated: Option<String>,
        loaded_from: LoadedFrom,
    ) -> Result<String, RefusedBundle> {
        let bundle = Bundle::decode(document)
            .map_err(|faults| self.refuse(faults.to_string(), declared_checksum(document).or(stated)))?;
        lock(&self.status).record_success();
        let checksum = bundle.checksum().to_owned();
        if self.checksum().as_ref() != Some(&checksum) {
            self.activate(bundle, loaded_from);
            self.save();
        }
        Ok(checksum)
    }

    fn activate(&self, bundle: Bundle, loaded_from: LoadedFrom) {
        let content = bundle.content();
        let (number, rules, experiments) = (content.number, content.rules.len(), content.experiments.len());
        let (source, reason) = (loaded_from.as_str(), &content.reason);
        tracing::info!(source, number, rules, experiments, reason, "bundle activated");
        self.active.store(Some(Arc::new(ActiveBundle { bundle, loaded_from, at_ms: now_ms() })));
        self.change();
    }

    fn save(&self) {
        self.saver.save(|| self.active().as_ref().map(|active| active.bundle.encode()));
    }

    /// Retries failed saves.
    async fn retry_saving(self: Arc<Self>) -> Infallible {
        loop {
            self.saver.retry_due().await;
            let bundles = self.clone();
            let _ = tokio::task::spawn_blocking(move || bundles.save()).await;
        }
    }

    fn change(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn refuse(&self, reason: String, checksum: Option<String>) -> RefusedBundle {
        let (refused, is_new) = lock(&self.status).refuse(reason, checksum, now_ms());
        if is_new {
            let RefusedBundle { reason, checksum, .. } = &refused;
            tracing::warn!(
                source = self.source(),
                reason,
                checksum,
                in_force = self.number(),
                "bundle refused"
            );
            self.change();
        }
        refused
    }

    /// Records that the source responded.
    fn record_reply(&self) {
        if lock(&self.status).record_reply(now_ms()) {
            tracing::info!(source = self.source(), "bundle server responds again");
            self.change();
        }
    }

    /// Records a failed request; logs only the first one until the source responds.
    fn record_failure(&self, reason: String) {
        if lock(&self.status).record_failure(reason.clone(), now_ms()) {
            let (source, in_force) = (self.source(), self.number());
            tracing::warn!(source, reason, in_force, "bundle server does not respond, retrying");
            self.change();
        }
    }

    fn source(&self) -> Option<String> {
        self.source.as_ref().map(Source::name)
    }

    fn checksum(&self) -> Option<String> {
        self.active().as_ref().map(|active| active.bundle.checksum().to_owned())
    }

    /// Returns the active bundle's number.
    pub(crate) fn number(&self) -> Option<u64> {
        self.active().as_ref().map(|active| active.bundle.content().number)
    }

    /// Returns the number of refused bundles, or `None` without a configured source.
    pub(crate) fn refusals(&self) -> Option<u64> {
        self.source.as_ref().map(|_| lock(&self.status).refusals())
    }

    /// Formats the state for the admin interface; null without a configured source.
    pub(crate) fn status_json(&self) -> Value {
        if self.source.is_none() {
            return Value::Null;
        }
        let active = self.active();
        let content = active.as_ref().map(|active| active.bundle.content());
        let mut status = json!({
            "number": content.map(|content| content.number),
            "reason": content.map(|content| &content.reason),
            "rules": content.map(|content| content.rules.len()),
            "experiments": content.map(|content| content.experiments.len()),
            "checksum": active.as_ref().map(|active| active.bundle.checksum()),
            "source": active.as_ref().map(|active| active.loaded_from.as_str()),
            "taken_unix_ms": active.as_ref().map(|active| active.at_ms),
        });
        lock(&self.status).write_json(&mut status);
        status
    }
}

/// Truncates a string to at most `bytes_max` bytes.
fn cut(mut text: String, bytes_max: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes_max));
    text
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
