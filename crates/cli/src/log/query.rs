//! Expressions of `thalweg log -q`, and the fields that they can name.
//!
//! The fields come from the record's JSON line (`record::query`) and its logged lines.
//! [`thalweg_policy::expression`] parses and evaluates expressions. A field is named by its dotted
//! JSON path, with or without its unit, or by its printed column. `tcpi` is an alias of `tcp`.
//! Names ignore case, so printed line tags such as `VCL_Log` work too.

use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use thalweg_policy::expression::{self, Expression, Quantity, Schema};
use thalweg_policy::value::{Failure, Value as Found};
use thalweg_record::{LineTag, QueryField, Unit, query_fields};
use thalweg_units::{RATE_UNITS, SIZE_UNITS, SPAN_UNITS, nearest};

/// Expression over the fields of records.
#[derive(Debug, Clone)]
pub(super) struct Query(Arc<Expression<&'static Field>>);

impl Query {
    /// Parses an expression; "ago" is relative to the time of this call.
    ///
    /// # Errors
    ///
    /// Returns an error that marks the invalid parts, and states what is allowed there, if the
    /// expression is invalid.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::parse_at(text, i64::try_from(now.as_micros()).unwrap_or(i64::MAX))
    }

    fn parse_at(text: &str, now_us: i64) -> Result<Self, String> {
        let expression = Expression::compile(text, &Fields, now_us);
        expression.map(|expression| Self(Arc::new(expression))).map_err(|error| error.marked())
    }

    /// Returns whether the expression matches a record's JSON.
    ///
    /// # Errors
    ///
    /// Returns an error if a regular expression exceeds its limits.
    pub(super) fn holds(&self, record: &Value) -> Result<bool, Failure> {
        self.0.holds(&Record(record))
    }
}

/// Fields of the log.
struct Fields;

/// JSON of a record.
struct Record<'r>(&'r Value);

/// Field that an expression can name.
#[derive(Debug)]
struct Field {
    /// Name in the JSON line; for logged lines, the tag.
    name: &'static str,
    kind: Kind,
}

/// Kind of a field's values; determines which operators and values it accepts.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Time in RFC 3339 format.
    Time,
    Truth,
    /// Object whose members are named after a dot.
    Parts,
    Count,
    /// Size in bytes.
    Size,
    /// Duration in microseconds.
    Span,
    /// Rate in bytes per second.
    Rate,
    /// Texts of the logged lines with one tag, or with any tag.
    Lines(Option<LineTag>),
}

/// All fields of a record in declaration order, with the tags right after `lines`.
static FIELDS: LazyLock<Vec<Field>> = LazyLock::new(|| {
    let mut fields = Vec::new();
    for known in query_fields() {
        fields.push(Field { name: known.name, kind: Kind::of(known) });
        if known.name == "lines" {
            fields.extend(TAGS.map(|(name, tag)| Field { name, kind: Kind::Lines(Some(tag)) }));
        }
    }
    fields.push(Field { name: "v", kind: Kind::Count });
    fields
});

const TAGS: [(&str, LineTag); 5] = [
    ("vcl_log", LineTag::Log),
    ("vcl_error", LineTag::Error),
    ("vcl_acl", LineTag::Acl),
    ("timestamp", LineTag::Timestamp),
    ("fetcherror", LineTag::FetchError),
];

/// Columns of `record::human` whose names differ from the field names.
const COLUMNS: [(&str, &str); 10] = [
    ("st", "status"),
    ("content", "bytes"),
    ("written", "written_us"),
    ("cc", "tcp.congestion_control"),
    ("rtt", "tcp.rtt_us"),
    ("min", "tcp.min_rtt_us"),
    ("cwnd", "tcp.snd_cwnd"),
    ("delivery", "tcp.delivery_rate_bytes_per_s"),
    ("retr", "tcp.retransmits"),
    ("lost", "tcp.lost"),
];

/// Names used by Varnish's tools, and the corresponding fields.
const ELSEWHERE: [(&str, &str); 6] = [
    ("respstatus", "status"),
    ("respproto", "protocol"),
    ("reqmethod", "method"),
    ("requrl", "path"),
    ("url", "path"),
    ("reqstart", "client"),
];

impl Schema for Fields {
    type Field = &'static Field;

    fn find(&self, name: &str) -> Option<(&'static Field, expression::Kind)> {
        let name = name.to_ascii_lowercase();
        let column = COLUMNS.iter().find(|(column, _)| *column == name);
        let known = match (column, name.strip_prefix("tcpi")) {
            (Some((_, field)), _) => (*field).to_owned(),
            (None, Some(rest)) => format!("tcp{rest}"),
            (None, None) => name.clone(),
        };
        let field = FIELDS.iter().find(|field| field.name == known || field.short() == known)?;
        // If the name ends in the unit, the value needs none.
        let needs_unit = field.unit().is_some_and(|unit| !name.ends_with(unit));
        Some((field, field.kind.of_values(needs_unit)))
    }

