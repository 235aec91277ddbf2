//! Checks operators: operand types and result type.

use std::borrow::Cow;

use super::expression::{as_text, constant};
use super::{Checker, Symbol};
use crate::ast::{Binary, ExpressionKind, Operator};
use crate::program::{Comparison, Expression};
use crate::source::Span;
use crate::types::Type;
use crate::value::Value;

type Lowered = (Expression, Type);

impl Checker<'_> {
    pub(super) fn binary(&mut self, binary: &Binary, want: Option<Type>) -> Option<Lowered> {
        match binary.operator {
            Operator::And | Operator::Or => self.logic(binary),
            Operator::Match | Operator::NotMatch => self.matching(binary),
            operator if operator.is_relation() => self.comparison(binary),
            Operator::Add | Operator::Adjacent => self.sum(binary, want),
            operator => {
                let left = self.infer(&binary.left, None)?;
                let hint = (operator == Operator::Subtract).then_some(left.1);
                let right = self.infer(&binary.right, hint)?;
                self.arithmetic(operator, binary.at, left, right)
            }
        }
    }

    fn logic(&mut self, Binary { operator, left, right, .. }: &Binary) -> Option<Lowered> {
        let left = self.expression(left, Type::Bool);
        let right = self.expression(right, Type::Bool)?;
        let mut parts = Vec::new();
        match (operator, left?) {
            (Operator::And, Expression::And(before)) | (Operator::Or, Expression::Or(before)) => {
                parts = before;
            }
            (_, left) => parts.push(left),
        }
        parts.push(right);
        let joined = if *operator == Operator::And { Expression::And(parts) } else { Expression::Or(parts) };
        Some((joined, Type::Bool))
    }

    fn matching(&mut self, Binary { operator, left, right, .. }: &Binary) -> Option<Lowered> {
        let negated = *operator == Operator::NotMatch;
        let Some((lowered, kind)) = self.infer(left, None) else {
            // Check the pattern anyway, because it may have faults of its own.
            if let ExpressionKind::Text(_) = right.kind {
                self.regex(right);
            }
            return None;
        };
        if kind == Type::Ip {
            let ExpressionKind::Name(name) = &right.kind else {
                let help = "declare acl NAME { \"192.0.2.0\"/24; } and match with its name";
                return self.faults.refuse_help(
                    right.span,
                    "an IP must be matched with the name of an acl",
                    help,
                );
            };
            let Some((symbol @ Symbol::Acl(acl), _)) = self.symbols.get(name) else {
                let help = crate::fault::suggest(name, self.program.acls.iter().map(|acl| acl.name.as_str()));
                return self.faults.refuse_help(right.span, format!("unknown acl {name}"), help);
            };
            let (symbol, acl) = (*symbol, *acl);
            self.used.push(symbol);
            return Some((Expression::Listed { ip: Box::new(lowered), acl, negated }, Type::Bool));
        }
        if !kind.is_text() {
            let help = "STRING matches a regular expression, IP an acl";
            return self.faults.refuse_help(left.span, format!("{kind} does not support ~"), help);
        }
        let regex = self.regex(right)?;
        Some((Expression::Match { text: Box::new(lowered), regex, negated }, Type::Bool))
    }

    fn comparison(&mut self, binary: &Binary) -> Option<Lowered> {
        let Binary { operator, at, left, right } = binary;
        let (operator, at) = (*operator, *at);
        let (mut left_lowered, left_kind) = self.infer(left, None)?;
        let (right_lowered, right_kind) = self.infer(right, Some(left_kind))?;
        let how = match left_kind {
            Type::String | Type::Strands | Type::Header => Comparison::Text,
            Type::Int | Type::Bytes => Comparison::Int,
            Type::Real | Type::Duration | Type::Time => Comparison::Real,
            Type::Bool | Type::Ip | Type::Backend | Type::Stevedore => Comparison::Other,
            _ => {
                return self.faults.refuse(at, format!("{left_kind} does not support {}", operator.as_str()));
            }
        };
        if how == Comparison::Other && !matches!(operator, Operator::Equal | Operator::NotEqual) {
            let message = format!("{left_kind} does not support {}", operator.as_str());
            return self.faults.refuse_help(at, message, "allowed here: ==, !=");
        }
        let same = left_kind == right_kind || (left_kind.is_text() && right_kind.is_text());
        let right_lowered = if same {
            right_lowered
        } else if matches!((left_kind, &right_lowered), (Type::Real, Expression::Constant(Value::Int(_))))
            || (left_kind == Type::Ip && right_kind == Type::String)
        {
            self.convert(right_lowered, right_kind, left_kind, right.span)?
        } else if let (Type::Real, Expression::Constant(Value::Int(value))) = (right_kind, &left_lowered) {
            left_lowered = constant(Value::Real(*value as f64));
            return Some(compare(Comparison::Real, operator, left_lowered, right_lowered));
        } else {
            let help = match (left_kind, right_kind) {
                (Type::Duration, Type::Int | Type::Real) => "a duration needs a unit: 5s",
                (Type::Int, Type::Duration) => match &left.kind {
                    ExpressionKind::Name(name) if name.ends_with(".tcpi_last_data_sent") => {
                        "it is an INT in ms: 100 for 100ms"
                    }
                    ExpressionKind::Name(name) if name.contains(".tcpi_") && name.contains("rtt") => {
                        "it is an INT in µs: 100000 for 100ms"
                    }
                    _ => "an INT has no unit",
                },
                (Type::String, Type::Int | Type::Real) => "convert the text with std.integer(TEXT, 0)",
                (Type::String, Type::Bool) => "use the header alone to test whether it is set",
                (_, Type::String) => "write the right side without quotes",
                _ => "both sides must have the same type",
            };
            return self.faults.refuse_help(
                at,
                format!("{left_kind} cannot be compared with {right_kind}"),
                help,
            );
        };
        Some(compare(how, operator, left_lowered, right_lowered))
    }

    /// Checks `+` and adjacent strings.
    fn sum(&mut self, binary: &Binary, want: Option<Type>) -> Option<Lowered> {
        let Binary { operator, at, left, right } = binary;
        let (left_lowered, left_kind) = self.infer(left, want)?;
        let (right_lowered, right_kind) = self.infer(right, want)?;
        let is_text = want.is_some_and(|want| want.is_text() || want == Type::Body)
            || left_kind.is_text()
            || right_kind.is_text();
        if *operator == Operator::Adjacent && !is_text {
            let message = format!("expected an operator between {left_kind} and {right_kind}");
            return self.faults.refuse(*at, message);
        }
        if !is_text || (*operator == Operator::Add && sum_type(left_kind, right_kind).is_some()) {
            return self.arithmetic(*operator, *at, (left_lowered, left_kind), (right_lowered, right_kind));
        }
        let left = self.convert(left_lowered, left_kind, Type::String, left.span)?;
        let right = self.convert(right_lowered, right_kind, Type::String, right.span)?;
        Some((concat(left, right), Type::String))
    }

    /// Checks an arithmetic operation.
    pub(super) fn arithmetic(
        &mut self,
        operator: Operator,
        at: Span,
        (left, left_kind): Lowered,
        (right, right_kind): Lowered,
    ) -> Option<Lowered> {
        let kind = match operator {
            Operator::Add | Operator::Subtract => match (operator, left_kind, right_kind) {
                (Operator::Subtract, Type::Time, Type::Time) => Some(Type::Duration),
                _ => sum_type(left_kind, right_kind),
            },
            Operator::Multiply | Operator::Divide => match (left_kind, right_kind) {
                (Type::Int, Type::Int) => Some(Type::Int),
                (Type::Real, Type::Int | Type::Real) => Some(Type::Real),
                (Type::Duration, Type::Int | Type::Real) => Some(Type::Duration),
                (Type::Bytes, Type::Int) => Some(Type::Bytes),
                _ => None,
            },
            _ => (left_kind == Type::Int && right_kind == Type::Int).then_some(Type::Int),
        };
        let Some(kind) = kind else {
            let message = format!("{left_kind} {} {right_kind} is not supported", operator.as_str());
            let help = match operator {
                Operator::Remainder => "% needs two INTs",
                Operator::Multiply | Operator::Divide => {
                    "the left side must be INT, REAL, DURATION or BYTES, the right side a number"
                }
                _ => "both sides must be numbers, DURATION or BYTES alike, or TIME and DURATION",
            };
            return self.faults.refuse_help(at, message, help);
        };
        let (left, right) = (Box::new(left), Box::new(right));
        Some(if matches!(kind, Type::Int | Type::Bytes) {
            (Expression::IntArithmetic { kind, operator, left, right }, kind)
        } else {
            (Expression::RealArithmetic { kind, operator, left, right }, kind)
        })
    }
}

