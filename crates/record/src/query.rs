//! Response record fields by their names in query expressions: the JSON names of each level, joined
//! by dots.

use std::sync::LazyLock;

use crate::field::Kind;
use crate::rows::Value;
use crate::value::{Build, Datum, Message};
use crate::{Field, ResponseRecord};

/// A field that query expressions can name.
#[derive(Debug)]
pub struct QueryField {
    /// Dotted JSON name, such as `tcp.rtt_us`.
    pub name: &'static str,
    /// Declaration of the field itself.
    pub field: &'static Field,
    /// Part that contains the field; `None` for a top-level field.
    part: Option<&'static Field>,
}

/// Returns all fields of a response record, in the order of the JSON line.
pub fn query_fields() -> &'static [QueryField] {
    static FIELDS: LazyLock<Vec<QueryField>> = LazyLock::new(|| {
        let mut all = Vec::new();
        for field in ResponseRecord::DECLARED.fields() {
            all.push(QueryField { name: field.json, field, part: None });
            let Kind::Part(part) = field.kind else { continue };
            all.extend(part.fields().iter().map(|inner| {
                // Leaked once per process, because the table is static.
                let name = format!("{}.{}", field.json, inner.json).leak();
                QueryField { name, field: inner, part: Some(field) }
            }));
        }
        all
    });
    &FIELDS
}

impl QueryField {
    /// Returns the field's value in a record, or null if the JSON line omits the field. The value
    /// of a part is true if the part is present. The list of logged lines is always null; see
    /// [`ResponseRecord::lines`].
    pub fn value<'r>(&self, record: &'r ResponseRecord) -> Value<'r> {
        let message: &dyn Message = record;
        let Some(part) = self.part else { return value(message, self.field) };
        match find(message, part) {
            Datum::Part(part) => value(part, self.field),
            _ => Value::Null,
        }
    }
}

fn value<'r>(message: &'r dyn Message, field: &'static Field) -> Value<'r> {
    match find(message, field) {
        datum if field.is_sparse && datum.is_default() => Value::Null,
        Datum::Bool(value) => Value::Bool(value),
        Datum::Number(unix_us) if matches!(field.kind, Kind::Time) => Value::Time(unix_us),
        Datum::Number(number) => Value::Number(number),
        Datum::Text(text) => Value::Text(text),
        Datum::Address(address) => Value::Text(address.to_string().into()),
        Datum::Part(_) => Value::Bool(true),
        _ => Value::Null,
    }
}

fn find<'r>(message: &'r dyn Message, wanted: &'static Field) -> Datum<'r> {
    let mut found = Datum::Null;
    message.each(&mut |field, datum| {
        if std::ptr::eq(field, wanted) {
            found = datum;
        }
    });
    found
}
