//! The way a section's settings are declared: one table gives the struct, the reader, the flags and the
//! reference.
//!
//! ```text
//! section! {
//!     /// What the section is about.
//!     "edge" Edge {
//!         /// What the setting does.
//!         listen: SocketAddr = default("0.0.0.0:8080");
//!         memory: Size = default("1GiB"), within("16MiB", "16TiB");
//!         threads: Count = unset("one per core"), within("1", "1024");
//!         media: PathBuf = required();
//!     }
//! }
//! ```
//!
//! A setting with a default is a [`Set`], one that may be absent an `Option<Set>`, and the text after `unset`
//! says what its absence means.

use std::path::Path;

use super::place::{Fault, Place};
use super::value::{Raw, Refused, Value, Written};

/// A value and where it was set: for faults that show only when it is used, such as a port that is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Set<T> {
    pub(crate) value: T,
    pub(crate) place: Place,
    pub(crate) setting: &'static Setting,
}

impl<T> Set<T> {
    /// Something wrong with the value.
    pub(crate) fn fault(&self, message: String) -> Fault {
        Fault { place: self.place, setting: Some(self.setting), message }
    }
}

/// A setting as declared.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) section: &'static str,
    pub(crate) name: &'static str,
    /// The lines of its description.
    pub(crate) doc: &'static [&'static str],
    /// [`Value::FORM`] of its type.
    pub(crate) form: &'static str,
    /// [`Value::PLACEHOLDER`] of its type.
    pub(crate) placeholder: &'static str,
    /// It takes a list.
    pub(crate) many: bool,
    pub(crate) absent: Absent,
    /// The least and the greatest value, as they would be written.
    pub(crate) bounds: Option<(&'static str, &'static str)>,
}

/// What it means that a setting is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    /// It has this value, as it would be written.
    Default(&'static str),
    /// It is not there, which means this.
    Unset(&'static str),
    /// It must be given.
    Fault,
}

/// A section as declared.
pub(crate) trait Section: Sized {
    const NAME: &'static str;
    const DOC: &'static [&'static str];
    const SETTINGS: &'static [Setting];

    /// Reads every setting; each fault goes to the reader's, and any fault makes it `None`.
    fn read(reader: &mut Reader<'_>) -> Option<Self>;
}

impl Setting {
    /// The setting's flag: `connect_timeout` is `--connect-timeout`, and a list such as `backends` is
    /// `--backend`, given once for each item.
    pub(crate) fn flag(&self) -> String {
        let singular = if self.many { self.name.trim_end_matches('s') } else { self.name };
        format!("--{}", singular.replace('_', "-"))
    }
}

/// A source of raw values, and where faults are gathered.
pub(crate) struct Reader<'a> {
    /// The raw value of a setting.
    pub(crate) lookup: &'a dyn Fn(&'static Setting) -> Option<Raw>,
    /// Where the section starts: for what it lacks.
    pub(crate) place: Place,
    /// Where relative paths start.
    pub(crate) base: &'a Path,
    pub(crate) faults: &'a mut Vec<Fault>,
}

impl Reader<'_> {
    /// A setting that may be absent: `None` after a fault, `Some(None)` if it is absent.
    pub(crate) fn unset<T: Value>(&mut self, setting: &'static Setting) -> Option<Option<Set<T>>> {
        let Some(raw) = (self.lookup)(setting) else { return Some(None) };
        self.typed(setting, &raw).map(Some)
    }

    /// A setting with a default.
    pub(crate) fn default<T: Value>(&mut self, setting: &'static Setting) -> Option<Set<T>> {
        let Absent::Default(text) = setting.absent else { unreachable!("declared with a default") };
        let raw = (self.lookup)(setting)
            .unwrap_or_else(|| Raw { written: Written::Text(text.to_owned()), place: Place::Default });
        self.typed(setting, &raw)
    }

    /// A setting that must be there.
    pub(crate) fn required<T: Value>(&mut self, setting: &'static Setting) -> Option<Set<T>> {
        let Some(raw) = (self.lookup)(setting) else {
            let message = format!("missing: {}", setting.form);
            self.faults.push(Fault { place: self.place, setting: Some(setting), message });
            return None;
        };
        self.typed(setting, &raw)
    }

    fn typed<T: Value>(&mut self, setting: &'static Setting, raw: &Raw) -> Option<Set<T>> {
        let value = match T::read(raw, self.base) {
            Ok(value) => value,
            Err(refused) => {
                let fault = |refused: Refused| Fault {
                    place: refused.place,
                    setting: Some(setting),
                    message: refused.message,
                };
                self.faults.extend(refused.into_iter().map(fault));
                return None;
            }
        };
        let set = Set { value, place: raw.place, setting };
        if let Some((least, most)) = setting.bounds {
            let bound = |text| T::from_text(text).expect("bounds are declared well").rank();
            if !(bound(least)..=bound(most)).contains(&set.value.rank()) {
                self.faults.push(set.fault(format!("{} is outside {least} to {most}", raw.written)));
                return None;
            }
        }
        Some(set)
    }
}

/// Declares a section; see the head of this file.
macro_rules! section {
    (
        $(#[doc = $doc:literal])*
        $name:literal $Section:ident {
            $(
                $(#[doc = $setting_doc:literal])*
                $field:ident: $Type:ty = $how:ident($($absent:literal)?) $(, within($least:literal, $most:literal))?;
            )*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone)]
        pub(crate) struct $Section {
            $($(#[doc = $setting_doc])* pub(crate) $field: section!(@type $how $Type),)*
        }

        impl $crate::config::declare::Section for $Section {
            const NAME: &'static str = $name;
            const DOC: &'static [&'static str] = &[$($doc),*];
            const SETTINGS: &'static [$crate::config::declare::Setting] = &[$(
                $crate::config::declare::Setting {
                    section: $name,
                    name: stringify!($field),
                    doc: &[$($setting_doc),*],
                    form: <$Type as $crate::config::value::Value>::FORM,
                    placeholder: <$Type as $crate::config::value::Value>::PLACEHOLDER,
                    many: <$Type as $crate::config::value::Value>::MANY,
                    absent: section!(@absent $how $($absent)?),
                    bounds: section!(@bounds $($least, $most)?),
                },
            )*];

            fn read(reader: &mut $crate::config::declare::Reader<'_>) -> Option<Self> {
                let mut settings = Self::SETTINGS.iter();
                // Every setting is read before the first absent one ends it, so that every fault is told.
                $(let $field = reader.$how(settings.next().expect("one per field"));)*
                Some(Self { $($field: $field?,)* })
            }
        }
    };
    (@type default $Type:ty) => { $crate::config::declare::Set<$Type> };
    (@type required $Type:ty) => { $crate::config::declare::Set<$Type> };
    (@type unset $Type:ty) => { Option<$crate::config::declare::Set<$Type>> };
    (@absent default $text:literal) => { $crate::config::declare::Absent::Default($text) };
    (@absent unset $text:literal) => { $crate::config::declare::Absent::Unset($text) };
    (@absent required) => { $crate::config::declare::Absent::Fault };
    (@bounds) => { None };
    (@bounds $least:literal, $most:literal) => { Some(($least, $most)) };
}

pub(super) use section;
