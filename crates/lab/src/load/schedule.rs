//! When clients start and when requests are due. Pure: times since the start of the run.

use std::str::FromStr;
use std::time::Duration;

use thalweg_record::units::Span;

/// Clients of one process; a process has no more ports and files than this.
pub const CLIENTS_MAX: usize = 1_000_000;
/// Requests a second of one process.
pub const RATE_PER_S_MAX: u64 = 10_000_000;

/// Clients that start together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Since the start of the run.
    pub at: Duration,
    /// How many.
    pub clients: usize,
}

/// All clients of a run, in the order in which they start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Population {
    starts: Vec<Duration>,
}

/// `20/5s..600`: 20 clients at once and 20 more each 5 s, up to 600.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ramp {
    step: usize,
    every: Duration,
    up_to: usize,
}

/// `500@30s`: 500 clients, all at once, after 30 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Storm(pub Batch);

/// `5000/s`, `90/min`: requests in a span of time, evenly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    requests: u64,
    span: Duration,
}

impl Population {
    /// `clients` evenly within some time from the start, then those of the ramp and of the storms.
    ///
    /// # Errors
    /// There is none, or more than [`CLIENTS_MAX`].
    pub fn new(
        clients: usize,
        within: Duration,
        ramp: Option<Ramp>,
        storms: &[Storm],
    ) -> Result<Self, String> {
        let mut batches: Vec<Batch> = ramp.iter().flat_map(Ramp::batches).collect();
        batches.extend(storms.iter().map(|storm| storm.0));
        let total = batches.iter().fold(clients, |sum, batch| sum.saturating_add(batch.clients));
        match total {
            0 => return Err("there are no clients".to_owned()),
            total if total > CLIENTS_MAX => {
                return Err(format!("{total} clients, and at most {CLIENTS_MAX} can be"));
            }
            _ => {}
        }
        let mut starts: Vec<Duration> =
            (0..clients).map(|index| within.mul_f64(index as f64 / clients as f64)).collect();
        starts.extend(batches.iter().flat_map(|batch| std::iter::repeat_n(batch.at, batch.clients)));
        starts.sort_unstable();
        Ok(Self { starts })
    }

    /// How many there are in all.
    pub fn clients(&self) -> usize {
        self.starts.len()
    }

    /// When each client starts, in order.
    pub fn starts(&self) -> impl Iterator<Item = Duration> + '_ {
        self.starts.iter().copied()
    }
}

impl Ramp {
    fn batches(&self) -> impl Iterator<Item = Batch> + use<> {
        let Ramp { step, every, up_to } = *self;
        (0..up_to.div_ceil(step)).map(move |index| Batch {
            at: every.saturating_mul(u32::try_from(index).unwrap_or(u32::MAX)),
            clients: step.min(up_to - index * step),
        })
    }
}

impl Rate {
    /// When the request of that index, from 0, is due.
    pub fn due(&self, index: u64) -> Duration {
        let nanos = u128::from(index) * self.span.as_nanos() / u128::from(self.requests);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How many requests are due before `elapsed`.
    pub fn due_before(&self, elapsed: Duration) -> u64 {
        // The least index whose time, rounded down, is not before.
        let count = (elapsed.as_nanos() * u128::from(self.requests)).div_ceil(self.span.as_nanos());
        u64::try_from(count).unwrap_or(u64::MAX)
    }
}

impl FromStr for Ramp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no ramp: write 20/5s..600 for 20 more clients each 5 s, up to 600");
        let (step, rest) = text.split_once('/').ok_or_else(wrong)?;
        let (every, up_to) = rest.split_once("..").ok_or_else(wrong)?;
        let (step, up_to): (usize, usize) =
            (step.parse().map_err(|_| wrong())?, up_to.parse().map_err(|_| wrong())?);
        let every = every.parse::<Span>().map_err(|error| error.to_string())?.duration;
        if step == 0 || up_to > CLIENTS_MAX {
            return Err(wrong());
        }
        Ok(Self { step, every, up_to })
    }
}

