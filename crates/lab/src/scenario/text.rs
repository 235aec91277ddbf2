//! The text of a scenario: TOML, with the units of all settings.
//!
//! ```toml
//! seed = 1                    # what losses and jitter are drawn from
//!
//! [[path]]
//! name = "home"               # else that of the path it is made from
//! use = "cable"               # a named path; what follows is put in its place
//! prefix4 = "198.18.1.0/24"   # else the path's number
//! prefix6 = "2001:db8:0:100::/56"
//!
//! [path.down]                 # from the server to the clients; [path.up] is the other way
//! delay = "10ms"
//! jitter = "2ms"
//! rate = "100Mbit/s"          # or steps = ["1s 20Mbit/s", "1s 5Mbit/s"], or mahimahi = "FILE"
//! queue = "1BDP"              # or "256KiB"
//! discipline = "droptail"     # or "codel"
//! loss = "1%"                 # of the good state, where there are bursts
//! bursts = { enter = "0.1%", leave = "20%", loss = "100%" }
//!
//! [[path.change]]             # while it runs
//! at = "10s"
//! down = { rate = "1Mbit/s" }
//! ```

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use thalweg_record::units::{Rate, Size, Span};

use super::trace::{Step, Trace};
use super::{
    Alteration, Capacity, Change, Direction, Discipline, Loss, PATHS_MAX, Path, QUEUE_BYTES_DEFAULT,
    QUEUE_BYTES_MIN, Queue, Scenario, library, named,
};

/// The server's address unless the scenario gives another (RFC 5737, TEST-NET-3).
const SERVER4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// The same of IPv6 (RFC 3849, documentation).
const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);
/// What losses and jitter are drawn from unless the scenario says.
const SEED: u64 = 1;
/// Delay and jitter are no more than this.
const DELAY_MAX: Duration = Duration::from_secs(10);
/// No emulation in user space carries more than this.
const RATE_MAX_BITS_PER_S: u64 = 10_000_000_000;
/// A queue may hold so much.
const QUEUE_BYTES_MAX: u64 = 1 << 30;
/// A full packet: no queue holds less, or nothing large would ever pass.
const PACKET_BYTES: u64 = 1500;
/// Changes of one path.
const CHANGES_MAX: usize = 10_000;

/// Why a text is no scenario.
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

/// Reads a scenario. `read_file` gets the files that it names.
///
/// # Errors
/// The first fault, with its line where the text is not of this form, and with the path's name where it asks for something
/// that cannot be.
pub fn read(text: &str, read_file: &dyn Fn(&str) -> std::io::Result<String>) -> Result<Scenario, Error> {
    let raw: RawScenario = toml::from_str(text).map_err(|error| Error(error.to_string()))?;
    if raw.path.is_empty() {
        return fail("no path: a scenario has at least one [[path]]");
    }
    if raw.path.len() > PATHS_MAX {
        return fail(format!("{} paths: at most {PATHS_MAX}", raw.path.len()));
    }
    let mut paths: Vec<Path> = Vec::new();
    for (index, raw) in raw.path.into_iter().enumerate() {
        let label = raw.name.clone().or(raw.r#use.clone()).unwrap_or_else(|| format!("path-{}", index + 1));
        let path =
            raw.resolve(index, read_file).map_err(|Error(message)| Error(format!("{label}: {message}")))?;
        for other in &paths {
            if other.name == path.name {
                return fail(format!("two paths are called {:?}: give one another `name`", path.name));
            }
            if other.prefix4 == path.prefix4 || other.prefix6 == path.prefix6 {
                return fail(format!("{} and {} have the same prefix", other.name, path.name));
            }
        }
        paths.push(path);
    }
    let (server4, server6) = (raw.server4.unwrap_or(SERVER4), raw.server6.unwrap_or(SERVER6));
    for path in &paths {
        if same_prefix4(path.prefix4, server4) || same_prefix6(path.prefix6, server6) {
            return fail(format!("{}: the server's address is in its prefix", path.name));
        }
    }
    Ok(Scenario { server4, server6, seed: raw.seed.unwrap_or(SEED), paths })
}

/// The paths of several scenarios as one, to be measured one by one: with prefixes of their own, the usual server, and the seed of
/// the first.
///
/// # Errors
/// If there are too many, two have one name, or one changes while it runs: it is measured as it is.
pub fn together(scenarios: Vec<Scenario>) -> Result<Scenario, Error> {
    let seed = scenarios.first().map_or(SEED, |first| first.seed);
    let paths: Vec<Path> = scenarios.into_iter().flat_map(|scenario| scenario.paths).collect();
    if paths.len() > PATHS_MAX {
        return fail(format!("{} paths: at most {PATHS_MAX}", paths.len()));
    }
    for (index, path) in paths.iter().enumerate() {
        if paths[..index].iter().any(|other| other.name == path.name) {
            return fail(format!("two paths are called {:?}: give one another `name`", path.name));
        }
        if !path.changes.is_empty() {
            return fail(format!(
                "{}: a path that changes can be run, not measured: take its `change` away",
                path.name
            ));
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

/// A value that is written as text with a unit.
#[derive(Debug, Clone, Copy)]
struct Text<T>(T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Text).map_err(de::Error::custom)
    }
}

/// A share from 0 to 1, written in percent.
#[derive(Debug, Clone, Copy)]
struct Share(f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
        match percent {
            Some(percent) if (0.0..=100.0).contains(&percent) => Ok(Self(percent / 100.0)),
            _ => Err(format!("{text:?} is no share: write a number from 0 to 100 and %, as in \"0.5%\"")),
        }
    }
}

/// A duration and the rate it has: `1s 20Mbit/s`.
#[derive(Debug, Clone, Copy)]
struct RawStep(Step);

impl FromStr for RawStep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (duration, rate) =
            text.split_once(' ').ok_or_else(|| format!("{text:?} is no step: write \"1s 20Mbit/s\""))?;
        let duration = duration.parse::<Span>().map_err(|error| error.to_string())?.duration;
        let bits_per_s = rate.trim().parse::<Rate>().map_err(|error| error.to_string())?.bits_per_s;
        Ok(Self(Step { duration, bits_per_s }))
    }
}

