//! One viewer: joins a presentation, fetches its segments and plays them.
//!
//! A viewer fetches manifests, CMAF headers and the segments of one track one after another over a
//! single connection. It requests a segment as soon as the segment may be available. Each chunk
//! counts as soon as it is complete.

mod join;
mod requests;

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use thalweg_media::track::TrackInfo;

use super::choice::Choice;
use super::manifest::{Found, Header, Presentation, Segment};
use super::playhead::{Change, Playhead, State, Thresholds};
use super::shared::{Shared, ViewerState};
use crate::Caller;
use crate::connection::Timeouts;
use crate::figures::Time;
use crate::target::Target;

/// Consecutive failures after which a viewer gives up.
pub const FAILURES_MAX: u32 = 100;
/// Pause after a failure.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// Attempts to fetch a segment before skipping it.
const SEGMENT_TRIES_MAX: u32 = 5;
/// Maximum CMAF header size in bytes.
const HEADER_BYTES_MAX: usize = 1 << 20;
/// Default buffer before playback starts, if neither the manifest nor the caller sets it.
const THRESHOLD: Duration = Duration::from_secs(1);
/// Maximum target buffer used to decide whether the buffer is low.
const JUDGED_MAX: Duration = Duration::from_secs(4);
/// Maximum wait, whatever interval a manifest specifies.
const SLEEP_MAX: Duration = Duration::from_secs(24 * 3600);
/// Minimum interval between manifest requests.
const REFRESH_MIN: Duration = Duration::from_millis(200);

/// Settings of one viewer.
#[derive(Debug, Clone)]
pub struct Plan {
    /// MPD or playlist to request.
    pub target: Rc<Target>,
    /// Time at which to join, on the run's clock.
    pub join: Duration,
    /// Additional distance behind the manifest's target latency; on demand, the start position.
    pub offset: Duration,
    /// Source address.
    pub source: Option<IpAddr>,
    /// Time limits.
    pub timeouts: Timeouts,
    /// Session id for CMCD.
    pub session: String,
}

/// Runs a viewer until the presentation ends or the viewer gives up.
pub async fn watch(shared: Rc<Shared>, plan: Plan) {
    sleep_until(&shared, plan.join).await;
    shared.recorder.client_begins();
    // Count startup from the planned time, even if a busy machine starts the viewer late.
    let joined = plan.join;
    let playhead = RefCell::new(Playhead::on_demand(
        Thresholds { startup: THRESHOLD, resume: THRESHOLD },
        Duration::ZERO,
    ));
    let state = Rc::new(ViewerState {
        playhead,
        joined,
        began: Cell::new(None),
        is_dated: Cell::new(false),
        is_gone: Cell::new(false),
    });
    shared.register(Rc::clone(&state));
    let mut viewer = Viewer {
        caller: Caller::new(plan.source, plan.timeouts, shared.recorder.clone()),
        request: Vec::new(),
        choice: Choice::default(),
        track: 0,
        failures: 0,
        header: None,
        info: None,
        has_starved: false,
        is_live: None,
        bitrates: (0, 0),
        shared,
        plan,
        state,
    };
    if viewer.run().await.is_none() {
        // Count the played and stalled time up to now.
        viewer.update(|playhead, now| {
            playhead.advance(now);
            None
        });
        viewer.state.is_gone.set(true);
    }
    viewer.shared.recorder.client_ends();
}

async fn sleep_until(shared: &Shared, at: Duration) {
    let at = at.min(shared.clock.now() + SLEEP_MAX);
    tokio::time::sleep_until((shared.clock.began + at).into()).await;
}

struct Viewer {
    shared: Rc<Shared>,
    plan: Plan,
    state: Rc<ViewerState>,
    caller: Caller,
    request: Vec<u8>,
    choice: Choice,
    track: usize,
    /// Consecutive failures.
    failures: u32,
    /// The last CMAF header; `info` is its parsed form.
    header: Option<Header>,
    info: Option<Rc<TrackInfo>>,
    has_starved: bool,
    /// Whether the presentation is live, once known.
    is_live: Option<bool>,
    /// Bitrates of the current and the best track.
    bitrates: (u64, u64),
}

/// The purpose of a request.
#[derive(Clone, Copy)]
enum Object<'a> {
    Manifest,
    Header,
    Segment(&'a Segment),
}

