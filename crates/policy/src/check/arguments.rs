//! Checks call arguments against the function's parameters.

use super::Checker;
use crate::ast::Argument;
use crate::fault::suggest;
use crate::functions::{self, Default};
use crate::program::Expression;
use crate::source::Span;
use crate::types::Type;
use crate::value::Value;

impl Checker<'_> {
    /// Checks the arguments and returns them in parameter order. `None` stands for an omitted
    /// argument without a default.
    pub(super) fn arguments(
        &mut self,
        function: &str,
        rows: &'static [functions::Argument],
        given: &[Argument],
        span: Span,
    ) -> Option<Vec<Option<Expression>>> {
        let mut lowered: Vec<Option<Expression>> = rows.iter().map(|_| None).collect();
        let mut is_given = vec![false; rows.len()];
        let mut is_right = true;
        let mut has_named = false;
        for (position, argument) in given.iter().enumerate() {
            let index = match &argument.name {
                Some(name) => {
                    has_named = true;
                    let Some(index) = rows.iter().position(|row| row.name == name.text) else {
                        let help = suggest(&name.text, rows.iter().map(|row| row.name));
                        let message = format!("{function} has no argument {}", name.text);
                        self.faults.error_help(name.span, message, help);
                        is_right = false;
                        continue;
                    };
                    index
                }
                None if has_named => {
                    let help = "named arguments come last";
                    self.faults.error_help(argument.value.span, "unnamed argument after a named one", help);
                    is_right = false;
                    continue;
                }
                None => position,
            };
            let Some(row) = rows.get(index) else {
                let message = format!("{function} takes {}", counted(rows.len()));
                self.faults.error(argument.value.span, message);
                is_right = false;
                break;
            };
            if std::mem::replace(&mut is_given[index], true) {
                self.faults.error(argument.value.span, format!("{} is given twice", row.name));
                is_right = false;
                continue;
            }
            lowered[index] = match row.kind {
                Type::Regex => {
                    self.regex(&argument.value).map(|regex| Expression::Constant(Value::Regex(regex)))
                }
                kind => self.expression(&argument.value, kind),
            };
            is_right &= lowered[index].is_some();
        }
        for (index, row) in rows.iter().enumerate() {
            if is_given[index] {
                continue;
            }
            if matches!(row.default, Default::Required) {
                let help = format!("it takes {}", signature(rows));
                let message = format!("{function} needs {} {}", row.kind, row.name);
                self.faults.error_help(span, message, help);
                is_right = false;
            }
            lowered[index] = row.default.value().map(Expression::Constant);
        }
        is_right.then_some(lowered)
    }
}

fn counted(count: usize) -> String {
    match count {
        0 => "no argument".to_owned(),
        1 => "one argument".to_owned(),
        more => format!("{more} arguments"),
    }
}

/// Formats the parameters, such as `(STRING s, [INT fallback])`.
fn signature(rows: &[functions::Argument]) -> String {
    let row = |row: &functions::Argument| match row.default {
        Default::Required => format!("{} {}", row.kind, row.name),
        _ => format!("[{} {}]", row.kind, row.name),
    };
    format!("({})", rows.iter().map(row).collect::<Vec<_>>().join(", "))
}
