//! The virtual playhead of one viewer and the buffer before it. Pure: `now` is given, as time since the viewer joined.
//!
//! Media comes as pieces of media time, in order. Playback starts once [`Thresholds::startup`] is buffered, runs at
//! speed 1, stalls the very moment the buffer is empty, wherever between two calls that lies, and goes on once
//! [`Thresholds::resume`] is buffered. Where media is missing and later media is there the playhead jumps, as players do
//! over a gap in their source buffer.
//!
//! **Invariant:** startup + played + stalled + ended = time since the viewer joined.
//! **Invariant:** media that comes in time never stalls: only an empty buffer does.

use std::time::Duration;

#[cfg(test)]
mod tests;

/// Holes in the buffer that are remembered one by one. What comes behind one more is let go, up to the next hole's end.
pub const HOLES_MAX: usize = 8;
/// Less than this between two pieces is the rounding of timescales, no hole: dash.js and hls.js let 0.1 s pass.
pub const HOLE_MIN: Duration = Duration::from_millis(100);

/// How much has to be buffered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// For playback to start.
    pub startup: Duration,
    /// For playback to go on after a stall.
    pub resume: Duration,
}

/// What the playhead does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It waits for the first frame.
    Starting,
    /// It shows frames.
    Playing,
    /// It waits for media, and the viewer did not cause that.
    Stalled,
    /// It has shown the last frame of the presentation.
    Ended,
}

/// What became of the time since the viewer joined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// From joining to the first frame.
    pub startup: Duration,
    /// While frames were shown.
    pub played: Duration,
    /// While media was waited for after the first frame.
    pub stalled: Duration,
    /// After the last frame.
    pub ended: Duration,
    /// How often the buffer ran empty.
    pub stalls: u32,
    /// Media time that was jumped over, as it never came.
    pub skipped: Duration,
}

impl Account {
    /// stalled / (stalled + played); 0 before the first frame.
    #[must_use]
    pub fn stall_ratio(&self) -> f64 {
        let waited = self.stalled.as_secs_f64();
        let whole = waited + self.played.as_secs_f64();
        if whole > 0.0 { waited / whole } else { 0.0 }
    }
}

/// A piece of a track's media time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins on the presentation's line of time.
    pub start: Duration,
    /// How long it is.
    pub duration: Duration,
}

/// A virtual playhead and its buffer.
#[derive(Debug)]
pub struct Playhead {
    thresholds: Thresholds,
    state: State,
    /// Up to when everything is accounted for.
    now: Duration,
    /// The frame that is shown; before the first, where media is wanted from.
    position: Duration,
    /// For live: the frame that is to be shown at `now` is `now + intended`, a distance that may be negative.
    intended: Option<(bool, Duration)>,
    /// End of what is buffered, holes included.
    end: Duration,
    /// Media times from..to between position and end that are not buffered, in order.
    holes: Vec<(Duration, Duration)>,
    /// No more media will come.
    is_complete: bool,
    account: Account,
    /// When the stall that is going on began.
    stall_began: Duration,
}

/// What a call has found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The first frame is shown, so long after joining.
    Started(Duration),
    /// A stall is over that lasted so long.
    Resumed(Duration),
}

impl Playhead {
    /// A viewer that joins at 0 and shows the presentation from `position` on.
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

    /// A viewer that joins a live presentation at `now`, at a `position`: the frame that is to be shown then. Startup moves
    /// it on by the time that it takes, so that the latency stays what is intended, as far as media is there.
    #[must_use]
    pub fn live(thresholds: Thresholds, now: Duration, position: Duration) -> Self {
        let ahead = position >= now;
        let mut playhead = Self::on_demand(thresholds, position);
        playhead.account.startup = now;
        playhead.now = now;
        playhead.intended = Some((ahead, position.abs_diff(now)));
        playhead
    }

    /// What it does.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// The media time of the frame that is shown, or will be first.
    #[must_use]
    pub fn position(&self) -> Duration {
        self.position
    }

    /// The end of what is buffered.
    #[must_use]
    pub fn end(&self) -> Duration {
        self.end
    }

    /// What is buffered of media before the playhead, without holes.
    #[must_use]
    pub fn buffered(&self) -> Duration {
        let holes: Duration = self.holes.iter().map(|(from, to)| *to - *from).sum();
        self.end - self.position - holes
    }

    /// What became of the time up to the last call.
    #[must_use]
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// How long it has waited by the last call, for its first frame or in this stall.
    #[must_use]
    pub fn waited(&self) -> Duration {
        match self.state {
            State::Starting => self.account.startup,
            State::Stalled => self.now - self.stall_began,
            State::Playing | State::Ended => Duration::ZERO,
        }
    }

    /// Lets the time pass up to `now`. An earlier `now` than before changes nothing.
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

    /// Media has come at `now`. What lies before the end of the buffer is known already and changes nothing.
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

    /// No more media comes: the presentation ends with what is buffered.
    pub fn complete(&mut self, now: Duration) -> Option<Change> {
        self.advance(now);
        self.is_complete = true;
        self.begin()
    }

    /// Drops what is buffered and goes on at a live `position`: what the viewer was to see next is no longer to be had.
    /// Playing goes over into a stall, as the screen stands still; what is skipped counts as such.
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

    /// Over the first hole, which begins at the position.
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

    /// Shows frames, if it waits for them and enough is there.
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

    /// Moves on to the frame that is to be shown now, as far as `wanted` stays buffered. What it passes was never to be
    /// shown.
    fn catch_up(&mut self, wanted: Duration) {
        let Some((ahead, distance)) = self.intended else { return };
        let intended =
            if ahead { self.now.saturating_add(distance) } else { self.now.saturating_sub(distance) };
        // Behind the last hole all is buffered.
        let from = self.holes.last().map_or(self.position, |hole| hole.1);
        let latest = self.end.saturating_sub(wanted).max(from);
        if self.holes.is_empty() || intended >= from {
            self.holes.clear();
            self.position = intended.clamp(from, latest);
        }
    }
}
