//! Scenario files: TOML in which every quantity has a unit.
//!
//! ```toml
//! seed = 1                    # for losses and jitter
//!
//! [[path]]
//! name = "home"               # default: the name of the path in `use`
//! use = "cable"               # a named path; the settings below override it
//! prefix4 = "198.18.1.0/24"   # default: from the path's number
//! prefix6 = "2001:db8:0:100::/56"
//!
//! [path.down]                 # from the server to the clients; [path.up] is the reverse
//! delay = "10ms"
//! jitter = "2ms"
//! rate = "100Mbit/s"          # or steps = ["1s 20Mbit/s", "1s 5Mbit/s"], or mahimahi = "FILE"
//! queue = "1BDP"              # or "256KiB"
//! discipline = "droptail"     # or "codel"
//! loss = "1%"                 # with bursts, the loss of the good state
//! bursts = { enter = "0.1%", leave = "20%", loss = "100%" }
//!
//! [[path.change]]             # during the run
//! at = "10s"
//! down = { rate = "1Mbit/s" }
//! ```

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use thalweg_units::{Rate, Size, Span};

use super::trace::{Step, Trace};
use super::{
    Alteration, Capacity, Change, Direction, Discipline, Loss, PATHS_MAX, Path, QUEUE_BYTES_DEFAULT,
    QUEUE_BYTES_MIN, Queue, Scenario, library, named,
};

/// The server's default IPv4 address (RFC 5737, TEST-NET-3).
const SERVER4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// The server's default IPv6 address (RFC 3849, documentation).
const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);
/// The default seed.
const SEED: u64 = 1;
/// Maximum delay; also the maximum jitter.
const DELAY_MAX: Duration = Duration::from_secs(10);
/// Maximum rate, which is more than an emulation in user space can carry.
const RATE_MAX_BITS_PER_S: u64 = 10_000_000_000;
/// Maximum queue size.
const QUEUE_BYTES_MAX: u64 = 1 << 30;
/// Size of a full packet. A smaller queue would drop every full packet.
const PACKET_BYTES: u64 = 1500;
/// Maximum changes per path.
const CHANGES_MAX: usize = 10_000;

/// An error in a scenario.
#[derive(Debug)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

fn fail<T>(message: impl Into<String>) -> Result<T, Error> {
    Err(Error(message.into()))
}

