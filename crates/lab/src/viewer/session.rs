//! One viewer: joins, follows, sees.
//!
//! It has one connection, on which manifests, CMAF headers and segments of one track come one after the other. A segment is
//! asked for as soon as it may be there; each chunk of it counts when it has come whole.

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
use super::shared::{Seat, Shared};
use crate::load::Caller;
use crate::load::connection::Timeouts;
use crate::load::figures::Time;
use crate::load::target::Target;

/// Failures in a row after which a viewer gives up.
pub const FAILURES_MAX: u32 = 100;
/// After a failure, before the next try.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// Tries to get one segment before it is passed over.
const SEGMENT_TRIES_MAX: u32 = 5;
/// Longest CMAF header, in bytes.
const HEADER_BYTES_MAX: usize = 1 << 20;
/// What is buffered before playback starts, where neither the manifest nor the caller says.
const THRESHOLD: Duration = Duration::from_secs(1);
/// Of a longer buffer no more counts when it is judged to run low.
const JUDGED_MAX: Duration = Duration::from_secs(4);
/// Longer than that nothing is waited for: a manifest may ask for a century.
const SLEEP_MAX: Duration = Duration::from_secs(24 * 3600);
/// Manifests are not asked for more often than that.
const REFRESH_MIN: Duration = Duration::from_millis(200);

/// What one viewer is to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The MPD or playlist.
    pub target: Rc<Target>,
    /// When to join, on the run's clock.
    pub join: Duration,
    /// How far behind where the manifest wants players; on demand, where to begin.
    pub offset: Duration,
    /// The address to come from.
    pub source: Option<IpAddr>,
    /// How long what may take.
    pub timeouts: Timeouts,
    /// What CMCD calls the session.
    pub session: String,
}

/// Watches until the end of the presentation, or until there is no sense in it.
pub async fn watch(shared: Rc<Shared>, plan: Plan) {
    sleep_until(&shared, plan.join).await;
    shared.recorder.client_begins();
    // Later by a busy machine, it has still waited since.
    let joined = plan.join;
    let playhead = RefCell::new(Playhead::on_demand(
        Thresholds { startup: THRESHOLD, resume: THRESHOLD },
        Duration::ZERO,
    ));
    let seat = Rc::new(Seat {
        playhead,
        joined,
        began: Cell::new(None),
        is_dated: Cell::new(false),
        is_gone: Cell::new(false),
    });
    shared.sit_down(Rc::clone(&seat));
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
        seat,
    };
    if viewer.run().await.is_none() {
        // Its time ends here.
        viewer.tell(|playhead, now| {
            playhead.advance(now);
            None
        });
        viewer.seat.is_gone.set(true);
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
    seat: Rc<Seat>,
    caller: Caller,
    request: Vec<u8>,
    choice: Choice,
    track: usize,
    /// In a row.
    failures: u32,
    /// The CMAF header that came last, and what it says.
    header: Option<Header>,
    info: Option<Rc<TrackInfo>>,
    has_starved: bool,
    /// What it watches is live, once that is known.
    is_live: Option<bool>,
    /// Of the track, and of the best one.
    bitrates: (u64, u64),
}

/// What a request is for.
#[derive(Clone, Copy)]
enum Object<'a> {
    Manifest,
    Header,
    Segment(&'a Segment),
}

/// How far a viewer has come.
struct Course {
    presentation: Rc<Presentation>,
    /// When its manifest was read, on the run's clock, and whether it said something new.
    read: Duration,
    is_changed: bool,
    /// End of the last segment; of none yet, where to begin.
    at: Duration,
    has_begun: bool,
    /// Tries to get the next segment.
    tries: u32,
}

impl Course {
    fn is_hls(&self) -> bool {
        self.presentation.live.as_ref().is_some_and(|live| live.is_hls)
    }
}

impl Viewer {
    /// `None` if it has given up.
    async fn run(&mut self) -> Option<()> {
        let mut course = self.join().await?;
        loop {
            self.refresh_if_due(&mut course).await?;
            self.wait_for_room(&course).await;
            self.choose(&course);
            let presentation = Rc::clone(&course.presentation);
            let found = if course.has_begun {
                presentation.following(self.track, course.at)
            } else {
                presentation.containing(self.track, course.at)
            };
            match found {
                Found::Segment(segment) => self.segment(&mut course, segment).await?,
                Found::Playlist(target) => {
                    course.presentation = self.manifest(&target, &presentation).await?;
                    (course.read, course.is_changed) = (self.shared.clock.now(), true);
                }
                Found::NotYet => self.wait_for_manifest(&mut course).await?,
                Found::End => {
                    self.tell(Playhead::complete);
                    return Some(());
                }
            }
        }
    }

    /// Reads a live manifest again, if it is time.
    async fn refresh_if_due(&mut self, course: &mut Course) -> Option<()> {
        let Some(refresh) = course.presentation.live.as_ref().and_then(|live| live.refresh) else {
            return Some(());
        };
        // A media playlist is read when nothing in it is left (wait_for_manifest).
        if course.is_hls() || self.shared.clock.now() < course.read.saturating_add(refresh.max(REFRESH_MIN)) {
            return Some(());
        }
        self.refresh(course).await
    }

