//! Parser for the schema files. It supports only the layout of these files, not general SQL: each
//! statement ends with `;` at the end of a line, and each column has its own line. Does no I/O.

/// A `CREATE` statement for a table or view.
#[derive(Debug)]
pub(super) struct Declared {
    /// Name of the table or view.
    pub(super) name: String,
    /// The statement without its semicolon.
    pub(super) statement: String,
    /// Table columns, in order; empty for a view.
    pub(super) columns: Vec<Column>,
}

/// A column of a table.
#[derive(Debug)]
pub(super) struct Column {
    /// Column name.
    pub(super) name: String,
    /// Column type, as the server spells it.
    pub(super) kind: String,
    /// Complete column definition, as used in `ALTER TABLE`.
    pub(super) definition: String,
}

impl Declared {
    /// Returns whether the statement creates a view.
    pub(super) fn is_view(&self) -> bool {
        self.columns.is_empty()
    }
}

/// Parses a schema file into its statements.
pub(super) fn statements(text: &str) -> impl Iterator<Item = Declared> {
    let code: Vec<&str> = text.lines().filter(|line| !line.starts_with("--")).collect();
    let code = code.join("\n");
    let statements: Vec<String> =
        code.split(";\n").map(|one| one.trim().trim_end_matches(';').to_owned()).collect();
    statements.into_iter().filter(|one| !one.is_empty()).map(declared)
}

fn declared(statement: String) -> Declared {
    let (_, rest) = statement.split_once(" IF NOT EXISTS ").expect("each statement has IF NOT EXISTS");
    let name = rest.split_whitespace().next().unwrap_or_default().to_owned();
    let is_table = statement.starts_with("CREATE TABLE");
    let columns = statement
        .lines()
        .skip_while(|line| *line != "(")
        .skip(1)
        .take_while(|line| is_table && *line != ")")
        .map(|line| column(line.trim().trim_end_matches(',')))
        .collect();
    Declared { name, statement, columns }
}

fn column(definition: &str) -> Column {
    let (name, rest) = definition.split_once(' ').unwrap_or((definition, ""));
    let end = [" DEFAULT ", " CODEC(", " COMMENT "]
        .iter()
        .filter_map(|word| rest.find(word))
        .min()
        .unwrap_or(rest.len());
    Column { name: name.to_owned(), kind: rest[..end].to_owned(), definition: definition.to_owned() }
}
