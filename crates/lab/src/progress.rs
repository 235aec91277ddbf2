//! Progress of a comparison on standard error: one line that is updated on a terminal, otherwise a
//! line per minute.

use std::io::{IsTerminal, Write, stderr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use thalweg_lab::cc::Done;

/// Interval between updates on a terminal, and between lines if standard error is not a terminal.
const SHOW_EVERY: Duration = Duration::from_secs(1);
const LINE_EVERY: Duration = Duration::from_secs(60);
/// Minimum duration that is shown in minutes.
const MINUTES_FROM: Duration = Duration::from_secs(100);

/// The progress of one run.
pub(crate) struct Progress {
    is_terminal: bool,
    started: Instant,
    /// Estimated duration, which is used until samples have been taken on each path.
    estimate: Duration,
    last: Mutex<Instant>,
}

impl Progress {
    pub(crate) fn start(estimate: Duration) -> Self {
        let started = Instant::now();
        Self { is_terminal: stderr().is_terminal(), started, estimate, last: Mutex::new(started) }
    }

    /// Shows how many samples have been taken.
    pub(crate) fn show(&self, done: Done) {
        let Ok(mut last) = self.last.try_lock() else { return };
        let every = if self.is_terminal { SHOW_EVERY } else { LINE_EVERY };
        let is_last = self.is_terminal && done.samples == done.planned;
        if last.elapsed() < every && !is_last {
            return;
        }
        *last = Instant::now();
        let elapsed = self.started.elapsed();
        let left = time_left(elapsed, done.share, self.estimate);
        let Done { samples, planned, .. } = done;
        let (elapsed, left) = (words(elapsed), words(left));
        let line = format!("{samples} of {planned} samples, {elapsed}, {left} to go");
        // Ignore errors: standard error may be closed.
        let _ = match self.is_terminal {
            true => write!(stderr(), "\r{line}   "),
            false => writeln!(stderr(), "{line}"),
        };
    }
}

impl Drop for Progress {
    /// Ends the progress line.
    fn drop(&mut self) {
        if self.is_terminal {
            let _ = writeln!(stderr());
        }
    }
}

/// Returns the time left if `share` of the work took `elapsed`.
fn time_left(elapsed: Duration, share: f64, estimate: Duration) -> Duration {
    if share > 0.0 { elapsed.mul_f64((1.0 - share) / share) } else { estimate.saturating_sub(elapsed) }
}

/// Formats a duration for people, in seconds or minutes.
pub(crate) fn words(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if duration < MINUTES_FROM { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_follows_the_slowest_path() {
        let seconds = Duration::from_secs;
        assert_eq!(time_left(seconds(30), 0.25, seconds(9)), seconds(90));
        assert_eq!(time_left(seconds(30), 0.0, seconds(90)), seconds(60));
        assert_eq!(time_left(seconds(30), 0.0, seconds(9)), Duration::ZERO);
        assert_eq!([0, 99, 100, 3000].map(|s| words(seconds(s))), ["0 s", "99 s", "2 min", "50 min"]);
    }
}
