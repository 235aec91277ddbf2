//! Capacity that changes with time: steps of a rate, or the packet opportunities of a mahimahi trace.

use std::fmt;
use std::time::Duration;

/// What a mahimahi trace lets pass with each line: one packet of the largest size, in bytes.
const OPPORTUNITY_BYTES: u64 = 1500;
/// Lines of a mahimahi trace: an hour at 33 Mbit/s.
const LINES_MAX: usize = 10_000_000;
/// Steps of a trace: half an hour in which the rate is another with every millisecond.
const STEPS_MAX: usize = 2_000_000;
/// A trace may last so long.
const LENGTH_MAX: Duration = Duration::from_secs(24 * 3600);

/// So much capacity for so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Not zero.
    pub duration: Duration,
    /// Bits per second, of IP packets.
    pub bits_per_s: u64,
}

/// Steps one after the other, and then from the first again. Something passes at some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    steps: Vec<Step>,
}

/// Why a text is no trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The line, from one; `None` where it is the whole.
    pub line: Option<usize>,
    /// What is wrong with it.
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
    /// # Errors
    /// If there is no step, one takes no time, or nothing ever passes.
    pub fn new(steps: Vec<Step>) -> Result<Self, Error> {
        let fail = |message: &str| Err(Error { line: None, message: message.to_owned() });
        if steps.iter().any(|step| step.duration.is_zero()) {
            return fail("a step takes no time");
        }
        if steps.iter().all(|step| step.bits_per_s == 0) {
            return fail("nothing ever passes");
        }
        if steps.iter().map(|step| step.duration).sum::<Duration>() > LENGTH_MAX {
            return fail("it takes longer than a day");
        }
        Ok(Self { steps })
    }

    /// Reads a mahimahi trace: on each line the millisecond, from the start, at which one packet may pass; the last line is
    /// also the length of the trace.
    ///
    /// # Errors
    /// If a line is no number or is less than the one before, or if nothing passes.
    pub fn from_mahimahi(text: &str) -> Result<Self, Error> {
        let fail = |line, message: String| Err(Error { line: Some(line), message });
        let mut steps = Steps::default();
        // The millisecond, from zero, whose packets are being counted, and how many these are.
        let mut open: Option<(u32, u64)> = None;
        let mut last_ms = 0;
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            if number > LINES_MAX {
                return fail(number, format!("more than {LINES_MAX} lines"));
            }
            let Ok(ms) = line.trim().parse::<u32>() else {
                return fail(number, format!("{line:?} is no number of milliseconds"));
            };
            if ms < last_ms {
                return fail(number, format!("{ms} comes after {last_ms}"));
            }
            if u128::from(ms) > LENGTH_MAX.as_millis() {
                return fail(number, "it takes longer than a day".to_owned());
            }
            last_ms = ms;
            // What passes at the millisecond that ends the trace passes in the one before it, as at its start.
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
                return fail(number, format!("the rate changes more than {STEPS_MAX} times"));
            }
        }
        steps.close(open, last_ms);
        Self::new(steps.0)
    }

    /// The steps in their order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// How long it lasts before it begins anew.
    pub fn length(&self) -> Duration {
        self.steps.iter().map(|step| step.duration).sum()
    }

    /// Bits per second over its whole length.
    pub fn mean_bits_per_s(&self) -> f64 {
        self.bits_until(self.length()) / self.length().as_secs_f64()
    }

    /// Bits that may have passed from its start until `time`, which may lie beyond its end.
    pub fn bits_until(&self, time: Duration) -> f64 {
        let bits = |duration: Duration, step: &Step| duration.as_secs_f64() * step.bits_per_s as f64;
        let length_ns = self.length().as_nanos();
        let whole = time.as_nanos() / length_ns;
        let mut left = Duration::from_nanos_u128(time.as_nanos() % length_ns);
        let all: f64 = self.steps.iter().map(|step| bits(step.duration, step)).sum();
        let mut sum = whole as f64 * all;
        for step in &self.steps {
            let now = left.min(step.duration);
            sum += bits(now, step);
            left -= now;
        }
        sum
    }
}

/// Steps of a mahimahi trace as they are read: as many as there are changes, however long it is.
#[derive(Default)]
struct Steps(Vec<Step>);

impl Steps {
    /// Appends the millisecond with its packets, and those without any until `until_ms`.
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
    fn mahimahi() {
        // Two packets in the first millisecond, one in each of the next two, then none until the fifth's.
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
    fn what_is_no_trace() {
        let error = |text| Trace::from_mahimahi(text).unwrap_err().to_string();
        assert_eq!(error(""), "nothing ever passes");
        assert_eq!(error("1\nx\n"), "line 2: \"x\" is no number of milliseconds");
        assert_eq!(error("2\n1\n"), "line 2: 1 comes after 2");
        assert_eq!(error("90000000\n"), "line 1: it takes longer than a day");
        let step = |bits_per_s, length_ms| Step { duration: ms(length_ms), bits_per_s };
        assert_eq!(Trace::new(vec![step(1, 0)]).unwrap_err().to_string(), "a step takes no time");
        assert_eq!(Trace::new(vec![step(0, 1)]).unwrap_err().to_string(), "nothing ever passes");
    }

    #[test]
    fn a_long_trace_takes_as_much_as_it_changes() {
        let trace = Trace::from_mahimahi("86400000\n86400000\n").unwrap();
        let steps = [(86_399_999, 0), (1, 24_000_000)];
        assert_eq!(
            trace.steps(),
            steps.map(|(length_ms, bits_per_s)| Step { duration: ms(length_ms), bits_per_s })
        );
        // Something passes in every other millisecond only.
        let text: String = (1..=1_000_001).map(|line: u64| format!("{}\n", 2 * line)).collect();
        let error = Trace::from_mahimahi(&text).unwrap_err().to_string();
        assert_eq!(error, "line 1000001: the rate changes more than 2000000 times");
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
        fn reading_never_panics(text in ".*") {
            let _ = Trace::from_mahimahi(&text);
        }
    }
}
