//! The columns of a table in memory, and their Parquet file: unsigned numbers as such, times as timestamps of microseconds in UTC,
//! addresses as text.

use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{ColumnPath, Type};
use thalweg_record::rows::{Column, Kind, Table, Value};

use crate::disk;

/// The rows of a table, column by column.
#[derive(Debug)]
pub(super) struct Columns {
    table: Table,
    columns: Vec<Cells>,
    /// What the values take in memory.
    bytes: usize,
}

/// What a column has.
#[derive(Debug)]
struct Cells {
    values: Values,
    /// Of each row 1 where it has a value, else 0; empty where every row has one.
    levels: Vec<i16>,
    is_nullable: bool,
}

#[derive(Debug)]
enum Values {
    Bool(Vec<bool>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Bytes(Vec<ByteArray>),
}

impl Columns {
    /// No rows.
    pub(super) fn new(table: Table) -> Self {
        Self { table, columns: table.columns().iter().map(Cells::new).collect(), bytes: 0 }
    }

    /// How many rows there are.
    pub(super) fn count(&self) -> usize {
        // The first column of each table is its time, which every row has.
        self.columns.first().map_or(0, |column| column.values.count())
    }

    /// What they take in memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the value of a row in a column; each row has one for each column, in order.
    pub(super) fn put(&mut self, column: usize, value: &Value<'_>) {
        self.bytes += self.columns[column].put(value);
    }

    /// Writes a file.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let columns = self.table.columns();
        let fields = columns.iter().map(|column| field(column).map(Arc::new)).collect::<Result<_>>()?;
        let schema = Type::group_type_builder(self.table.name()).with_fields(fields).build()?;
        let zstd = Compression::ZSTD(ZstdLevel::default());
        let mut properties = WriterProperties::builder().set_compression(zstd).set_dictionary_enabled(false);
        for name in columns.iter().filter(|column| column.kind == Kind::Name) {
            properties = properties.set_column_dictionary_enabled(ColumnPath::from(name.name), true);
        }
        let file = disk::create(path)?;
        let mut writer = SerializedFileWriter::new(&file, Arc::new(schema), Arc::new(properties.build()))?;
        let mut rows = writer.next_row_group()?;
        for cells in &self.columns {
            let mut column = rows.next_column()?.expect("the schema has a field for each column");
            cells.write(&mut column)?;
            column.close()?;
        }
        rows.close()?;
        writer.close()?;
        disk::sync(&file)?;
        Ok(())
    }
}

impl Cells {
    fn new(column: &Column) -> Self {
        let values = match physical(column.kind) {
            Physical::BOOLEAN => Values::Bool(Vec::new()),
            Physical::INT32 => Values::Int32(Vec::new()),
            Physical::INT64 => Values::Int64(Vec::new()),
            _ => Values::Bytes(Vec::new()),
        };
        Self { values, levels: Vec::new(), is_nullable: column.is_nullable }
    }

    /// Adds a value; gives how much memory it takes.
    fn put(&mut self, value: &Value<'_>) -> usize {
        if self.is_nullable {
            self.levels.push((*value != Value::Null).into());
        }
        self.values.put(value) + size_of::<i16>()
    }

    fn write(&self, column: &mut SerializedColumnWriter<'_>) -> Result<()> {
        let levels = self.is_nullable.then_some(&*self.levels);
        match &self.values {
            Values::Bool(values) => column.typed::<BoolType>().write_batch(values, levels, None),
            Values::Int32(values) => column.typed::<Int32Type>().write_batch(values, levels, None),
            Values::Int64(values) => column.typed::<Int64Type>().write_batch(values, levels, None),
            Values::Bytes(values) => column.typed::<ByteArrayType>().write_batch(values, levels, None),
        }
        .map(drop)
    }
}

impl Values {
    /// Adds a value unless it is absent; gives how much memory it takes.
    fn put(&mut self, value: &Value<'_>) -> usize {
        match (self, value) {
            (_, Value::Null) => return 0,
            (Self::Bool(values), Value::Bool(value)) => values.push(*value),
            // Parquet has unsigned numbers in the bits of signed ones.
            (Self::Int32(values), Value::Number(number)) => values.push((*number as u32).cast_signed()),
            (Self::Int64(values), Value::Number(number) | Value::Time(number)) => {
                values.push(number.cast_signed());
            }
            (Self::Bytes(values), Value::Text(text)) => return put_text(values, text.as_bytes().to_vec()),
            (Self::Bytes(values), Value::Ip(ip)) => return put_text(values, ip.to_string().into_bytes()),
            (values, value) => unreachable!("{value:?} is not of its column's kind, as {values:?} are"),
        }
        size_of::<i64>()
    }

    fn count(&self) -> usize {
        match self {
            Self::Bool(values) => values.len(),
            Self::Int32(values) => values.len(),
            Self::Int64(values) => values.len(),
            Self::Bytes(values) => values.len(),
        }
    }
}

fn put_text(values: &mut Vec<ByteArray>, text: Vec<u8>) -> usize {
    let bytes = size_of::<ByteArray>() + text.len();
    values.push(text.into());
    bytes
}

fn physical(kind: Kind) -> Physical {
    match kind {
        Kind::Bool => Physical::BOOLEAN,
        Kind::U8 | Kind::U16 | Kind::U32 => Physical::INT32,
        Kind::U64 | Kind::Time => Physical::INT64,
        Kind::Name | Kind::Text | Kind::Ip => Physical::BYTE_ARRAY,
    }
}

fn field(column: &Column) -> Result<Type> {
    let logical = match column.kind {
        Kind::Bool => None,
        Kind::U8 => Some(LogicalType::integer(8, false)),
        Kind::U16 => Some(LogicalType::integer(16, false)),
        Kind::U32 => Some(LogicalType::integer(32, false)),
        Kind::U64 => Some(LogicalType::integer(64, false)),
        Kind::Time => Some(LogicalType::timestamp(true, TimeUnit::MICROS)),
        Kind::Name | Kind::Text | Kind::Ip => Some(LogicalType::String),
    };
    let repetition = if column.is_nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    Type::primitive_type_builder(column.name, physical(column.kind))
        .with_repetition(repetition)
        .with_logical_type(logical)
        .build()
}
