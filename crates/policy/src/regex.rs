//! Regular expressions: PCRE2 on bytes, with a limited cost per match.
//!
//! Varnish policies use PCRE features such as look-around, back-references and possessive
//! quantifiers, which linear-time engines lack. The limits bound the time of a match, so that no
//! expression and no subject can stall a worker.

use std::sync::{Mutex, PoisonError};

use pcre2::bytes::{CaptureLocations, Regex as Pcre, RegexBuilder};

use crate::fault::Faults;
use crate::source::Span;
use crate::value::Failure;

/// Maximum number of match steps; 1,000 steps take about 10 µs.
pub(crate) const MATCH_STEPS_MAX: u32 = 10_000;
/// Maximum number of nested backtracking points in a match.
pub(crate) const MATCH_DEPTH_MAX: u32 = 1_000;
/// Maximum heap memory of a match, in KiB.
pub(crate) const MATCH_HEAP_KIB_MAX: u32 = 1_024;
/// Maximum pattern length in bytes.
pub(crate) const REGEX_BYTES_MAX: usize = 16 * 1024;

/// Maximum number of groups: group 0 (the match) and the groups available to a replacement, `\1` to
/// `\9`.
const GROUPS_MAX: usize = 10;

/// The byte range of each group; group 0 is the entire match.
type Groups = [Option<(usize, usize)>; GROUPS_MAX];

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Regex {
    pub(crate) pattern: String,
    pcre: Pcre,
    /// Reusable capture buffers, as many as the peak number of concurrent substitutions.
    spare: Mutex<Vec<CaptureLocations>>,
}

impl Regex {
    /// Compiles `pattern`. The error consists of PCRE's message and the offset of the fault in the
    /// pattern.
    pub(crate) fn new(pattern: &str) -> Result<Regex, String> {
        if pattern.len() > REGEX_BYTES_MAX {
            return Err(format!("longer than {REGEX_BYTES_MAX} bytes"));
        }
        let limits = format!(
            "(*LIMIT_MATCH={MATCH_STEPS_MAX})(*LIMIT_DEPTH={MATCH_DEPTH_MAX})(*LIMIT_HEAP={MATCH_HEAP_KIB_MAX})"
        );
        let build = |pattern: &str| RegexBuilder::new().jit_if_available(true).build(pattern);
        match build(&format!("{limits}{pattern}")) {
            Ok(pcre) => Ok(Regex { pattern: pattern.to_owned(), pcre, spare: Mutex::default() }),
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

    /// Compiles `pattern`, whose position is `span`. Reports an invalid pattern to `faults`.
    pub(crate) fn at(span: Span, pattern: &str, faults: &mut Faults) -> Option<Regex> {
        let report = |error| faults.error(span, format!("invalid regular expression: {error}"));
        Regex::new(pattern).map_err(report).ok()
    }

    /// Returns whether the expression matches anywhere in `text`.
    pub(crate) fn is_match(&self, text: &[u8]) -> Result<bool, Failure> {
        self.pcre.is_match(text).map_err(|error| failure(&error))
    }

    /// Appends `text` to `into`, with the first match or all matches replaced with `with`. In
    /// `with`, `\0` is the match and `\1` to `\9` are its groups. Returns an error if the result
    /// exceeds `bytes_max` bytes.
    pub(crate) fn substitute(
        &self,
        text: &[u8],
        with: &[u8],
        all: bool,
        bytes_max: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let began = into.len();
        let needs_groups = has_groups(with);
        let (mut copied, mut from, mut is_first) = (0, 0, true);
        while from <= text.len() {
            let Some(groups) = self.find(text, from, needs_groups)? else { break };
            let Some((start, end)) = groups[0] else { break };
            // Only the first match may be empty, as in Varnish.
            if start == end && !is_first {
                from = end + 1;
                continue;
            }
            is_first = false;
            into.extend_from_slice(&text[copied..start]);
            expand(with, |group| groups[group].map_or(&[][..], |(start, end)| &text[start..end]), into);
            copied = end;
            if into.len() - began > bytes_max {
                return Err(Failure::new("substitution does not fit in the workspace"));
            }
            if !all {
                break;
            }
            from = end;
        }
        into.extend_from_slice(&text[copied..]);
        Ok(())
    }

    /// Finds the first match that starts at or after `from`, with its groups if needed.
    fn find(&self, text: &[u8], from: usize, needs_groups: bool) -> Result<Option<Groups>, Failure> {
        if needs_groups {
            return self.find_groups(text, from).map_err(|error| failure(&error));
        }
        let found = self.pcre.find_at(text, from).map_err(|error| failure(&error))?;
        Ok(found.map(|found| alone((found.start(), found.end()))))
    }

    /// Like [`find`](Self::find), but with groups.
    fn find_groups(&self, text: &[u8], from: usize) -> Result<Option<Groups>, pcre2::Error> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut locations = spare.unwrap_or_else(|| self.pcre.capture_locations());
        let found = self.pcre.captures_read_at(&mut locations, text, from)?;
        let groups = found.map(|_| std::array::from_fn(|group| locations.get(group)));
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(locations);
        Ok(groups)
    }
}

/// Returns a match with the byte range `range` and no groups.
fn alone(range: (usize, usize)) -> Groups {
    let mut groups = [None; GROUPS_MAX];
    groups[0] = Some(range);
    groups
}

/// Returns whether `with` refers to any of the groups `\1` to `\9`.
fn has_groups(with: &[u8]) -> bool {
    with.windows(2).any(|pair| matches!(pair, [b'\\', b'1'..=b'9']))
}

/// Appends `with`, with `\0` to `\9` replaced by the result of `group`. As in Varnish, drops a
/// backslash before any other byte.
fn expand<'t>(with: &[u8], group: impl Fn(usize) -> &'t [u8], into: &mut Vec<u8>) {
    let mut bytes = with.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            into.push(byte);
            continue;
        }
        match bytes.next() {
            Some(digit @ b'0'..=b'9') => into.extend_from_slice(group((digit - b'0') as usize)),
            Some(other) => into.push(other),
            None => into.push(b'\\'),
        }
    }
}

