//! Section declarations: a single table defines a section's struct, reader, flags and reference.
//!
//! ```text
//! section! {
//!     /// What the section configures.
//!     "edge" Edge {
//!         /// What the setting does.
//!         listen: SocketAddr = default("0.0.0.0:8080");
//!         memory: Size = default("1GiB"), within("16MiB", "16TiB");
//!         threads: usize = unset("one per core"), within("1", "1024");
//!         media: PathBuf = required();
//!     }
//! }
//! ```
//!
//! A setting that is required or has a default becomes a [`Set`], an optional one an `Option<Set>`.
//! The argument of `unset` describes the behaviour if the setting is absent.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use super::place::{Fault, Place};
use super::value::{Raw, Refused, Value, Written};

/// A value with its location, for faults that are found only later, such as a port already in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Set<T> {
    pub(crate) value: T,
    pub(crate) place: Place,
    pub(crate) setting: &'static Setting,
}

impl<T> Set<T> {
    /// Returns a fault located at this value.
    pub(crate) fn fault(&self, message: String) -> Fault {
        Fault { place: self.place, setting: Some(self.setting), message }
    }

    /// Returns a fault located at this value, with the message of an error and its causes.
    pub(crate) fn unusable(&self, error: impl std::error::Error + Send + Sync + 'static) -> Fault {
        self.fault(format!("{:#}", anyhow::Error::new(error)))
    }
}

impl Set<SocketAddr> {
    /// Binds a listener to this address and makes it non-blocking, as async runtimes require.
    ///
    /// # Errors
    ///
    /// Returns an error if the address cannot be bound.
    pub(crate) fn bind(&self) -> Result<TcpListener, Fault> {
        let bound = TcpListener::bind(self.value);
        bound
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|cause| self.fault(format!("cannot listen on {}: {cause}", self.value)))
    }
}

/// Declaration of a setting.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) section: &'static str,
    pub(crate) name: &'static str,
    /// Lines of the setting's description.
    pub(crate) doc: &'static [&'static str],
    /// [`Value::FORM`] of the setting's type.
    pub(crate) form: &'static str,
    /// [`Value::PLACEHOLDER`] of the setting's type.
    pub(crate) placeholder: &'static str,
    /// Whether the setting accepts a list.
    pub(crate) many: bool,
    pub(crate) absent: Absent,
    /// Minimum and maximum value, as written in a config.
    pub(crate) bounds: Option<(&'static str, &'static str)>,
}

/// Meaning of an absent setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    /// The setting defaults to this value, as written in a config.
    Default(&'static str),
    /// The setting is unset; the text describes the resulting behaviour.
    Unset(&'static str),
    /// The setting is required.
    Fault,
}

/// Declaration of a section.
pub(crate) trait Section: Sized {
    const NAME: &'static str;
    const DOC: &'static [&'static str];
    const SETTINGS: &'static [Setting];

    /// Reads all settings. Adds each fault to the reader, and returns `None` if there are any.
    fn read(reader: &mut Reader<'_>) -> Option<Self>;

    /// Returns where the section starts.
    fn place(&self) -> Place;

    /// Returns a fault located at the start of the section.
    fn fault(&self, message: impl Into<String>) -> Fault {
        Fault { place: self.place(), setting: None, message: message.into() }
    }
}

/// A section's declaration, without its Rust type.
#[derive(Debug)]
pub(super) struct Declared {
    pub(super) name: &'static str,
    pub(super) doc: &'static [&'static str],
    pub(super) settings: &'static [Setting],
    /// Whether the section may be repeated.
    pub(super) many: bool,
}

impl Declared {
    pub(super) const fn once<S: Section>() -> Self {
        Self { name: S::NAME, doc: S::DOC, settings: S::SETTINGS, many: false }
    }

    pub(super) const fn many<S: Section>() -> Self {
        Self { many: true, ..Self::once::<S>() }
    }
}

impl Setting {
    /// Returns the setting's flag: `connect_timeout` is `--connect-timeout`. A list such as
    /// `backends` is `--backend`, repeated for each item.
    pub(crate) fn flag(&self) -> String {
        let singular = if self.many { self.name.trim_end_matches('s') } else { self.name };
        format!("--{}", singular.replace('_', "-"))
    }
}

/// Reads typed settings from raw values, and collects faults.
pub(crate) struct Reader<'a> {
    /// Looks up the raw value of a setting.
    pub(crate) lookup: &'a dyn Fn(&'static Setting) -> Option<Raw>,
    /// Start of the section, for faults about missing settings.
    pub(crate) place: Place,
    /// Directory against which relative paths are resolved.
    pub(crate) base: &'a Path,
    pub(crate) faults: &'a mut Vec<Fault>,
}

impl Reader<'_> {
    /// Reads an optional setting. Returns `None` after a fault, and `Some(None)` if the setting is
    /// absent.
    pub(crate) fn unset<T: Value>(&mut self, setting: &'static Setting) -> Option<Option<Set<T>>> {
        let Some(raw) = (self.lookup)(setting) else { return Some(None) };
        self.typed(setting, &raw).map(Some)
    }

    /// Reads a setting with a default.
    pub(crate) fn default<T: Value>(&mut self, setting: &'static Setting) -> Option<Set<T>> {
        let Absent::Default(text) = setting.absent else { unreachable!("the setting has a default") };
        let raw = (self.lookup)(setting)
            .unwrap_or_else(|| Raw { written: Written::Text(text.to_owned()), place: Place::Default });
        self.typed(setting, &raw)
    }

    /// Reads a required setting.
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
            let bound = |text| T::from_text(text, self.base).expect("declared bounds parse").rank();
            if !(bound(least)..=bound(most)).contains(&set.value.rank()) {
                self.faults.push(set.fault(format!("{} is outside {least} to {most}", raw.written)));
                return None;
            }
        }
        Some(set)
    }
}

/// Declares a section; see the module documentation.
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
            /// Start of the section.
            pub(crate) place: $crate::config::place::Place,
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
                // Read every setting before returning, so that every fault is reported.
                $(let $field = reader.$how(settings.next().expect("each field has a setting"));)*
                Some(Self { place: reader.place, $($field: $field?,)* })
            }

            fn place(&self) -> $crate::config::place::Place {
                self.place
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
