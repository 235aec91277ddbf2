//! Checks expressions: infers the type of each and converts it to the required type.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use super::{Checker, Symbol};
use crate::ast::{self, Argument, ExpressionKind, Name, Operator};
use crate::fault::suggest;
use crate::idioms::{Place, advice, help};
use crate::message::Header;
use crate::program::Expression;
use crate::regex::Regex;
use crate::source::Span;
use crate::types::Type;
use crate::units::size_unit;
use crate::value::{Backend, Value, write_int, write_ip, write_real};
use crate::variables;

/// Maximum number of regular expressions in one policy.
pub(crate) const REGEXES_MAX: usize = 10_000;

type Lowered = (Expression, Type);

pub(super) fn constant(value: Value<'static>) -> Expression {
    Expression::Constant(value)
}

impl Checker<'_> {
    /// Checks `expression` as a value of type `want`.
    pub(super) fn expression(&mut self, expression: &ast::Expression, want: Type) -> Option<Expression> {
        let (lowered, kind) = self.infer(expression, Some(want))?;
        self.convert(lowered, kind, want, expression.span)
    }

    /// Infers the type of `expression`. The type `want` resolves ambiguities, such as `10m`.
    pub(super) fn infer(&mut self, expression: &ast::Expression, want: Option<Type>) -> Option<Lowered> {
        let span = expression.span;
        Some(match &expression.kind {
            ExpressionKind::Text(text) => {
                (constant(Value::Text(Some(Cow::Owned(text.clone().into_bytes())))), Type::String)
            }
            ExpressionKind::Int(value) => (constant(Value::Int(*value)), Type::Int),
            ExpressionKind::Real(value) => (constant(Value::Real(*value)), Type::Real),
            // `10m` means minutes unless a size is expected.
            ExpressionKind::Duration(seconds)
                if want == Some(Type::Bytes) && self.program.sources.text(span).ends_with('m') =>
            {
                let mebibytes = seconds / 60.0 * size_unit("m").map_or(0.0, |bytes| bytes as f64);
                (constant(Value::Bytes(mebibytes as i64)), Type::Bytes)
            }
            ExpressionKind::Duration(value) => (constant(Value::Duration(*value)), Type::Duration),
            ExpressionKind::Bytes(value) => (constant(Value::Bytes(*value)), Type::Bytes),
            ExpressionKind::Blob(bytes) => (constant(Value::Blob(Cow::Owned(bytes.clone()))), Type::Blob),
            ExpressionKind::Name(name) => return self.name(name, span, want),
            ExpressionKind::Call { name, arguments } => {
                return self.call_expression(name, arguments, span, want);
            }
            ExpressionKind::Method { of, name, arguments } => {
                let inner = self.infer(of, None)?;
                return self.property(inner, of.span, name, arguments);
            }
            ExpressionKind::Not(inner) => {
                let inner = self.expression(inner, Type::Bool)?;
                (Expression::Not(Box::new(inner)), Type::Bool)
            }
            ExpressionKind::Minus(inner) => {
                let (inner_lowered, kind) = self.infer(inner, want)?;
                return self.minus(inner_lowered, kind, span);
            }
            ExpressionKind::Binary(binary) => return self.binary(binary, want),
        })
    }

    fn name(&mut self, name: &str, span: Span, want: Option<Type>) -> Option<Lowered> {
        // As in Varnish, `true` and `false` are case-insensitive.
        if let Ok(value) = name.to_ascii_lowercase().parse() {
            return Some((constant(Value::Bool(value)), Type::Bool));
        }
        if let Some(Type::Enum(words)) = want {
            if let Some(word) = words.iter().find(|word| **word == name) {
                return Some((constant(Value::Word(word)), Type::Enum(words)));
            }
            let help = suggest(name, words.iter().copied());
            return self.faults.refuse_help(span, format!("unknown word {name}"), help);
        }
        if want == Some(Type::Header)
            && let Some(header) = self.header(name)
        {
            self.variable_read(name, span)?;
            return Some((Expression::Header(header), Type::Header));
        }
        if let Some((symbol, _)) = self.symbols.get(name) {
            let symbol = *symbol;
            self.used.push(symbol);
            return self.symbol_value(symbol, name, span);
        }
        if let Some(storage) = name.strip_prefix("storage.")
            && !storage.contains('.')
        {
            self.known_storage(storage, span)?;
            return Some((constant(Value::Storage(Some(Cow::Owned(storage.to_owned())))), Type::Stevedore));
        }
        if want == Some(Type::Backend) && !name.contains('.') && variables::find(name, self.version).is_none()
        {
            let backends: Vec<_> = self.program.backends.iter().map(|row| row.name.as_str()).collect();
            return self.faults.refuse_help(span, format!("unknown backend {name}"), suggest(name, backends));
        }
        if !name.contains('.') && variables::find(name, self.version).is_none() {
            let symbols = self.symbols.keys().map(String::as_str);
            let variables = variables::all().map(|variable| variable.name);
            let help = match thalweg_units::nearest(name, symbols.chain(variables).chain(["true", "false"])) {
                Some(near) => format!("did you mean {near}?"),
                None => "text needs quotes".to_owned(),
            };
            return self.faults.refuse_help(span, format!("unknown name {name}"), help);
        }
        self.variable_read(name, span)
    }

    fn variable_read(&mut self, name: &str, span: Span) -> Option<Lowered> {
        let (variable, part) = self.variable(name, span)?;
        if variable.read.is_empty() {
            return self.faults.refuse(span, format!("{name} cannot be read"));
        }
        self.used_in(span, variable.read, format!("{name} cannot be read"));
        if let Some(message) = variable.message {
            return Some((Expression::Field(Header::new(message, part)?), Type::String));
        }
        if variable.is_pattern() {
            self.known_storage(part, span)?;
            return Some((Expression::Storage { name: part.into(), variable }, variable.kind));
        }
        if variable.name == "beresp.backend.name" {
            return Some((Expression::Concat(vec![Expression::Variable(variable)]), Type::String));
        }
        Some((Expression::Variable(variable), variable.kind))
    }

    fn known_storage(&mut self, name: &str, span: Span) -> Option<()> {
        if self.known.storages.iter().any(|known| known == name) {
            return Some(());
        }
        let help = suggest(name, self.known.storages.iter().map(String::as_str).collect::<Vec<_>>());
        self.faults.refuse_help(span, format!("unknown storage {name}"), help)
    }

    fn symbol_value(&mut self, symbol: Symbol, name: &str, span: Span) -> Option<Lowered> {
        match symbol {
            Symbol::Backend(index) => {
                Some((constant(Value::Backend(Backend::Declared(index))), Type::Backend))
            }
            Symbol::Acl(_) => Some((constant(Value::Void), Type::Acl)),
            Symbol::Probe(_) => Some((constant(Value::Void), Type::Probe)),
            Symbol::Sub(_) => self.faults.refuse_help(
                span,
                format!("{name} is a subroutine"),
                format!("write call {name};"),
            ),
            Symbol::Object(object) => {
                let methods = self.program.objects[object as usize].class.methods;
                let calls = methods.iter().map(|method| format!("{name}.{}()", method.name));
                let help = format!("allowed here: {}", calls.collect::<Vec<_>>().join(", "));
                self.faults.refuse_help(span, format!("{name} is an object, not a value"), help)
            }
        }
    }

    fn call_expression(
        &mut self,
        name: &Name,
        arguments: &[Argument],
        span: Span,
        want: Option<Type>,
    ) -> Option<Lowered> {
        match name.text.as_str() {
            "regsub" | "regsuball" => return self.substitution(name, arguments),
            "ban" | "hash_data" | "synthetic" => {
                let help = format!("write it as a statement: {}(…);", name.text);
                return self.faults.refuse_help(name.span, format!("{} returns no value", name.text), help);
            }
            _ => {}
        }
        let Some((before, last)) = name.text.rsplit_once('.') else {
            let help = help(Place::Name, &name.text, ["regsub", "regsuball"]);
            return self.faults.refuse_help(name.span, format!("unknown function {}", name.text), help);
        };
        let is_backend = matches!(self.symbols.get(before), Some((Symbol::Backend(_), _)));
        if is_backend || variables::find(before, self.version).is_some() {
            let inner = self.name(before, name.span, None)?;
            let last = Name { text: last.to_owned(), span: name.span };
            return self.property(inner, name.span, &last, arguments);
        }
        let (functions, object, owner) = match self.symbols.get(before) {
            Some((symbol @ Symbol::Object(object), _)) => {
                let (symbol, object) = (*symbol, *object);
                self.used.push(symbol);
                let class = self.program.objects[object as usize].class;
                (class.methods, Some(object), class.name)
            }
            _ => {
                let module = self.module(before, &name.text, name.span)?;
                (module.functions, None, module.name)
            }
        };
        let Some(function) = functions.iter().find(|function| function.name == last) else {
            let help = match advice(Place::Name, &name.text) {
                Some(advice) => advice.to_owned(),
                None => suggest(last, functions.iter().map(|function| function.name).collect::<Vec<_>>()),
            };
            return self.faults.refuse_help(name.span, format!("{owner} has no function {last}"), help);
        };
        self.used_in(name.span, function.allowed, format!("{} is not allowed", name.text));
        let lowered = self.arguments(&name.text, function.arguments, arguments, name.span)?;
        if function.returns == Type::Void && want != Some(Type::Void) {
            return self.faults.refuse_help(
                span,
                format!("{} returns no value", name.text),
                "write it as a statement",
            );
        }
        if name.text.ends_with("congestion_algorithm")
            && let Some(Some(value)) = lowered.first()
        {
            self.warn_of_algorithm("client.socket.congestion_algorithm", value, name.span);
        }
        Some((Expression::Call { function, object, arguments: lowered }, function.returns))
    }

    /// Checks `TEXT.upper()`, `TEXT.lower()` and `BACKEND.resolve()`.
    fn property(&mut self, of: Lowered, span: Span, name: &Name, arguments: &[Argument]) -> Option<Lowered> {
        let (inner, kind) = of;
        let inner = Box::new(inner);
        let lowered = match name.text.as_str() {
            "resolve" if kind == Type::Backend => (Expression::Resolve(inner), Type::Backend),
            case @ ("upper" | "lower") if kind.is_text() => {
                (Expression::Case { text: inner, upper: case == "upper" }, Type::String)
            }
            _ => {
                let help = match kind {
                    Type::Backend => "allowed here: resolve",
                    kind if kind.is_text() => "allowed here: upper, lower",
                    _ => "STRING has upper and lower, BACKEND has resolve",
                };
                return self.faults.refuse_help(
                    span.to(name.span),
                    format!("{kind} has no {}", name.text),
                    help,
                );
            }
        };
        if !arguments.is_empty() {
            return self.faults.refuse(name.span, format!("{} takes no argument", name.text));
        }
        Some(lowered)
    }

    fn substitution(&mut self, name: &Name, arguments: &[Argument]) -> Option<Lowered> {
        let [text, pattern, with] = arguments else {
            let help = format!("{}(TEXT, \"REGEX\", \"REPLACEMENT\")", name.text);
            return self.faults.refuse_help(name.span, format!("{} takes three arguments", name.text), help);
        };
        let lowered = self.expression(&text.value, Type::String);
        let regex = self.regex(&pattern.value);
        let with = self.expression(&with.value, Type::String);
        let (text, with) = (Box::new(lowered?), Box::new(with?));
        Some((
            Expression::Substitute { text, regex: regex?, with, all: name.text == "regsuball" },
            Type::String,
        ))
    }

    /// Compiles a regular expression, which must be a constant, and returns its index.
    pub(super) fn regex(&mut self, pattern: &ast::Expression) -> Option<u32> {
        let (lowered, kind) = self.infer(pattern, Some(Type::String))?;
        let Expression::Constant(Value::Text(Some(text))) = &lowered else {
            let message = format!("expected a regular expression in quotes, found {kind}");
            let help = match kind {
                Type::Acl => "match an address with the ACL: client.ip ~ LIST",
                _ => "it must be constant, as it is compiled with the policy",
            };
            return self.faults.refuse_help(pattern.span, message, help);
        };
        let text = String::from_utf8_lossy(text).into_owned();
        if let Some(known) = self.program.regexes.iter().position(|regex| regex.pattern == text) {
            return Some(super::index(known));
        }
        if self.program.regexes.len() >= REGEXES_MAX {
            return self.faults.refuse(pattern.span, format!("more than {REGEXES_MAX} regular expressions"));
        }
        self.program.regexes.push(Regex::at(pattern.span, &text, self.faults)?);
        Some(super::index(self.program.regexes.len() - 1))
    }

    fn minus(&mut self, inner: Expression, kind: Type, span: Span) -> Option<Lowered> {
        let zero = match (&inner, kind) {
            (Expression::Constant(Value::Int(value)), _) => {
                return Some((constant(Value::Int(-value)), kind));
            }
            (Expression::Constant(Value::Real(value)), _) => {
                return Some((constant(Value::Real(-value)), kind));
            }
            (Expression::Constant(Value::Duration(value)), _) => {
                return Some((constant(Value::Duration(-value)), kind));
            }
            (_, Type::Int) => Value::Int(0),
            (_, Type::Real) => Value::Real(0.0),
            (_, Type::Duration) => Value::Duration(0.0),
            _ => {
                return self.faults.refuse_help(
                    span,
                    format!("{kind} does not support -"),
                    "allowed on: INT, REAL, DURATION",
                );
            }
        };
        self.arithmetic(Operator::Subtract, span, (constant(zero), kind), (inner, kind))
    }

    /// Converts `lowered` from type `kind` to type `want`, or reports an error if they are
    /// incompatible.
    pub(super) fn convert(
        &mut self,
        lowered: Expression,
        kind: Type,
        want: Type,
        span: Span,
    ) -> Option<Expression> {
        if kind == want && want != Type::Header {
            return Some(lowered);
        }
        let is_number = matches!(&lowered, Expression::Constant(Value::Text(Some(text)))
            if std::str::from_utf8(text).is_ok_and(|text| text.parse::<f64>().is_ok()));
        match (want, lowered) {
            (Type::Body, lowered) if kind == Type::Blob => return Some(lowered),
            (Type::String | Type::Strands | Type::Header, lowered) if kind == Type::Blob => {
                return Some(Expression::Encode(Box::new(lowered)));
            }
            (Type::String | Type::Strands | Type::Header | Type::Body, lowered) if kind.has_text() => {
                if want == Type::Header && matches!(lowered, Expression::Header(..)) {
                    return Some(lowered);
                }
                return Some(if kind.is_text() { lowered } else { as_text(lowered) });
            }
            (Type::Bool, lowered) if kind.has_truth() => return Some(Expression::Truth(Box::new(lowered))),
            (Type::Real, Expression::Constant(Value::Int(value))) => {
                return Some(constant(Value::Real(value as f64)));
            }
            (Type::Ip, Expression::Constant(Value::Text(Some(text)))) => {
                let text = String::from_utf8_lossy(&text).into_owned();
                if let Some(address) = address(&text) {
                    return Some(constant(Value::Ip(address)));
                }
                return self.faults.refuse(span, format!("{text:?} is not an address"));
            }
            _ => {}
        }
        let help = match (kind, want) {
            (Type::Int | Type::Real, Type::Duration) => Some("a duration needs a unit: 5s"),
            (Type::Int, Type::Real) => Some("convert it with std.real(integer=…)"),
            (Type::String, Type::Int | Type::Real) if is_number => Some("write the number without quotes"),
            (Type::String, Type::Int) => Some("convert it with std.integer(TEXT, FALLBACK)"),
            (Type::String, Type::Real) => Some("convert it with std.real(TEXT, FALLBACK)"),
            (Type::String, Type::Duration) => Some("convert it with std.duration(TEXT, FALLBACK)"),
            (Type::String, Type::Bytes) => Some("convert it with std.bytes(TEXT, FALLBACK)"),
            (Type::String, Type::Time) => Some("convert it with std.time(TEXT, FALLBACK)"),
            (Type::String, Type::Ip) => Some("convert it with std.ip(TEXT, FALLBACK)"),
            (Type::String, Type::Backend) => Some("write the backend's name without quotes"),
            (Type::String, Type::Header) => Some("write the header as req.http.NAME"),
            (Type::Ip, Type::Bool) => Some("compare the IP with ==, or match it with an acl"),
            (Type::Time | Type::Real | Type::Bytes, Type::Bool) => Some("use a comparison, such as == or >"),
            _ => None,
        };
        let message = format!("expected {want}, found {kind}");
        match help {
            Some(help) => self.faults.error_help(span, message, help),
            None => self.faults.error(span, message),
        }
        None
    }
}

/// Converts a value to a string; constants are converted at compile time.
pub(super) fn as_text(value: Expression) -> Expression {
    let mut text = Vec::new();
    match &value {
        Expression::Constant(Value::Int(number) | Value::Bytes(number)) => write_int(*number, &mut text),
        Expression::Constant(Value::Real(number) | Value::Duration(number)) => write_real(*number, &mut text),
        Expression::Constant(Value::Bool(value)) => text.extend_from_slice(value.to_string().as_bytes()),
        Expression::Constant(Value::Ip(address)) => write_ip(*address, &mut text),
        _ => return Expression::Concat(vec![value]),
    }
    constant(Value::Text(Some(Cow::Owned(text))))
}

/// Parses an address with an optional port.
fn address(text: &str) -> Option<SocketAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    match bare.parse::<IpAddr>() {
        // As in Varnish, the default port is 80.
        Ok(address) => Some(SocketAddr::new(address, 80)),
        Err(_) => text.parse().ok(),
    }
}
