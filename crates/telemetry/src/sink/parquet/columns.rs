//! Rows of a table, stored by column, and their Parquet encoding. Unsigned numbers remain unsigned,
//! times are UTC timestamps in microseconds, and addresses are strings.

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

/// A table's rows, stored by column.
#[derive(Debug)]
pub(super) struct Columns {
    table: Table,
    columns: Vec<Cells>,
    /// Approximate memory used by the values, in bytes.
    bytes: usize,
}

/// Values of one column.
#[derive(Debug)]
struct Cells {
    values: Values,
    /// Definition level of each row: 1 if the row has a value, else 0. Empty if the column is not
    /// nullable.
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
    /// Creates empty columns for a table.
    pub(super) fn new(table: Table) -> Self {
        Self { table, columns: table.columns().iter().map(Cells::new).collect(), bytes: 0 }
    }

    /// Returns the number of rows.
    pub(super) fn count(&self) -> usize {
        // The first column of every table is the time, which is never null.
        self.columns.first().map_or(0, |column| column.values.count())
    }

    /// Returns the approximate memory used by the rows, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a value to a column. Each row must get exactly one value per column, in order.
    pub(super) fn push(&mut self, column: usize, value: &Value<'_>) {
        self.bytes += self.columns[column].push(value);
    }

    /// Writes the rows to a file and syncs the file.
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
            let mut column = rows.next_column()?.expect("the schema has one field per column");
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

    /// Appends a value and returns its approximate memory use in bytes.
    fn push(&mut self, value: &Value<'_>) -> usize {
        if self.is_nullable {
            self.levels.push((*value != Value::Null).into());
        }
        self.values.push(value) + size_of::<i16>()
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
    /// Appends a value unless it is null. Returns its approximate memory use in bytes.
    fn push(&mut self, value: &Value<'_>) -> usize {
        match (self, value) {
            (_, Value::Null) => return 0,
            (Self::Bool(values), Value::Bool(value)) => values.push(*value),
            // Parquet stores an unsigned number as the signed number with the same bits.
            (Self::Int32(values), Value::Number(number)) => values.push((*number as u32).cast_signed()),
            (Self::Int64(values), Value::Number(number) | Value::Time(number)) => {
                values.push(number.cast_signed());
            }
            (Self::Bytes(values), Value::Text(text)) => return push_text(values, text.as_bytes().to_vec()),
            (Self::Bytes(values), Value::Ip(ip)) => return push_text(values, ip.to_string().into_bytes()),
            (values, value) => unreachable!("{value:?} does not match the column kind of {values:?}"),
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

fn push_text(values: &mut Vec<ByteArray>, text: Vec<u8>) -> usize {
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
