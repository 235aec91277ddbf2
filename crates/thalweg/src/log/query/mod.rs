//! Which records `thalweg log -q` shows: a small expression over the fields of a record's JSON line.
//!
//! ```text
//! tcpi.rtt > 100ms and path ~ ".m4s$" or not complete
//! expression = all { "or" all }        all = one { "and" one }
//! one = "not" one | "(" expression ")" | FIELD [ OPERATOR VALUE ]
//! ```
//!
//! A field that a record lacks is equal to nothing, matches nothing and has no order, so `!=` and `!~` hold for it. A field
//! alone holds where the record has it, `complete` where it is true. Of logged lines any may do. A regular expression is
//! searched for anywhere; the syntax is that of the crate `regex`, over bytes.
//!
//! Pure but for `10min ago`. It is no ban expression (`cache::ban`): that has neither `or` nor units, and its values need no quotes.

mod fields;
mod lex;
mod parse;
mod time;

use std::fmt;
use std::time::SystemTime;

use regex::bytes::Regex;
use serde_json::Value;

use fields::{Field, Kind};
use time::Moment;

pub(crate) use fields::reference;

/// The longest expression.
const EXPRESSION_BYTES_MAX: usize = 4096;
/// How deep parentheses and `not` may nest.
const NESTING_MAX: usize = 64;
/// What one compiled regular expression may take up.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// An expression that was understood.
#[derive(Debug, Clone)]
pub(crate) struct Query(Node);

#[derive(Debug, Clone)]
enum Node {
    Any(Vec<Node>),
    All(Vec<Node>),
    Not(Box<Node>),
    Test(&'static Field, Test),
}

#[derive(Debug, Clone)]
enum Test {
    Present,
    Matches { regex: Regex, negated: bool },
    Text { is: Comparison, text: String },
    Number { is: Comparison, number: f64 },
    Truth { is: Comparison, truth: bool },
    Time { is: Comparison, moment: Moment },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

impl Query {
    /// Reads an expression; what is some time ago in it is so from now.
    ///
    /// # Errors
    /// Where it goes wrong, and what is allowed there.
    pub(crate) fn parse(text: &str) -> Result<Self, QueryError> {
        parse::parse(text, SystemTime::now()).map(Self)
    }

    /// Whether it holds for a record's JSON.
    pub(super) fn holds(&self, record: &Value) -> bool {
        self.0.holds(record)
    }
}

impl Node {
    fn holds(&self, record: &Value) -> bool {
        match self {
            Node::Any(nodes) => nodes.iter().any(|node| node.holds(record)),
            Node::All(nodes) => nodes.iter().all(|node| node.holds(record)),
            Node::Not(node) => !node.holds(record),
            Node::Test(field, test) => test.holds(field, record),
        }
    }
}

impl Test {
    fn holds(&self, field: &Field, record: &Value) -> bool {
        let found = field.values(record);
        let some = |test: &dyn Fn(&Value) -> bool| found.iter().any(|value| test(value));
        match self {
            Test::Present if matches!(field.kind, Kind::Truth) => some(&|value| value == true),
            Test::Present => !found.is_empty(),
            Test::Matches { regex, negated } => {
                some(&|value| value.as_str().is_some_and(|text| regex.is_match(text.as_bytes()))) != *negated
            }
            Test::Text { is, text } => is.holds(|is| {
                some(&|value| value.as_str().is_some_and(|found| is.of(found.partial_cmp(text.as_str()))))
            }),
            Test::Number { is, number } => is.holds(|is| {
                some(&|value| value.as_f64().is_some_and(|found| is.of(found.partial_cmp(number))))
            }),
            Test::Truth { is, truth } => is.holds(|is| {
                some(&|value| value.as_bool().is_some_and(|found| is.of(found.partial_cmp(truth))))
            }),
            Test::Time { is, moment } => is.holds(|is| {
                some(&|value| match value.as_str().and_then(Moment::parse) {
                    Some(Moment::Unix(unix_us)) => {
                        let (found, wanted) = moment.beside(unix_us);
                        is.of(found.partial_cmp(&wanted))
                    }
                    _ => false,
                })
            }),
        }
    }
}

impl Comparison {
    /// Unequal is what is not equal, also where there is nothing to compare with.
    fn holds(self, test: impl FnOnce(Self) -> bool) -> bool {
        if self == Self::Unequal { !test(Self::Equal) } else { test(self) }
    }

    fn of(self, order: Option<std::cmp::Ordering>) -> bool {
        let Some(order) = order else { return false };
        match self {
            Self::Equal => order.is_eq(),
            Self::Unequal => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::AtMost => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::AtLeast => order.is_ge(),
        }
    }
}

/// Why a text is no expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueryError {
    /// What is wrong, and what is allowed.
    message: String,
    /// The expression with its faulty part marked.
    marked: String,
    /// It is about a field: all that there are are listed.
    lists_fields: bool,
}

impl QueryError {
    /// A fault at these bytes of `text`.
    fn new(text: &str, place: std::ops::Range<usize>, message: String) -> Self {
        // In one line of the terminal, with nothing in it that moves the caret.
        let shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let before = text[..place.start].chars().count();
        let width = text[place].chars().count().max(1);
        let line = format!("  {shown}");
        let marked = format!("\n{}\n  {:before$}{:^<width$}", line.trim_end(), "", "");
        Self { message, marked, lists_fields: false }
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.message, self.marked)?;
        if self.lists_fields { write!(f, "\nfields:\n{}", reference("  ")) } else { Ok(()) }
    }
}

impl std::error::Error for QueryError {}

#[cfg(test)]
mod tests;