impl FromStr for Storm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no storm: write 500@30s for 500 clients at once after 30 s");
        let (clients, at) = text.split_once('@').ok_or_else(wrong)?;
        let clients = clients.parse().map_err(|_| wrong())?;
        let at = at.parse::<Span>().map_err(|error| error.to_string())?.duration;
        Ok(Self(Batch { at, clients }))
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no rate of requests: write 5000/s or 90/min, at most {RATE_PER_S_MAX}/s");
        let (requests, span) = text.split_once('/').ok_or_else(wrong)?;
        let span = match span {
            "s" => Duration::from_secs(1),
            "min" => Duration::from_secs(60),
            _ => return Err(wrong()),
        };
        let requests: u64 = requests.parse().map_err(|_| wrong())?;
        if requests == 0 || requests > RATE_PER_S_MAX * span.as_secs() {
            return Err(wrong());
        }
        Ok(Self { requests, span })
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use proptest::prelude::*;

    use super::*;

    fn starts(clients: usize, ramp: &str, storms: &[&str]) -> Vec<u64> {
        let ramp = Some(ramp).filter(|text| !text.is_empty()).map(|text| text.parse().unwrap());
        let storms: Vec<Storm> = storms.iter().map(|text| text.parse().unwrap()).collect();
        let population = Population::new(clients, Duration::ZERO, ramp, &storms).unwrap();
        let starts: Vec<u64> = population.starts().map(|at| at.as_secs()).collect();
        assert_eq!(starts.len(), population.clients());
        starts
    }

    #[test]
    fn clients_start_in_order() {
        assert_eq!(starts(3, "", &[]), [0, 0, 0]);
        assert_eq!(starts(0, "2/5s..5", &[]), [0, 0, 5, 5, 10]);
        assert_eq!(starts(1, "", &["2@30s", "1@1s"]), [0, 1, 30, 30]);
        assert_eq!(starts(1, "1/2s..3", &["2@3s"]), [0, 0, 2, 3, 3, 4]);
        let storm = "1@3s".parse().unwrap();
        let evenly = Population::new(4, Duration::from_secs(8), None, &[storm]).unwrap();
        assert_eq!(evenly.starts().map(|at| at.as_secs()).collect::<Vec<_>>(), [0, 2, 3, 4, 6]);
    }

    #[test]
    fn wrong_ones_are_told() {
        expect!["there are no clients"]
            .assert_eq(&Population::new(0, Duration::ZERO, None, &[]).unwrap_err());
        expect![[r#""20" is no ramp: write 20/5s..600 for 20 more clients each 5 s, up to 600
"5" has no unit: write 5ms, 5s or 5min
"0/5s..600" is no ramp: write 20/5s..600 for 20 more clients each 5 s, up to 600
"5" is no storm: write 500@30s for 500 clients at once after 30 s
"50" is no rate of requests: write 5000/s or 90/min, at most 10000000/s
"0/s" is no rate of requests: write 5000/s or 90/min, at most 10000000/s"#]]
        .assert_eq(
            &[
                "20".parse::<Ramp>().unwrap_err(),
                "20/5..600".parse::<Ramp>().unwrap_err(),
                "0/5s..600".parse::<Ramp>().unwrap_err(),
                "5".parse::<Storm>().unwrap_err(),
                "50".parse::<Rate>().unwrap_err(),
                "0/s".parse::<Rate>().unwrap_err(),
            ]
            .join("\n"),
        );
    }

    proptest! {
        #[test]
        fn as_many_are_due_as_have_their_time(requests in 1u64..1_000_000, index in 0u64..10_000_000) {
            let rate: Rate = format!("{requests}/min").parse().unwrap();
            let due = rate.due(index);
            // Those whose times are the same nanosecond are due together.
            prop_assert!(rate.due_before(due) <= index);
            prop_assert!(rate.due_before(due + Duration::from_nanos(1)) > index);
        }
    }
}
