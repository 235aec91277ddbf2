//! A filter as people write it, after the language of `ss`.
//!
//! ```text
//! filter = term { [ "and" ] term }
//! term = "state" STATES | "sport" [ "=" ] PORTS | "dport" [ "=" ] PORTS | "src" [ "=" ] PREFIXES | "dst" [ "=" ] PREFIXES
//! ```
//! STATES, PORTS and PREFIXES are lists with commas, of which any may do: `established,close-wait`, `:443,8000-8010`,
//! `203.0.113.0/24,2001:db8::/32`. A term that comes again adds to its list.

use std::fmt;
use std::net::IpAddr;
use std::ops::{Range, RangeInclusive};

use super::{ALTERNATIVES_MAX, Filter};
use crate::diag::{Prefix, State, States};

/// What a term may begin with.
const TERMS: [&str; 5] = ["state", "sport", "dport", "src", "dst"];
/// Words of `ss` for several states at once.
const GROUPS: [(&str, States); 2] = [("all", States::ALL), ("connected", States::CONNECTED)];
/// How like a word must be to one that is known for that to be proposed.
const LIKENESS_MIN: f64 = 0.7;

/// Why a text is no filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterError {
    message: String,
    /// The text, and a line that marks the place.
    marked: String,
}

impl FilterError {
    /// A fault at these bytes of `text`.
    fn new(text: &str, place: Range<usize>, message: String) -> Self {
        let shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let before = text[..place.start].chars().count();
        let width = text[place].chars().count().max(1);
        let line = format!("  {shown}");
        Self { message, marked: format!("{}\n  {:before$}{:^<width$}", line.trim_end(), "", "") }
    }

    /// What is wrong, on one line, without the text that it is about.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.message, self.marked)
    }
}

impl std::error::Error for FilterError {}

impl Filter {
    /// Reads a filter; without `state` it is about connections ([`States::CONNECTED`]).
    ///
    /// # Errors
    /// Where it goes wrong, and what is allowed there.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        Self::parse_with(text, States::CONNECTED)
    }

    /// Reads a filter; without `state` it is about these.
    ///
    /// # Errors
    /// As [`Filter::parse`].
    pub fn parse_with(text: &str, states: States) -> Result<Self, FilterError> {
        let mut input = Input { text, at: 0 };
        let mut filter = Self { states: States::NONE, ..Self::default() };
        while let Some(term) = input.word() {
            match &text[term.clone()] {
                "and" if term.start > 0 => {}
                "state" => {
                    let listed = input.list("a state", state_of)?;
                    filter.states = listed.into_iter().fold(filter.states, States::with);
                }
                "sport" => input.extend(&mut filter.local_ports, "a port", ports_of)?,
                "dport" => input.extend(&mut filter.remote_ports, "a port", ports_of)?,
                "src" => input.extend(&mut filter.local_prefixes, "an address", prefix_of)?,
                "dst" => input.extend(&mut filter.remote_prefixes, "an address", prefix_of)?,
                word => return Err(FilterError::new(text, term, no_term(word))),
            }
        }
        if filter.states == States::NONE {
            filter.states = states;
        }
        Ok(filter)
    }
}

/// A text that is read word by word. `=`, `==` and commas may stand without spaces.
struct Input<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Input<'a> {
    /// Goes over spaces; the rest.
    fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        &self.text[self.at..]
    }

    /// The place of the next word: up to a space, a comma or an equals sign.
    fn word(&mut self) -> Option<Range<usize>> {
        let rest = self.rest();
        if rest.is_empty() {
            return None;
        }
        let is_end = |c: char| c.is_whitespace() || c == ',' || c == '=';
        // What begins with such a sign is that sign.
        let length = rest.find(is_end).unwrap_or(rest.len()).max(1);
        let place = self.at..self.at + length;
        self.at = place.end;
        Some(place)
    }

    fn takes(&mut self, sign: &str) -> bool {
        let takes = self.rest().starts_with(sign);
        if takes {
            self.at += sign.len();
        }
        takes
    }

    /// Values with commas between them, each read by `value`.
    fn list<T>(
        &mut self,
        what: &str,
        value: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, FilterError> {
        let _ = self.takes("==") || self.takes("=");
        let mut values = Vec::new();
        loop {
            let place = self.word().unwrap_or(self.text.len()..self.text.len());
            let word = &self.text[place.clone()];
            let fail = |message| Err(FilterError::new(self.text, place.clone(), message));
            match value(word) {
                _ if matches!(word, "" | "," | "=") => return fail(format!("{what} is expected here")),
                _ if values.len() == ALTERNATIVES_MAX => {
                    return fail(format!("a list has at most {ALTERNATIVES_MAX} values"));
                }
                Ok(value) => values.push(value),
                Err(message) => return fail(message),
            }
            if !self.takes(",") {
                return Ok(values);
            }
        }
    }

    /// Adds a list to another.
    fn extend<T>(
        &mut self,
        list: &mut Vec<T>,
        what: &str,
        value: impl Fn(&str) -> Result<T, String>,
    ) -> Result<(), FilterError> {
        let start = self.at;
        list.extend(self.list(what, value)?);
        if list.len() > ALTERNATIVES_MAX {
            let message = format!("all lists of one kind have at most {ALTERNATIVES_MAX} values");
            return Err(FilterError::new(self.text, start..self.at, message));
        }
        Ok(())
    }
}

