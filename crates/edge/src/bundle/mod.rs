//! The bundle in force: from a file that is looked at or a server that is asked, replaced at once, kept over restarts.
//!
//! - [`source`]: where it comes from, as it is configured. [`file`]: a file, looked at again and again.
//! - [`poll`], [`http`] and [`connect`]: a server, asked by long polling, and told what is in force here and what was refused.
//! - [`kept`]: the last good one, in the state directory. [`status`]: refusals, and whether the source is heard.
//!
//! **Invariant:** a bundle that is refused changes nothing: the last good one stays in force, and why is told.
//! **Invariant:** a worker reads the bundle without a lock; sockets and files are for the runtime beside the workers.
//! **Invariant:** a bundle is in force before it is kept, and the server is told of it after that was tried.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use serde_json::{Value, json};
use thalweg_bundle::{Bundle, declared_checksum};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::now_ms;

mod connect;
mod file;
mod http;
mod kept;
mod poll;
mod source;
mod status;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]
mod tests;

pub use file::{Look as FileLook, Watched as WatchedFile};
pub(crate) use kept::Kept;
pub use source::{BundleSource, BundleSourceError, BundleUrl};

use file::{Look, Watched};
use kept::Keeping;
use status::{Refused, Status};

/// How often it is looked whether there is another file.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Where a bundle came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    File,
    Http,
    /// From the state directory, as the edge started.
    Kept,
}

impl Came {
    fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Http => "http",
            Self::Kept => "kept",
        }
    }
}

/// A bundle that was taken.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) bundle: Bundle,
    came: Came,
    at_ms: u64,
}

/// Where the next one comes from.
#[derive(Debug)]
enum Source {
    File(Watched),
    Http(BundleUrl),
}

impl Source {
    fn told(&self) -> String {
        match self {
            Self::File(file) => file.path().display().to_string(),
            Self::Http(url) => url.to_string(),
        }
    }
}

/// Which bundle is in force, and where the next one comes from.
#[derive(Debug, Default)]
pub(crate) struct Bundles {
    source: Option<Source>,
    active: ArcSwapOption<Taken>,
    status: Mutex<Status>,
    keeping: Keeping,
    /// Counts what is told anew.
    changes: watch::Sender<u64>,
}

impl Bundles {
    /// With what lies in the file now, else with what was kept. There may be nothing yet. Without a source nothing is in
    /// force.
    pub(crate) fn new(source: Option<&BundleSource>, kept: Option<Kept>) -> Self {
        let source = source.map(|source| match source {
            BundleSource::File(path) => Source::File(Watched::new(path.clone())),
            BundleSource::Http(url) => Source::Http(url.clone()),
        });
        let bundles = Self { source, keeping: Keeping::new(kept), ..Self::default() };
        bundles.look();
        bundles.begin_with_kept();
        bundles
    }

    /// The bundle in force.
    pub(crate) fn active(&self) -> Guard<Option<Arc<Taken>>> {
        self.active.load()
    }

    /// Changes when something else is in force, refused, or heard.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Takes each new bundle, and keeps it, for as long as it is polled.
    pub(crate) async fn watch(self: Arc<Self>) -> Infallible {
        tokio::select! {
            never = self.clone().watch_source() => never,
            never = self.keep_again() => never,
        }
    }

    async fn watch_source(self: Arc<Self>) -> Infallible {
        match &self.source {
            None => std::future::pending().await,
            Some(Source::File(_)) => self.watch_file().await,
            Some(Source::Http(url)) => poll::run(self.clone(), url.clone()).await,
        }
    }

    /// Keeps nothing from now on; what is being kept has been once this returns. The state directory may go to another.
    pub(crate) fn end(&self) {
        self.keeping.end();
    }

    async fn watch_file(self: Arc<Self>) -> Infallible {
        let mut tick = interval(LOOK_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let bundles = self.clone();
            let looked = tokio::task::spawn_blocking(move || bundles.look()).await;
            if let Err(error) = looked {
                self.refuse(format!("not looked at: {error}"), None);
            }
        }
    }

    /// Takes what lies in the file, if it has changed since the last look.
    fn look(&self) {
        let Some(Source::File(file)) = &self.source else { return };
        match file.look() {
            Look::Same => self.hear(),
            Look::StillNone => {}
            Look::Gone => {
                tracing::info!(path = %file.path().display(), "no bundle there; what there was stays in force");
            }
            Look::Unreadable(reason) => {
                self.refuse(reason, None);
            }
            Look::Document(document) => {
                self.hear();
                let _ = self.offer(&document, None, Came::File);
            }
        }
    }