/// Parses a scenario. `read_file` returns the content of a trace file named in the scenario.
///
/// # Errors
///
/// Returns an error if the scenario is invalid. The message has the line number of a syntax error,
/// or the name of the path with an invalid value.
pub fn read(text: &str, read_file: &dyn Fn(&str) -> std::io::Result<String>) -> Result<Scenario, Error> {
    let raw: RawScenario = toml::from_str(text).map_err(|error| Error(error.to_string()))?;
    if raw.path.is_empty() {
        return fail("scenario has no [[path]]: add at least one");
    }
    if raw.path.len() > PATHS_MAX {
        return fail(format!("{} paths: at most {PATHS_MAX} allowed", raw.path.len()));
    }
    let mut paths: Vec<Path> = Vec::new();
    for (index, raw) in raw.path.into_iter().enumerate() {
        let label = raw.name.clone().or(raw.r#use.clone()).unwrap_or_else(|| format!("path-{}", index + 1));
        let path =
            raw.resolve(index, read_file).map_err(|Error(message)| Error(format!("{label}: {message}")))?;
        for other in &paths {
            if other.name == path.name {
                return fail(format!("two paths are named {:?}: give one a different `name`", path.name));
            }
            if other.prefix4 == path.prefix4 || other.prefix6 == path.prefix6 {
                return fail(format!("{} and {} have the same prefix: change one", other.name, path.name));
            }
        }
        paths.push(path);
    }
    let (server4, server6) = (raw.server4.unwrap_or(SERVER4), raw.server6.unwrap_or(SERVER6));
    for path in &paths {
        if same_prefix4(path.prefix4, server4) || same_prefix6(path.prefix6, server6) {
            return fail(format!("{}: prefix contains the server's address: change either", path.name));
        }
    }
    Ok(Scenario { server4, server6, seed: raw.seed.unwrap_or(SEED), paths })
}

/// Combines the paths of several scenarios, so that they can be measured one by one. Uses the
/// default prefixes and server addresses, and the first scenario's seed.
///
/// # Errors
///
/// Returns an error if there are too many paths, two paths have the same name, or a path has
/// changes, which measurements do not support.
pub fn combine(scenarios: Vec<Scenario>) -> Result<Scenario, Error> {
    let seed = scenarios.first().map_or(SEED, |first| first.seed);
    let paths: Vec<Path> = scenarios.into_iter().flat_map(|scenario| scenario.paths).collect();
    if paths.len() > PATHS_MAX {
        return fail(format!("{} paths: at most {PATHS_MAX} allowed", paths.len()));
    }
    for (index, path) in paths.iter().enumerate() {
        if paths[..index].iter().any(|other| other.name == path.name) {
            return fail(format!("two paths are named {:?}: give one a different `name`", path.name));
        }
        if !path.changes.is_empty() {
            return fail(format!("{}: cannot measure a path with changes: remove its `change`", path.name));
        }
    }
    let mut all = Scenario { server4: SERVER4, server6: SERVER6, seed, paths };
    super::renumber(&mut all);
    Ok(all)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScenario {
    seed: Option<u64>,
    server4: Option<Ipv4Addr>,
    server6: Option<Ipv6Addr>,
    #[serde(default)]
    path: Vec<RawPath>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPath {
    name: Option<String>,
    r#use: Option<String>,
    prefix4: Option<Text<Prefix4>>,
    prefix6: Option<Text<Prefix6>>,
    #[serde(default)]
    down: RawDirection,
    #[serde(default)]
    up: RawDirection,
    #[serde(default)]
    change: Vec<RawChange>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDirection {
    delay: Option<Text<Span>>,
    jitter: Option<Text<Span>>,
    rate: Option<Text<Rate>>,
    steps: Option<Vec<Text<RawStep>>>,
    mahimahi: Option<String>,
    queue: Option<Text<RawQueue>>,
    discipline: Option<RawDiscipline>,
    loss: Option<Text<Share>>,
    bursts: Option<RawBursts>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawDiscipline {
    DropTail,
    CoDel,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBursts {
    enter: Text<Share>,
    leave: Text<Share>,
    loss: Option<Text<Share>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawChange {
    at: Text<Span>,
    #[serde(default)]
    down: RawAlteration,
    #[serde(default)]
    up: RawAlteration,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAlteration {
    delay: Option<Text<Span>>,
    jitter: Option<Text<Span>>,
    rate: Option<Text<Rate>>,
    loss: Option<Text<Share>>,
    bursts: Option<RawBursts>,
}

/// A value parsed from a string with a unit.
#[derive(Debug, Clone, Copy)]
struct Text<T>(T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Text).map_err(de::Error::custom)
    }
}

/// A share from 0 to 1, written as a percentage.
#[derive(Debug, Clone, Copy)]
pub struct Share(pub f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
        match percent {
            Some(percent) if (0.0..=100.0).contains(&percent) => Ok(Self(percent / 100.0)),
            _ => Err(format!("{text:?} is not a share: write a number from 0 to 100 and %, as in \"0.5%\"")),
        }
    }
}

/// A duration and a rate, as in `1s 20Mbit/s`.
#[derive(Debug, Clone, Copy)]
struct RawStep(Step);

impl FromStr for RawStep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (duration, rate) =
            text.split_once(' ').ok_or_else(|| format!("{text:?} is not a step: write \"1s 20Mbit/s\""))?;
        let duration = duration.parse::<Span>().map_err(|error| error.to_string())?.duration;
        let bits_per_s = rate.trim().parse::<Rate>().map_err(|error| error.to_string())?.bits_per_s;
        Ok(Self(Step { duration, bits_per_s }))
    }
}

#[derive(Debug, Clone, Copy)]
enum RawQueue {
    Bytes(u64),
    /// Multiple of the bandwidth-delay product: the direction's rate times the path's round-trip
    /// time.
    Bdp(f64),
}

impl FromStr for RawQueue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(number) = text.strip_suffix("BDP") {
            return match number.parse::<f64>() {
                Ok(number) if number.is_finite() && number >= 0.0 => Ok(Self::Bdp(number)),
                _ => Err(format!("{text:?} is not a queue: write a number before BDP, as in \"1.5BDP\"")),
            };
        }
        text.parse::<Size>().map(|size| Self::Bytes(size.bytes)).map_err(|error| error.to_string())
    }
}

#[derive(Debug, Clone, Copy)]
struct Prefix4(Ipv4Addr);

impl FromStr for Prefix4 {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = text.strip_suffix("/24").and_then(|address| address.parse::<Ipv4Addr>().ok());
        match address {
            Some(address) if address.octets()[3] == 0 => Ok(Self(address)),
            _ => Err(format!("{text:?} is not a client prefix: write an IPv4 /24, as in \"198.18.1.0/24\"")),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Prefix6(Ipv6Addr);

impl FromStr for Prefix6 {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = text.strip_suffix("/56").and_then(|address| address.parse::<Ipv6Addr>().ok());
        match address {
            Some(address) if address.to_bits().trailing_zeros() >= 72 => Ok(Self(address)),
            _ => Err(format!(
                "{text:?} is not a client prefix: write an IPv6 /56, as in \"2001:db8:0:100::/56\""
            )),
        }
    }
}

fn same_prefix4(a: Ipv4Addr, b: Ipv4Addr) -> bool {
    a.to_bits() >> 8 == b.to_bits() >> 8
}

fn same_prefix6(a: Ipv6Addr, b: Ipv6Addr) -> bool {
    a.to_bits() >> 72 == b.to_bits() >> 72
}

impl RawPath {
    fn resolve(
        mut self,
        index: usize,
        read_file: &dyn Fn(&str) -> std::io::Result<String>,
    ) -> Result<Path, Error> {
        let base = match &self.r#use {
            None => RawPath::default(),
            Some(name) => base(name)?,
        };
        let number = u8::try_from(index + 1).expect("PATHS_MAX fits in u8");
        let (down, up) = (self.down.or(base.down), self.up.or(base.up));
        let round_trip = down.delay()? + up.delay()?;
        if self.change.len() > CHANGES_MAX {
            return fail(format!("{} changes: at most {CHANGES_MAX} allowed", self.change.len()));
        }
        let is_limited = [&down, &up].map(RawDirection::is_limited);
        let (down, up) = (down.resolve(round_trip, read_file)?, up.resolve(round_trip, read_file)?);
        let mut changes = Vec::new();
        // A change may set only part of the loss; the rest is taken from the loss in effect before
        // the change.
        self.change.sort_by_key(|change| change.at.0.duration);
        let mut losses = [down.loss, up.loss];
        for change in self.change {
            changes.push(Change {
                at: change.at.0.duration,
                down: change.down.resolve(is_limited[0], &mut losses[0])?,
                up: change.up.resolve(is_limited[1], &mut losses[1])?,
            });
        }
        Ok(Path {
            name: self.name.or(self.r#use).unwrap_or_else(|| format!("path-{number}")),
            prefix4: self.prefix4.map_or(super::prefix4(number), |Text(prefix)| prefix.0),
            prefix6: self.prefix6.map_or(super::prefix6(number), |Text(prefix)| prefix.0),
            down,
            up,
            changes,
        })
    }
}

/// Parses the named path given in `use`.
fn base(name: &str) -> Result<RawPath, Error> {
    let Some(base) = named(name) else {
        let names: Vec<_> = library().iter().map(|path| path.name).collect();
        return fail(format!("unknown path {name:?}: expected one of {}", names.join(", ")));
    };
    Ok(toml::from_str(base.text).expect("named paths are valid TOML"))
}

impl RawDirection {
    fn or(self, base: Self) -> Self {
        // `rate`, `steps` or `mahimahi` replaces whichever of them the base sets.
        let base_capacity = if self.is_limited() { Self::default() } else { base.clone() };
        Self {
            delay: self.delay.or(base.delay),
            jitter: self.jitter.or(base.jitter),
            rate: self.rate.or(base_capacity.rate),
            steps: self.steps.or(base_capacity.steps),
            mahimahi: self.mahimahi.or(base_capacity.mahimahi),
            queue: self.queue.or(base.queue),
            discipline: self.discipline.or(base.discipline),
            loss: self.loss.or(base.loss),
            bursts: self.bursts.or(base.bursts),
        }
    }

    fn is_limited(&self) -> bool {
        self.rate.is_some() || self.steps.is_some() || self.mahimahi.is_some()
    }

    fn delay(&self) -> Result<Duration, Error> {
        delay("delay", self.delay)
    }

    fn resolve(
        self,
        round_trip: Duration,
        read_file: &dyn Fn(&str) -> std::io::Result<String>,
    ) -> Result<Direction, Error> {
        let capacity = self.capacity(read_file)?;
        let bytes = match (self.queue.map(|Text(queue)| queue), capacity.mean_bits_per_s()) {
            (Some(RawQueue::Bytes(bytes)), _) => bytes,
            (Some(RawQueue::Bdp(_)), None) => {
                return fail("queue in BDP requires `rate`, `steps` or `mahimahi`");
            }
            (None, None) => QUEUE_BYTES_DEFAULT,
            (queue, Some(bits_per_s)) => {
                let number = if let Some(RawQueue::Bdp(number)) = queue { number } else { 1.0 };
                let bytes = bits_per_s / 8.0 * round_trip.as_secs_f64() * number;
                (bytes.round() as u64).max(QUEUE_BYTES_MIN)
            }
        };
        if bytes > QUEUE_BYTES_MAX {
            return fail(format!("queue must be at most {QUEUE_BYTES_MAX} bytes, got {bytes}"));
        }
        if bytes < PACKET_BYTES {
            return fail(format!(
                "queue must be at least {PACKET_BYTES} bytes, one full packet, got {bytes}"
            ));
        }
        let discipline = match self.discipline {
            None | Some(RawDiscipline::DropTail) => Discipline::DropTail,
            Some(RawDiscipline::CoDel) => Discipline::CoDel,
        };
        Ok(Direction {
            delay: self.delay()?,
            jitter: delay("jitter", self.jitter)?,
            capacity,
            queue: Queue { bytes, discipline },
            loss: loss(Loss::NONE, self.loss, self.bursts)?,
        })
    }

    fn capacity(&self, read_file: &dyn Fn(&str) -> std::io::Result<String>) -> Result<Capacity, Error> {
        match (self.rate, &self.steps, &self.mahimahi) {
            (None, None, None) => Ok(Capacity::Unlimited),
            (Some(Text(rate)), None, None) => Ok(Capacity::Rate(within_rates(rate.bits_per_s)?)),
            (None, Some(steps), None) => {
                let steps: Vec<Step> = steps.iter().map(|Text(step)| step.0).collect();
                for step in steps.iter().filter(|step| step.bits_per_s > 0) {
                    within_rates(step.bits_per_s)?;
                }
                let trace = Trace::new(steps);
                trace.map(Capacity::Trace).map_err(|error| Error(format!("steps: {error}")))
            }
            (None, None, Some(name)) => {
                let text = read_file(name).map_err(|error| Error(format!("{name}: {error}")))?;
                let trace = Trace::from_mahimahi(&text);
                trace.map(Capacity::Trace).map_err(|error| Error(format!("{name}: {error}")))
            }
            _ => fail("more than one of `rate`, `steps` and `mahimahi` is set: keep one"),
        }
    }
}

impl RawAlteration {
    /// Resolves the alteration. `in_force` is the loss before the change and is updated to the loss
    /// after it.
    fn resolve(self, is_limited: bool, in_force: &mut Loss) -> Result<Alteration, Error> {
        if self.rate.is_some() && !is_limited {
            return fail("a change of `rate` requires an initial `rate`");
        }
        let changes_loss = self.loss.is_some() || self.bursts.is_some();
        *in_force = loss(*in_force, self.loss, self.bursts)?;
        Ok(Alteration {
            delay: self.delay.map(|_| delay("delay", self.delay)).transpose()?,
            jitter: self.jitter.map(|_| delay("jitter", self.jitter)).transpose()?,
            rate_bits_per_s: self.rate.map(|Text(rate)| within_rates(rate.bits_per_s)).transpose()?,
            loss: changes_loss.then_some(*in_force),
        })
    }
}

fn delay(what: &str, span: Option<Text<Span>>) -> Result<Duration, Error> {
    let duration = span.map_or(Duration::ZERO, |Text(span)| span.duration);
    if duration > DELAY_MAX {
        return fail(format!("{what} must be at most {DELAY_MAX:?}, got {duration:?}"));
    }
    Ok(duration)
}

fn within_rates(bits_per_s: u64) -> Result<u64, Error> {
    if bits_per_s == 0 || bits_per_s > RATE_MAX_BITS_PER_S {
        return fail(format!("rate must be from 1 bit/s to 10 Gbit/s, got {bits_per_s} bit/s"));
    }
    Ok(bits_per_s)
}

/// Returns `base` with the given changes: `loss` sets the good state's loss, `bursts` the bad
/// state's loss and the transitions.
fn loss(base: Loss, loss: Option<Text<Share>>, bursts: Option<RawBursts>) -> Result<Loss, Error> {
    let good = loss.map_or(base.good, |Text(share)| share.0);
    let Some(bursts) = bursts else {
        // Without bursts, both states have the same loss.
        return Ok(if base.enter == 0.0 { Loss::random(good) } else { Loss { good, ..base } });
    };
    let (enter, leave) = (bursts.enter.0.0, bursts.leave.0.0);
    if enter == 0.0 || leave == 0.0 {
        return fail("bursts: `enter` or `leave` is 0%: set both above 0%");
    }
    let bad = bursts.loss.map_or(1.0, |Text(share)| share.0);
    Ok(Loss { good, bad, enter, leave })
}
