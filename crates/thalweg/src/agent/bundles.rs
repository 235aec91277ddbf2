//! Bundles over Kafka: from the compacted topic into the file that the edges of this machine look at, and back what they say of it.
//!
//! **Invariant:** the file is replaced in one step, once what the topic has is known: a kill leaves the one before or the next one, whole.
//! What is read again from the topic's beginning replaces nothing before its end.
//! **Invariant:** the number of the bundle in the file does not go back, whatever the topic has.
//! **Invariant:** what an edge has is asked of the edge. Of one that does not answer nothing is told.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Limited};
use hyper::Request;
use serde_json::Value;
use thalweg_bundle::{BYTES_MAX, Bundle, declared_checksum};
use thalweg_controller::carried::{Acknowledged, Key, Refused};
use thalweg_telemetry::kafka::Cluster;
use thalweg_telemetry::keyed::{Found, Reader, Writer};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::{admin, bundle};

/// How often the edges are asked what they have.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How long one may take to answer, and how long its answer may be.
const ASK_TIME_MAX: Duration = Duration::from_secs(2);
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// After which it is said again what the edges have, though it is the same: a controller takes one that is not heard to be gone.
const SAY_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// For how long edges of one machine may have different bundles without its being said.
const DIFFER_MAX: Duration = Duration::from_secs(10);
/// The pause after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// Where bundles come from, and for whom.
#[derive(Debug, Clone)]
pub(super) struct Config {
    pub(super) cluster: Cluster,
    pub(super) pop: String,
    /// The edges' name, which is that of the machine in records.
    pub(super) edge: String,
    /// What the edges look at.
    pub(super) file: PathBuf,
    /// Their admin addresses.
    pub(super) admins: Vec<SocketAddr>,
}

/// The thread's own.
#[derive(Debug)]
pub(super) struct Bundles {
    config: Config,
    reader: Reader,
    writer: Writer,
    /// What all edges of the PoP are to have, and what this one is.
    of_all: Option<Vec<u8>>,
    of_this: Option<Vec<u8>>,
    /// One of them is another than when the file was last looked at.
    is_new: bool,
    /// What was held back last because of its number.
    held_back: Option<u64>,
    /// What was held back because it is no bundle.
    refused: Option<Refused>,
    /// Since when edges have different bundles.
    differ_since: Option<Instant>,
    /// The highest number that the file has had.
    highest: Option<u64>,
    asked_at: Option<Instant>,
    said: Option<(Acknowledged, Instant)>,
}

impl Bundles {
    /// Nothing is asked yet.
    ///
    /// # Errors
    /// When a property of Kafka is wrong.
    pub(super) fn open(config: Config) -> anyhow::Result<Self> {
        let reader = Reader::open(&config.cluster, Some(&config.pop))?;
        let highest = fs::read(&config.file).ok().and_then(|document| number(&document));
        Ok(Self {
            reader,
            // The controller makes the topic.
            writer: Writer::of(config.cluster.clone(), None),
            config,
            of_all: None,
            of_this: None,
            is_new: false,
            held_back: None,
            refused: None,
            differ_since: None,
            highest,
            asked_at: None,
            said: None,
        })
    }

