//! Virtual playhead of one viewer and its buffer. It reads no clock: callers pass `now`, the time
//! since the viewer joined.
//!
//! Media arrives in order, as pieces of media time. Playback starts once [`Thresholds::startup`] is
//! buffered and runs at normal speed. It stalls at the exact time the buffer runs empty, even if
//! that is between two calls, and resumes once [`Thresholds::resume`] is buffered. If media is
//! missing but later media has arrived, the playhead jumps over the gap, as players do.
//!
//! **Invariant:** startup + played + stalled + ended = time since the viewer joined.
//! **Invariant:** playback stalls only if the buffer is empty, never if media arrives in time.

use std::time::Duration;

#[cfg(test)]
mod tests;

/// Maximum holes recorded separately. A further hole is merged into the last one, and the media
/// between them is dropped.
pub const HOLES_MAX: usize = 8;
/// Minimum length of a hole. Shorter gaps count as timescale rounding; dash.js and hls.js tolerate
/// 0.1 s.
pub const HOLE_MIN: Duration = Duration::from_millis(100);

/// Required buffer levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// Buffer required to start playback.
    pub startup: Duration,
    /// Buffer required to resume after a stall.
    pub resume: Duration,
}

/// States of the playhead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Waiting for the first frame.
    Starting,
    /// Showing frames.
    Playing,
    /// Waiting for media after the first frame.
    Stalled,
    /// After the last frame of the presentation.
    Ended,
}

/// Breakdown of the time since joining.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// Time from joining to the first frame.
    pub startup: Duration,
    /// Time spent playing.
    pub played: Duration,
    /// Time spent waiting for media after the first frame.
    pub stalled: Duration,
    /// Time after the last frame.
    pub ended: Duration,
    /// Number of times the buffer ran empty.
    pub stalls: u32,
    /// Duration of media skipped because it never arrived.
    pub skipped: Duration,
}

impl Account {
    /// Returns the stall ratio, stalled / (stalled + played), or 0 before the first frame.
    #[must_use]
    pub fn stall_ratio(&self) -> f64 {
        let waited = self.stalled.as_secs_f64();
        let whole = waited + self.played.as_secs_f64();
        if whole > 0.0 { waited / whole } else { 0.0 }
    }
}

/// A piece of media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Start in media time.
    pub start: Duration,
    /// Duration of the piece.
    pub duration: Duration,
}

/// A virtual playhead and its buffer.
#[derive(Debug)]
pub struct Playhead {
    thresholds: Thresholds,
    state: State,
    /// Time up to which the account is complete.
    now: Duration,
    /// Media time of the shown frame or, before the first frame, of the start of playback.
    position: Duration,
    /// Live only: the media time due at `now` minus `now`, as a sign (`true` unless negative) and a
    /// magnitude.
    intended: Option<(bool, Duration)>,
    /// End of the buffer, including holes.
    end: Duration,
    /// Unbuffered ranges of media time between `position` and `end`, in order.
    holes: Vec<(Duration, Duration)>,
    /// Whether no more media will arrive.
    is_complete: bool,
    account: Account,
    /// Time at which the current stall started.
    stall_began: Duration,
}

/// A change of state during a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Playback started; the value is the time since joining.
    Started(Duration),
    /// Playback resumed; the value is the duration of the stall.
    Resumed(Duration),
}

impl Playhead {
    /// Creates the playhead of a viewer that joins at 0 and plays from `position` on.
    #[must_use]
    pub fn on_demand(thresholds: Thresholds, position: Duration) -> Self {
        Self {
            thresholds,
            state: State::Starting,
            now: Duration::ZERO,
            position,
            intended: None,
            end: position,
            holes: Vec::new(),
            is_complete: false,
            account: Account::default(),
            stall_began: Duration::ZERO,
        }
    }

    /// Creates the playhead of a viewer that joins a live presentation at `now`, when the frame at
    /// `position` is due. When playback starts, the position advances by the startup time. This
    /// keeps the intended latency, as far as media is available.
    #[must_use]
    pub fn live(thresholds: Thresholds, now: Duration, position: Duration) -> Self {
        let ahead = position >= now;
        let mut playhead = Self::on_demand(thresholds, position);
        playhead.account.startup = now;
        playhead.now = now;
        playhead.intended = Some((ahead, position.abs_diff(now)));
        playhead
    }

    /// Returns the state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the media time of the shown frame, or of the first frame to be shown.
    #[must_use]
    pub fn position(&self) -> Duration {
        self.position
    }

    /// Returns the end of the buffer.
    #[must_use]
    pub fn end(&self) -> Duration {
        self.end
    }

    /// Returns the duration of media buffered ahead of the playhead, excluding holes.
    #[must_use]
    pub fn buffered(&self) -> Duration {
        let holes: Duration = self.holes.iter().map(|(from, to)| *to - *from).sum();
        self.end - self.position - holes
    }

