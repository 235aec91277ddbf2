//! Client for the parts of the controller's and the edges' HTTP interfaces used by the lab.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thalweg_load::Failure;
use thalweg_load::connection::{Connection, Timeouts};
use thalweg_load::response::Sink;

/// Time limit for a response.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum response size accepted.
const RESPONSE_BYTES_MAX: usize = 16 << 20;
/// Stage of a network whose trial has no result yet.
const ON_TRIAL: &str = "on trial";

/// A round of decisions.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Round {
    /// End of the round's window, as Unix time in seconds.
    pub unix_s: u64,
    /// Number of networks steered from this round on.
    pub steered: u64,
    /// Number of those networks that were already steered before.
    pub kept: u64,
    /// Networks that entered, with reasons.
    pub entered: Vec<Change>,
    /// Networks that left, with reasons.
    pub left: Vec<Change>,
    /// Networks whose trial showed a gain within the network.
    pub promising: Vec<String>,
    /// Networks for which steering was shown to help the whole network.
    pub proved: Vec<String>,
    /// The kernel's delivery rate in bytes per second.
    pub delivery_rate: Percentiles,
    /// Response goodput in bytes per second.
    pub goodput: Percentiles,
}

/// A network that entered or left.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Change {
    /// Prefix of the network.
    pub prefix: String,
    /// Reason, as the controller's keyword.
    pub reason: String,
}

/// Percentiles across the connections in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub struct Percentiles {
    /// Percentiles across all connections; `None` if the controller reports none.
    pub all: Option<LowPercentiles>,
}

/// Low percentiles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub struct LowPercentiles {
    /// The 5th percentile.
    pub p5: f64,
    /// The 10th percentile.
    pub p10: f64,
}

/// The controller's explanation of a network.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Explanation {
    /// Why the network is or is not steered, as the controller's keyword.
    pub reason: Option<String>,
    /// The explanation as a sentence.
    pub said: Option<String>,
    /// Trial results, while the network is steered.
    pub entry: Option<Trial>,
}

/// Results of a trial.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Trial {
    /// Number of steered connections.
    pub treated: u64,
    /// Number of held-out connections.
    pub held_out: u64,
    stage: String,
    /// Effect on goodput, in percent.
    pub goodput: Option<Percent>,
    /// Effect on the share of retransmitted bytes, in percentage points.
    pub retransmitted: Option<Points>,
}

/// An effect in percent, with an interval valid at every look.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Percent {
    /// The estimate.
    pub percent: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// An effect in percentage points, with an interval valid at every look.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Points {
    /// The estimate.
    pub points: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Explanation {
    /// Replaces this explanation with a newer one, but keeps the last results of an ended trial.
    /// Once BBR is shown to help, the controller restarts its connection counts, so this keeps the
    /// trial's counts.
    pub(super) fn update(&mut self, newer: Self) {
        let entry = match (self.entry.take(), newer.entry) {
            (before, None) => before,
            (Some(before), Some(now)) if now.stage != ON_TRIAL => {
                Some(Trial { goodput: now.goodput.or(before.goodput), stage: now.stage, ..before })
            }
            (_, now) => now,
        };
        *self = Self { entry, ..newer };
    }
}

#[derive(Deserialize)]
struct Rounds {
    rounds: Vec<Round>,
}

#[derive(Deserialize)]
struct Edges {
    #[serde(default)]
    events: Vec<RolloutEvent>,
}

/// An event of a rollout.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct RolloutEvent {
    /// Time in Unix seconds.
    pub unix_s: u64,
    /// The event in words.
    #[serde(rename = "told")]
    pub text: String,
}

#[derive(Deserialize)]
struct EdgeStats {
    bundle: Option<ActiveBundle>,
}

/// The bundle that an edge uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct ActiveBundle {
    /// Its number; `None` without a bundle.
    pub number: Option<u64>,
    /// Number of its rules.
    pub rules: Option<u64>,
}

/// A reachable controller.
#[derive(Debug, Clone, Copy)]
pub(super) struct Controller<'a> {
    pub(super) address: SocketAddr,
    pub(super) pop: &'a str,
}