    fn begin_with_kept(&self) {
        if self.source.is_none() || self.active().is_some() {
            return;
        }
        let read = self.keeping.read(|kept| (kept.path().display().to_string(), kept.read()));
        match read.map(|(path, read)| (path, read.map(|read| read.map(|document| Bundle::decode(&document)))))
        {
            None | Some((_, Ok(None))) => {}
            Some((_, Ok(Some(Ok(bundle))))) => self.activate(bundle, Came::Kept),
            // Also one of another version of this program.
            Some((path, Ok(Some(Err(faults))))) => {
                let fault = &faults.all()[0];
                tracing::warn!(path, %fault, "the kept bundle is not to be used, and is ignored until there is another");
            }
            Some((path, Err(error))) => tracing::warn!(path, %error, "the kept bundle cannot be read"),
        }
    }

    /// Takes a document, unless it is the bundle in force; its checksum. `stated` is the checksum by which it came.
    fn offer(&self, document: &[u8], stated: Option<String>, came: Came) -> Result<String, Refused> {
        let bundle = Bundle::decode(document)
            .map_err(|faults| self.refuse(faults.to_string(), declared_checksum(document).or(stated)))?;
        lock(&self.status).take();
        let checksum = bundle.checksum().to_owned();
        if self.checksum().as_ref() != Some(&checksum) {
            self.activate(bundle, came);
            self.keep();
        }
        Ok(checksum)
    }

    fn activate(&self, bundle: Bundle, came: Came) {
        let content = bundle.content();
        let (number, rules, experiments) = (content.number, content.rules.len(), content.experiments.len());
        let (source, reason) = (came.as_str(), &content.reason);
        tracing::info!(source, number, rules, experiments, reason, "bundle taken");
        self.active.store(Some(Arc::new(Taken { bundle, came, at_ms: now_ms() })));
        self.change();
    }

    fn keep(&self) {
        self.keeping.keep(|| self.active().as_ref().map(|taken| taken.bundle.encode()));
    }

    /// Keeps what could not be kept.
    async fn keep_again(self: Arc<Self>) -> Infallible {
        loop {
            self.keeping.is_due_again().await;
            let bundles = self.clone();
            let _ = tokio::task::spawn_blocking(move || bundles.keep()).await;
        }
    }

    fn change(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn refuse(&self, reason: String, checksum: Option<String>) -> Refused {
        let (refused, is_new) = lock(&self.status).refuse(reason, checksum, now_ms());
        if is_new {
            let Refused { reason, checksum, .. } = &refused;
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

    /// The source has had an answer.
    fn hear(&self) {
        if lock(&self.status).hear(now_ms()) {
            tracing::info!(source = self.source(), "the bundle's server is heard again");
            self.change();
        }
    }

    /// The source has had none. Told once, until there is one.
    fn miss(&self, reason: String) {
        if lock(&self.status).miss(reason.clone(), now_ms()) {
            let (source, in_force) = (self.source(), self.number());
            tracing::warn!(
                source,
                reason,
                in_force,
                "the bundle's server is not heard; asked again and again"
            );
            self.change();
        }
    }

    fn source(&self) -> Option<String> {
        self.source.as_ref().map(Source::told)
    }

    fn checksum(&self) -> Option<String> {
        self.active().as_ref().map(|taken| taken.bundle.checksum().to_owned())
    }

    fn number(&self) -> Option<u64> {
        self.active().as_ref().map(|taken| taken.bundle.content().number)
    }

    /// What the admin interface tells; null where no bundle is configured.
    pub(crate) fn told(&self) -> Value {
        if self.source.is_none() {
            return Value::Null;
        }
        let active = self.active();
        let content = active.as_ref().map(|taken| taken.bundle.content());
        let mut told = json!({
            "number": content.map(|content| content.number),
            "reason": content.map(|content| &content.reason),
            "rules": content.map(|content| content.rules.len()),
            "experiments": content.map(|content| content.experiments.len()),
            "checksum": active.as_ref().map(|taken| taken.bundle.checksum()),
            "source": active.as_ref().map(|taken| taken.came.as_str()),
            "taken_unix_ms": active.as_ref().map(|taken| taken.at_ms),
        });
        lock(&self.status).tell(&mut told);
        told
    }
}

/// A text of at most so many bytes.
fn cut(mut text: String, bytes_max: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes_max));
    text
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
