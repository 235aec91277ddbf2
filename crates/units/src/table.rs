//! Aligned columns for people, separated by two spaces.
//!
//! [`line`] formats one row at a time, in columns whose widths are set in advance. [`Table`]
//! collects its rows and makes each column as wide as its widest cell.

use std::fmt;

/// Separator between columns.
const GAP: &str = "  ";

/// A column: its heading, and how its cells are padded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column<'a> {
    /// Column heading.
    pub name: &'a str,
    is_right: bool,
    /// Minimum width in characters.
    width: usize,
}

impl<'a> Column<'a> {
    /// Creates a text column, padded on the right.
    pub const fn text(name: &'a str) -> Self {
        Self { name, is_right: false, width: 0 }
    }

    /// Creates a number column, padded on the left.
    pub const fn number(name: &'a str) -> Self {
        Self { name, is_right: true, width: 0 }
    }

    /// Sets the column's minimum width in characters.
    pub const fn wide(self, width: usize) -> Self {
        Self { width, ..self }
    }

    /// Pads a cell with spaces to the column's width. A longer cell is not truncated.
    pub fn pad(&self, cell: &str) -> String {
        if self.is_right { format!("{cell:>0$}", self.width) } else { format!("{cell:<0$}", self.width) }
    }
}

/// Formats a row as one line, without trailing spaces or a newline.
pub fn line(columns: &[Column<'_>], cells: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let cells = columns.iter().zip(cells).map(|(column, cell)| column.pad(cell.as_ref()));
    cells.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
}

/// A table with a heading line. Its `Display` form ends every line with a newline, including the
/// last.
#[derive(Debug)]
pub struct Table<'a> {
    columns: Vec<Column<'a>>,
    rows: Vec<Vec<String>>,
}

impl<'a> Table<'a> {
    /// Creates a table without rows.
    pub fn new(columns: impl IntoIterator<Item = Column<'a>>) -> Self {
        let wide = |column: Column<'a>| column.wide(column.width.max(column.name.chars().count()));
        Self { columns: columns.into_iter().map(wide).collect(), rows: Vec::new() }
    }

    /// Creates a table of text columns without rows.
    pub fn of_texts(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::new(names.into_iter().map(Column::text))
    }

    /// Adds a row.
    ///
    /// # Panics
    ///
    /// Panics if the number of cells differs from the number of columns.
    pub fn push(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        let cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert_eq!(cells.len(), self.columns.len(), "row must have a cell for each column");
        for (column, cell) in self.columns.iter_mut().zip(&cells) {
            column.width = column.width.max(cell.chars().count());
        }
        self.rows.push(cells);
    }

    /// Returns whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the heading line, followed by one line per row, each formatted like [`line`].
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let names = line(&self.columns, self.columns.iter().map(|column| column.name));
        std::iter::once(names).chain(self.rows.iter().map(|row| line(&self.columns, row)))
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().try_for_each(|line| writeln!(f, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new([Column::text("NAME"), Column::number("COUNT"), Column::text("NOTE")]);
        table.push(["a", "7", ""]);
        table.push(["Zürich-1", "1000000", "full"]);
        expect![[r#"
            NAME        COUNT  NOTE
            a               7
            Zürich-1  1000000  full
        "#]]
        .assert_eq(&table.to_string());
    }

    #[test]
    #[should_panic(expected = "a cell for each column")]
    fn row_must_have_a_cell_for_each_column() {
        Table::of_texts(["NAME", "COUNT"]).push(["a"]);
    }
}