fn no_term(word: &str) -> String {
    match word {
        "or" | "|" | "||" => {
            "all terms must hold: write alternatives as a list, as in sport 80,443".to_owned()
        }
        "not" | "!" | "exclude" => "a filter says what is wanted, not what is not".to_owned(),
        "(" | ")" => "a filter has no parentheses: all its terms must hold".to_owned(),
        _ => format!("no term begins with {word}{}; there are {}", meant(word, TERMS), TERMS.join(", ")),
    }
}

fn state_of(word: &str) -> Result<States, String> {
    if let Some((_, states)) = GROUPS.iter().find(|(name, _)| *name == word) {
        return Ok(*states);
    }
    let is_named = |state: &&State| {
        [state.filter_name(), state.as_str(), state.kernel_name()]
            .iter()
            .any(|name| name.eq_ignore_ascii_case(word))
    };
    let named: Vec<State> = State::ALL.iter().filter(is_named).copied().collect();
    if !named.is_empty() {
        return Ok(States::of(&named));
    }
    let names =
        || GROUPS.iter().map(|(name, _)| *name).chain(State::ALL.iter().map(|state| state.filter_name()));
    Err(format!(
        "no state is named {word}{}; there are {}",
        meant(word, names()),
        names().collect::<Vec<_>>().join(", ")
    ))
}

fn ports_of(word: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let port = |text: &str| text.strip_prefix(':').unwrap_or(text).parse::<u16>().ok();
    match (port(first), port(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        (Some(first), Some(last)) => Err(format!("a range begins with its least: {last}-{first}")),
        _ => Err(format!("{word} is no port: write a number, or a range such as 8000-8010")),
    }
}

fn prefix_of(word: &str) -> Result<Prefix, String> {
    let (address, bits) = match word.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (word, None),
    };
    // As `ss` prints them, and as they stand before a port.
    let bare = address.strip_prefix('[').and_then(|address| address.strip_suffix(']')).unwrap_or(address);
    let Ok(address) = bare.parse::<IpAddr>() else {
        let hint = match word.parse::<std::net::SocketAddr>() {
            Ok(_) => "; a port is a term of its own, sport or dport",
            Err(_) => "",
        };
        return Err(format!("{word} is no address or prefix such as 203.0.113.0/24{hint}"));
    };
    let bits_max = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits.map(str::parse::<u8>) {
        None => bits_max,
        Some(Ok(bits)) if bits <= bits_max => bits,
        Some(_) => return Err(format!("{word}: {address} has up to {bits_max} bits")),
    };
    prefix(address, bits).ok_or_else(|| format!("{word}: IPv4 in IPv6 form is IPv4 here: write it as that"))
}

/// The prefix; none where it is of IPv4 in IPv6 form and shorter than that form.
fn prefix(address: IpAddr, bits: u8) -> Option<Prefix> {
    match (address, address.to_canonical()) {
        (IpAddr::V6(_), unmapped @ IpAddr::V4(_)) => Some(Prefix::of(unmapped, bits.checked_sub(96)?)),
        (_, unmapped) => Some(Prefix::of(unmapped, bits)),
    }
}

/// `; did you mean x?` with the word that is most like the one given.
fn meant<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let scored = known.into_iter().map(|name| (strsim::jaro_winkler(word, name), name));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(likeness, _)| *likeness >= LIKENESS_MIN);
    best.map_or(String::new(), |(_, name)| format!(" (did you mean {name}?)"))
}