impl Object<'_> {
    /// Returns the time to record for complete responses, besides TTFB and TTLB.
    fn time(self) -> Option<Time> {
        match self {
            Self::Manifest => Some(Time::Manifest),
            Self::Header => None,
            Self::Segment(_) => Some(Time::Segment),
        }
    }
}

/// Position of a viewer in its presentation.
struct Progress {
    presentation: Rc<Presentation>,
    /// Time at which the manifest was last read, on the run's clock.
    read: Duration,
    /// Whether the manifest had changed when it was last read.
    is_changed: bool,
    /// End of the last segment or, before the first segment, the start position.
    at: Duration,
    has_begun: bool,
    /// Attempts to fetch the next segment.
    tries: u32,
}

impl Progress {
    fn is_hls(&self) -> bool {
        self.presentation.live.as_ref().is_some_and(|live| live.is_hls)
    }
}

impl Viewer {
    /// Watches until the presentation ends. Returns `None` if the viewer gives up.
    async fn run(&mut self) -> Option<()> {
        let mut progress = self.join().await?;
        loop {
            self.refresh_if_due(&mut progress).await?;
            self.wait_for_room(&progress).await;
            self.choose(&progress);
            let presentation = Rc::clone(&progress.presentation);
            let found = if progress.has_begun {
                presentation.following(self.track, progress.at)
            } else {
                presentation.containing(self.track, progress.at)
            };
            match found {
                Found::Segment(segment) => self.segment(&mut progress, segment).await?,
                Found::Playlist(target) => {
                    progress.presentation = self.manifest(&target, &presentation).await?;
                    (progress.read, progress.is_changed) = (self.shared.clock.now(), true);
                }
                Found::NotYet => self.wait_for_manifest(&mut progress).await?,
                Found::End => {
                    self.update(Playhead::complete);
                    return Some(());
                }
            }
        }
    }

    /// Reloads a live manifest if due.
    async fn refresh_if_due(&mut self, progress: &mut Progress) -> Option<()> {
        let Some(refresh) = progress.presentation.live.as_ref().and_then(|live| live.refresh) else {
            return Some(());
        };
        // A media playlist is reloaded when its segments are used up (wait_for_manifest).
        if progress.is_hls()
            || self.shared.clock.now() < progress.read.saturating_add(refresh.max(REFRESH_MIN))
        {
            return Some(());
        }
        self.refresh(progress).await
    }

    async fn refresh(&mut self, progress: &mut Progress) -> Option<()> {
        let period = progress.presentation.period(progress.at).1;
        let tracks = &period.tracks;
        let target = if progress.is_hls() {
            tracks[self.track.min(tracks.len() - 1)].name.clone()
        } else {
            self.plan.target.target.clone()
        };
        let presentation = Rc::clone(&progress.presentation);
        progress.presentation = self.manifest(&target, &presentation).await?;
        progress.is_changed = !Rc::ptr_eq(&progress.presentation, &presentation);
        progress.read = self.shared.clock.now();
        Some(())
    }

    /// Waits until the manifest may list more segments, then reloads it. An unchanged playlist is
    /// reloaded after half the interval (RFC 8216bis §6.3.4).
    async fn wait_for_manifest(&mut self, progress: &mut Progress) -> Option<()> {
        let refresh = progress.presentation.live.as_ref().and_then(|live| live.refresh);
        let interval = refresh.unwrap_or(THRESHOLD).max(REFRESH_MIN);
        let wait = if progress.is_hls() && !progress.is_changed { interval / 2 } else { interval };
        sleep_until(&self.shared, progress.read.saturating_add(wait)).await;
        self.refresh(progress).await
    }

    /// Waits while enough is buffered.
    async fn wait_for_room(&self, progress: &Progress) {
        if !progress.has_begun {
            return;
        }
        let now = self.shared.clock.now();
        self.state.playhead.borrow_mut().advance(now.saturating_sub(self.state.joined));
        // A viewer that is not playing needs more media, however much is buffered.
        if self.state.playhead.borrow().state() != State::Playing {
            return;
        }
        let buffered = self.state.playhead.borrow().buffered();
        let too_much = buffered.saturating_sub(self.shared.behaviour.ahead);
        if !too_much.is_zero() {
            sleep_until(&self.shared, now.saturating_add(too_much)).await;
        }
    }