#[derive(Debug, Clone, Copy)]
enum RawQueue {
    Bytes(u64),
    /// Of what is on its way at the rate of the direction in one round trip.
    Bdp(f64),
}

impl FromStr for RawQueue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(number) = text.strip_suffix("BDP") {
            return match number.parse::<f64>() {
                Ok(number) if number.is_finite() && number >= 0.0 => Ok(Self::Bdp(number)),
                _ => Err(format!("{text:?} is no queue: write a number before BDP, as in \"1.5BDP\"")),
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
            _ => Err(format!("{text:?} is no prefix of clients: write an IPv4 /24, as in \"198.18.1.0/24\"")),
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
                "{text:?} is no prefix of clients: write an IPv6 /56, as in \"2001:db8:0:100::/56\""
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
        let number = u8::try_from(index + 1).expect("below the limit of paths");
        let (down, up) = (self.down.or(base.down), self.up.or(base.up));
        let round_trip = down.delay()? + up.delay()?;
        if self.change.len() > CHANGES_MAX {
            return fail(format!("{} changes: at most {CHANGES_MAX}", self.change.len()));
        }
        let is_limited = [&down, &up].map(RawDirection::is_limited);
        let (down, up) = (down.resolve(round_trip, read_file)?, up.resolve(round_trip, read_file)?);
        let mut changes = Vec::new();
        // A change of loss is of what is in force then.
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

/// The path of the library that another begins with.
fn base(name: &str) -> Result<RawPath, Error> {
    let Some(base) = named(name) else {
        let names: Vec<_> = library().iter().map(|path| path.name).collect();
        return fail(format!("no path is called {name:?}: there are {}", names.join(", ")));
    };
    Ok(toml::from_str(base.text).expect("the library's paths are tested"))
}

impl RawDirection {
    fn or(self, base: Self) -> Self {
        // A capacity of its own takes the place of the base's, of whatever kind that is.
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
                return fail("a queue in BDP needs a `rate`, `steps` or a trace");
            }
            (None, None) => QUEUE_BYTES_DEFAULT,
            (queue, Some(bits_per_s)) => {
                let number = if let Some(RawQueue::Bdp(number)) = queue { number } else { 1.0 };
                let bytes = bits_per_s / 8.0 * round_trip.as_secs_f64() * number;
                (bytes.round() as u64).max(QUEUE_BYTES_MIN)
            }
        };
        if bytes > QUEUE_BYTES_MAX {
            return fail(format!("a queue of {bytes} bytes: at most {QUEUE_BYTES_MAX}"));
        }
        if bytes < PACKET_BYTES {
            return fail(format!(
                "a queue of {bytes} bytes: at least {PACKET_BYTES}, which is one full packet"
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
            _ => fail("one of `rate`, `steps` and `mahimahi` is enough"),
        }
    }
}

impl RawAlteration {
    /// `in_force` is the loss before it, and after.
    fn resolve(self, is_limited: bool, in_force: &mut Loss) -> Result<Alteration, Error> {
        if self.rate.is_some() && !is_limited {
            return fail("a change of `rate` needs a `rate` to begin with");
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
        return fail(format!("a {what} of {duration:?}: at most {DELAY_MAX:?}"));
    }
    Ok(duration)
}

fn within_rates(bits_per_s: u64) -> Result<u64, Error> {
    if bits_per_s == 0 || bits_per_s > RATE_MAX_BITS_PER_S {
        return fail(format!("a rate of {bits_per_s} bit/s: from 1 bit/s to 10 Gbit/s"));
    }
    Ok(bits_per_s)
}

/// What `base` becomes: `loss` is that of the good state, `bursts` are the bad one.
fn loss(base: Loss, loss: Option<Text<Share>>, bursts: Option<RawBursts>) -> Result<Loss, Error> {
    let good = loss.map_or(base.good, |Text(share)| share.0);
    let Some(bursts) = bursts else {
        // Without bursts both states are one.
        return Ok(if base.enter == 0.0 { Loss::random(good) } else { Loss { good, ..base } });
    };
    let (enter, leave) = (bursts.enter.0.0, bursts.leave.0.0);
    if enter == 0.0 || leave == 0.0 {
        return fail("bursts that never begin or never end: `enter` and `leave` are above 0%");
    }
    let bad = bursts.loss.map_or(1.0, |Text(share)| share.0);
    Ok(Loss { good, bad, enter, leave })
}