    /// Carries until it is told to stop. What fails one way goes on the other.
    pub(super) fn run(mut self, stop: &AtomicBool) {
        // Made here, and dropped here: neither is for a thread that has another one.
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return tracing::error!(%error, "no runtime to ask the edges with"),
        };
        let (mut coming, mut going) = (Way::default(), Way::default());
        while !stop.load(Relaxed) {
            let came = self.receive();
            let is_away = came.is_err();
            coming.tell(came, "bundles do not come over Kafka", "bundles come over Kafka again");
            if self.has_read() && self.asked_at.is_none_or(|at| at.elapsed() >= ASK_EVERY) {
                let went = self.say_what_is(&runtime);
                self.asked_at = Some(Instant::now());
                going.tell(went, "what edges have is not told over Kafka", "what edges have is told again");
            }
            if is_away {
                thread::sleep(PAUSE);
            }
        }
    }

    /// Reads what there is, for a moment, and puts what is new of it into the file.
    fn receive(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < ASK_EVERY {
            match self.reader.read()? {
                Found::Beginning => {
                    (self.of_all, self.of_this) = (None, None);
                    self.writer.refresh(); // its key may be in another partition
                }
                Found::Document { key, document, .. } => self.take(&key, document),
                Found::End(_) => self.is_new = true,
                Found::Nothing => break,
            }
        }
        if self.has_read() && self.is_new {
            self.put().with_context(|| format!("cannot write {}", self.config.file.display()))?;
            self.is_new = false;
        }
        Ok(())
    }

    /// Whether what the topic has is known.
    fn has_read(&self) -> bool {
        self.reader.partitions().has_read_of(&self.config.pop)
    }

    /// Asks the edges what they have, and says it.
    fn say_what_is(&mut self, runtime: &Runtime) -> anyhow::Result<()> {
        let all = runtime.block_on(ask(&self.config.admins))?;
        let mut now = together(&all);
        // Edges of a machine do not look at the file at the same time: for a moment what they have is what they had.
        let differ = !all.is_empty() && now.in_force.is_none() && now.refused.is_none();
        let is_passing = differ && self.differ_since.get_or_insert_with(Instant::now).elapsed() < DIFFER_MAX;
        match &self.said {
            Some((said, _)) if is_passing => now = said.clone(),
            _ if !differ => self.differ_since = None,
            _ => {}
        }
        now.refused = now.refused.or_else(|| self.refused.clone());
        self.say(now)
    }

    fn take(&mut self, key: &str, document: Option<Vec<u8>>) {
        let Some(Key::Bundle(_, edge)) = Key::parse(key).filter(|key| key.pop() == self.config.pop) else {
            return;
        };
        let document = document.map(|mut document| {
            document.truncate(BYTES_MAX + 1); // enough to be refused
            document
        });
        match edge {
            None => self.of_all = document,
            Some(edge) if edge == self.config.edge => self.of_this = document,
            Some(_) => return,
        }
        self.is_new = true;
    }

    /// Puts what the edges are to have into the file, if it is not there.
    fn put(&mut self) -> io::Result<()> {
        // What this edge alone is to have is the later one.
        let offered = [&self.of_all, &self.of_this].into_iter().flatten();
        let Some((number, document)) =
            offered.map(|document| (number(document), document)).max_by_key(|(number, _)| *number)
        else {
            return Ok(());
        };
        // In the place of a bundle comes none that is not one: else a start would know no number any more.
        self.refused = self.highest.filter(|_| number.is_none()).and_then(|_| refusal(document));
        if let Some(Refused { reason, .. }) = &self.refused {
            tracing::warn!(reason, "Kafka has what is no bundle: it is held back");
            return Ok(());
        }
        if number < self.highest {
            if self.held_back != number {
                tracing::warn!(
                    number,
                    highest = self.highest,
                    "Kafka has a bundle of a lower number: it is held back"
                );
            }
            self.held_back = number;
            return Ok(());
        }
        if fs::read(&self.config.file).is_ok_and(|there| there == *document) {
            self.highest = self.highest.max(number);
            return Ok(());
        }
        bundle::replace(&self.config.file, document)?;
        self.highest = self.highest.max(number);
        tracing::info!(number, file = %self.config.file.display(), "a bundle came over Kafka");
        Ok(())
    }

    /// Says what the edges have, if it is something new, or was said a while ago.
    fn say(&mut self, now: Acknowledged) -> anyhow::Result<()> {
        let is_known =
            self.said.as_ref().is_some_and(|(said, at)| *said == now && at.elapsed() < SAY_AGAIN_AFTER);
        if !is_known {
            let key = Key::Acknowledged(self.config.pop.clone(), self.config.edge.clone());
            self.writer.put(key.pop(), &key.to_string(), Some(now.encode().as_bytes()))?;
            self.said = Some((now, Instant::now()));
        }
        Ok(())
    }
}

/// A way that bundles or what is said of them go, and what was told last of why they do not.
#[derive(Debug, Default)]
struct Way(Option<String>);

impl Way {
    /// Tells a failure that is another than before, and the end of one.
    fn tell(&mut self, result: anyhow::Result<()>, failing: &str, again: &str) {
        let now = result.err().map(|error| format!("{error:#}"));
        match &now {
            Some(error) if self.0.as_ref() != Some(error) => {
                tracing::warn!(error, "{failing}; tried again and again");
            }
            None if self.0.is_some() => tracing::info!("{again}"),
            _ => {}
        }
        self.0 = now;
    }
}