    /// Selects the track for the next segment.
    fn choose(&mut self, progress: &Progress) {
        let bitrates = bitrates(&progress.presentation, progress.at);
        self.track = self.track.min(bitrates.len() - 1);
        self.bitrates = (bitrates[self.track], bitrates[bitrates.len() - 1]);
        if !progress.has_begun || progress.tries > 0 {
            return;
        }
        let wanted = match &progress.presentation.live {
            Some(live) => live.latency.saturating_add(self.plan.offset).min(self.shared.behaviour.ahead),
            None => self.shared.behaviour.ahead,
        };
        let wanted = wanted.min(JUDGED_MAX);
        let buffered = self.state.playhead.borrow().buffered();
        let chosen = self.choice.next(&bitrates, self.track, buffered, wanted);
        self.shared.recorder.viewers(|viewers| {
            viewers.switches_up += u64::from(chosen > self.track);
            viewers.switches_down += u64::from(chosen < self.track);
        });
        (self.track, self.bitrates.0) = (chosen, bitrates[chosen]);
    }

    /// Fetches a segment, preceded by its CMAF header if that differs from the last one.
    async fn segment(&mut self, progress: &mut Progress, segment: Segment) -> Option<()> {
        if progress.presentation.live.is_some() {
            let edge = self.live_edge(&progress.presentation);
            let wait = segment.available.saturating_sub(edge);
            if !wait.is_zero() {
                // Wait at most until the manifest must be reloaded.
                let refresh = progress.presentation.live.as_ref().and_then(|live| live.refresh);
                let most = refresh.filter(|_| !progress.is_hls()).unwrap_or(wait).max(REFRESH_MIN);
                sleep_until(&self.shared, self.shared.clock.now() + wait.min(most).min(SLEEP_MAX)).await;
                if wait > most {
                    return Some(());
                }
            }
        }
        match self.fetch(&segment).await {
            Ok(()) => {
                self.failures = 0;
                (progress.at, progress.has_begun, progress.tries) = (segment.end(), true, 0);
                Some(())
            }
            Err(_) => {
                self.failed().await?;
                progress.tries += 1;
                self.after_failure(progress, &segment);
                Some(())
            }
        }
    }

    /// Rejoins at the live position if the segment has left the DVR window. Otherwise skips the
    /// segment after too many attempts.
    fn after_failure(&mut self, progress: &mut Progress, segment: &Segment) {
        if let Some(live) = &progress.presentation.live {
            let edge = self.live_edge(&progress.presentation);
            if segment.end().saturating_add(live.window) < edge {
                let position = self.live_position(&progress.presentation);
                let now = self.shared.clock.now().saturating_sub(self.state.joined);
                self.state.playhead.borrow_mut().rejoin(now, position);
                self.shared.recorder.viewers(|viewers| viewers.rejoins += 1);
                (progress.at, progress.has_begun, progress.tries) = (position, false, 0);
                return;
            }
        }
        if progress.tries >= SEGMENT_TRIES_MAX {
            (progress.at, progress.has_begun, progress.tries) = (segment.end(), true, 0);
        }
    }

    /// Waits after a failure. Returns `None` after too many consecutive failures.
    async fn failed(&mut self) -> Option<()> {
        self.failures += 1;
        if self.failures >= FAILURES_MAX {
            return None;
        }
        tokio::time::sleep(RETRY_AFTER).await;
        Some(())
    }

    fn update(&self, what: impl FnOnce(&mut Playhead, Duration) -> Option<Change>) {
        arrived(&self.shared, &self.state, what);
    }

    fn media_arrived(&mut self, what: impl FnOnce(&mut Playhead, Duration) -> Option<Change>) {
        self.has_starved |= arrived(&self.shared, &self.state, what);
    }
}

/// Updates the playhead and records any change. Returns whether a stall ended.
fn arrived(
    shared: &Shared,
    state: &ViewerState,
    what: impl FnOnce(&mut Playhead, Duration) -> Option<Change>,
) -> bool {
    let change = what(&mut state.playhead.borrow_mut(), shared.clock.now().saturating_sub(state.joined));
    match change {
        Some(Change::Started(startup)) => shared.recorder.viewer_time(Time::Startup, startup),
        Some(Change::Resumed(stall)) => shared.recorder.viewer_time(Time::Stall, stall),
        None => {}
    }
    matches!(change, Some(Change::Resumed(_)))
}

fn bitrates(presentation: &Presentation, at: Duration) -> Vec<u64> {
    presentation.period(at).1.tracks.iter().map(|track| track.bitrate).collect()
}
