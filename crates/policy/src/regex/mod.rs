//! Regular expressions: those of PCRE, on bytes, each with limits that end a hopeless match.
//!
//! What needs no backtracking is answered by a [`Regular`] one, with the same answer: PCRE takes some 150 ns for the least
//! of calls.

mod regular;

use std::sync::{Mutex, PoisonError};

use pcre2::bytes::{CaptureLocations, Regex as Pcre, RegexBuilder};

use crate::value::Failure;
use regular::Regular;

/// Steps of a match: 1,000 of them take some 10 µs.
pub(crate) const MATCH_STEPS_MAX: u32 = 10_000;
/// Nested backtracking points of a match.
pub(crate) const MATCH_DEPTH_MAX: u32 = 1_000;
/// Heap of a match, KiB.
pub(crate) const MATCH_HEAP_KIB_MAX: u32 = 1_024;
/// Bytes of an expression.
pub(crate) const REGEX_BYTES_MAX: usize = 16 * 1024;

/// Groups that a replacement can name, and the match itself.
const GROUPS_MAX: usize = 10;

/// Where the groups of a match lie, 0 the match.
type Groups = [Option<(usize, usize)>; GROUPS_MAX];

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Regex {
    pub(crate) pattern: String,
    regular: Option<Regular>,
    pcre: Pcre,
    /// Where PCRE writes groups: as many as there were substitutions at a time.
    spare: Mutex<Vec<CaptureLocations>>,
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
                let regular = Regular::new(pattern);
                Ok(Regex { pattern: pattern.to_owned(), regular, pcre, spare: Mutex::default() })
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
        match self.regular_for(text) {
            Some(regular) => Ok(regular.is_match(text)),
            None => self.pcre.is_match(text).map_err(|error| failure(&error)),
        }
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
                return Err(Failure::new("a substitution needs more than the workspace has"));
            }
            if !all {
                break;
            }
            from = end;
        }
        into.extend_from_slice(&text[copied..]);
        Ok(())
    }

    /// What answers without PCRE, if there is any for this text.
    fn regular_for(&self, text: &[u8]) -> Option<&Regular> {
        self.regular.as_ref().filter(|regular| regular.reads(text))
    }

    /// The first match that begins at `from` or behind, and its groups if they are needed.
    fn find(&self, text: &[u8], from: usize, needs_groups: bool) -> Result<Option<Groups>, Failure> {
        if let Some(regular) = self.regular_for(text) {
            return Ok(regular.find(text, from, needs_groups));
        }
        if needs_groups {
            return self.find_groups(text, from).map_err(|error| failure(&error));
        }
        let found = self.pcre.find_at(text, from).map_err(|error| failure(&error))?;
        Ok(found.map(|found| alone((found.start(), found.end()))))
    }

    /// The same by PCRE, with groups.
    fn find_groups(&self, text: &[u8], from: usize) -> Result<Option<Groups>, pcre2::Error> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut locations = spare.unwrap_or_else(|| self.pcre.capture_locations());
        let found = self.pcre.captures_read_at(&mut locations, text, from)?;
        let groups = found.map(|_| std::array::from_fn(|group| locations.get(group)));
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(locations);
        Ok(groups)
    }
}

/// A match without groups.
fn alone(place: (usize, usize)) -> Groups {
    let mut groups = [None; GROUPS_MAX];
    groups[0] = Some(place);
    groups
}

