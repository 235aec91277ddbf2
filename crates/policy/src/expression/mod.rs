//! Condition expressions over named fields, used by bans and by `thalweg log -q`.
//!
//! ```text
//! tcp.rtt > 100ms && path ~ "\.m4s$" or not complete
//! ```
//!
//! The grammar is that of conditions in policies, with `and`, `or` and `not` as alternative
//! operators. A test consists of a name, a relation and a value, and the value needs no quotes. The
//! lexer, the parser, faults and regular expressions are shared with policies. The caller supplies
//! a [`Schema`], which defines the names and types of the fields, and a [`Record`] to evaluate
//! against.
//!
//! A field may have any number of values. A test holds if any value satisfies it, so only the
//! negated relations `!=` and `!~` hold for an absent field. A negated relation holds if no value
//! satisfies `==` or `~`. A bare name tests whether the field is present or, for [`Kind::Truth`],
//! whether it is true.

mod literal;

use std::cmp::Ordering;
use std::fmt;

use crate::ast::{self, Binary, ExpressionKind, Operator};
use crate::fault::{Faults, Report};
use crate::parse;
use crate::regex::Regex;
use crate::source::{Sources, Span};
use crate::value::{Failure, Value};

pub use literal::Quantity;
use literal::{Literal, Moment};

/// Maximum length of an expression, in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 4096;

/// The fields available to an expression.
pub trait Schema {
    /// The key used to look up a field in a record.
    type Field;

    /// Finds the field called `name` and its kind.
    fn find(&self, name: &str) -> Option<(Self::Field, Kind)>;

    /// Returns advice for an unknown field `name`.
    fn advice(&self, name: &str) -> String;

    /// Returns whether a bare `field` is an error. Should be true if every record has the field,
    /// and selecting all records by mistake would do harm.
    fn needs_comparison(&self, _field: &Self::Field) -> bool {
        false
    }
}

/// The type of a field, which determines its operators.
#[derive(Debug, Clone)]
pub enum Kind {
    /// A string: equality and regular expressions.
    Text,
    /// One of these words; supports the same operators as a string.
    Word(Vec<&'static str>),
    /// A boolean: equality.
    Truth,
    /// A number in a fixed unit: equality and order.
    Number(Quantity),
    /// An RFC 3339 time: equality, order and regular expressions.
    Time,
    /// A group of fields that share this name as a prefix; supports only a presence test.
    Parts,
}

/// The data against which an expression is evaluated.
pub trait Record<F> {
    /// Returns whether `test` holds for any value of `field`.
    fn any(&self, field: &F, test: &mut dyn FnMut(&Value<'_>) -> bool) -> bool;
}

/// A compiled expression over fields `F`.
#[derive(Debug)]
pub struct Expression<F> {
    text: Box<str>,
    root: Node<F>,
}

#[derive(Debug)]
enum Node<F> {
    And(Box<[Node<F>; 2]>),
    Or(Box<[Node<F>; 2]>),
    Not(Box<Node<F>>),
    Present(F),
    /// A field and a regular expression.
    Match(F, Regex),
    Compare(F, Operator, Literal),
}

/// Reason why a string is not a valid expression.
#[derive(Debug, Clone)]
pub struct Error(Report);

impl fmt::Display for Error {
    /// Formats the first fault on one line: column, message and help.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(fault) = self.0.faults.first() else { return Ok(()) };
        write!(f, "column {}: {}", fault.place.column, fault.message)?;
        fault.help.iter().try_for_each(|help| write!(f, "; {help}"))
    }
}

impl std::error::Error for Error {}

impl Error {
    /// Formats all faults for a terminal and marks the position of each in the expression.
    pub fn marked(&self) -> String {
        let marked = self.0.faults.iter().map(|fault| {
            let help = fault.help.iter().map(|help| format!("; {help}")).collect::<String>();
            format!("{}{help}\n{}", fault.message, fault.marked("  "))
        });
        marked.collect::<Vec<_>>().join("\n")
    }
}

impl<F> Expression<F> {
    /// Compiles `text`. Relative times (`ago`) count back from `now_us`, in Unix microseconds.
    ///
    /// # Errors
    ///
    /// Returns all faults in `text` if there are any.
    pub fn compile<S: Schema<Field = F>>(text: &str, schema: &S, now_us: i64) -> Result<Self, Error> {
        let text = text.trim();
        let (mut sources, mut faults) = (Sources::default(), Faults::default());
        let root = if text.len() > EXPRESSION_BYTES_MAX {
            let message = format!("expression is longer than {EXPRESSION_BYTES_MAX} bytes");
            parse::condition("", &mut sources, &mut Faults::default());
            faults.error(Span::default(), message);
            None
        } else {
            let tree = parse::condition(text, &mut sources, &mut faults);
            tree.and_then(|tree| Checker { schema, now_us, faults: &mut faults }.node(&tree))
        };
        match root {
            Some(root) if !faults.has_errors() => Ok(Self { text: text.into(), root }),
            _ => Err(Error(faults.report(&sources))),
        }
    }

