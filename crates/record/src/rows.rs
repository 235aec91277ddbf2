//! Records as table rows: each table's columns, derived from its record declaration, and each
//! record's values.
//!
//! SQLite, ClickHouse, Parquet and JSON lines all use these rows; the tables in `schema/` are
//! generated from the columns.
//!
//! **Invariant:** `(host, epoch, number)` identifies a row across all tables.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::LazyLock;

use crate::field;
use crate::value::{Build, Datum, Message};
use crate::{
    Declared, Entry, Field, Lines, LossRecord, Network, Record, ResponseRecord, SocketRecord, Source,
};

/// A table of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Table {
    /// Socket samples.
    Sockets,
    /// Responses.
    Responses,
    /// Losses of socket and response records.
    Losses,
}

impl Table {
    /// All tables.
    pub const ALL: [Self; 3] = [Self::Sockets, Self::Responses, Self::Losses];

    /// Returns the table's name in a database.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sockets => "sockets",
            Self::Responses => "responses",
            Self::Losses => "losses",
        }
    }

    /// Returns the columns, in order.
    pub fn columns(self) -> &'static [Column] {
        static TABLES: LazyLock<[Vec<Column>; 3]> = LazyLock::new(|| Table::ALL.map(declared));
        &TABLES[self as usize]
    }

    /// Returns the table of a record.
    pub fn of(record: &Record) -> Self {
        match record {
            Record::Socket(_) => Self::Sockets,
            Record::Response(_) => Self::Responses,
            Record::Loss(_) => Self::Losses,
        }
    }
}

/// A column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Name, with the unit last.
    pub name: &'static str,
    /// Type of the column's values.
    pub kind: Kind,
    /// Whether the column may be null.
    pub is_nullable: bool,
    /// Whether the column is an identifier rather than a quantity.
    pub is_id: bool,
    /// Description, one item per source line.
    pub doc: &'static [&'static str],
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// True or false.
    Bool,
    /// A number below 2^8.
    U8,
    /// A number below 2^16.
    U16,
    /// A number below 2^32.
    U32,
    /// A number below 2^64.
    U64,
    /// A UTF-8 string with few distinct values, such as a name; worth dictionary encoding.
    Name,
    /// Any other UTF-8 string.
    Text,
    /// A time in microseconds since the Unix epoch.
    Time,
    /// An IP address; never IPv4-mapped.
    Ip,
}

/// The value of a column in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value<'a> {
    /// Null.
    Null,
    /// Value for [`Kind::Bool`].
    Bool(bool),
    /// Value for a numeric kind, within that kind's range.
    Number(u64),
    /// Value for [`Kind::Name`] or [`Kind::Text`].
    Text(Cow<'a, str>),
    /// Value for [`Kind::Time`].
    Time(u64),
    /// Value for [`Kind::Ip`].
    Ip(IpAddr),
}

/// Returns the columns of a table: the common columns, then those declared by its record.
fn declared(table: Table) -> Vec<Column> {
    let record = match table {
        Table::Sockets => SocketRecord::DECLARED,
        Table::Responses => ResponseRecord::DECLARED,
        Table::Losses => LossRecord::DECLARED,
    };
    let [source, entry, network] = [Source::DECLARED, Entry::DECLARED, Network::DECLARED];
    let time = Column::of(record.field("time_unix_us"), "time", false);
    let mut columns = vec![time];
    for (message, name) in [(source, "pop"), (source, "host"), (source, "epoch"), (entry, "number")] {
        columns.push(Column::of(message.field(name), name, false));
    }
    if table != Table::Losses {
        let prefix = Column {
            name: "prefix",
            doc: &[" The client's network: /24 for IPv4, /56 for IPv6."],
            ..columns[1]
        };
        columns.push(prefix);
        columns.extend(network.fields().iter().map(|field| Column::of(field, field.name, false)));
    }
    push_columns(record, "", false, &mut columns);
    if table == Table::Responses {
        let doc = &[" Lines logged by the policy, each preceded by its tag."];
        let lines = Lines::DECLARED.field("lines");
        columns.push(Column { kind: Kind::Text, is_nullable: true, doc, ..Column::of(lines, "lines", true) });
    }
    columns
}

