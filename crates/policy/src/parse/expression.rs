//! Parses expressions.
//!
//! In order of increasing precedence: `||`, `&&`, `!`, a single relation, `+`, `-` and adjacent
//! strings, `*`, `/` and `%`, calls.

use super::{Parsed, Parser, Stopped};
use crate::ast::{Binary, Expression, ExpressionKind, Name, Operator};
use crate::lex::Kind;
use crate::source::Span;

/// Maximum number of operators and method calls in one statement. Together with
/// [`super::NESTING_MAX`], this limits the depth of the tree.
const OPERATORS_MAX: usize = 256;

impl Parser<'_, '_> {
    pub(super) fn expression(&mut self) -> Parsed<Expression> {
        self.deeper(Self::or)
    }

    /// Parses a left-associative chain, with `read` for operands and `operator` for operators.
    fn chain(
        &mut self,
        read: fn(&mut Self) -> Parsed<Expression>,
        operator: fn(&Self) -> Option<Operator>,
    ) -> Parsed<Expression> {
        let mut left = read(self)?;
        while let Some(operator) = operator(self) {
            let at = self.span();
            let is_logic = matches!(operator, Operator::And | Operator::Or);
            if is_logic && !self.is_condition && matches!(self.kind(), Kind::Name(_)) {
                let message = format!("{} is not an operator", self.sources.text(at));
                self.faults.error_help(at, message, format!("write {}", operator.as_str()));
            }
            if operator != Operator::Adjacent {
                self.next();
            }
            self.count_operator(at)?;
            let right = read(self)?;
            left = binary(operator, at, left, right);
        }
        Ok(left)
    }

    fn count_operator(&mut self, at: Span) -> Parsed<()> {
        self.operators += 1;
        if self.operators <= OPERATORS_MAX {
            return Ok(());
        }
        self.faults.error(at, format!("more than {OPERATORS_MAX} operators in a statement"));
        Err(Stopped)
    }

    fn or(&mut self) -> Parsed<Expression> {
        self.chain(Self::and, |parser| {
            (parser.at_symbol("||") || parser.at_word("or")).then_some(Operator::Or)
        })
    }

    fn and(&mut self) -> Parsed<Expression> {
        self.chain(Self::not, |parser| {
            (parser.at_symbol("&&") || parser.at_word("and")).then_some(Operator::And)
        })
    }

    fn not(&mut self) -> Parsed<Expression> {
        let is_negated = self.at_symbol("!") || (self.is_condition && self.at_word("not"));
        if !is_negated {
            return self.relation();
        }
        let start = self.next().span;
        let inner = self.deeper(Self::not)?;
        let span = start.to(inner.span);
        Ok(Expression { kind: ExpressionKind::Not(Box::new(inner)), span })
    }

    fn relation(&mut self) -> Parsed<Expression> {
        let left = if self.is_condition { self.test_field()? } else { self.sum()? };
        let operator = match self.kind() {
            Kind::Symbol("=") => {
                let span = self.span();
                self.faults.error_help(span, "= assigns, it does not compare", "did you mean ==?");
                Operator::Equal
            }
            Kind::Symbol(symbol) => match Operator::named(symbol) {
                Some(operator) if operator.is_relation() => operator,
                _ => return Ok(left),
            },
            _ => return Ok(left),
        };
        let at = self.next().span;
        if self.is_condition {
            self.count_operator(at)?;
            let right = self.test_value()?;
            return Ok(binary(operator, at, left, right));
        }
        let is_match = matches!(operator, Operator::Match | Operator::NotMatch);
        let right = if is_match && self.at_symbol("/") { self.slashed_regex() } else { self.sum()? };
        Ok(binary(operator, at, left, right))
    }

    /// Parses the left side of a test in a condition: a field, or a condition in parentheses.
    fn test_field(&mut self) -> Parsed<Expression> {
        match self.kind() {
            Kind::Symbol("(") => self.primary(),
            Kind::Name(word) if !matches!(word.as_str(), "and" | "or") => self.primary(),
            _ => Err(self.expected("a field")),
        }
    }

    /// Parses the right side of a test: one token, or a number followed by a space and its unit or
    /// `ago`.
    fn test_value(&mut self) -> Parsed<Expression> {
        let start = self.span();
        let mut text = self.text("a value")?;
        while text.starts_with(|c: char| c.is_ascii_digit())
            && let Kind::Name(word) = self.kind()
            && !matches!(word.as_str(), "and" | "or")
        {
            text.push(' ');
            text.push_str(word);
            self.next();
        }
        Ok(Expression { kind: ExpressionKind::Text(text), span: start.to(self.span_before()) })
    }

