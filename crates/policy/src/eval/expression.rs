//! Values of expressions, each read by the function for its type.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::Machine;
use crate::ast::Operator;
use crate::program::{Comparison, Expression};
use crate::types::Type;
use crate::value::{Failure, Value};

impl<'p> Machine<'p, '_, '_> {
    /// A BOOL.
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
            Expression::Truth(inner) => self.is_there(inner),
            Expression::Compare { how, operator, sides } => {
                let [left, right] = &**sides;
                self.compare(*how, *operator, left, right)
            }
            Expression::Match { text, regex, negated } => Ok(self.is_match(text, *regex)? != *negated),
            Expression::Listed { ip, acl, negated } => {
                let Value::Ip(address) = self.value(ip)? else { return Ok(false) };
                let (is_listed, line) = self.program.acl_matches(*acl, address);
                if let Some(line) = line {
                    self.task.tell(crate::task::Tag::Acl, line);
                }
                Ok(is_listed != *negated)
            }
            other => Ok(self.value(other)? == Value::Bool(true)),
        }
    }

    /// A value as BOOL: a text that is set, a number that is not 0, a duration above it.
    fn is_there(&mut self, expression: &'p Expression) -> Result<bool, Failure> {
        if let Expression::Field(header) = expression {
            return Ok(self.task.header(header)?.is_some());
        }
        Ok(match self.value(expression)? {
            Value::Text(text) => text.is_some(),
            Value::Bool(value) => value,
            Value::Int(value) | Value::Bytes(value) => value != 0,
            Value::Duration(value) => value > 0.0,
            Value::Backend(backend) => backend != crate::task::Backend::None,
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
                    // An address is the same whatever its port.
                    (Value::Ip(left), Value::Ip(right)) => {
                        left.ip().to_canonical() == right.ip().to_canonical()
                    }
                    (left, right) => left == right,
                };
                Some(if same { Ordering::Equal } else { Ordering::Less })
            }
        };
        Ok(match operator {
            Operator::Equal => ordering == Some(Ordering::Equal),
            Operator::NotEqual => ordering != Some(Ordering::Equal),
            Operator::Less => ordering == Some(Ordering::Less),
            Operator::LessOrEqual => matches!(ordering, Some(Ordering::Less | Ordering::Equal)),
            Operator::Greater => ordering == Some(Ordering::Greater),
            _ => matches!(ordering, Some(Ordering::Greater | Ordering::Equal)),
        })
    }

    /// Most texts that differ have other lengths, and then no byte is looked at.
    fn is_same_text(&mut self, left: &'p Expression, right: &'p Expression) -> Result<bool, Failure> {
        if let (Some(left), Some(right)) = (self.lent_or_unset(left)?, self.lent_or_unset(right)?) {
            return Ok(matches!((left, right), (Some(left), Some(right)) if is_same(left, right)));
        }
        Ok(self.compare_texts(left, right)? == Ordering::Equal)
    }

    /// An unset text is greater than any, and any greater than it, as in varnishd, where `VRT_strcmp` says so. As a part
    /// of a longer text it is empty.
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

    /// Whether a header or a variable is an unset text.
    fn is_unset(&self, expression: &Expression) -> Result<bool, Failure> {
        Ok(match expression {
            Expression::Field(header) => self.task.header(header)?.is_none(),
            Expression::Variable(variable) => (variable.get)(self.task)? == Value::Text(None),
            _ => false,
        })
    }

    /// An INT or BYTES.
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
                "a number is too large".to_owned()
            })
        })
    }

    /// A REAL, DURATION or TIME; an INT beside a REAL too.
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

    /// A value of any type, with its texts its own.
    pub(super) fn value(&mut self, expression: &'p Expression) -> Result<Value<'p>, Failure> {
        Ok(match expression {
            Expression::Constant(value) => lend(value),
            Expression::Header(header) => Value::Header(header.message, header.name.as_str()),
            Expression::Variable(variable) => own((variable.get)(self.task)?),
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

/// Byte by byte: what is compared is short and has often just been written, which the wide loads of `memcmp` wait for.
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

/// The same value, its text borrowed.
fn lend<'p>(value: &'p Value<'static>) -> Value<'p> {
    match value {
        Value::Text(text) => Value::Text(text.as_deref().map(Cow::Borrowed)),
        Value::Blob(bytes) => Value::Blob(Cow::Borrowed(bytes)),
        Value::Storage(name) => Value::Storage(name.as_deref().map(Cow::Borrowed)),
        other => other.clone(),
    }
}

/// The same value, its text its own.
fn own(value: Value<'_>) -> Value<'static> {
    match value {
        Value::Void | Value::Header(..) => Value::Void,
        Value::Bool(value) => Value::Bool(value),
        Value::Int(value) => Value::Int(value),
        Value::Real(value) => Value::Real(value),
        Value::Time(value) => Value::Time(value),
        Value::Duration(value) => Value::Duration(value),
        Value::Bytes(value) => Value::Bytes(value),
        Value::Ip(value) => Value::Ip(value),
        Value::Text(text) => Value::Text(text.map(|text| Cow::Owned(text.into_owned()))),
        Value::Blob(bytes) => Value::Blob(Cow::Owned(bytes.into_owned())),
        Value::Parameters(object) => Value::Parameters(object),
        Value::Backend(value) => Value::Backend(value),
        Value::Storage(name) => Value::Storage(name.map(|name| Cow::Owned(name.into_owned()))),
        Value::Http(message) => Value::Http(message),
        Value::Word(word) => Value::Word(word),
        Value::Regex(regex) => Value::Regex(regex),
    }
}
