//! Command-line flags of a section's settings, generated from the same declarations as the file's
//! keys.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::path::Path;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint};

use super::declare::{Absent, Reader, Section, Setting};
use super::place::{Fault, Place};
use super::value::{Raw, Value, Written};

/// Unparsed command-line flags of section `S`. They are parsed by the same code as the config file,
/// so that faults have the same wording.
#[derive(Debug, Clone)]
pub(crate) struct Flags<S> {
    /// Unparsed values, by setting name.
    given: HashMap<&'static str, Vec<String>>,
    section: PhantomData<S>,
}

impl<S: Section> Flags<S> {
    /// Parses the flags. Relative paths are resolved against the working directory.
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

/// Parses the value of a flag that is declared by a command rather than a section.
///
/// # Errors
///
/// Returns an error that states the expected form if `text` is invalid.
pub(crate) fn from_flag<T: Value>(text: &str) -> Result<T, String> {
    T::from_text(text, Path::new(""))
}

fn flag(setting: &'static Setting) -> Arg {
    let long = setting.flag().trim_start_matches('-').to_owned();
    let about = setting.doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    let absent = match setting.absent {
        Absent::Default(text) => format!(" [default: {text}]"),
        Absent::Unset(_) | Absent::Fault => String::new(),
    };
    let again = if setting.many { " May be given several times." } else { "" };
    // A switch without a value is on.
    let is_switch = setting.placeholder == <bool as Value>::PLACEHOLDER;
    let arg = if is_switch {
        Arg::new(setting.name).num_args(0..=1).default_missing_value("on")
    } else {
        Arg::new(setting.name)
    };
    arg.long(long)
        .value_name(setting.placeholder)
        .help(format!("{about}{again}{absent}"))
        .action(if setting.many { ArgAction::Append } else { ArgAction::Set })
        .hide_default_value(true)
        .value_hint(hint(setting.placeholder))
        .value_parser(Text { words: words(setting.placeholder) })
        .hide_possible_values(true)
}

/// Returns the completion hint for a placeholder.
fn hint(placeholder: &str) -> ValueHint {
    match placeholder {
        "PATH" => ValueHint::AnyPath,
        _ if placeholder.starts_with("FILE") => ValueHint::FilePath,
        _ if placeholder.starts_with("DIR") => ValueHint::DirPath,
        _ => ValueHint::Other,
    }
}

/// Returns the words of a placeholder such as `on|off`, or `None` for any other placeholder.
fn words(placeholder: &'static str) -> Option<std::str::Split<'static, char>> {
    let is_word = |word: &str| word.bytes().all(|byte| byte.is_ascii_lowercase());
    let words = placeholder.split('|');
    words.clone().all(is_word).then_some(words)
}

/// Parser that accepts any text, because the setting is parsed later. The words serve completion
/// only.
#[derive(Debug, Clone)]
struct Text {
    words: Option<std::str::Split<'static, char>>,
}

impl TypedValueParser for Text {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.words.clone()?.map(PossibleValue::new)))
    }
}