    /// Returns the source text, trimmed.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether any test uses a field for which `is_wanted` returns true.
    pub fn names(&self, is_wanted: impl Fn(&F) -> bool + Copy) -> bool {
        self.root.names(is_wanted)
    }

    /// Returns whether the expression holds for `record`.
    ///
    /// # Errors
    ///
    /// Returns an error if a regular expression exceeds its limits.
    pub fn holds(&self, record: &impl Record<F>) -> Result<bool, Failure> {
        self.root.holds(record)
    }
}

impl<F> Node<F> {
    fn names(&self, is_wanted: impl Fn(&F) -> bool + Copy) -> bool {
        match self {
            Node::And(sides) | Node::Or(sides) => sides.iter().any(|side| side.names(is_wanted)),
            Node::Not(inner) => inner.names(is_wanted),
            Node::Present(field) | Node::Match(field, _) | Node::Compare(field, ..) => is_wanted(field),
        }
    }

    fn holds(&self, record: &impl Record<F>) -> Result<bool, Failure> {
        Ok(match self {
            Node::And(sides) => sides[0].holds(record)? && sides[1].holds(record)?,
            Node::Or(sides) => sides[0].holds(record)? || sides[1].holds(record)?,
            Node::Not(inner) => !inner.holds(record)?,
            Node::Present(field) => record.any(field, &mut |value| *value != Value::Bool(false)),
            Node::Match(field, regex) => {
                let mut failure = None;
                let found = record.any(field, &mut |value| {
                    let Value::Text(Some(text)) = value else { return false };
                    regex.is_match(text).unwrap_or_else(|error| {
                        failure = Some(error);
                        false
                    })
                });
                match failure {
                    Some(failure) if !found => return Err(failure),
                    _ => found,
                }
            }
            Node::Compare(field, operator, literal) => {
                record.any(field, &mut |value| operator.accepts(literal.order(value)))
            }
        })
    }
}

impl Literal {
    /// Returns the ordering of `value` relative to this literal.
    fn order(&self, value: &Value<'_>) -> Option<Ordering> {
        match (value, self) {
            (Value::Text(Some(value)), Literal::Text(text)) => Some((**value).cmp(text.as_bytes())),
            (Value::Text(Some(value)), Literal::Time(moment)) => {
                moment.order(std::str::from_utf8(value).ok()?)
            }
            (Value::Int(value), Literal::Number(number)) => (*value as f64).partial_cmp(number),
            (Value::Real(value), Literal::Number(number)) => value.partial_cmp(number),
            (Value::Bool(value), Literal::Truth(truth)) => Some(value.cmp(truth)),
            _ => None,
        }
    }
}

/// Lowers the syntax tree to nodes and resolves fields and literals.
struct Checker<'c, S> {
    schema: &'c S,
    now_us: i64,
    faults: &'c mut Faults,
}

impl<S: Schema> Checker<'_, S> {
    /// Lowers an expression. Returns `None` after a fault.
    fn node(&mut self, tree: &ast::Expression) -> Option<Node<S::Field>> {
        match &tree.kind {
            ExpressionKind::Not(inner) => Some(not(self.node(inner)?)),
            ExpressionKind::Name(name) => {
                let (field, _) = self.find(name, tree.span)?;
                if self.schema.needs_comparison(&field) {
                    let message = format!("every response has {name}: compare it with a value");
                    return self.faults.refuse(tree.span, message);
                }
                Some(Node::Present(field))
            }
            ExpressionKind::Binary(binary) => {
                let Binary { operator, at, left, right } = &**binary;
                if matches!(operator, Operator::And | Operator::Or) {
                    // Check both sides, so that all faults are reported.
                    let (left, right) = (self.node(left), self.node(right));
                    let sides = Box::new([left?, right?]);
                    return Some(if *operator == Operator::And { Node::And(sides) } else { Node::Or(sides) });
                }
                let (ExpressionKind::Name(name), ExpressionKind::Text(text)) = (&left.kind, &right.kind)
                else {
                    return self.faults.refuse(left.span, "the field must be on the left side");
                };
                self.test((name, left.span), (*operator, *at), (text, right.span))
            }
            _ => self.faults.refuse(tree.span, "conditions cannot call functions"),
        }
    }

