//! Tokens to an expression, by recursive descent; each fault says what is allowed where it is.

use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use regex::bytes::RegexBuilder;

use super::fields::{Field, Kind};
use super::lex::{Lexeme, Token, tokens};
use super::time::{self, Moment};
use super::{Comparison, EXPRESSION_BYTES_MAX, NESTING_MAX, Node, QueryError, REGEX_BYTES_MAX, Test};

/// Reads an expression at `now`.
pub(super) fn parse(text: &str, now: SystemTime) -> Result<Node, QueryError> {
    if text.len() > EXPRESSION_BYTES_MAX {
        let message = format!("an expression has at most {EXPRESSION_BYTES_MAX} bytes");
        return Err(QueryError { message, marked: String::new(), lists_fields: false });
    }
    let mut input = Input { text, tokens: tokens(text)?, at: 0, depth: 0, now };
    let node = input.any()?;
    match &input.peek().is {
        Lexeme::End => Ok(node),
        Lexeme::Close => Err(input.wrong("this parenthesis was not opened")),
        _ => Err(input.wrong("and, or, or the end is expected here")),
    }
}

struct Input<'a> {
    text: &'a str,
    tokens: Vec<Token<'a>>,
    at: usize,
    depth: usize,
    now: SystemTime,
}

impl<'a> Input<'a> {
    fn peek(&self) -> &Token<'a> {
        &self.tokens[self.at]
    }

    /// The next token; the end stays where it is.
    fn next(&mut self) -> Token<'a> {
        let token = self.peek().clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn takes(&mut self, word: &str) -> bool {
        let is = self.peek().is == Lexeme::Word(word);
        if is {
            self.next();
        }
        is
    }

    fn error(&self, place: &Range<usize>, message: impl Into<String>) -> QueryError {
        QueryError::new(self.text, place.clone(), message.into())
    }

    fn no_field(&self, place: &Range<usize>, message: impl Into<String>) -> QueryError {
        QueryError { lists_fields: true, ..self.error(place, message) }
    }

    /// A fault of the next token.
    fn wrong(&self, message: &str) -> QueryError {
        self.error(&self.peek().place, message)
    }

    fn any(&mut self) -> Result<Node, QueryError> {
        let mut nodes = vec![self.all()?];
        while self.takes("or") {
            nodes.push(self.all()?);
        }
        Ok(Node::Any(nodes))
    }

    fn all(&mut self) -> Result<Node, QueryError> {
        let mut nodes = vec![self.one()?];
        while self.takes("and") {
            nodes.push(self.one()?);
        }
        Ok(Node::All(nodes))
    }

    fn one(&mut self) -> Result<Node, QueryError> {
        if self.depth == NESTING_MAX {
            return Err(self.wrong("this is nested too deep"));
        }
        self.depth += 1;
        let Token { is, place } = self.next();
        let node = match is {
            Lexeme::Word("not") => Node::Not(Box::new(self.one()?)),
            Lexeme::Open => {
                let node = self.any()?;
                if self.next().is != Lexeme::Close {
                    return Err(self.error(&place, "this parenthesis is not closed"));
                }
                node
            }
            Lexeme::Word(name) if !matches!(name, "and" | "or") => self.test(name, &place)?,
            _ => return Err(self.no_field(&place, "a field is expected here")),
        };
        self.depth -= 1;
        Ok(node)
    }

    /// A field, and what is asked of it.
    fn test(&mut self, name: &str, place: &Range<usize>) -> Result<Node, QueryError> {
        let Some(field) = Field::find(name) else {
            let meant =
                Field::nearest(name).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            return Err(self.no_field(place, format!("no field is named {name}{meant}")));
        };
        let Lexeme::Operator(operator) = self.peek().is else {
            return Ok(Node::Test(field, Test::Present));
        };
        let operators = field.kind.operators();
        if operators.is_empty() {
            return Err(
                self.no_field(place, format!("{name} has parts; alone it asks whether a record has it"))
            );
        }
        if !operators.contains(&operator) {
            return Err(self.wrong(&format!("{name} is compared by {}", operators.join(" "))));
        }
        self.next();
        let value = self.next();
        let (text, is_quoted) = match value.is {
            Lexeme::Quoted(text) => (text, true),
            Lexeme::Word(word) => (word.to_owned(), false),
            _ => return Err(self.error(&value.place, format!("{name} is compared with {}", example(field)))),
        };
        let test = match operator {
            "~" | "!~" => self.regex(&text, operator == "!~", &value.place)?,
            _ => self.compared(field, name, comparison(operator), (text, is_quoted), &value.place)?,
        };
        Ok(Node::Test(field, test))
    }

    fn regex(&self, pattern: &str, negated: bool, place: &Range<usize>) -> Result<Test, QueryError> {
        let regex = RegexBuilder::new(pattern).unicode(false).size_limit(REGEX_BYTES_MAX).build();
        let regex = regex.map_err(|error| {
            // The last line says what is wrong, those before show where, in their own way.
            let said = error.to_string();
            self.error(place, said.lines().last().unwrap_or_default().trim_start_matches("error: "))
        })?;
        Ok(Test::Matches { regex, negated })
    }

    /// A moment, and the `ago` behind a duration.
    fn moment(&mut self, text: &str) -> Option<Moment> {
        if !self.takes("ago") {
            return Moment::parse(text);
        }
        let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let (number, unit) = text.split_at(digits);
        let ago_us = number.parse::<f64>().ok()? * Kind::Span.scale(unit)?;
        let now_us = self.now.duration_since(UNIX_EPOCH).ok()?.as_micros() as f64;
        Some(Moment::Unix((now_us - ago_us) as i64))
    }

    fn compared(
        &mut self,
        field: &Field,
        name: &str,
        is: Comparison,
        (text, is_quoted): (String, bool),
        place: &Range<usize>,
    ) -> Result<Test, QueryError> {
        match field.kind {
            Kind::Text | Kind::Lines(_) => Ok(Test::Text { is, text }),
            Kind::Time => match self.moment(&text) {
                Some(moment) => Ok(Test::Time { is, moment }),
                None => Err(self.error(place, format!("{name} is compared with {}", time::WANTED))),
            },
            Kind::Word(words) if words().contains(&text.as_str()) => Ok(Test::Text { is, text }),
            Kind::Word(words) => Err(self.error(place, format!("{name} is one of {}", words().join(", ")))),
            Kind::Parts => unreachable!("it has no operators"),
            Kind::Truth => match text.parse() {
                Ok(truth) => Ok(Test::Truth { is, truth }),
                Err(_) => Err(self.error(place, format!("{name} is true or false"))),
            },
            Kind::Count | Kind::Size | Kind::Span | Kind::Rate if is_quoted => {
                Err(self.error(place, format!("{name} is a number: write it without quotes")))
            }
            Kind::Count | Kind::Size | Kind::Span | Kind::Rate => {
                let number = number(field, name, &text).map_err(|message| self.error(place, message))?;
                Ok(Test::Number { is, number })
            }
        }
    }
}

