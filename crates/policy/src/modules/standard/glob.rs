//! Shell patterns for `std.fnmatch` (vmod_std(3); POSIX.1-2017 XCU §2.13; fnmatch(3) of glibc in
//! the C locale).
//!
//! Supports `*`, `?`, bracket expressions with ranges, classes (`[:digit:]`) and single characters
//! in `[. .]` and `[= =]`, and `\` to quote a character. `?` matches one byte. An unclosed bracket
//! is a literal `[`.
//!
//! **Invariant:** the matching time is at most proportional to pattern length times subject length,
//! because only the last `*` is backtracked. Backtracking further is unnecessary, because the last
//! `*` can skip any bytes that an earlier `*` could.

/// Matching options; [`Default`] uses the defaults of `std.fnmatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags {
    /// Whether only a literal `/` matches `/`.
    pub pathname: bool,
    /// Whether `\` is an ordinary character.
    pub noescape: bool,
    /// Whether only a literal `.` matches a leading `.`, at the start of the subject or, with
    /// `pathname`, after a `/`.
    pub period: bool,
}

impl Default for Flags {
    fn default() -> Flags {
        Flags { pathname: true, noescape: false, period: false }
    }
}

/// Returns whether `pattern` matches all of `subject`.
pub fn matches(pattern: &[u8], subject: &[u8], flags: Flags) -> bool {
    let (mut rest, mut at) = (pattern, 0);
    // The pattern after the last `*`, and the subject position where it was last tried.
    let mut star: Option<(&[u8], usize)> = None;
    loop {
        if rest.is_empty() && at == subject.len() {
            return true;
        }
        if rest.first() == Some(&b'*') && !is_leading_period(subject, at, flags) {
            rest = &rest[1..];
            star = Some((rest, at));
            continue;
        }
        if let Some(token_bytes) = match_one(rest, subject, at, flags) {
            rest = &rest[token_bytes..];
            at += 1;
            continue;
        }
        let Some((after, tried)) = star else { return false };
        match subject.get(tried) {
            Some(byte) if !(flags.pathname && *byte == b'/') => {
                (rest, at) = (after, tried + 1);
                star = Some((after, tried + 1));
            }
            _ => return false,
        }
    }
}

fn is_leading_period(subject: &[u8], at: usize, flags: Flags) -> bool {
    flags.period && subject.get(at) == Some(&b'.') && (at == 0 || (flags.pathname && subject[at - 1] == b'/'))
}

/// Returns the length of the first token of `pattern` if that token matches the byte at position
/// `at` of `subject`.
fn match_one(pattern: &[u8], subject: &[u8], at: usize, flags: Flags) -> Option<usize> {
    let byte = *subject.get(at)?;
    let literal_only = (flags.pathname && byte == b'/') || is_leading_period(subject, at, flags);
    let (token_bytes, matched) = match pattern {
        [] | [b'*', ..] => return None,
        [b'?', ..] => (1, !literal_only),
        [b'\\', escaped @ ..] if !flags.noescape => (2, escaped.first() == Some(&byte)),
        [b'[', expression @ ..] => match bracket(expression, byte, flags) {
            Some((expression_bytes, matched)) => (1 + expression_bytes, matched && !literal_only),
            None => (1, byte == b'['),
        },
        [literal, ..] => (1, *literal == byte),
    };
    matched.then_some(token_bytes)
}

/// Returns the length of a bracket expression including its `]`, and whether the expression matches
/// `byte`; `None` if it is unclosed. An expression with an unknown class or a multi-character
/// collating element matches nothing.
fn bracket(expression: &[u8], byte: u8, flags: Flags) -> Option<(usize, bool)> {
    let negated = matches!(expression.first(), Some(b'!' | b'^'));
    let mut rest = if negated { &expression[1..] } else { expression };
    let (mut matched, mut valid, mut first) = (false, true, true);
    loop {
        if rest.first()? == &b']' && !first {
            let bytes = expression.len() - rest.len() + 1;
            return Some((bytes, valid && matched != negated));
        }
        first = false;
        if let Some((class, after)) = enclosed(rest, b':') {
            match is_of_class(class, byte) {
                Some(of_class) => matched |= of_class,
                None => valid = false,
            }
            rest = after;
            continue;
        }
        let (low, after) = element(rest, flags)?;
        rest = after;
        let mut high = low;
        if let [b'-', end @ ..] = rest
            && end.first()? != &b']'
        {
            (high, rest) = element(end, flags)?;
        }
        match (low, high) {
            (Some(low), Some(high)) => matched |= (low..=high).contains(&byte),
            _ => valid = false,
        }
    }
}