    fn advice(&self, name: &str) -> String {
        let lower = name.to_ascii_lowercase();
        // Policies write names such as tcpi_rtt without a dot.
        let (prefix, name) = match lower.strip_prefix("tcpi") {
            Some(rest) => (&lower[..4], format!("tcp.{}", rest.trim_start_matches(['.', '_']))),
            None => ("tcp", lower.clone()),
        };
        let known = FIELDS.iter().flat_map(|field| [field.short(), field.name]);
        let near = ELSEWHERE.iter().find(|(elsewhere, _)| *elsewhere == name).map(|(_, field)| *field);
        match near.or_else(|| nearest(&name, known)) {
            Some(near) if near.starts_with("tcp.") => format!("did you mean {prefix}{}?", &near[3..]),
            Some(near) => format!("did you mean {near}?"),
            None => "thalweg log --help lists the fields".to_owned(),
        }
    }
}

impl expression::Record<&'static Field> for Record<'_> {
    fn any(&self, field: &&'static Field, test: &mut dyn FnMut(&Found<'_>) -> bool) -> bool {
        let mut test = |value: &Value| match value {
            Value::Bool(value) => test(&Found::Bool(*value)),
            Value::Number(value) => value.as_f64().is_some_and(|value| test(&Found::Real(value))),
            Value::String(value) => test(&Found::text(value)),
            _ => test(&Found::Void),
        };
        field.values(self.0).into_iter().any(&mut test)
    }
}

impl Field {
    /// Returns the name without its unit.
    fn short(&self) -> &'static str {
        self.unit().and_then(|unit| self.name.strip_suffix(unit)).unwrap_or(self.name)
    }

    /// Returns the suffix of the name that states the unit.
    fn unit(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Span => Some("_us"),
            Kind::Rate => Some("_bytes_per_s"),
            _ => None,
        }
    }

    /// Returns the field's values in a record.
    fn values<'r>(&self, record: &'r Value) -> Vec<&'r Value> {
        let Kind::Lines(tag) = self.kind else {
            let found = self.name.split('.').try_fold(record, |value, name| value.get(name));
            return found.into_iter().collect();
        };
        let lines = record.get("lines").and_then(Value::as_array).into_iter().flatten();
        let lines =
            lines.filter(|line| tag.is_none_or(|tag| line.get("tag").is_some_and(|is| is == tag.as_str())));
        lines.filter_map(|line| line.get("text")).collect()
    }
}

impl Kind {
    fn of(QueryField { field, .. }: &QueryField) -> Self {
        match field.kind {
            thalweg_record::Kind::Bool => Self::Truth,
            thalweg_record::Kind::Number(_) => match Unit::of(field.json) {
                Some(Unit::Micros) => Self::Span,
                Some(Unit::Bytes) => Self::Size,
                Some(Unit::BytesPerSecond) => Self::Rate,
                None => Self::Count,
            },
            thalweg_record::Kind::Text | thalweg_record::Kind::Address => Self::Text,
            thalweg_record::Kind::Word(words) => Self::Word(words.all),
            thalweg_record::Kind::Time => Self::Time,
            thalweg_record::Kind::Part(_) => Self::Parts,
            thalweg_record::Kind::List(_) => Self::Lines(None),
        }
    }

    fn of_values(self, needs_unit: bool) -> expression::Kind {
        let scaled = |units: &[(&str, u64)], scale: f64, suffix: &str| -> Vec<_> {
            units.iter().map(|(name, unit)| (format!("{name}{suffix}"), *unit as f64 * scale)).collect()
        };
        let (units, example) = match self {
            Kind::Text | Kind::Lines(_) => return expression::Kind::Text,
            Kind::Word(words) => return expression::Kind::Word(words.to_vec()),
            Kind::Time => return expression::Kind::Time,
            Kind::Truth => return expression::Kind::Truth,
            Kind::Parts => return expression::Kind::Parts,
            Kind::Count => (Vec::new(), "a number such as 404"),
            Kind::Size => (scaled(SIZE_UNITS, 1.0, ""), "a size such as 100kB"),
            Kind::Span => {
                let us = [("us".to_owned(), 1.0)].into_iter();
                (us.chain(scaled(SPAN_UNITS, 1e3, "")).collect(), "a duration such as 100ms")
            }
            Kind::Rate => {
                let mut units = scaled(RATE_UNITS, 1.0 / 8.0, "");
                units.extend(scaled(SIZE_UNITS, 1.0, "/s"));
                (units, "a rate such as 5Mbit/s")
            }
        };
        expression::Kind::Number(Quantity { units, needs_unit, example })
    }
}

/// Maximum width of a wrapped list, in columns.
const WIDTH: usize = 96;

/// Formats the short names of all fields, wrapped, with `indent` before each line.
pub(super) fn reference(indent: &str) -> String {
    let mut lines = vec![String::new()];
    for field in FIELDS.iter() {
        let line = lines.last_mut().expect("`lines` has at least one line");
        if indent.len() + line.len() + field.short().len() > WIDTH {
            lines.push(String::new());
        }
        let line = lines.last_mut().expect("`lines` has at least one line");
        line.push_str(field.short());
        line.push(' ');
    }
    lines.iter().map(|line| format!("{indent}{}", line.trim_end())).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
