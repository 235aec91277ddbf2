//! The config file: TOML text to sections, with every fault at its line and column.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::declare::{Reader, Section, Setting};
use super::place::{Fault, Place};
use super::sections::{Agent, Console, Consumer, Controller, Edge, Origin, Source, Tenant};
use super::value::{Raw, Written};

/// The sections of a file, as far as they are right.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) edge: Option<(Place, Edge)>,
    pub(super) origin: Option<(Place, Origin)>,
    pub(super) console: Option<(Place, Console)>,
    pub(super) agent: Option<(Place, Agent)>,
    pub(super) consumer: Option<(Place, Consumer)>,
    pub(super) controller: Option<(Place, Controller)>,
    pub(super) tenants: Vec<(Place, Tenant)>,
    pub(super) sources: Vec<(Place, Source)>,
}

/// How alike two names must be for one to be proposed for the other, by Jaro and Winkler's measure from 0 to
/// 1.
const LIKENESS_MIN: f64 = 0.75;

/// Names and settings of every section.
const SECTIONS: &[(&str, &[Setting])] = &[
    (Edge::NAME, Edge::SETTINGS),
    (Origin::NAME, Origin::SETTINGS),
    (Console::NAME, Console::SETTINGS),
    (Agent::NAME, Agent::SETTINGS),
    (Consumer::NAME, Consumer::SETTINGS),
    (Controller::NAME, Controller::SETTINGS),
    (Tenant::NAME, Tenant::SETTINGS),
    (Source::NAME, Source::SETTINGS),
];

/// Reads the text of a file; relative paths in it start at `base`.
pub(super) fn read(text: &str, base: &Path, faults: &mut Vec<Fault>) -> File {
    let (table, syntax) = DeTable::parse_recoverable(text);
    if !syntax.is_empty() {
        faults.extend(syntax.iter().map(|fault| syntax_fault(text, fault)));
        return File::default(); // what recovery made of the rest would be guesses
    }
    let mut walk = Walk { text, base, faults };
    let mut file = File::default();
    for (key, value) in table.get_ref() {
        match key.get_ref().as_ref() {
            Edge::NAME => file.edge = walk.section(key, value),
            Origin::NAME => file.origin = walk.section(key, value),
            Console::NAME => file.console = walk.section(key, value),
            Agent::NAME => file.agent = walk.section(key, value),
            Consumer::NAME => file.consumer = walk.section(key, value),
            Controller::NAME => file.controller = walk.section(key, value),
            Tenant::NAME => file.tenants = walk.sections(key, value),
            Source::NAME => file.sources = walk.sections(key, value),
            unknown => {
                let message = unknown_section(unknown);
                walk.fault(key.span(), message);
            }
        }
    }
    file
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

    /// `[name]`, once.
    fn section<S: Section>(
        &mut self,
        key: &Spanned<impl AsRef<str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<(Place, S)> {
        let Some(table) = value.get_ref().as_table() else {
            let name = S::NAME;
            self.fault(key.span(), format!("{name} is a section: write [{name}] on a line of its own"));
            return None;
        };
        self.settings(self.place(key.span()), table)
    }

    /// `[[name]]`, any number of times.
    fn sections<S: Section>(
        &mut self,
        key: &Spanned<impl AsRef<str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Vec<(Place, S)> {
        let tables: Option<Vec<_>> = value.get_ref().as_array().and_then(|items| {
            items.iter().map(|item| Some((item.span(), item.get_ref().as_table()?))).collect()
        });
        let Some(tables) = tables else {
            let name = S::NAME;
            self.fault(key.span(), format!("{name} may stand several times: write [[{name}]]"));
            return Vec::new();
        };
        tables.into_iter().filter_map(|(span, table)| self.settings(self.place(span), table)).collect()
    }

    fn settings<S: Section>(&mut self, place: Place, table: &DeTable<'_>) -> Option<(Place, S)> {
        for key in table.keys() {
            let name = key.get_ref().as_ref();
            if !S::SETTINGS.iter().any(|setting| setting.name == name) {
                self.fault(key.span(), unknown_key(name, S::NAME, S::SETTINGS));
            }
        }
        let lookup = |setting: &'static Setting| table.get(setting.name).map(|value| raw(self.text, value));
        let section = S::read(&mut Reader { lookup: &lookup, place, base: self.base, faults: self.faults })?;
        Some((place, section))
    }
}

/// The value without TOML's types that no setting has.
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
    let elsewhere = SECTIONS.iter().find(|(_, settings)| settings.iter().any(|setting| setting.name == name));
    let hint = match (nearest(name, known.clone()), elsewhere) {
        (_, Some((other, _))) => format!("it belongs to [{other}]"),
        (Some(near), None) => format!("did you mean {near:?}?"),
        (None, None) => format!("known are {}", known.collect::<Vec<_>>().join(", ")),
    };
    format!("unknown key {name:?} in [{section}]; {hint}")
}

fn unknown_section(name: &str) -> String {
    let known = SECTIONS.iter().map(|(name, _)| *name);
    let hint = match nearest(name, known.clone()) {
        Some(near) => format!("did you mean [{near}]?"),
        None => format!("known are {}", known.collect::<Vec<_>>().join(", ")),
    };
    format!("unknown section {name:?}; {hint}")
}

/// The known name that is most like this one, if any is like it.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