/// Reads one character of a bracket expression; also returns the rest. The character is `None` for
/// a multi-character element.
fn element(text: &[u8], flags: Flags) -> Option<(Option<u8>, &[u8])> {
    for kind in [b'.', b'='] {
        if let Some((name, after)) = enclosed(text, kind) {
            return Some((name.first().copied().filter(|_| name.len() == 1), after));
        }
    }
    match text {
        [b'\\', escaped, after @ ..] if !flags.noescape => Some((Some(*escaped), after)),
        [b'\\'] if !flags.noescape => None,
        [byte, after @ ..] => Some((Some(*byte), after)),
        [] => None,
    }
}

/// Returns the bytes within `[: :]`, or within another pair with the delimiter `kind`; also returns
/// the rest.
fn enclosed(text: &[u8], kind: u8) -> Option<(&[u8], &[u8])> {
    let inner = text.strip_prefix(&[b'[', kind])?;
    let end = inner.windows(2).position(|pair| pair == [kind, b']'])?;
    Some((&inner[..end], &inner[end + 2..]))
}

/// Returns whether `byte` is in `class`, one of the character classes of POSIX.1-2017 XBD §9.3.5,
/// item 6, in the C locale; `None` if the class is unknown.
fn is_of_class(class: &[u8], byte: u8) -> Option<bool> {
    Some(match class {
        b"alnum" => byte.is_ascii_alphanumeric(),
        b"alpha" => byte.is_ascii_alphabetic(),
        b"blank" => matches!(byte, b' ' | b'\t'),
        b"cntrl" => byte.is_ascii_control(),
        b"digit" => byte.is_ascii_digit(),
        b"graph" => byte.is_ascii_graphic(),
        b"lower" => byte.is_ascii_lowercase(),
        b"print" => byte.is_ascii_graphic() || byte == b' ',
        b"punct" => byte.is_ascii_punctuation(),
        b"space" => super::is_space(byte),
        b"upper" => byte.is_ascii_uppercase(),
        b"xdigit" => byte.is_ascii_hexdigit(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PATH: Flags = Flags { pathname: true, noescape: false, period: false };
    const PLAIN: Flags = Flags { pathname: false, ..PATH };
    const NOESCAPE: Flags = Flags { noescape: true, ..PATH };
    const PERIOD: Flags = Flags { period: true, ..PATH };
    const PLAIN_PERIOD: Flags = Flags { period: true, ..PLAIN };

    /// Pattern, subject, flags, and the result of varnishd 7.1.1 with glibc.
    const CASES: &[(&str, &str, Flags, bool)] = &[
        ("/foo/*", "/foo/bar", PATH, true),
        ("/foo/*", "/foo/bar/x", PATH, false),
        ("/foo/*", "/foo/bar/x", PLAIN, true),
        ("/foo/*/*", "/foo/baz/quux", PATH, true),
        ("/foo/?ar", "/foo/car", PATH, true),
        ("/foo/[!0-9]", "/foo/1", PATH, false),
        ("/foo/[!0-9]", "/foo/a", PATH, true),
        ("/foo/[^0-9]", "/foo/a", PATH, true),
        ("", "", PATH, true),
        ("*", "", PATH, true),
        ("?", "", PATH, false),
        ("**", "a/b", PATH, false),
        ("*/*", "a/b", PATH, true),
        ("a*", "a", PATH, true),
        ("a*b*c", "aXbYc", PATH, true),
        ("*a*a*b", "aaab", PATH, true),
        ("?", "/", PATH, false),
        ("?", "/", PLAIN, true),
        ("[/]", "/", PATH, false),
        ("[/]", "/", PLAIN, true),
        ("a[/]b", "a/b", PATH, false),
        ("[a/b]", "b", PATH, true),
        ("x[a/]", "xa", PATH, true),
        ("[!a]", "/", PATH, false),
        ("[!a]", "/", PLAIN, true),
        ("[a-c]", "b", PATH, true),
        ("[a-]", "-", PATH, true),
        ("[z-a]", "z", PATH, false),
        ("[a-c-e]", "-", PATH, true),
        ("[a-c-e]", "d", PATH, false),
        ("[]a]", "]", PATH, true),
        ("[]-a]", "^", PATH, true),
        ("[!]a]", "b", PATH, true),
        ("[^]a]", "b", PATH, true),
        ("[!!]", "a", PATH, true),
        ("[!!]", "!", PATH, false),
        ("[--0]", ".", PLAIN, true),
        ("[\\a-\\c]", "b", PATH, true),
        ("[a\\-c]", "b", PATH, false),
        ("[a\\-c]", "-", PATH, true),
        ("[a\\]b]", "]", PATH, true),
        ("[\\\\]", "\\", PATH, true),
        ("[\\a]", "\\", NOESCAPE, true),
        ("[a", "[a", PATH, true),
        ("[", "[", PATH, true),
        ("[]", "]", PATH, false),
        ("[]", "[]", PATH, true),
        ("*[", "a[", PATH, true),
        ("[a\\]", "[a]", PATH, true),
        ("a\\*", "a*", PATH, true),
        ("a\\*", "ab", PATH, false),
        ("a\\*", "a\\b", NOESCAPE, true),
        ("\\", "\\", PATH, false),
        ("a\\", "a", PATH, false),
        ("a\\", "a\\", PATH, false),
        ("[[:digit:]]", "5", PATH, true),
        ("[[:alpha:][:digit:]]", "7", PATH, true),
        ("[[:alpha:]-z]", "-", PATH, true),
        ("[[:upper:]]", "a", PATH, false),
        ("[[:punct:]]", "!", PATH, true),
        ("[[:alnum:]]", "_", PATH, false),
        ("[[:print:]]", " ", PATH, true),
        ("[[:graph:]]", " ", PATH, false),
        ("[[:foo:]]", "a", PATH, false),
        ("[[:digit:]", "5", PATH, false),
        ("[0-[:digit:]]", "5", PATH, false),
        ("[[.a.]]", "a", PATH, true),
        ("[[=-=]]", "-", PATH, true),
        ("[[.ab.]]", "a", PATH, false),
        ("*", ".x", PATH, true),
        ("*", ".x", PERIOD, false),
        ("*.x", ".x", PERIOD, false),
        ("?x", ".x", PERIOD, false),
        ("[.]x", ".x", PERIOD, false),
        ("/*", "/.x", PERIOD, false),
        ("*/.x", "a/.x", PERIOD, true),
        ("/*", "/.x", PLAIN_PERIOD, true),
        ("?", "/", PLAIN_PERIOD, true),
        ("?", "é", PATH, false),
        ("??", "é", PATH, true),
        ("é", "é", PATH, true),
    ];

    #[test]
    fn patterns_match_as_in_glibc() {
        for &(pattern, subject, flags, expected) in CASES {
            assert_eq!(
                matches(pattern.as_bytes(), subject.as_bytes(), flags),
                expected,
                "{pattern} {subject} {flags:?}"
            );
        }
    }

    #[test]
    fn many_stars_stay_within_the_time_bound() {
        let pattern = "*a".repeat(2000);
        assert!(!matches(pattern.as_bytes(), format!("{}b", "a".repeat(4000)).as_bytes(), PATH));
    }

    /// Reference implementation, slow but simple: tries every length for every `*`.
    fn matches_by_trying(pattern: &[u8], subject: &[u8], at: usize, flags: Flags) -> bool {
        match pattern.first() {
            None => at == subject.len(),
            Some(b'*') if is_leading_period(subject, at, flags) => false,
            Some(b'*') => (at..=subject.len())
                .take_while(|end| !flags.pathname || !subject[at..*end].contains(&b'/'))
                .any(|end| matches_by_trying(&pattern[1..], subject, end, flags)),
            Some(_) => match_one(pattern, subject, at, flags)
                .is_some_and(|bytes| matches_by_trying(&pattern[bytes..], subject, at + 1, flags)),
        }
    }

    proptest! {
        #[test]
        fn backtracking_the_last_star_suffices(
            pattern in r"[*?ab/.\[\]!\\-]{0,8}", subject in "[ab/.]{0,8}", pathname: bool, noescape: bool, period: bool
        ) {
            let flags = Flags { pathname, noescape, period };
            let (pattern, subject) = (pattern.as_bytes(), subject.as_bytes());
            prop_assert_eq!(matches(pattern, subject, flags), matches_by_trying(pattern, subject, 0, flags));
        }

        #[test]
        fn no_input_panics(
            pattern in proptest::collection::vec(any::<u8>(), 0..16), subject in proptest::collection::vec(any::<u8>(), 0..16)
        ) {
            matches(&pattern, &subject, PATH);
        }

        #[test]
        fn escaped_text_matches_itself(text in proptest::collection::vec(any::<u8>(), 0..16)) {
            let pattern: Vec<u8> = text.iter().flat_map(|byte| [b'\\', *byte]).collect();
            prop_assert!(matches(&pattern, &text, PERIOD));
        }
    }
}
