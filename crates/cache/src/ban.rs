//! Ban expressions: which stored responses are no longer to be served, by what they are rather than by name.
//!
//! ```text
//! req.url ~ "^/live/" && obj.http.content-type == "video/mp4"
//! ```
//!
//! Conditions joined by `&&`, each a name, an operator and a value, as in Varnish's `ban`. A regular expression is
//! searched for anywhere; the syntax is that of the crate `regex`, over bytes, and takes time linear in the text. A field
//! that is absent is unequal to everything and matches nothing.
//!
//! Pure: what is tested is handed in as a [`Subject`].

use std::borrow::Cow;
use std::fmt;

use regex::bytes::{Regex, RegexBuilder};
use thalweg_http::Fields;
use thalweg_http::token::is_token;

/// The longest expression.
pub const EXPRESSION_BYTES_MAX: usize = 4096;
/// What one compiled regular expression may take up.
const REGEX_BYTES_MAX: usize = 1 << 20;

const TEXT_OPERATORS: &str = "== != ~ !~";
const NUMBER_OPERATORS: &str = "== != < > <= >=";
const NAMES: &str = "req.url, req.http.host, obj.status, obj.age, obj.http.NAME";

/// What an expression is tested against.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Host and port that it was asked for.
    pub host: &'a str,
    /// Path and query that it was asked for.
    pub url: &'a str,
    /// Status code.
    pub status: u16,
    /// Response fields.
    pub fields: [&'a Fields; 2],
    /// Age in seconds when the ban was made.
    pub age_s: u64,
}

/// A parsed expression.
#[derive(Debug)]
pub struct Expression {
    text: Box<str>,
    conditions: Vec<Condition>,
}

#[derive(Debug)]
enum Condition {
    Text { name: TextName, negated: bool, test: Test },
    Number { name: NumberName, operator: Comparison, value: u64 },
}

#[derive(Debug)]
enum TextName {
    Url,
    Host,
    Field(Box<str>),
}

#[derive(Debug)]
enum Test {
    Equals(Box<str>),
    Matches(Regex),
}

#[derive(Debug, Clone, Copy)]
enum NumberName {
    Status,
    Age,
}

#[derive(Debug, Clone, Copy)]
enum Comparison {
    Equal,
    Unequal,
    Less,
    Greater,
    AtMost,
    AtLeast,
}

/// Why a text is no expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpressionError {
    /// Where, in characters from 1.
    pub column: usize,
    /// What is wrong, and what is allowed.
    pub message: String,
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.message)
    }
}

impl std::error::Error for ExpressionError {}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// Where it goes wrong, and what is allowed there.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let text = text.trim();
        if text.len() > EXPRESSION_BYTES_MAX {
            let message = format!("an expression has at most {EXPRESSION_BYTES_MAX} bytes");
            return Err(ExpressionError { column: 1, message });
        }
        let mut input = Input { text, at: 0 };
        let mut conditions = vec![condition(&mut input)?];
        loop {
            let start = input.start_of_word();
            match input.word() {
                "" if start == text.len() => break,
                "&&" => conditions.push(condition(&mut input)?),
                "||" => {
                    return Err(input.error(start, "only && joins conditions; make two bans of it".into()));
                }
                other => {
                    return Err(input.error(start, format!("{other:?} where && or the end is expected")));
                }
            }
        }
        Ok(Self { text: text.into(), conditions })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether what it is about depends on when it was made.
    pub fn has_age(&self) -> bool {
        let is_age = |it: &Condition| matches!(it, Condition::Number { name: NumberName::Age, .. });
        self.conditions.iter().any(is_age)
    }

    /// Whether every condition holds.
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        self.conditions.iter().all(|condition| condition.holds(subject))
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Condition {
    fn holds(&self, subject: &Subject<'_>) -> bool {
        match self {
            Self::Text { name, negated, test } => {
                let found = match name {
                    TextName::Url => test.holds(subject.url.as_bytes()),
                    TextName::Host => test.holds(subject.host.as_bytes()),
                    TextName::Field(name) => field(subject, name).is_some_and(|value| test.holds(&value)),
                };
                found != *negated
            }
            Self::Number { name, operator, value } => {
                let found = match name {
                    NumberName::Status => u64::from(subject.status),
                    NumberName::Age => subject.age_s,
                };
                operator.holds(found, *value)
            }
        }
    }
}

/// All lines of a field, joined as RFC 9110 §5.3 says.
fn field<'a>(subject: &Subject<'a>, name: &'a str) -> Option<Cow<'a, [u8]>> {
    let mut lines = subject.fields.into_iter().flat_map(|fields| fields.get_all(name));
    let first = Cow::Borrowed(lines.next()?);
    Some(lines.fold(first, |joined, line| Cow::Owned([&joined, &b", "[..], line].concat())))
}

impl Test {
    fn holds(&self, value: &[u8]) -> bool {
        match self {
            Self::Equals(text) => text.as_bytes() == value,
            Self::Matches(regex) => regex.is_match(value),
        }
    }
}