/// Why a document is no bundle.
fn refusal(document: &[u8]) -> Option<Refused> {
    let reason = Bundle::decode(document).err()?.to_string().replace('\n', "; ");
    Some(Refused { checksum: declared_checksum(document), reason })
}

fn number(document: &[u8]) -> Option<u64> {
    Bundle::decode(document).ok().map(|bundle| bundle.content().number)
}

/// What each of the edges at these admin addresses says.
async fn ask(admins: &[SocketAddr]) -> anyhow::Result<Vec<Value>> {
    let mut all = Vec::new();
    for admin in admins {
        let status = timeout(ASK_TIME_MAX, status(*admin)).await;
        let status = status.map_err(anyhow::Error::from).and_then(|status| status);
        all.push(status.with_context(|| format!("the edge at {admin} does not say what it has"))?);
    }
    Ok(all)
}

/// What an edge tells of its bundle.
async fn status(admin: SocketAddr) -> anyhow::Result<Value> {
    let response = admin::send(admin, Request::get("/stats"), String::new()).await?;
    let content = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let content = content.map_err(|cause| anyhow::anyhow!("its answer broke off: {cause}"))?.to_bytes();
    let mut stats: Value = serde_json::from_slice(&content).context("it answers no JSON")?;
    let bundle = stats["bundle"].take();
    if bundle.is_null() {
        bail!("it takes no bundles: its setting bundle names no file");
    }
    Ok(bundle)
}

/// In force is what all have; refused is what one has refused since it took a good one.
fn together(all: &[Value]) -> Acknowledged {
    let checksum = |status: &Value| status["checksum"].as_str().map(str::to_owned);
    let first = all.first().and_then(checksum);
    let in_force = first.filter(|first| all.iter().all(|status| checksum(status).as_ref() == Some(first)));
    let refused = all.iter().find_map(|status| {
        let refused = &status["refused"];
        let reason = refused["reason"].as_str().filter(|_| refused["is_last"] == true)?.to_owned();
        Some(Refused { checksum: checksum(refused), reason })
    });
    let number = all.first().filter(|_| in_force.is_some()).and_then(|status| status["number"].as_u64());
    Acknowledged { in_force, number, refused }
}

/// A thread that carries bundles, until this is dropped.
#[derive(Debug)]
pub(super) struct Carrying(Arc<AtomicBool>);

impl Carrying {
    /// Starts it; `ended` is dropped when it ends.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn start(bundles: Bundles, ended: tokio::sync::oneshot::Sender<()>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let own = stop.clone();
        thread::Builder::new().name("agent-bundles".into()).spawn(move || {
            let _ended = ended;
            bundles.run(&own);
        })?;
        Ok(Self(stop))
    }
}

impl Drop for Carrying {
    fn drop(&mut self) {
        // It is not waited for: it may be asking brokers that are away, and a file half written is in nobody's way.
        self.0.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn edges_of_a_machine_speak_together() {
        let edge = |checksum: &str, refused: Value| json!({"checksum": checksum, "refused": refused});
        let refused = |is_last: bool| json!({"checksum": null, "reason": "no", "is_last": is_last});
        let told = |all: &[Value]| {
            let Acknowledged { in_force, refused, .. } = together(all);
            (in_force.unwrap_or_default(), refused.map(|refused| refused.reason).unwrap_or_default())
        };
        let (a, b) = (edge("a", Value::Null), edge("b", Value::Null));
        let text = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(told(&[]), text("", ""));
        assert_eq!(told(std::slice::from_ref(&a)), text("a", ""));
        assert_eq!(told(&[a.clone(), a.clone()]), text("a", ""));
        assert_eq!(told(&[a.clone(), b]), text("", ""));
        // What was refused before the last good one is no matter any more.
        assert_eq!(told(&[edge("a", refused(false))]), text("a", ""));
        assert_eq!(told(&[a, edge("a", refused(true))]), text("a", "no"));
        assert_eq!(told(&[json!({"checksum": null, "refused": refused(true)})]), text("", "no"));
    }
}