    fn find(&mut self, name: &str, span: Span) -> Option<(S::Field, Kind)> {
        let found = self.schema.find(name);
        if found.is_none() {
            self.faults.error_help(span, format!("unknown field {name}"), self.schema.advice(name));
        }
        found
    }

    /// Lowers a test, given its field, relation and value, each with its position.
    fn test(
        &mut self,
        (name, name_span): (&str, Span),
        (operator, at): (Operator, Span),
        (text, span): (&str, Span),
    ) -> Option<Node<S::Field>> {
        let (field, kind) = self.find(name, name_span)?;
        let known = kind.operators();
        if !known.contains(&operator) {
            let message = format!("{name} does not support {}", operator.as_str());
            let known: Vec<_> = known.iter().map(|known| known.as_str()).collect();
            let help = if known.is_empty() {
                "use it alone, to test whether any part is present".to_owned()
            } else {
                format!("it supports {}", known.join(" "))
            };
            return self.faults.refuse_help(at, message, help);
        }
        // A negated relation holds if no value satisfies the relation itself.
        let (operator, is_negated) = match operator {
            Operator::NotEqual => (Operator::Equal, true),
            Operator::NotMatch => (Operator::Match, true),
            operator => (operator, false),
        };
        let test = if operator == Operator::Match {
            Node::Match(field, Regex::at(span, text, self.faults)?)
        } else {
            let literal = kind.literal(text, self.now_us);
            let literal = literal
                .map_err(|expected| self.faults.error(span, format!("compare {name} with {expected}")));
            Node::Compare(field, operator, literal.ok()?)
        };
        Some(if is_negated { not(test) } else { test })
    }
}

fn not<F>(node: Node<F>) -> Node<F> {
    Node::Not(Box::new(node))
}

impl Kind {
    fn operators(&self) -> &'static [Operator] {
        use Operator::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Match, NotEqual, NotMatch};
        match self {
            Kind::Text | Kind::Word(_) => &[Equal, NotEqual, Match, NotMatch],
            Kind::Truth => &[Equal, NotEqual],
            Kind::Number(_) => &[Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual],
            Kind::Time => &[Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual, Match, NotMatch],
            Kind::Parts => &[],
        }
    }

    /// Parses `text` as a value of this kind; the error describes the accepted syntax.
    fn literal(&self, text: &str, now_us: i64) -> Result<Literal, String> {
        match self {
            Kind::Text | Kind::Parts => Ok(Literal::Text(text.into())),
            Kind::Word(words) if words.contains(&text) => Ok(Literal::Text(text.into())),
            Kind::Word(words) => Err(format!("one of {}", words.join(", "))),
            Kind::Truth => text.parse().map(Literal::Truth).map_err(|_| "true or false".to_owned()),
            Kind::Number(quantity) => quantity.parse(text).map(Literal::Number),
            Kind::Time => Moment::parse(text, now_us)
                .map(Literal::Time)
                .ok_or_else(|| literal::TIME_EXPECTED.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
