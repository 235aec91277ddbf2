//! Regular expressions: those of PCRE, on bytes, each with limits that end a hopeless match.

use pcre2::bytes::{Regex as Pcre, RegexBuilder};

use crate::value::Failure;

/// Steps of a match: 1,000 of them take some 10 µs.
pub(crate) const MATCH_STEPS_MAX: u32 = 10_000;
/// Nested backtracking points of a match.
pub(crate) const MATCH_DEPTH_MAX: u32 = 1_000;
/// Heap of a match, KiB.
pub(crate) const MATCH_HEAP_KIB_MAX: u32 = 1_024;
/// Bytes of an expression.
pub(crate) const REGEX_BYTES_MAX: usize = 16 * 1024;

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Regex {
    pub(crate) pattern: String,
    /// What a text must begin with.
    prefix: Vec<u8>,
    /// Whether that is all.
    is_prefix: bool,
    pcre: Pcre,
}

impl Regex {
    /// Compiles `pattern`; the error is PCRE's text and where in the pattern.
    pub(crate) fn new(pattern: &str) -> Result<Regex, String> {
        if pattern.len() > REGEX_BYTES_MAX {
            return Err(format!("it has more than {REGEX_BYTES_MAX} bytes"));
        }
        let limits = format!(
            "(*LIMIT_MATCH={MATCH_STEPS_MAX})(*LIMIT_DEPTH={MATCH_DEPTH_MAX})(*LIMIT_HEAP={MATCH_HEAP_KIB_MAX})"
        );
        let build = |pattern: &str| RegexBuilder::new().jit_if_available(true).build(pattern);
        match build(&format!("{limits}{pattern}")) {
            Ok(pcre) => {
                let prefix = literal_prefix(pattern);
                let is_prefix = !prefix.is_empty() && pattern.len() == prefix.len() + 1;
                Ok(Regex { pattern: pattern.to_owned(), prefix: prefix.as_bytes().to_vec(), is_prefix, pcre })
            }
            Err(error) => {
                let at = error.offset().map(|at| at.saturating_sub(limits.len()));
                let text = error.to_string();
                let what = text.rsplit(": ").next().unwrap_or(&text).to_owned();
                Err(match at {
                    Some(at) => format!("{what}, at byte {at}"),
                    None => what,
                })
            }
        }
    }

    /// Whether it is found in `text`.
    pub(crate) fn is_match(&self, text: &[u8]) -> Result<bool, Failure> {
        // Most are about where a URL begins, and most URLs begin otherwise.
        if !text.starts_with(&self.prefix) {
            return Ok(false);
        }
        if self.is_prefix {
            return Ok(true);
        }
        self.pcre.is_match(text).map_err(|error| failure(&error))
    }

    /// Appends `text` to `into` with the first match, or all, replaced. In `with`, `\0` and `\&` are the match and `\1`
    /// to `\9` its groups. Past `bytes_max` bytes it fails.
    pub(crate) fn substitute(
        &self,
        text: &[u8],
        with: &[u8],
        all: bool,
        bytes_max: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let mut locations = self.pcre.capture_locations();
        let (mut copied, mut from) = (0, 0);
        while from <= text.len() {
            let found = self.pcre.captures_read_at(&mut locations, text, from);
            let Some(found) = found.map_err(|error| failure(&error))? else { break };
            let (start, end) = (found.start(), found.end());
            into.extend_from_slice(&text[copied..start]);
            expand(
                with,
                |group| locations.get(group).map_or(&[][..], |(start, end)| &text[start..end]),
                into,
            );
            copied = end;
            if into.len() > bytes_max {
                return Err(Failure::new("a substitution needs more than the workspace has"));
            }
            if !all {
                break;
            }
            if end == start {
                // An empty match: the next begins one byte on, as in Varnish.
                into.extend_from_slice(text.get(end..=end).unwrap_or_default());
                copied = (end + 1).min(text.len());
                from = end + 1;
            } else {
                from = end;
            }
        }
        into.extend_from_slice(&text[copied..]);
        Ok(())
    }
}

/// The text that everything begins with that `^text…` matches; empty if that is not plain to see.
fn literal_prefix(pattern: &str) -> &str {
    let Some(rest) = pattern.strip_prefix('^').filter(|rest| !rest.contains('|')) else { return "" };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_=&,:;@%~ ".contains(c);
    let end = rest.find(|c| !is_plain(c)).unwrap_or(rest.len());
    // What a quantifier follows may not be there.
    let is_quantified = rest[end..].starts_with(['?', '*', '+', '{']);
    &rest[..if is_quantified { end.saturating_sub(1) } else { end }]
}

/// Appends `with`, its `\0` to `\9` and `\&` replaced by `group`.
fn expand<'t>(with: &[u8], group: impl Fn(usize) -> &'t [u8], into: &mut Vec<u8>) {
    let mut bytes = with.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            into.push(byte);
            continue;
        }
        match bytes.next() {
            Some(digit @ b'0'..=b'9') => into.extend_from_slice(group((digit - b'0') as usize)),
            Some(b'&') => into.extend_from_slice(group(0)),
            Some(other) => into.push(other),
            None => into.push(b'\\'),
        }
    }
}

fn failure(error: &pcre2::Error) -> Failure {
    Failure::new(format!("a regular expression gave up: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_text_must_begin_with() {
        for (pattern, prefix) in [
            ("^/live/", "/live/"),
            ("^/live/.*[.]m4s$", "/live/"),
            ("^/lives?/", "/live"),
            ("^a{0}b", ""),
            ("^a|b", ""),
            ("a", ""),
            ("(?i)^a", ""),
            ("^\\d", ""),
            ("^(a)", ""),
            ("^", ""),
        ] {
            assert_eq!(literal_prefix(pattern), prefix, "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn the_prefix_changes_no_answer(pattern in "\\^[ab/?*.$^()|+{}0-2\\[\\]]{0,6}", text in "[ab/\n]{0,6}") {
            if let Ok(regex) = Regex::new(&pattern) {
                let expected = regex.pcre.is_match(text.as_bytes());
                prop_assert_eq!(regex.is_match(text.as_bytes()).ok(), expected.ok());
            }
        }
    }
}
