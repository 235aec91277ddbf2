//! Evaluates expressions, with one function per result type.

use std::borrow::Cow;
use std::cmp::Ordering;

use base64::Engine as _;

use super::Machine;
use crate::ast::Operator;
use crate::program::{Comparison, Expression};
use crate::types::Type;
use crate::value::{Backend, Failure, Value};

impl<'p> Machine<'p, '_, '_> {
    /// Evaluates a BOOL.
    pub(super) fn truth(&mut self, expression: &'p Expression) -> Result<bool, Failure> {
        match expression {
            Expression::Not(inner) => Ok(!self.truth(inner)?),
            Expression::And(parts) => {
                for part in parts {
                    if !self.truth(part)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Expression::Or(parts) => {
                for part in parts {
                    if self.truth(part)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Expression::Truth(inner) => self.is_truthy(inner),
            Expression::Compare { how, operator, sides } => {
                let [left, right] = &**sides;
                self.compare(*how, *operator, left, right)
            }
            Expression::Match { text, regex, negated } => Ok(self.is_match(text, *regex)? != *negated),
            Expression::Listed { ip, acl, negated } => {
                let Value::Ip(address) = self.value(ip)? else { return Ok(false) };
                let (is_listed, line) = self.program.acl_matches(*acl, address);
                if let Some(line) = line {
                    self.task.push_log(crate::task::LogSource::Acl, line);
                }
                Ok(is_listed != *negated)
            }
            other => Ok(self.value(other)? == Value::Bool(true)),
        }
    }

    /// Converts a value to BOOL: true for a string that is set, a non-zero number, or a positive
    /// duration.
    fn is_truthy(&mut self, expression: &'p Expression) -> Result<bool, Failure> {
        if let Expression::Field(header) = expression {
            return Ok(self.task.header(header)?.is_some());
        }
        Ok(match self.value(expression)? {
            Value::Text(text) => text.is_some(),
            Value::Bool(value) => value,
            Value::Int(value) | Value::Bytes(value) => value != 0,
            Value::Duration(value) => value > 0.0,
            Value::Backend(backend) => backend != Backend::None,
            Value::Storage(name) => name.is_some(),
            _ => false,
        })
    }

    fn is_match(&mut self, text: &'p Expression, regex: u32) -> Result<bool, Failure> {
        let regex = &self.program.regexes[regex as usize];
        if let Some(text) = self.lent(text)? {
            return regex.is_match(text);
        }
        let start = self.buffer.len();
        self.append(text)?;
        let result = regex.is_match(&self.buffer[start..]);
        self.buffer.truncate(start);
        result
    }

    fn compare(
        &mut self,
        how: Comparison,
        operator: Operator,
        left: &'p Expression,
        right: &'p Expression,
    ) -> Result<bool, Failure> {
        if how == Comparison::Text && matches!(operator, Operator::Equal | Operator::NotEqual) {
            return Ok(self.is_same_text(left, right)? == (operator == Operator::Equal));
        }
        let ordering = match how {
            Comparison::Text => Some(self.compare_texts(left, right)?),
            Comparison::Int => Some(self.int(left)?.cmp(&self.int(right)?)),
            Comparison::Real => self.real(left)?.partial_cmp(&self.real(right)?),
            Comparison::Other => {
                let same = match (self.value(left)?, self.value(right)?) {
                    // Ignore ports when comparing addresses.
                    (Value::Ip(left), Value::Ip(right)) => {
                        left.ip().to_canonical() == right.ip().to_canonical()
                    }
                    (left, right) => left == right,
                };
                Some(if same { Ordering::Equal } else { Ordering::Less })
            }
        };
        Ok(operator.accepts(ordering))
    }

    /// Returns whether two strings are equal. Compares lengths first, because most unequal strings
    /// differ in length.
    fn is_same_text(&mut self, left: &'p Expression, right: &'p Expression) -> Result<bool, Failure> {
        if let (Some(left), Some(right)) = (self.lent_or_unset(left)?, self.lent_or_unset(right)?) {
            return Ok(matches!((left, right), (Some(left), Some(right)) if is_same(left, right)));
        }
        Ok(self.compare_texts(left, right)? == Ordering::Equal)
    }

    /// Compares two strings. As in varnishd's `VRT_strcmp`, the result is `Greater` if either is
    /// unset. Within a concatenation, an unset string counts as empty.
    fn compare_texts(&mut self, left: &'p Expression, right: &'p Expression) -> Result<Ordering, Failure> {
        if let (Some(left), Some(right)) = (self.lent_or_unset(left)?, self.lent_or_unset(right)?) {
            return Ok(match (left, right) {
                (Some(left), Some(right)) => left.cmp(right),
                _ => Ordering::Greater,
            });
        }
        let is_joined = |side: &Expression| matches!(side, Expression::Concat(_));
        if !is_joined(left) && !is_joined(right) && (self.is_unset(left)? || self.is_unset(right)?) {
            return Ok(Ordering::Greater);
        }
        let start = self.buffer.len();
        self.append(left)?;
        let middle = self.buffer.len();
        self.append(right)?;
        let ordering = self.buffer[start..middle].cmp(&self.buffer[middle..]);
        self.buffer.truncate(start);
        Ok(ordering)
    }

    /// Returns whether `expression` is an unset header or variable.
    fn is_unset(&self, expression: &Expression) -> Result<bool, Failure> {
        Ok(match expression {
            Expression::Field(header) => self.task.header(header)?.is_none(),
            Expression::Variable(variable) => (variable.get)(self.task)? == Value::Text(None),
            _ => false,
        })
    }

    /// Evaluates an INT or BYTES.
    pub(super) fn int(&mut self, expression: &'p Expression) -> Result<i64, Failure> {
        let (operator, left, right) = match expression {
            Expression::IntArithmetic { operator, left, right, .. } => (operator, left, right),
            Expression::Constant(value) => return Ok(as_int(value)),
            Expression::Variable(variable) => return Ok(as_int(&(variable.get)(self.task)?)),
            other => return Ok(as_int(&self.value(other)?)),
        };
        let (left, right) = (self.int(left)?, self.int(right)?);
        let result = match operator {
            Operator::Add => left.checked_add(right),
            Operator::Subtract => left.checked_sub(right),
            Operator::Multiply => left.checked_mul(right),
            Operator::Divide => left.checked_div(right),
            _ => left.checked_rem(right),
        };
        result.ok_or_else(|| {
            let operator = operator.as_str();
            Failure::new(if right == 0 {
                format!("{left} {operator} 0")
            } else {
                "number too large".to_owned()
            })
        })
    }

    /// Evaluates a REAL, DURATION or TIME, or an INT operand of a REAL.
    pub(super) fn real(&mut self, expression: &'p Expression) -> Result<f64, Failure> {
        let (operator, left, right) = match expression {
            Expression::RealArithmetic { operator, left, right, .. } => (operator, left, right),
            Expression::Constant(value) => return Ok(as_real(value)),
            Expression::Variable(variable) => return Ok(as_real(&(variable.get)(self.task)?)),
            other => return Ok(as_real(&self.value(other)?)),
        };
        let (left, right) = (self.real(left)?, self.real(right)?);
        let result = match operator {
            Operator::Add => left + right,
            Operator::Subtract => left - right,
            Operator::Multiply => left * right,
            _ => left / right,
        };
        if result.is_finite() {
            Ok(result)
        } else {
            Err(Failure::new(format!("{left} {} {right}", operator.as_str())))
        }
    }

    /// Evaluates an expression of any type. Strings other than constants are owned.
    pub(super) fn value(&mut self, expression: &'p Expression) -> Result<Value<'p>, Failure> {
        Ok(match expression {
            Expression::Constant(value) => value.lend(),
            Expression::Header(header) => Value::Header(header.message, header.name.as_str()),
            Expression::Variable(variable) => (variable.get)(self.task)?.into_owned(),
            Expression::Storage { name, variable } => {
                let storage = self.task.host.storage(name);
                let bytes = |value: u64| Value::Bytes(i64::try_from(value).unwrap_or(i64::MAX));
                match variable.name.rsplit('.').next() {
                    Some("free_space") => bytes(storage.free_bytes),
                    Some("used_space") => bytes(storage.used_bytes),
                    _ => Value::Bool(storage.is_happy),
                }
            }
            Expression::Field(..) | Expression::Concat(_) | Expression::Substitute { .. } => {
                Value::Text(self.text(expression)?)
            }
            Expression::Case { text, upper } => {
                let mut text = self.text(text)?.map(Cow::into_owned);
                if let Some(text) = &mut text {
                    if *upper { text.make_ascii_uppercase() } else { text.make_ascii_lowercase() }
                }
                Value::Text(text.map(Cow::Owned))
            }
            Expression::IntArithmetic { kind, .. } => {
                let value = self.int(expression)?;
                if *kind == Type::Bytes { Value::Bytes(value) } else { Value::Int(value) }
            }
            Expression::RealArithmetic { kind, .. } => {
                let value = self.real(expression)?;
                match kind {
                    Type::Time => Value::Time(value),
                    Type::Duration => Value::Duration(value),
                    _ => Value::Real(value),
                }
            }
            Expression::Resolve(backend) => {
                let Value::Backend(backend) = self.value(backend)? else { return Ok(Value::Void) };
                let declared = self.program.resolve(backend, self.task);
                Value::Backend(declared.map_or(Backend::None, Backend::Declared))
            }
            Expression::Encode(blob) => {
                let Value::Blob(octets) = self.value(blob)? else { return Ok(Value::Text(None)) };
                let text = format!(":{}:", base64::engine::general_purpose::STANDARD.encode(octets));
                self.count(text.len())?;
                Value::owned(text)
            }
            Expression::Call { function, object, arguments } => self.call(function, *object, arguments)?,
            Expression::Not(_)
            | Expression::And(_)
            | Expression::Or(_)
            | Expression::Truth(_)
            | Expression::Compare { .. }
            | Expression::Match { .. }
            | Expression::Listed { .. } => Value::Bool(self.truth(expression)?),
        })
    }
}

/// Compares two strings byte by byte. The strings are short and often just written, so the wide
/// loads of `memcmp` would stall on the preceding narrow stores.
fn is_same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(left, right)| left == right)
}

fn as_int(value: &Value<'_>) -> i64 {
    match value {
        Value::Int(value) | Value::Bytes(value) => *value,
        _ => 0,
    }
}

fn as_real(value: &Value<'_>) -> f64 {
    match value {
        Value::Real(value) | Value::Duration(value) | Value::Time(value) => *value,
        Value::Int(value) | Value::Bytes(value) => *value as f64,
        _ => 0.0,
    }
}