    /// Reports and skips `/REGEX/`.
    fn slashed_regex(&mut self) -> Expression {
        let start = self.next().span;
        while !["/", "{", "}", ";"].iter().any(|end| self.at_symbol(end)) && !self.at_end() {
            self.next();
        }
        self.take_symbol("/");
        let span = start.to(self.span_before());
        let help = format!("write \"{}\"", self.sources.text(span).trim_matches('/'));
        self.faults.error_help(span, "a regular expression needs quotes", help);
        Expression { kind: ExpressionKind::Text(String::new()), span }
    }

    fn sum(&mut self) -> Parsed<Expression> {
        self.chain(Self::product, |parser| match parser.kind() {
            Kind::Symbol("+") => Some(Operator::Add),
            Kind::Symbol("-") => Some(Operator::Subtract),
            Kind::Text(_) => Some(Operator::Adjacent),
            // `and` and `or` are not adjacent strings: they are reported, with advice, where `&&`
            // and `||` are parsed.
            Kind::Name(word) if matches!(word.as_str(), "and" | "or") => None,
            Kind::Name(word) if !Self::begins_statement(word) => Some(Operator::Adjacent),
            _ => None,
        })
    }

    fn product(&mut self) -> Parsed<Expression> {
        self.chain(Self::sign, |parser| match parser.kind() {
            Kind::Symbol("*") => Some(Operator::Multiply),
            Kind::Symbol("/") => Some(Operator::Divide),
            Kind::Symbol("%") => Some(Operator::Remainder),
            _ => None,
        })
    }

    fn sign(&mut self) -> Parsed<Expression> {
        if !self.at_symbol("-") {
            return self.postfix();
        }
        let start = self.next().span;
        let inner = self.deeper(Self::sign)?;
        let span = start.to(inner.span);
        Ok(Expression { kind: ExpressionKind::Minus(Box::new(inner)), span })
    }

    /// Parses a value or a call, and any method calls on it.
    pub(super) fn postfix(&mut self) -> Parsed<Expression> {
        let mut expression = self.primary()?;
        while self.at_symbol(".") {
            let at = self.next().span;
            self.count_operator(at)?;
            let name = self.name("a method's name")?;
            let arguments = self.arguments()?;
            let span = expression.span.to(self.span_before());
            let kind = ExpressionKind::Method { of: Box::new(expression), name, arguments };
            expression = Expression { kind, span };
        }
        Ok(expression)
    }

    fn primary(&mut self) -> Parsed<Expression> {
        let start = self.span();
        let kind = match self.kind().clone() {
            Kind::Text(text) => ExpressionKind::Text(text),
            Kind::Int(value) => ExpressionKind::Int(value),
            Kind::Real(value) => ExpressionKind::Real(value),
            Kind::Duration(value) => ExpressionKind::Duration(value),
            Kind::Bytes(value) => ExpressionKind::Bytes(value),
            Kind::Blob(value) => ExpressionKind::Blob(value),
            Kind::Name(text) => return self.named(text),
            Kind::Symbol("(") => {
                self.next();
                let inner = self.expression()?;
                self.symbol(")")?;
                // Include the parentheses in the span, so that the carets mark them too.
                return Ok(Expression { span: start.to(self.span_before()), ..inner });
            }
            _ => return Err(self.expected("a value")),
        };
        self.next();
        Ok(Expression { kind, span: start })
    }

    fn named(&mut self, text: String) -> Parsed<Expression> {
        let start = self.next().span;
        self.no_subfield();
        if !self.at_symbol("(") {
            return Ok(Expression { kind: ExpressionKind::Name(text), span: start });
        }
        let name = Name { text, span: start };
        let arguments = self.deeper(Self::arguments)?;
        let span = start.to(self.span_before());
        Ok(Expression { kind: ExpressionKind::Call { name, arguments }, span })
    }
}

fn binary(operator: Operator, at: Span, left: Expression, right: Expression) -> Expression {
    let span = left.span.to(right.span);
    Expression { kind: ExpressionKind::Binary(Box::new(Binary { operator, at, left, right })), span }
}