/// Adds the columns of a message's fields, prefixing their names with `before`.
fn push_columns(message: &Declared, before: &str, is_nullable: bool, columns: &mut Vec<Column>) {
    for field in message.fields() {
        let Some(name) = field.column else { continue };
        // Leaked once per process, because the tables are static.
        let name = |end| -> &'static str { format!("{before}{name}{end}").leak() };
        match field.kind {
            field::Kind::Part(part) => push_columns(part, name(""), true, columns),
            field::Kind::Address => {
                let ip = Column::of(field, name("_ip"), is_nullable);
                columns.extend([ip, Column { name: name("_port"), kind: Kind::U16, doc: &[], ..ip }]);
            }
            _ => columns.push(Column::of(field, name(""), is_nullable)),
        }
    }
}

impl Column {
    fn of(field: &Field, name: &'static str, is_nullable: bool) -> Self {
        let kind = match field.kind {
            field::Kind::Bool => Kind::Bool,
            field::Kind::Number(8) => Kind::U8,
            field::Kind::Number(16) => Kind::U16,
            field::Kind::Number(32) => Kind::U32,
            field::Kind::Number(_) => Kind::U64,
            field::Kind::Time => Kind::Time,
            field::Kind::Address => Kind::Ip,
            _ if field.is_text => Kind::Text,
            _ => Kind::Name,
        };
        let is_nullable = is_nullable || field.is_optional;
        Self { name, kind, is_nullable, is_id: field.is_id, doc: field.doc }
    }
}

/// Passes the values of an entry's row to `visit`, in the table's column order.
pub fn row<'a>(source: &'a Source, entry: &'a Entry, visit: &mut impl FnMut(Value<'a>)) {
    let (time_unix_us, record): (_, &dyn Message) = match &entry.record {
        Record::Socket(record) => (record.time_unix_us, &**record),
        Record::Response(record) => (record.time_unix_us, &**record),
        Record::Loss(record) => (record.time_unix_us, record),
    };
    visit(Value::Time(time_unix_us));
    visit(Value::Text(source.pop.as_str().into()));
    visit(Value::Text(source.host.as_str().into()));
    visit(Value::Number(source.epoch));
    visit(Value::Number(entry.number));
    if let Some(prefix) = entry.prefix() {
        visit(Value::Text(prefix.to_string().into()));
        visit(entry.network.asn.map_or(Value::Null, |asn| Value::Number(asn.into())));
        visit(entry.network.region.as_deref().map_or(Value::Null, |region| Value::Text(region.into())));
    }
    visit_values(record, visit);
    if let Record::Response(record) = &entry.record {
        visit(lines(record).map_or(Value::Null, |lines| Value::Text(lines.into())));
    }
}

fn visit_values<'a>(message: &'a dyn Message, visit: &mut dyn FnMut(Value<'a>)) {
    message.each(&mut |field, datum| {
        if field.column.is_none() {
            return;
        }
        match (datum, field.kind) {
            (Datum::Null, field::Kind::Part(part)) => {
                let columns = part.fields().iter().filter(|field| field.column.is_some());
                columns.for_each(|_| visit(Value::Null));
            }
            (Datum::Bool(value), _) => visit(Value::Bool(value)),
            (Datum::Number(unix_us), field::Kind::Time) => visit(Value::Time(unix_us)),
            (Datum::Number(number), _) => visit(Value::Number(number)),
            (Datum::Text(text), _) => visit(Value::Text(text)),
            (Datum::Address(address), _) => {
                visit(Value::Ip(address.ip()));
                visit(Value::Number(address.port().into()));
            }
            (Datum::Part(part), _) => visit_values(part, visit),
            _ => visit(Value::Null),
        }
    });
}

/// Returns the lines logged by the policy, each preceded by its tag.
fn lines(record: &ResponseRecord) -> Option<String> {
    let mut lines: Vec<String> =
        record.lines.iter().map(|line| format!("{} {}", line.tag, line.text)).collect();
    if record.lines.lost() > 0 {
        lines.push(format!("({} more)", record.lines.lost()));
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}
