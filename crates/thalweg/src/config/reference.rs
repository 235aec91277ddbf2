//! The reference of all settings as text, made from their declarations.

use std::fmt::Write as _;

use super::declare::{Absent, Section, Setting};
use super::sections::{Agent, Console, Consumer, Controller, Edge, Origin, Source, Tenant};

/// Every section and setting: name, form, default or the meaning of its absence, bounds, description.
pub(crate) fn reference() -> String {
    let mut text = String::new();
    section::<Edge>(&mut text, "[edge]");
    section::<Origin>(&mut text, "[origin]");
    section::<Console>(&mut text, "[console]");
    section::<Agent>(&mut text, "[agent]");
    section::<Consumer>(&mut text, "[consumer]");
    section::<Controller>(&mut text, "[controller]");
    section::<Tenant>(&mut text, "[[tenant]]  (any number)");
    section::<Source>(&mut text, "[[source]]  (any number)");
    text.push_str("Relative paths in the file start at the file's directory.\n");
    text
}

fn section<S: Section>(text: &mut String, title: &str) {
    line(text, 0, title);
    S::DOC.iter().for_each(|doc| line(text, 2, doc.trim()));
    text.push('\n');
    for setting in S::SETTINGS {
        let bounds = setting.bounds.map(|(least, most)| format!(", {least} to {most}")).unwrap_or_default();
        let form = if setting.many {
            format!("[{}, …]", setting.placeholder)
        } else {
            setting.placeholder.to_owned()
        };
        line(text, 2, &format!("{:<22} {form}, {}{bounds}", setting.name, absent(setting)));
        setting.doc.iter().for_each(|doc| line(text, 6, doc.trim()));
    }
    text.push('\n');
}

fn absent(setting: &Setting) -> String {
    match setting.absent {
        Absent::Default(text) => format!("default {text}"),
        Absent::Unset(meaning) => format!("if absent: {meaning}"),
        Absent::Fault => "required".to_owned(),
    }
}

fn line(text: &mut String, indent: usize, content: &str) {
    writeln!(text, "{:indent$}{content}", "").expect("a String takes every write");
}