impl Comparison {
    fn of(operator: &str) -> Option<Self> {
        Some(match operator {
            "==" => Self::Equal,
            "!=" => Self::Unequal,
            "<" => Self::Less,
            ">" => Self::Greater,
            "<=" => Self::AtMost,
            ">=" => Self::AtLeast,
            _ => return None,
        })
    }

    fn holds(self, found: u64, value: u64) -> bool {
        match self {
            Self::Equal => found == value,
            Self::Unequal => found != value,
            Self::Less => found < value,
            Self::Greater => found > value,
            Self::AtMost => found <= value,
            Self::AtLeast => found >= value,
        }
    }
}

/// What is left to be read.
struct Input<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Input<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn start_of_word(&mut self) -> usize {
        self.at = self.text.len() - self.rest().trim_start().len();
        self.at
    }

    /// Up to the next white space.
    fn word(&mut self) -> &'a str {
        self.start_of_word();
        let word = self.rest().split(char::is_whitespace).next().unwrap_or_default();
        self.at += word.len();
        word
    }

    /// A word, or a text in quotes, in which a backslash stands for itself but before a quote.
    fn value(&mut self) -> Result<Cow<'a, str>, ExpressionError> {
        let start = self.start_of_word();
        let Some(quoted) = self.rest().strip_prefix('"') else {
            let word = self.word();
            return match word {
                "" | "&&" => Err(self.error(start, "a value is expected, such as \"^/live/\"".into())),
                word if word.contains('"') => {
                    Err(self.error(start, format!("{word}: a value with quotes begins with one")))
                }
                word => Ok(Cow::Borrowed(word)),
            };
        };
        let mut escaped = false;
        for (at, character) in quoted.char_indices() {
            match character {
                '"' if !escaped => {
                    self.at = start + 1 + at + 1;
                    return Ok(match &quoted[..at] {
                        text if text.contains("\\\"") => Cow::Owned(text.replace("\\\"", "\"")),
                        text => Cow::Borrowed(text),
                    });
                }
                '\\' => escaped = !escaped,
                _ => escaped = false,
            }
        }
        Err(self.error(start, "a quote that does not end".into()))
    }

    fn error(&self, at: usize, message: String) -> ExpressionError {
        ExpressionError { column: self.text[..at].chars().count() + 1, message }
    }
}

fn condition(input: &mut Input<'_>) -> Result<Condition, ExpressionError> {
    let start = input.start_of_word();
    let name = input.word();
    if let Some(number) = number_name(name) {
        return number_condition(input, name, number);
    }
    let text = match (name, name.get(..9)) {
        ("req.url", _) => TextName::Url,
        (name, _) if name.eq_ignore_ascii_case("req.http.host") => TextName::Host,
        (_, Some("obj.http.")) if is_token(&name.as_bytes()[9..]) => TextName::Field(name[9..].into()),
        ("", _) => return Err(input.error(start, format!("a condition is expected; names are {NAMES}"))),
        _ => return Err(input.error(start, format!("{name:?} is not known; names are {NAMES}"))),
    };
    let at = input.start_of_word();
    let operator = input.word();
    let (negated, is_regex) = match operator {
        "==" => (false, false),
        "!=" => (true, false),
        "~" => (false, true),
        "!~" => (true, true),
        _ => return Err(wrong_operator(input, at, name, operator, TEXT_OPERATORS)),
    };
    let at = input.start_of_word();
    let value = input.value()?;
    let test = if is_regex {
        let regex = RegexBuilder::new(&value).unicode(false).size_limit(REGEX_BYTES_MAX).build();
        Test::Matches(regex.map_err(|error| input.error(at, one_line(&error)))?)
    } else {
        Test::Equals(value.into())
    };
    Ok(Condition::Text { name: text, negated, test })
}

fn number_name(name: &str) -> Option<NumberName> {
    match name {
        "obj.status" => Some(NumberName::Status),
        "obj.age" => Some(NumberName::Age),
        _ => None,
    }
}

fn number_condition(
    input: &mut Input<'_>,
    text: &str,
    name: NumberName,
) -> Result<Condition, ExpressionError> {
    let at = input.start_of_word();
    let operator = input.word();
    let operator = Comparison::of(operator)
        .ok_or_else(|| wrong_operator(input, at, text, operator, NUMBER_OPERATORS))?;
    let at = input.start_of_word();
    let value = input.value()?;
    let (number, form) = match name {
        NumberName::Status => (value.parse().ok(), "a status code such as 404"),
        NumberName::Age => (seconds(&value), "an age such as 90, 90s, 15m, 2h or 1d"),
    };
    let value = number.ok_or_else(|| input.error(at, format!("{value:?} is not {form}")))?;
    Ok(Condition::Number { name, operator, value })
}

