//! Filter parser, for a language modelled on `ss` filters.
//!
//! ```text
//! filter = term { [ "and" ] term }
//! term = "state" STATES | ( "sport" | "dport" ) [ "=" ] PORTS | ( "src" | "dst" ) [ "=" ] PREFIXES
//! ```
//! STATES, PORTS and PREFIXES are comma-separated lists of alternatives: `established,close-wait`,
//! `:443,8000-8010`, `203.0.113.0/24,2001:db8::/32`. A repeated term adds to its list.

use std::fmt;
use std::net::IpAddr;
use std::ops::{Range, RangeInclusive};

use ipnet::IpNet;
use thalweg_units::nearest;

use super::{ALTERNATIVES_MAX, Filter};
use crate::diag::{State, States, network};

/// Keywords that start a term.
const TERMS: [&str; 5] = ["state", "sport", "dport", "src", "dst"];
/// Keywords for groups of states, as in `ss`.
const GROUPS: [(&str, States); 2] = [("all", States::ALL), ("connected", States::CONNECTED)];

/// A filter syntax error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterError {
    message: String,
    /// The filter, followed by a line of carets under the error.
    marked: String,
}

impl FilterError {
    /// Creates an error at the byte range `span` of `text`.
    fn new(text: &str, span: Range<usize>, message: String) -> Self {
        let shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let before = text[..span.start].chars().count();
        let width = text[span].chars().count().max(1);
        let line = format!("  {shown}");
        Self { message, marked: format!("{}\n  {:before$}{:^<width$}", line.trim_end(), "", "") }
    }

    /// Returns the error message on one line, without the filter.
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
    /// Parses a filter. Without a `state` term, it matches open connections
    /// ([`States::CONNECTED`]).
    ///
    /// # Errors
    ///
    /// Returns an error if `text` is not a valid filter. The error marks the position and says what
    /// is allowed there.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        Self::parse_with(text, States::CONNECTED)
    }

    /// Parses a filter. Without a `state` term, it matches `states`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Filter::parse`].
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
                word => return Err(FilterError::new(text, term, unknown_term(word))),
            }
        }
        if filter.states == States::NONE {
            filter.states = states;
        }
        Ok(filter)
    }
}

/// Filter tokenizer. `=`, `==` and commas need no surrounding spaces.
struct Input<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Input<'a> {
    /// Skips spaces and returns the remaining text.
    fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        &self.text[self.at..]
    }

    /// Consumes the next word and returns its byte range. A word ends at a space, a comma or an
    /// equals sign.
    fn word(&mut self) -> Option<Range<usize>> {
        let rest = self.rest();
        if rest.is_empty() {
            return None;
        }
        let is_end = |c: char| c.is_whitespace() || c == ',' || c == '=';
        // A leading comma or equals sign is a word of its own.
        let length = rest.find(is_end).unwrap_or(rest.len()).max(1);
        let span = self.at..self.at + length;
        self.at = span.end;
        Some(span)
    }

    fn accept(&mut self, sign: &str) -> bool {
        let accept = self.rest().starts_with(sign);
        if accept {
            self.at += sign.len();
        }
        accept
    }

    /// Parses a comma-separated list, applying `value` to each item.
    fn list<T>(
        &mut self,
        what: &str,
        value: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, FilterError> {
        let _ = self.accept("==") || self.accept("=");
        let mut values = Vec::new();
        loop {
            let span = self.word().unwrap_or(self.text.len()..self.text.len());
            let word = &self.text[span.clone()];
            let fail = |message| Err(FilterError::new(self.text, span.clone(), message));
            match value(word) {
                _ if matches!(word, "" | "," | "=") => return fail(format!("expected {what}")),
                _ if values.len() == ALTERNATIVES_MAX => {
                    return fail(format!("a list must have at most {ALTERNATIVES_MAX} values"));
                }
                Ok(value) => values.push(value),
                Err(message) => return fail(message),
            }
            if !self.accept(",") {
                return Ok(values);
            }
        }
    }

    /// Parses a list and appends its items to `list`.
    fn extend<T>(
        &mut self,
        list: &mut Vec<T>,
        what: &str,
        value: impl Fn(&str) -> Result<T, String>,
    ) -> Result<(), FilterError> {
        let start = self.at;
        list.extend(self.list(what, value)?);
        if list.len() > ALTERNATIVES_MAX {
            let message =
                format!("all lists of one kind together must have at most {ALTERNATIVES_MAX} values");
            return Err(FilterError::new(self.text, start..self.at, message));
        }
        Ok(())
    }
}

fn unknown_term(word: &str) -> String {
    match word {
        "or" | "|" | "||" => {
            "all terms must match: write alternatives as a list, such as sport 80,443".to_owned()
        }
        "not" | "!" | "exclude" => "a filter cannot exclude: list the values to include".to_owned(),
        "(" | ")" => "a filter has no parentheses: all terms must match".to_owned(),
        _ => format!("unknown term {word}{}; expected one of {}", suggestion(word, TERMS), TERMS.join(", ")),
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
        "unknown state {word}{}; expected one of {}",
        suggestion(word, names()),
        names().collect::<Vec<_>>().join(", ")
    ))
}

fn ports_of(word: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let port = |text: &str| text.strip_prefix(':').unwrap_or(text).parse::<u16>().ok();
    match (port(first), port(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        (Some(first), Some(last)) => Err(format!("a range must start with the lower port: {last}-{first}")),
        _ => Err(format!("{word} is not a port: write a number, or a range such as 8000-8010")),
    }
}

fn prefix_of(word: &str) -> Result<IpNet, String> {
    let (address, bits) = match word.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (word, None),
    };
    // Accept the brackets that `ss` prints around IPv6 addresses.
    let bare = address.strip_prefix('[').and_then(|address| address.strip_suffix(']')).unwrap_or(address);
    let Ok(address) = bare.parse::<IpAddr>() else {
        let hint = match word.parse::<std::net::SocketAddr>() {
            Ok(_) => "; a port needs its own term, sport or dport",
            Err(_) => "",
        };
        return Err(format!("{word} is not an address or prefix such as 203.0.113.0/24{hint}"));
    };
    let bits_max = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits.map(str::parse::<u8>) {
        None => bits_max,
        Some(Ok(bits)) if bits <= bits_max => bits,
        Some(_) => return Err(format!("{word}: prefix length of {address} must be at most {bits_max}")),
    };
    prefix(address, bits).ok_or_else(|| format!("{word}: write an IPv4-mapped address as IPv4"))
}

/// Builds the prefix. Returns `None` if `address` is IPv4-mapped and the prefix is wider than the
/// mapped range, `::ffff:0:0/96`.
fn prefix(address: IpAddr, bits: u8) -> Option<IpNet> {
    match (address, address.to_canonical()) {
        (IpAddr::V6(_), unmapped @ IpAddr::V4(_)) => Some(network(unmapped, bits.checked_sub(96)?)),
        (_, unmapped) => Some(network(unmapped, bits)),
    }
}

/// Returns ` (did you mean x?)` with the most similar known word, or an empty string if none is
/// similar.
fn suggestion<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or(String::new(), |name| format!(" (did you mean {name}?)"))
}