/// Whether `with` has `\1` to `\9` in it.
fn has_groups(with: &[u8]) -> bool {
    with.windows(2).any(|pair| matches!(pair, [b'\\', b'1'..=b'9']))
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

    /// That what is regular changes no answer: whether there is a match, where, and where its groups lie.
    fn agrees(pattern: &str, text: &str) {
        let Ok(regex) = Regex::new(pattern) else { return };
        if regex.regular.is_none() {
            return;
        }
        let text = text.as_bytes();
        // Interpreted: its compiler has faults (`b??(//?)b?` on `/` in 10.42).
        let pcre = RegexBuilder::new().build(pattern).expect("it was compiled");
        let Ok(expected) = pcre.is_match(text) else { return };
        assert_eq!(regex.is_match(text).ok(), Some(expected), "{pattern:?} on {text:?}");
        let pcre = Regex { regular: None, spare: Mutex::default(), pattern: String::new(), pcre };
        for (with, all) in [("<>", false), ("<>", true), ("<\\0|\\1|\\2>", false), ("<\\0|\\1|\\2>", true)] {
            let substituted = |regex: &Regex| {
                let mut into = Vec::new();
                regex.substitute(text, with.as_bytes(), all, 10_000, &mut into).ok()?;
                Some(String::from_utf8_lossy(&into).into_owned())
            };
            // PCRE may give up.
            let Some(expected) = substituted(&pcre) else { continue };
            assert_eq!(substituted(&regex), Some(expected), "{pattern:?} on {text:?}, {with:?}, all: {all}");
        }
    }

    #[test]
    fn what_policies_say_needs_no_pcre() {
        for pattern in [
            "^/live/",
            "//",
            "^www\\.",
            "\\.(m4s|mp4|ts)([?]|$)",
            "(?i)(iphone|ipad|android)",
            "^/(live|vod)/[^/]+/(audio|video)/[0-9]{1,4}p?/",
            "[[:upper:]]",
            "(?i:no-cache|no-store|private)",
            "^https?://([a-z0-9-]+\\.)?media\\.example$",
        ] {
            assert!(Regex::new(pattern).expect("an expression").regular.is_some(), "{pattern}");
        }
        for pattern in [
            "a*+a", "(?>a)", "(a)\\1", "\\<a", "(?=a)", "[]-a]", "[--a]", "a\\v", "(*UTF)a", "a{,2}",
            "\\Qa\\E", "\\d{2}+",
        ] {
            assert!(Regex::new(pattern).expect("an expression").regular.is_none(), "{pattern}");
        }
    }

    #[test]
    fn ends_and_line_ends_are_those_of_pcre() {
        let patterns = [
            "^",
            "$",
            "^$",
            "$^",
            "$\n",
            "a$",
            "a$\n",
            "$\n$",
            "(^|a)^b",
            "(a|^)(b|$)",
            "^a",
            "(^a)*b",
            ".$",
            "a.b",
            "[^a]$",
            "\\s$",
            "(a|b$)+",
            "(?i)A[^B]",
            "[]a]",
            "[a-]",
            "[^]a]",
            "[--a]",
            "a{2}",
            "(a|b){1,2}$",
            "a{1}b",
            "\\n",
            "a?$",
        ];
        let texts =
            ["", "\n", "\n\n", "a", "a\n", "b", "ab", "ab\n", "aab", "a\nb", "\r\n", "AbB", "]-", "é"];
        for (pattern, text) in patterns.iter().flat_map(|pattern| texts.map(|text| (*pattern, text))) {
            agrees(pattern, text);
        }
    }

    #[test]
    fn groups_lie_where_pcre_says() {
        agrees("(/+?|^a){0}$", "a");
        agrees("^/(live|vod)/[^/]+/(audio|video)/([0-9]+p?)/.*$", "/vod/a/audio/128/x");
        agrees("(utm_[a-z]+|gclid|fbclid)=[^&]*&?", "/a?b=1&utm_source=x&gclid=&c=2");
    }

    /// A part of a pattern within `depth` groups.
    fn part(depth: u32) -> BoxedStrategy<String> {
        let atom = prop_oneof![
            8 => "[ab/]",
            2 => "[AB.-]|\\[\\^?[]ab/-]{1,3}\\]|\\\\[dDsSwWnrt.]",
            1 => "[$^]|\\[\\[:(alpha|upper|digit):\\]b?\\]",
        ]
        .boxed();
        let inner = if depth == 0 {
            atom
        } else {
            prop_oneof![
                3 => atom,
                1 => ("\\((\\?:|\\?i:)?", prop::collection::vec(part(depth - 1), 0..3), part(depth - 1))
                    .prop_map(|(open, branches, last)| format!("{open}{})", [branches, vec![last]].concat().join("|"))),
            ]
            .boxed()
        };
        let one = (inner, prop_oneof![3 => "", 1 => "[?*+]", 1 => "[?*+]\\?|\\{[0-2],?[0-2]?\\}"]);
        prop::collection::vec(one.prop_map(|(atom, repeat)| atom + &repeat), 1..4)
            .prop_map(|parts| parts.concat())
            .boxed()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3_000))]

        #[test]
        fn what_is_regular_changes_no_answer(
            pattern in ("(\\(\\?i\\)|\\^)?", part(2), "[$]?").prop_map(|(begin, part, end)| begin + &part + &end),
            texts in prop::collection::vec("[ab/]{0,9}|[aAb/1 \r\n-]{0,7}", 4),
        ) {
            for text in texts {
                agrees(&pattern, &text);
            }
        }
    }
}
