//! Time-varying capacity: rate steps, or the packet delivery opportunities of a mahimahi trace.

use std::fmt;
use std::time::Duration;

/// Bytes per delivery opportunity in a mahimahi trace.
const OPPORTUNITY_BYTES: u64 = 1500;
/// Maximum lines in a mahimahi trace, enough for an hour at 33 Mbit/s.
const LINES_MAX: usize = 10_000_000;
/// Maximum steps in a trace, enough to change the rate every millisecond for half an hour.
const STEPS_MAX: usize = 2_000_000;
/// Maximum length of a trace.
const LENGTH_MAX: Duration = Duration::from_secs(24 * 3600);

/// A constant rate over a given duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Duration of the step; never zero.
    pub duration: Duration,
    /// Rate in bits per second, counting whole IP packets.
    pub bits_per_s: u64,
}

/// A sequence of rate steps, repeated indefinitely. At least one step has a rate above zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    steps: Vec<Step>,
}

/// An error in a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Line number, counted from one; `None` if the error concerns the whole trace.
    pub line: Option<usize>,
    /// Description of the error.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Error {}

impl Trace {
    /// Creates a trace from steps.
    ///
    /// # Errors
    ///
    /// Returns an error if a step's duration is zero, every rate is zero, or the trace is longer
    /// than a day.
    pub fn new(steps: Vec<Step>) -> Result<Self, Error> {
        let fail = |message: &str| Err(Error { line: None, message: message.to_owned() });
        if steps.iter().any(|step| step.duration.is_zero()) {
            return fail("a step has no duration");
        }
        if steps.iter().all(|step| step.bits_per_s == 0) {
            return fail("no step has a rate above zero");
        }
        if steps.iter().map(|step| step.duration).sum::<Duration>() > LENGTH_MAX {
            return fail("trace is longer than a day");
        }
        Ok(Self { steps })
    }

    /// Parses a mahimahi trace. Each line is a time in milliseconds since the start, at which one
    /// packet may pass. The last line is also the trace's length.
    ///
    /// # Errors
    ///
    /// Returns an error if a line is not a number or is below the previous line, if the trace
    /// exceeds a limit, or if no packet can pass.
    pub fn from_mahimahi(text: &str) -> Result<Self, Error> {
        let fail = |line, message: String| Err(Error { line: Some(line), message });
        let mut steps = Steps::default();
        // The current millisecond, counted from zero, and its number of packets.
        let mut open: Option<(u32, u64)> = None;
        let mut last_ms = 0;
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            if number > LINES_MAX {
                return fail(number, format!("trace has more than {LINES_MAX} lines"));
            }
            let Ok(ms) = line.trim().parse::<u32>() else {
                return fail(number, format!("expected a number of milliseconds, got {line:?}"));
            };
            if ms < last_ms {
                return fail(number, format!("{ms} ms is earlier than the previous line's {last_ms} ms"));
            }
            if u128::from(ms) > LENGTH_MAX.as_millis() {
                return fail(number, "trace is longer than a day".to_owned());
            }
            last_ms = ms;
            // An opportunity at time t belongs to the millisecond that ends at t; an opportunity at
            // zero belongs to the first millisecond.
            let at = ms.saturating_sub(1);
            let count = match open {
                Some((open_ms, count)) if open_ms == at => count,
                _ => {
                    steps.close(open, at);
                    0
                }
            };
            open = Some((at, count + 1));
            if steps.0.len() > STEPS_MAX {
                return fail(number, format!("rate changes more than {STEPS_MAX} times"));
            }
        }
        steps.close(open, last_ms);
        Self::new(steps.0)
    }

    /// Returns the steps in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the trace's length, after which it repeats.
    pub fn length(&self) -> Duration {
        self.steps.iter().map(|step| step.duration).sum()
    }

    /// Returns the trace's mean rate in bits per second.
    pub fn mean_bits_per_s(&self) -> f64 {
        self.bits_until(self.length()) / self.length().as_secs_f64()
    }

    /// Returns the number of bits that may pass between the start and `time`, which may be beyond
    /// the trace's end.
    pub fn bits_until(&self, time: Duration) -> f64 {
        let bits = |duration: Duration, step: &Step| duration.as_secs_f64() * step.bits_per_s as f64;
        let length_ns = self.length().as_nanos();
        let repeats = time.as_nanos() / length_ns;
        let mut left = Duration::from_nanos_u128(time.as_nanos() % length_ns);
        let all: f64 = self.steps.iter().map(|step| bits(step.duration, step)).sum();
        let mut sum = repeats as f64 * all;
        for step in &self.steps {
            let now = left.min(step.duration);
            sum += bits(now, step);
            left -= now;
        }
        sum
    }
}

