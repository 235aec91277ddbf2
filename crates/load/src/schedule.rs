//! Schedule of a run: start times of clients and due times of requests, relative to the start of
//! the run.

use std::str::FromStr;
use std::time::Duration;

use thalweg_units::Span;

/// Maximum clients per process. Ports and open files would not suffice for more.
pub const CLIENTS_MAX: usize = 1_000_000;
/// Maximum requests per second per process.
pub const RATE_PER_S_MAX: u64 = 10_000_000;

/// Clients that start together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Start time of the clients, relative to the start of the run.
    pub at: Duration,
    /// Number of clients.
    pub clients: usize,
}

/// The start times of all clients of a run, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Population {
    starts: Vec<Duration>,
}

/// A ramp such as `20/5s..600`: 20 clients at the start and 20 more every 5 s, up to 600.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ramp {
    step: usize,
    every: Duration,
    up_to: usize,
}

/// A storm such as `500@30s`: 500 clients, all at once, after 30 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Storm(pub Batch);

/// Rate of evenly spaced requests, such as `5000/s` or `90/min`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    requests: u64,
    span: Duration,
}

impl Population {
    /// Creates a population of `clients` clients spread evenly over `within`, plus the clients of
    /// the ramp and the storms.
    ///
    /// # Errors
    ///
    /// Returns an error if there are no clients, or more than [`CLIENTS_MAX`].
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
            0 => return Err("no clients: set a number of clients, a ramp or a storm".to_owned()),
            total if total > CLIENTS_MAX => {
                return Err(format!("{total} clients: at most {CLIENTS_MAX} allowed"));
            }
            _ => {}
        }
        let mut starts: Vec<Duration> =
            (0..clients).map(|index| within.mul_f64(index as f64 / clients as f64)).collect();
        starts.extend(batches.iter().flat_map(|batch| std::iter::repeat_n(batch.at, batch.clients)));
        starts.sort_unstable();
        Ok(Self { starts })
    }

    /// Returns the total number of clients.
    pub fn clients(&self) -> usize {
        self.starts.len()
    }

    /// Returns each client's start time, in order.
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
    /// Returns the due time of request `index`, counted from 0.
    pub fn due(&self, index: u64) -> Duration {
        let nanos = u128::from(index) * self.span.as_nanos() / u128::from(self.requests);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the number of requests due before `elapsed`.
    pub fn due_before(&self, elapsed: Duration) -> u64 {
        // Find the smallest index whose due time, rounded down, is not before `elapsed`.
        let count = (elapsed.as_nanos() * u128::from(self.requests)).div_ceil(self.span.as_nanos());
        u64::try_from(count).unwrap_or(u64::MAX)
    }
}

impl FromStr for Ramp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not a ramp: write 20/5s..600 for 20 more clients every 5 s, up to 600");
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
        let wrong = || format!("{text:?} is not a storm: write 500@30s for 500 clients at once after 30 s");
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
            || format!("{text:?} is not a request rate: write 5000/s or 90/min, at most {RATE_PER_S_MAX}/s");
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
    fn invalid_values_are_rejected() {
        expect!["no clients: set a number of clients, a ramp or a storm"]
            .assert_eq(&Population::new(0, Duration::ZERO, None, &[]).unwrap_err());
        expect![[r#""20" is not a ramp: write 20/5s..600 for 20 more clients every 5 s, up to 600
"5" has no unit: write 5ms, 5s or 5min
"0/5s..600" is not a ramp: write 20/5s..600 for 20 more clients every 5 s, up to 600
"5" is not a storm: write 500@30s for 500 clients at once after 30 s
"50" is not a request rate: write 5000/s or 90/min, at most 10000000/s
"0/s" is not a request rate: write 5000/s or 90/min, at most 10000000/s"#]]
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
        fn due_before_is_the_inverse_of_due(requests in 1u64..1_000_000, index in 0u64..10_000_000) {
            let rate: Rate = format!("{requests}/min").parse().unwrap();
            let due = rate.due(index);
            // Several requests may be due in the same nanosecond.
            prop_assert!(rate.due_before(due) <= index);
            prop_assert!(rate.due_before(due + Duration::from_nanos(1)) > index);
        }
    }
}