fn failure(error: &pcre2::Error) -> Failure {
    Failure::new(format!("regular expression match failed: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn substituted(pattern: &str, text: &str, with: &str, all: bool) -> String {
        let mut into = Vec::new();
        let regex = Regex::new(pattern).expect("the pattern is valid");
        regex.substitute(text.as_bytes(), with.as_bytes(), all, 10_000, &mut into).expect("the result fits");
        String::from_utf8(into).expect("the result is ASCII")
    }

    #[test]
    fn pcre_features_match() {
        for (pattern, yes, no) in [
            ("^(?!/admin)", "/live", "/admin/a"),
            ("(?<=a)b", "ab", "cb"),
            ("^(.)\\1$", "aa", "ab"),
            ("^a*+b$", "aab", "aac"),
            ("\\Qa.b\\E", "a.b", "axb"),
        ] {
            let regex = Regex::new(pattern).expect("the pattern is valid");
            assert_eq!(regex.is_match(yes.as_bytes()), Ok(true), "{pattern} on {yes}");
            assert_eq!(regex.is_match(no.as_bytes()), Ok(false), "{pattern} on {no}");
        }
    }

    #[test]
    fn replacement_expands_groups_and_drops_other_backslashes() {
        // varnishd 7.1.1 gives the same result.
        assert_eq!(substituted("a(.)", "xaby", "[\\0\\1]", false), "x[abb]y");
        assert_eq!(substituted("a", "xay", "\\&b", false), "x&by");
        assert_eq!(substituted("a", "xay", "[\\0]\\q\\\\", false), "x[a]q\\y");
        assert_eq!(substituted("(a)|b", "abc", "<\\1>", true), "<a><>c");
    }

    #[test]
    fn catastrophic_match_is_aborted() {
        let regex = Regex::new("^(a+)+$").expect("the pattern is valid");
        let text = format!("{}b", "a".repeat(5_000));
        let failure = regex.is_match(text.as_bytes()).expect_err("the match must exceed its limits");
        assert!(failure.what().starts_with("regular expression match failed"), "{failure}");
    }
}
