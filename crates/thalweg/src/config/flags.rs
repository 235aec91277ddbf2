//! The settings of a section as flags of a command, made from the same declaration as the file's keys.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::path::Path;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::declare::{Absent, Reader, Section, Setting};
use super::place::{Fault, Place};
use super::value::{Raw, Written};

/// The flags of section `S` as given: read later, so that every fault is told in the same words as the
/// file's.
#[derive(Debug, Clone)]
pub(crate) struct Flags<S> {
    /// What was given, by the setting's name.
    given: HashMap<&'static str, Vec<String>>,
    section: PhantomData<S>,
}

impl<S: Section> Flags<S> {
    /// Reads the flags; relative paths start at the working directory.
    pub(super) fn read(&self, faults: &mut Vec<Fault>) -> Option<S> {
        let lookup = |setting: &'static Setting| {
            let text = |text: &String| Raw { written: Written::Text(text.clone()), place: Place::Command };
            match self.given.get(setting.name)?.as_slice() {
                [one] => Some(text(one)),
                many => {
                    let items = many.iter().map(text).collect();
                    Some(Raw { written: Written::List(items), place: Place::Command })
                }
            }
        };
        S::read(&mut Reader { lookup: &lookup, place: Place::Command, base: Path::new(""), faults })
    }
}

impl<S: Section> Args for Flags<S> {
    fn augment_args(command: Command) -> Command {
        S::SETTINGS.iter().fold(command, |command, setting| command.arg(flag(setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: Section> FromArgMatches for Flags<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = S::SETTINGS.iter().filter_map(|setting| {
            let texts = matches.get_many::<String>(setting.name)?;
            Some((setting.name, texts.cloned().collect()))
        });
        Ok(Self { given: given.collect(), section: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn flag(setting: &'static Setting) -> Arg {
    let long = setting.flag().trim_start_matches('-').to_owned();
    let about = setting.doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    let absent = match setting.absent {
        Absent::Default(text) => format!(" [default: {text}]"),
        Absent::Unset(_) | Absent::Fault => String::new(),
    };
    let again = if setting.many { " May be given several times." } else { "" };
    Arg::new(setting.name)
        .long(long)
        .value_name(setting.placeholder)
        .help(format!("{about}{again}{absent}"))
        .action(if setting.many { ArgAction::Append } else { ArgAction::Set })
        .hide_default_value(true)
}
