//! Plain-text reference of all settings, generated from their declarations.

use std::fmt::Write as _;

use super::declare::{Absent, Setting};
use super::sections::SECTIONS;

/// Formats all sections and their settings: name, form, default or meaning if absent, bounds, and
/// description.
pub(crate) fn reference() -> String {
    let mut text = String::new();
    for section in SECTIONS {
        let name = section.name;
        line(
            &mut text,
            0,
            &if section.many { format!("[[{name}]]  (any number)") } else { format!("[{name}]") },
        );
        section.doc.iter().for_each(|doc| line(&mut text, 2, doc.trim()));
        text.push('\n');
        section.settings.iter().for_each(|it| setting(&mut text, it));
        text.push('\n');
    }
    text.push_str("Relative paths in the file are resolved against the file's directory.\n");
    text
}

fn setting(text: &mut String, setting: &Setting) {
    let bounds = setting.bounds.map(|(least, most)| format!(", {least} to {most}")).unwrap_or_default();
    let form = match setting.placeholder {
        item if setting.many => format!("[{item}, …]"),
        form => form.to_owned(),
    };
    line(text, 2, &format!("{:<22} {form}, {}{bounds}", setting.name, absent(setting)));
    setting.doc.iter().for_each(|doc| line(text, 6, doc.trim()));
}

fn absent(setting: &Setting) -> String {
    match setting.absent {
        Absent::Default(text) => format!("default {text}"),
        Absent::Unset(meaning) => format!("if absent: {meaning}"),
        Absent::Fault => "required".to_owned(),
    }
}

fn line(text: &mut String, indent: usize, content: &str) {
    writeln!(text, "{:indent$}{content}", "").expect("writing to a String cannot fail");
}