/// Steps of a mahimahi trace being parsed. Consecutive milliseconds with the same rate share a
/// step, so a long idle trace stays small.
#[derive(Default)]
struct Steps(Vec<Step>);

impl Steps {
    /// Appends the current millisecond with its packets, then empty milliseconds up to `until_ms`.
    fn close(&mut self, open: Option<(u32, u64)>, until_ms: u32) {
        let mut from_ms = 0;
        if let Some((at, packets)) = open {
            self.push(1, packets);
            from_ms = at + 1;
        }
        self.push(until_ms.saturating_sub(from_ms), 0);
    }

    fn push(&mut self, length_ms: u32, packets: u64) {
        let duration = Duration::from_millis(u64::from(length_ms));
        let bits_per_s = packets * OPPORTUNITY_BYTES * 8 * 1000;
        match self.0.last_mut() {
            _ if duration.is_zero() => {}
            Some(last) if last.bits_per_s == bits_per_s => last.duration += duration,
            _ => self.0.push(Step { duration, bits_per_s }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn mahimahi_trace_becomes_steps() {
        // Two packets pass in the first millisecond, one in each of the next two, none in the
        // fourth, and one in the fifth.
        let trace = Trace::from_mahimahi("1\n1\n2\n3\n5\n").unwrap();
        let steps = [(1, 24), (2, 12), (1, 0), (1, 12)];
        let steps =
            steps.map(|(length_ms, mbit)| Step { duration: ms(length_ms), bits_per_s: mbit * 1_000_000 });
        assert_eq!(trace.steps(), steps);
        assert_eq!(trace.mean_bits_per_s(), 5.0 * 12_000.0 / 0.005);
        assert_eq!(trace.bits_until(ms(1)), 24_000.0);
        assert_eq!(trace.bits_until(ms(11)), 2.0 * 60_000.0 + 24_000.0);
    }

    #[test]
    fn invalid_traces_are_rejected() {
        let error = |text| Trace::from_mahimahi(text).unwrap_err().to_string();
        assert_eq!(error(""), "no step has a rate above zero");
        assert_eq!(error("1\nx\n"), "line 2: expected a number of milliseconds, got \"x\"");
        assert_eq!(error("2\n1\n"), "line 2: 1 ms is earlier than the previous line's 2 ms");
        assert_eq!(error("90000000\n"), "line 1: trace is longer than a day");
        let step = |bits_per_s, length_ms| Step { duration: ms(length_ms), bits_per_s };
        assert_eq!(Trace::new(vec![step(1, 0)]).unwrap_err().to_string(), "a step has no duration");
        assert_eq!(Trace::new(vec![step(0, 1)]).unwrap_err().to_string(), "no step has a rate above zero");
    }

    #[test]
    fn trace_size_is_its_number_of_rate_changes() {
        let trace = Trace::from_mahimahi("86400000\n86400000\n").unwrap();
        let steps = [(86_399_999, 0), (1, 24_000_000)];
        assert_eq!(
            trace.steps(),
            steps.map(|(length_ms, bits_per_s)| Step { duration: ms(length_ms), bits_per_s })
        );
        // A packet passes only in every other millisecond.
        let text: String = (1..=1_000_001).map(|line: u64| format!("{}\n", 2 * line)).collect();
        let error = Trace::from_mahimahi(&text).unwrap_err().to_string();
        assert_eq!(error, "line 1000001: rate changes more than 2000000 times");
    }

    proptest! {
        #[test]
        fn every_opportunity_counts(mut lines in prop::collection::vec(1u32..500, 1..200)) {
            lines.sort_unstable();
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let trace = Trace::from_mahimahi(&text).unwrap();
            prop_assert_eq!(trace.length(), ms(u64::from(*lines.last().unwrap())));
            let bits = lines.len() as f64 * 12_000.0;
            prop_assert!((trace.bits_until(trace.length()) - bits).abs() < 1.0);
        }

        #[test]
        fn parsing_never_panics(text in ".*") {
            let _ = Trace::from_mahimahi(&text);
        }
    }
}