fn wrong_operator(input: &Input<'_>, at: usize, name: &str, found: &str, known: &str) -> ExpressionError {
    input.error(at, format!("{found:?} is no operator of {name}; it takes {known}"))
}

/// Seconds, or a number with a unit.
fn seconds(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_s: u64 = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit_s)
}

/// The last line of what the parser says is the reason; those before draw the place.
fn one_line(error: &regex::Error) -> String {
    let text = error.to_string();
    let reason = text.lines().last().unwrap_or_default();
    format!("the regular expression is malformed: {}", reason.trim_start_matches("error: "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    fn check(text: &str, expect: Expect) {
        let said = match Expression::parse(text) {
            Ok(_) => "fine".to_owned(),
            Err(error) => error.to_string(),
        };
        expect.assert_eq(&said);
    }

    fn matches(text: &str) -> bool {
        let fields: Fields =
            [("Content-Type", "video/mp4"), ("X-A", "1"), ("x-a", "2")].into_iter().collect();
        let subject = Subject {
            host: "media.example",
            url: "/live/a.mp4?b=\"c\"",
            status: 404,
            fields: [&fields, &Fields::new()],
            age_s: 100,
        };
        Expression::parse(text).unwrap().matches(&subject)
    }

    #[test]
    fn all_conditions_must_hold() {
        assert!(matches(r#"req.url ~ "^/live/" && obj.http.content-type == "video/mp4""#));
        assert!(!matches(r#"req.url ~ "^/live/" && obj.http.content-type == "video/mp2t""#));
        assert!(matches("req.http.host == media.example && req.url !~ ^/vod/ && obj.status != 200"));
        assert!(matches(r#"req.url ~ "\.mp4\?b=\"c\"$""#));
        assert!(!matches(r#"req.url ~ "[.]MP4""#));
        assert!(matches(r#"req.url ~ "(?i)[.]MP4""#));
        assert!(matches("obj.http.x-a == \"1, 2\""));
    }

    #[test]
    fn numbers_compare() {
        for (text, expected) in [
            ("obj.status == 404", true),
            ("obj.status >= 400 && obj.status < 500", true),
            ("obj.status > 404", false),
            ("obj.age > 1m", true),
            ("obj.age <= 100s", true),
            ("obj.age < 100", false),
            ("obj.age >= 2h", false),
            ("obj.age < 1d", true),
            ("obj.age < 1w", true),
        ] {
            assert_eq!(matches(text), expected, "{text}");
        }
    }

    #[test]
    fn an_absent_field_is_unequal_and_matches_nothing() {
        assert!(!matches("obj.http.x-b == \"\""));
        assert!(!matches("obj.http.x-b ~ ."));
        assert!(matches("obj.http.x-b != a && obj.http.x-b !~ a"));
    }

    #[test]
    fn an_error_says_where_and_what_is_allowed() {
        check(
            "",
            expect![
                "column 1: a condition is expected; names are req.url, req.http.host, obj.status, obj.age, obj.http.NAME"
            ],
        );
        check(
            "req.url ~ a && req.method == GET",
            expect![[
                r#"column 16: "req.method" is not known; names are req.url, req.http.host, obj.status, obj.age, obj.http.NAME"#
            ]],
        );
        check("req.url = a", expect![[r#"column 9: "=" is no operator of req.url; it takes == != ~ !~"#]]);
        check(
            "obj.status ~ 4",
            expect![[r#"column 12: "~" is no operator of obj.status; it takes == != < > <= >="#]],
        );
        check("obj.status == ok", expect![[r#"column 15: "ok" is not a status code such as 404"#]]);
        check("obj.age > 3x", expect![[r#"column 11: "3x" is not an age such as 90, 90s, 15m, 2h or 1d"#]]);
        check("req.url ~", expect![[r#"column 10: a value is expected, such as "^/live/""#]]);
        check("req.url ~ \"a", expect!["column 11: a quote that does not end"]);
        check("req.url ~ \"a(\"", expect!["column 11: the regular expression is malformed: unclosed group"]);
        check(
            "req.url ~ a || req.url ~ b",
            expect!["column 13: only && joins conditions; make two bans of it"],
        );
        check("req.url ~ a b", expect![[r#"column 13: "b" where && or the end is expected"#]]);
        check("req.url == \"a\"b", expect![[r#"column 15: "b" where && or the end is expected"#]]);
        check(
            "req.url ~ a{1000}{1000}{1000}",
            expect![
                "column 11: the regular expression is malformed: Compiled regex exceeds size limit of 1048576 bytes."
            ],
        );
        check(&"a".repeat(5000), expect!["column 1: an expression has at most 4096 bytes"]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in r#"(req\.url|obj\.status|obj\.age|obj\.http\.a|==|~|&&|"|\\| |é|[a-z(\[0-9]){0,12}"#) {
            match Expression::parse(&text) {
                Ok(expression) => prop_assert_eq!(expression.as_str(), text.trim()),
                Err(error) => prop_assert!(error.column <= text.chars().count() + 1),
            }
        }
    }
}