fn comparison(operator: &str) -> Comparison {
    match operator {
        "==" => Comparison::Equal,
        "!=" => Comparison::Unequal,
        "<" => Comparison::Less,
        "<=" => Comparison::AtMost,
        ">" => Comparison::Greater,
        _ => Comparison::AtLeast,
    }
}

/// A number in the record's unit.
fn number(field: &Field, name: &str, text: &str) -> Result<f64, String> {
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (digits, unit) = text.split_at(digits);
    let number: f64 = digits.parse().map_err(|_| format!("{name} is compared with {}", example(field)))?;
    // A name that says its unit has said it.
    let needs_unit = field.unit().is_some_and(|unit| !name.ends_with(unit));
    match unit {
        "" if needs_unit && number != 0.0 => Err(format!("{digits} needs a unit: {}", field.kind.units())),
        "" => Ok(number),
        _ if field.kind.units() == "none" => {
            let range =
                if name == "status" { "; a range is two tests: status >= 500 and status < 600" } else { "" };
            Err(format!("{name} is compared with {}{range}", example(field)))
        }
        _ => match field.kind.scale(unit) {
            Some(scale) => Ok(number * scale),
            None => Err(format!("{name} has no unit {unit:?}: {}", field.kind.units())),
        },
    }
}

/// What a field can be compared with.
fn example(field: &Field) -> &'static str {
    match field.kind {
        Kind::Text | Kind::Lines(_) => "a text such as \"^/live/\"",
        Kind::Word(_) => "a word such as hit",
        Kind::Time => time::WANTED,
        Kind::Truth | Kind::Parts => "true or false",
        Kind::Count => "a number such as 404",
        Kind::Size => "a size such as 100kB",
        Kind::Span => "a duration such as 100ms",
        Kind::Rate => "a rate such as 5Mbit/s",
    }
}