    async fn refresh(&mut self, course: &mut Course) -> Option<()> {
        let period = course.presentation.period(course.at).1;
        let tracks = &period.tracks;
        let target = if course.is_hls() {
            tracks[self.track.min(tracks.len() - 1)].name.clone()
        } else {
            self.plan.target.target.clone()
        };
        let presentation = Rc::clone(&course.presentation);
        course.presentation = self.manifest(&target, &presentation).await?;
        course.is_changed = !Rc::ptr_eq(&course.presentation, &presentation);
        course.read = self.shared.clock.now();
        Some(())
    }

    /// The manifest lists nothing more: it is to be read again, once it may have changed, a playlist that has not after half the time
    /// (RFC 8216bis §6.3.4).
    async fn wait_for_manifest(&mut self, course: &mut Course) -> Option<()> {
        let refresh = course.presentation.live.as_ref().and_then(|live| live.refresh);
        let interval = refresh.unwrap_or(THRESHOLD).max(REFRESH_MIN);
        let wait = if course.is_hls() && !course.is_changed { interval / 2 } else { interval };
        sleep_until(&self.shared, course.read.saturating_add(wait)).await;
        self.refresh(course).await
    }

    /// Waits while enough is buffered.
    async fn wait_for_room(&self, course: &Course) {
        if !course.has_begun {
            return;
        }
        let now = self.shared.clock.now();
        self.seat.playhead.borrow_mut().advance(now.saturating_sub(self.seat.joined));
        // Who does not play waits for media, however much there is.
        if self.seat.playhead.borrow().state() != State::Playing {
            return;
        }
        let buffered = self.seat.playhead.borrow().buffered();
        let too_much = buffered.saturating_sub(self.shared.behaviour.ahead);
        if !too_much.is_zero() {
            sleep_until(&self.shared, now.saturating_add(too_much)).await;
        }
    }

    /// Chooses the track of the next segment.
    fn choose(&mut self, course: &Course) {
        let bitrates = bitrates(&course.presentation, course.at);
        self.track = self.track.min(bitrates.len() - 1);
        self.bitrates = (bitrates[self.track], bitrates[bitrates.len() - 1]);
        if !course.has_begun || course.tries > 0 {
            return;
        }
        let wanted = match &course.presentation.live {
            Some(live) => live.latency.saturating_add(self.plan.offset).min(self.shared.behaviour.ahead),
            None => self.shared.behaviour.ahead,
        };
        let wanted = wanted.min(JUDGED_MAX);
        let buffered = self.seat.playhead.borrow().buffered();
        let chosen = self.choice.next(&bitrates, self.track, buffered, wanted);
        self.shared.recorder.viewers(|viewers| {
            viewers.switches_up += u64::from(chosen > self.track);
            viewers.switches_down += u64::from(chosen < self.track);
        });
        (self.track, self.bitrates.0) = (chosen, bitrates[chosen]);
    }

    /// Fetches a segment, after its header if that is another.
    async fn segment(&mut self, course: &mut Course, segment: Segment) -> Option<()> {
        if course.presentation.live.is_some() {
            let edge = self.live_edge(&course.presentation);
            let wait = segment.available.saturating_sub(edge);
            if !wait.is_zero() {
                // The manifest may have to be read again before.
                let refresh = course.presentation.live.as_ref().and_then(|live| live.refresh);
                let most = refresh.filter(|_| !course.is_hls()).unwrap_or(wait).max(REFRESH_MIN);
                sleep_until(&self.shared, self.shared.clock.now() + wait.min(most).min(SLEEP_MAX)).await;
                if wait > most {
                    return Some(());
                }
            }
        }
        match self.fetch(&segment).await {
            Ok(()) => {
                self.failures = 0;
                (course.at, course.has_begun, course.tries) = (segment.end(), true, 0);
                Some(())
            }
            Err(_) => {
                self.failed().await?;
                course.tries += 1;
                self.after_failure(course, &segment);
                Some(())
            }
        }
    }

    /// What has left the window is given up for the live edge; what does not come is passed over.
    fn after_failure(&mut self, course: &mut Course, segment: &Segment) {
        if let Some(live) = &course.presentation.live {
            let edge = self.live_edge(&course.presentation);
            if segment.end().saturating_add(live.window) < edge {
                let position = self.live_position(&course.presentation);
                let now = self.shared.clock.now().saturating_sub(self.seat.joined);
                self.seat.playhead.borrow_mut().rejoin(now, position);
                self.shared.recorder.viewers(|viewers| viewers.rejoins += 1);
                (course.at, course.has_begun, course.tries) = (position, false, 0);
                return;
            }
        }
        if course.tries >= SEGMENT_TRIES_MAX {
            (course.at, course.has_begun, course.tries) = (segment.end(), true, 0);
        }
    }

    /// Waits after a failure; `None` if it was one too many.
    async fn failed(&mut self) -> Option<()> {
        self.failures += 1;
        if self.failures >= FAILURES_MAX {
            return None;
        }
        tokio::time::sleep(RETRY_AFTER).await;
        Some(())
    }

    fn tell(&self, what: impl FnOnce(&mut Playhead, Duration) -> Option<Change>) {
        arrived(&self.shared, &self.seat, what);
    }

    fn arrived(&mut self, what: impl FnOnce(&mut Playhead, Duration) -> Option<Change>) {
        self.has_starved |= arrived(&self.shared, &self.seat, what);
    }
}

/// Tells the playhead, and counts what that changes; whether a stall is over.
fn arrived(
    shared: &Shared,
    seat: &Seat,
    what: impl FnOnce(&mut Playhead, Duration) -> Option<Change>,
) -> bool {
    let change = what(&mut seat.playhead.borrow_mut(), shared.clock.now().saturating_sub(seat.joined));
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