impl Controller<'_> {
    /// Fetches the rounds whose windows ended after `since_unix_s`.
    pub(super) async fn rounds(self, since_unix_s: u64) -> anyhow::Result<Vec<Round>> {
        let target = format!("/rounds?pop={}&since={since_unix_s}", self.pop);
        Ok(self.get::<Rounds>(&target).await?.map(|reply| reply.rounds).unwrap_or_default())
    }

    /// Fetches the explanation of a network, which is empty before the first round.
    pub(super) async fn explain(self, prefix: &str) -> anyhow::Result<Explanation> {
        let target = format!("/explain?pop={}&prefix={}", self.pop, prefix.replace('/', "%2F"));
        Ok(self.get(&target).await?.unwrap_or_default())
    }

    /// Fetches the newest events of the PoP's rollout, in order.
    pub(super) async fn events(self) -> anyhow::Result<Vec<RolloutEvent>> {
        let reply: Option<Edges> = self.get(&format!("/edges?pop={}", self.pop)).await?;
        let mut events = reply.map(|reply| reply.events).unwrap_or_default();
        events.sort_by_key(|event| event.unix_s);
        Ok(events)
    }

    async fn get<T: DeserializeOwned>(self, target: &str) -> anyhow::Result<Option<T>> {
        get(self.address, target).await.context("controller")
    }
}

/// Fetches the bundle that an edge uses from the edge's admin interface.
pub(super) async fn active_bundle(admin: SocketAddr) -> anyhow::Result<ActiveBundle> {
    let stats: Option<EdgeStats> = get(admin, "/stats").await.context("edge")?;
    Ok(stats.and_then(|stats| stats.bundle).unwrap_or_default())
}

/// Fetches a resource. Returns `None` on status 404.
async fn get<T: DeserializeOwned>(address: SocketAddr, target: &str) -> anyhow::Result<Option<T>> {
    let mut connection = Connection::open(&address.into(), None, Timeouts::each(TIMEOUT))
        .await
        .with_context(|| format!("cannot connect to {address}"))?;
    let mut content = ContentSink::default();
    let response = connection.get("localhost", target, "Connection: close\r\n", &mut content).await;
    let exchange = response.with_context(|| target.to_owned())?;
    match exchange.status {
        200 => {}
        404 => return Ok(None),
        status => bail!("{target}: status {status}"),
    }
    ensure!(!content.is_too_long, "{target}: over {RESPONSE_BYTES_MAX} bytes");
    serde_json::from_slice(&content.bytes).with_context(|| target.to_owned())
}

/// A sink that stores the content, up to a limit.
#[derive(Debug, Default)]
struct ContentSink {
    bytes: Vec<u8>,
    is_too_long: bool,
}

impl Sink for ContentSink {
    fn is_reading(&self) -> bool {
        true
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.is_too_long |= self.bytes.len() + bytes.len() > RESPONSE_BYTES_MAX;
        if !self.is_too_long {
            self.bytes.extend_from_slice(bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(stage: &str, treated: u64, percent: Option<f64>) -> Explanation {
        let goodput = percent.map(|percent| Percent { percent, low: percent - 9.0, high: percent + 9.0 });
        let entry = Trial { treated, held_out: 7, stage: stage.into(), goodput, retransmitted: None };
        Explanation { reason: Some("slow".into()), said: None, entry: Some(entry) }
    }

    #[test]
    fn last_trial_results_are_kept() {
        let mut seen = Explanation::default();
        seen.update(explained(ON_TRIAL, 40, Some(80.0)));
        seen.update(explained("helped as a whole", 3, None));
        let entry = seen.entry.clone().expect("the trial is kept");
        assert_eq!((entry.treated, entry.goodput.map(|goodput| goodput.percent)), (40, Some(80.0)));
        seen.update(explained("helped as a whole", 5, Some(90.0)));
        seen.update(Explanation { reason: Some("cooling_off".into()), ..Explanation::default() });
        let entry = seen.entry.expect("the trial is kept");
        assert_eq!((entry.treated, entry.goodput.map(|goodput| goodput.percent)), (40, Some(90.0)));
        assert_eq!(seen.reason.as_deref(), Some("cooling_off"));
    }
}
