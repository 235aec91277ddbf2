//! Config file reader: turns TOML text into sections and reports every fault with its line and
//! column.

use std::path::Path;

use thalweg_units::nearest;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Config;
use super::declare::{Reader, Section, Setting};
use super::place::{Fault, Place};
use super::sections::{Agent, Console, Consumer, Controller, Edge, Origin, SECTIONS, Source, Tenant};
use super::value::{Raw, Written};

/// Parses the text of a config file, skipping invalid sections. Relative paths are resolved against
/// `base`.
pub(super) fn read(text: &str, base: &Path, faults: &mut Vec<Fault>) -> Config {
    let (table, syntax) = DeTable::parse_recoverable(text);
    if !syntax.is_empty() {
        faults.extend(syntax.iter().map(|fault| syntax_fault(text, fault)));
        return Config::default(); // settings recovered after a syntax error are guesses
    }
    let mut walk = Walk { text, base, faults };
    let mut config = Config::default();
    for (key, value) in table.get_ref() {
        match key.get_ref().as_ref() {
            Edge::NAME => config.edge = walk.section(key, value),
            Origin::NAME => config.origin = walk.section(key, value),
            Console::NAME => config.console = walk.section(key, value),
            Agent::NAME => config.agent = walk.section(key, value),
            Consumer::NAME => config.consumer = walk.section(key, value),
            Controller::NAME => config.controller = walk.section(key, value),
            Tenant::NAME => config.tenants = walk.sections(key, value),
            Source::NAME => config.sources = walk.sections(key, value),
            unknown => {
                let message = unknown_section(unknown);
                walk.fault(key.span(), message);
            }
        }
    }
    config
}

struct Walk<'a> {
    text: &'a str,
    base: &'a Path,
    faults: &'a mut Vec<Fault>,
}

impl Walk<'_> {
    fn place(&self, span: std::ops::Range<usize>) -> Place {
        Place::in_file(self.text, &span)
    }

    fn fault(&mut self, span: std::ops::Range<usize>, message: String) {
        let place = self.place(span);
        self.faults.push(Fault { place, setting: None, message });
    }

    /// Reads a `[name]` section, which must not be repeated.
    fn section<S: Section>(
        &mut self,
        key: &Spanned<impl AsRef<str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<S> {
        let Some(table) = value.get_ref().as_table() else {
            let name = S::NAME;
            self.fault(key.span(), format!("{name} is a section: write [{name}] on its own line"));
            return None;
        };
        self.settings(self.place(key.span()), table)
    }

    /// Reads a repeatable `[[name]]` section.
    fn sections<S: Section>(
        &mut self,
        key: &Spanned<impl AsRef<str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Vec<S> {
        let tables: Option<Vec<_>> = value.get_ref().as_array().and_then(|items| {
            items.iter().map(|item| Some((item.span(), item.get_ref().as_table()?))).collect()
        });
        let Some(tables) = tables else {
            let name = S::NAME;
            self.fault(key.span(), format!("{name} is a repeatable section: write [[{name}]]"));
            return Vec::new();
        };
        tables.into_iter().filter_map(|(span, table)| self.settings(self.place(span), table)).collect()
    }

    fn settings<S: Section>(&mut self, place: Place, table: &DeTable<'_>) -> Option<S> {
        for key in table.keys() {
            let name = key.get_ref().as_ref();
            if !S::SETTINGS.iter().any(|setting| setting.name == name) {
                self.fault(key.span(), unknown_key(name, S::NAME, S::SETTINGS));
            }
        }
        let lookup = |setting: &'static Setting| table.get(setting.name).map(|value| raw(self.text, value));
        S::read(&mut Reader { lookup: &lookup, place, base: self.base, faults: self.faults })
    }
}

/// Converts a TOML value to one of the shapes that settings use.
fn raw(text: &str, value: &Spanned<DeValue<'_>>) -> Raw {
    let written = match value.get_ref() {
        DeValue::String(string) => Written::Text(string.to_string()),
        DeValue::Integer(number) => Written::Number(number.to_string()),
        DeValue::Float(number) => Written::Number(number.to_string()),
        DeValue::Array(items) => Written::List(items.iter().map(|item| raw(text, item)).collect()),
        other => Written::Other(other.type_str()),
    };
    Raw { written, place: Place::in_file(text, &value.span()) }
}

fn syntax_fault(text: &str, fault: &toml::de::Error) -> Fault {
    let place = Place::in_file(text, &fault.span().unwrap_or(0..0));
    Fault { place, setting: None, message: fault.message().replace('\n', ", ") }
}

fn unknown_key(name: &str, section: &str, settings: &[Setting]) -> String {
    let known = settings.iter().map(|setting| setting.name);
    let has_it = |settings: &[Setting]| settings.iter().any(|setting| setting.name == name);
    let elsewhere = SECTIONS.iter().find(|section| has_it(section.settings));
    let hint = match (nearest(name, known.clone()), elsewhere) {
        (_, Some(other)) => format!("it belongs to [{}]", other.name),
        (Some(near), None) => format!("did you mean {near:?}?"),
        (None, None) => format!("known keys: {}", known.collect::<Vec<_>>().join(", ")),
    };
    format!("unknown key {name:?} in [{section}]; {hint}")
}

fn unknown_section(name: &str) -> String {
    let known = SECTIONS.iter().map(|section| section.name);
    let hint = match nearest(name, known.clone()) {
        Some(near) => format!("did you mean [{near}]?"),
        None => format!("known sections: {}", known.collect::<Vec<_>>().join(", ")),
    };
    format!("unknown section {name:?}; {hint}")
}