    /// Returns the account as of the last call.
    #[must_use]
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Returns the time spent waiting for the first frame or in the current stall, as of the last
    /// call.
    #[must_use]
    pub fn waited(&self) -> Duration {
        match self.state {
            State::Starting => self.account.startup,
            State::Stalled => self.now - self.stall_began,
            State::Playing | State::Ended => Duration::ZERO,
        }
    }

    /// Advances the time to `now`. An earlier `now` has no effect.
    pub fn advance(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.now);
        self.now = self.now.max(now);
        match self.state {
            State::Starting => self.account.startup += passed,
            State::Stalled => self.account.stalled += passed,
            State::Ended => self.account.ended += passed,
            State::Playing => self.play(passed),
        }
    }

    /// Adds media that arrived at `now`. Media before the end of the buffer is ignored.
    pub fn arrive(&mut self, now: Duration, piece: Piece) -> Option<Change> {
        self.advance(now);
        let piece_end = piece.start.saturating_add(piece.duration);
        if piece_end > self.end {
            if piece.start.saturating_sub(self.end) >= HOLE_MIN {
                self.add_hole(piece.start);
            }
            self.end = piece_end;
        }
        self.begin()
    }

    /// Marks the media as complete: the presentation ends with the buffer.
    pub fn complete(&mut self, now: Duration) -> Option<Change> {
        self.advance(now);
        self.is_complete = true;
        self.begin()
    }

    /// Drops the buffer and continues at a live `position`, because the next media is no longer
    /// available. A playing viewer stalls, because its screen freezes. The media in between counts
    /// as skipped.
    pub fn rejoin(&mut self, now: Duration, position: Duration) {
        self.advance(now);
        if self.state == State::Playing {
            self.stall(now);
        }
        self.skip(position.saturating_sub(self.position));
        let ahead = position >= now;
        self.intended = Some((ahead, position.abs_diff(now)));
        (self.position, self.end) = (position, position);
        self.holes.clear();
    }

    fn add_hole(&mut self, to: Duration) {
        if self.holes.len() < HOLES_MAX {
            self.holes.push((self.end, to));
        } else if let Some(last) = self.holes.last_mut() {
            last.1 = to;
        }
    }

    fn play(&mut self, passed: Duration) {
        let mut left = passed;
        loop {
            let until = self.holes.first().map_or(self.end, |hole| hole.0);
            let step = left.min(until - self.position);
            self.position += step;
            self.account.played += step;
            left -= step;
            if self.position < until || (left.is_zero() && self.position < self.end) {
                return;
            }
            if self.holes.is_empty() {
                break;
            }
            self.jump();
        }
        if self.is_complete {
            self.state = State::Ended;
            self.account.ended += left;
        } else if !left.is_zero() {
            self.stall(self.now - left);
            self.account.stalled += left;
        }
    }

    /// Jumps over the first hole, which starts at the position.
    fn jump(&mut self) {
        let (from, to) = self.holes.remove(0);
        self.skip(to - from);
        self.position = to;
    }

    fn skip(&mut self, media: Duration) {
        self.account.skipped = self.account.skipped.saturating_add(media);
    }

    fn stall(&mut self, at: Duration) {
        self.state = State::Stalled;
        self.account.stalls += 1;
        self.stall_began = at;
    }

    /// Starts or resumes playback if enough is buffered.
    fn begin(&mut self) -> Option<Change> {
        let wanted = match self.state {
            State::Starting => self.thresholds.startup,
            State::Stalled => self.thresholds.resume,
            State::Playing | State::Ended => return None,
        };
        let buffered = self.buffered();
        if !self.is_complete && (buffered < wanted || buffered.is_zero()) {
            return None;
        }
        let starts = self.state == State::Starting;
        self.state = if buffered.is_zero() { State::Ended } else { State::Playing };
        if starts {
            self.catch_up(wanted);
        }
        if self.holes.first().is_some_and(|hole| hole.0 <= self.position) {
            self.jump();
        }
        Some(if starts {
            Change::Started(self.account.startup)
        } else {
            Change::Resumed(self.now - self.stall_began)
        })
    }

    /// Moves to the frame due now, or as close to it as possible while `wanted` remains buffered.
    /// The media in between was not meant to be shown, so it does not count as skipped.
    fn catch_up(&mut self, wanted: Duration) {
        let Some((ahead, distance)) = self.intended else { return };
        let intended =
            if ahead { self.now.saturating_add(distance) } else { self.now.saturating_sub(distance) };
        // Everything after the last hole is buffered.
        let from = self.holes.last().map_or(self.position, |hole| hole.1);
        let latest = self.end.saturating_sub(wanted).max(from);
        if self.holes.is_empty() || intended >= from {
            self.holes.clear();
            self.position = intended.clamp(from, latest);
        }
    }
}
