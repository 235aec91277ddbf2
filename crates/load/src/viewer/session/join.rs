//! Joining a presentation: the clock determines the viewer's start position.

use std::rc::Rc;
use std::time::Duration;

use super::super::manifest::{Found, Presentation, hls};
use super::super::playhead::{Playhead, Thresholds};
use super::{Object, Progress, THRESHOLD, Viewer, bitrates};

/// Maximum length of a response with the server's time.
const CLOCK_BYTES_MAX: usize = 64;

impl Viewer {
    /// Fetches the manifest and sets the start position.
    pub(super) async fn join(&mut self) -> Option<Progress> {
        let target = Rc::clone(&self.plan.target);
        let nothing = Rc::new(hls::unread(Vec::new()));
        let mut presentation = self.manifest(&target.target, &nothing).await?;
        self.track = self.choice.first(&bitrates(&presentation, Duration::ZERO));
        // In HLS, the media playlists determine whether the presentation is live.
        if let Found::Playlist(target) = presentation.containing(self.track, Duration::ZERO) {
            presentation = self.manifest(&target, &presentation).await?;
        }
        if let Some(clock) = presentation.live.as_ref().and_then(|live| live.clock.clone()) {
            self.set_clock(&clock).await;
        }
        self.is_live = Some(presentation.live.is_some());
        let at = self.set_start(&presentation);
        let read = self.shared.clock.now();
        self.track = self.choice.first(&bitrates(&presentation, at));
        Some(Progress { presentation, read, is_changed: true, at, has_begun: false, tries: 0 })
    }

    /// Sets up the playhead and returns the start position.
    pub(super) fn set_start(&mut self, presentation: &Presentation) -> Duration {
        let now = self.shared.clock.now().saturating_sub(self.state.joined);
        let wanted = match self.shared.behaviour.threshold {
            Some(threshold) => threshold,
            None if presentation.buffer.is_zero() => THRESHOLD,
            None => presentation.buffer,
        };
        let (position, playhead) = match &presentation.live {
            None => {
                let end = presentation.periods.last().and_then(|period| period.end);
                let position = if end.is_some_and(|end| end <= self.plan.offset) {
                    Duration::ZERO
                } else {
                    self.plan.offset
                };
                let thresholds = Thresholds { startup: wanted, resume: wanted };
                (position, Playhead::on_demand(thresholds, position))
            }
            Some(live) => {
                // At low latency, only part of the latency can be buffered.
                let threshold = wanted.min(live.latency / 2);
                let position = self.live_position(presentation);
                self.state.began.set(Some(self.start_on_local_clock(presentation)));
                self.state.is_dated.set(live.is_dated);
                let thresholds = Thresholds { startup: threshold, resume: threshold };
                (position, Playhead::live(thresholds, now, position))
            }
        };
        let mut playhead = playhead;
        playhead.advance(now);
        *self.state.playhead.borrow_mut() = playhead;
        position
    }

    /// Returns the media time at the live edge.
    pub(super) fn live_edge(&self, presentation: &Presentation) -> Duration {
        self.shared.clock.wall().saturating_sub(self.start_on_local_clock(presentation))
    }

    /// Returns the local clock's time at media time 0.
    pub(super) fn start_on_local_clock(&self, presentation: &Presentation) -> Duration {
        let Some(live) = &presentation.live else { return Duration::ZERO };
        let ahead = live
            .clock
            .as_ref()
            .and_then(|clock| self.shared.clocks.borrow().get(clock).map(|(_, ahead)| *ahead));
        match ahead {
            Some(us @ 0..) => live.began.saturating_sub(Duration::from_micros(us.unsigned_abs())),
            Some(us) => live.began.saturating_add(Duration::from_micros(us.unsigned_abs())),
            None => live.began,
        }
    }

    /// Returns the media time of the frame that this viewer should see now, limited to the DVR
    /// window.
    pub(super) fn live_position(&self, presentation: &Presentation) -> Duration {
        let Some(live) = &presentation.live else { return Duration::ZERO };
        let edge = self.live_edge(presentation);
        let behind = live.latency.saturating_add(self.plan.offset).min(live.window);
        let first = presentation.periods[0].start;
        edge.saturating_sub(behind).max(first)
    }

    /// Fetches the server's time and stores its difference from the local clock. A difference
    /// smaller than the request's duration counts as zero. Of several responses, the quickest is
    /// used.
    pub(super) async fn set_clock(&mut self, target: &str) {
        if self.shared.clocks.borrow().contains_key(target) {
            return;
        }
        let requested_at = self.shared.clock.wall();
        let mut text = Vec::new();
        let reply = self.get(target, Object::Manifest, None, |_, content| {
            text.extend_from_slice(&content[..content.len().min(CLOCK_BYTES_MAX.saturating_sub(text.len()))]);
        });
        if reply.await.is_err() {
            return;
        }
        let took = self.shared.clock.wall() - requested_at;
        let server = str::from_utf8(&text).ok().and_then(|text| quick_m3u8::date::parse(text.trim()).ok());
        let Some(server) = server else { return };
        // A time in whole seconds is uncertain by up to one second.
        let unsure = if text.contains(&b'.') { Duration::ZERO } else { Duration::from_secs(1) };
        let ours = i64::try_from((requested_at + took / 2).as_micros()).unwrap_or(i64::MAX);
        let server_us = server.timestamp_micros().saturating_add((unsure / 2).as_micros() as i64);
        let ahead = server_us.saturating_sub(ours);
        let is_significant = u128::from(ahead.unsigned_abs()) > (took + unsure / 2).as_micros();
        let ahead = if is_significant { ahead } else { 0 };
        let mut clocks = self.shared.clocks.borrow_mut();
        let known = clocks.entry(target.to_owned()).or_insert((took, ahead));
        if took < known.0 {
            *known = (took, ahead);
        }
    }
}