/// Returns the type of `left ± right`; `None` if the operands cannot be added.
fn sum_type(left: Type, right: Type) -> Option<Type> {
    match (left, right) {
        (Type::Int, Type::Int) => Some(Type::Int),
        (Type::Int | Type::Real, Type::Int | Type::Real) => Some(Type::Real),
        (Type::Duration, Type::Duration) => Some(Type::Duration),
        (Type::Bytes, Type::Bytes) => Some(Type::Bytes),
        (Type::Time, Type::Duration) => Some(Type::Time),
        _ => None,
    }
}

fn compare(how: Comparison, operator: Operator, left: Expression, right: Expression) -> Lowered {
    (Expression::Compare { how, operator, sides: Box::new([left, right]) }, Type::Bool)
}

/// Concatenates `left` and `right`, merging adjacent constants.
fn concat(left: Expression, right: Expression) -> Expression {
    let mut parts = parts(left);
    for part in self::parts(right) {
        if let Expression::Constant(Value::Text(Some(text))) = &part
            && let Some(Expression::Constant(Value::Text(Some(before)))) = parts.last_mut()
        {
            before.to_mut().extend_from_slice(text);
            continue;
        }
        parts.push(part);
    }
    match parts.pop() {
        Some(only @ Expression::Constant(_)) if parts.is_empty() => only,
        Some(last) => {
            parts.push(last);
            Expression::Concat(parts)
        }
        None => constant(Value::Text(Some(Cow::Borrowed(b"")))),
    }
}

fn parts(expression: Expression) -> Vec<Expression> {
    match expression {
        Expression::Concat(parts) => parts,
        other => match as_text(other) {
            Expression::Concat(parts) => parts,
            constant => vec![constant],
        },
    }
}
