//! Selection of tracks by height, bitrate, language and codec, for manifests that list only some of
//! a presentation's tracks.
//!
//! A selection restricts manifests alone: the URLs in them are those of the full manifest, so a
//! cache stores each segment once.
//!
//! **Invariant:** a selection never removes a media kind from a presentation, except subtitles.
//! Instead, it fails and names the tracks that exist.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use super::live::Live;
use super::{Kind, OnDemand, Rendition, Role, language};
use crate::track::Media;

/// Maximum values in a list of languages or codecs.
pub const VALUES_MAX: usize = 16;
/// Maximum tracks named in the message of a selection that matches none.
const NAMED_MAX: usize = 24;

/// Codec families (RFC 6381 sample entries) and their media kinds, in lower case.
const FAMILIES: [(&str, Kind); 20] = [
    ("avc1", Kind::Video),
    ("avc3", Kind::Video),
    ("hvc1", Kind::Video),
    ("hev1", Kind::Video),
    ("dvh1", Kind::Video),
    ("dvhe", Kind::Video),
    ("dva1", Kind::Video),
    ("dvav", Kind::Video),
    ("av01", Kind::Video),
    ("vp08", Kind::Video),
    ("vp09", Kind::Video),
    ("mp4a", Kind::Audio),
    ("ac-3", Kind::Audio),
    ("ec-3", Kind::Audio),
    ("ac-4", Kind::Audio),
    ("opus", Kind::Audio),
    ("flac", Kind::Audio),
    ("wvtt", Kind::Text),
    ("stpp", Kind::Text),
    ("mp4v", Kind::Video),
];

/// The tracks that a client wants. The default selects every track.
///
/// Its `Display` form is the canonical query: keys in order, lists sorted and in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    codecs: BTreeSet<String>,
    languages: BTreeSet<String>,
    bitrate_max: Option<u64>,
    height_max: Option<u64>,
    height_min: Option<u64>,
}

/// A parameter whose value is malformed. `Display` states the expected form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadParameter {
    message: String,
}

/// A selection that leaves no track of a media kind that the presentation has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NothingSelected {
    message: String,
}

impl fmt::Display for BadParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Display for NothingSelected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for BadParameter {}
impl std::error::Error for NothingSelected {}

impl Selection {
    /// Creates a selection from decoded query parameters. Unknown keys are ignored, because players
    /// and networks add parameters of their own (CMCD, tokens).
    ///
    /// # Errors
    ///
    /// Returns the first known parameter whose value is malformed, or that contradicts another.
    pub fn from_parameters<'a>(
        parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Selection, BadParameter> {
        let mut selection = Selection::default();
        for (key, value) in parameters {
            match key {
                "max_height" => set_number(&mut selection.height_max, key, value, "lines, as in 720")?,
                "min_height" => set_number(&mut selection.height_min, key, value, "lines, as in 720")?,
                "max_bitrate" => {
                    set_number(&mut selection.bitrate_max, key, value, "bits per second, as in 2000000")?;
                }
                "lang" => add_values(&mut selection.languages, key, value, check_language)?,
                "codec" => add_values(&mut selection.codecs, key, value, check_codec)?,
                _ => {}
            }
        }
        match (selection.height_min, selection.height_max) {
            (Some(min), Some(max)) if min > max => {
                Err(BadParameter { message: format!("min_height={min} exceeds max_height={max}") })
            }
            _ => Ok(selection),
        }
    }

    /// Returns whether the selection restricts nothing.
    pub fn is_everything(&self) -> bool {
        *self == Selection::default()
    }

    /// Returns, for each rendition, whether it is selected.
    ///
    /// # Errors
    ///
    /// Returns an error if there is video or audio, but none of it is selected.
    pub fn keep(&self, renditions: &[Rendition<'_>]) -> Result<Vec<bool>, NothingSelected> {
        let keep: Vec<bool> = renditions.iter().map(|r| self.selects(r)).collect();
        for (kind, name) in [(Kind::Video, "video"), (Kind::Audio, "audio")] {
            let is_main = |r: &Rendition<'_>| r.role == Role::Main && Kind::of(r.info) == kind;
            let exists = renditions.iter().any(is_main);
            if exists && !renditions.iter().zip(&keep).any(|(r, keep)| is_main(r) && *keep) {
                let message = format!("?{self} selects no {name}: there is {}", exist(renditions, kind));
                return Err(NothingSelected { message });
            }
        }
        Ok(keep)
    }

    /// Returns the selected ones of `renditions`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is video or audio, but none of it is selected.
    pub fn of<'a>(&self, renditions: Vec<Rendition<'a>>) -> Result<Vec<Rendition<'a>>, NothingSelected> {
        let keep = self.keep(&renditions)?;
        Ok(renditions.into_iter().zip(keep).filter_map(|(r, keep)| keep.then_some(r)).collect())
    }

    fn selects(&self, rendition: &Rendition<'_>) -> bool {
        let kind = Kind::of(rendition.info);
        let is_main = rendition.role == Role::Main;
        if let Media::Video { height, .. } = rendition.info.media {
            let height = u64::from(height);
            // Trick-play pictures are small by design, so the minimum does not concern them.
            let is_low = is_main && self.height_min.is_some_and(|min| height < min);
            if is_low || self.height_max.is_some_and(|max| height > max) {
                return false;
            }
        }
        let is_timed = matches!(kind, Kind::Video | Kind::Audio);
        if is_timed && self.bitrate_max.is_some_and(|max| rendition.bitrate.peak > max) {
            return false;
        }
        let has_language = matches!(kind, Kind::Audio | Kind::Text);
        let spoken = language(rendition.info).unwrap_or("und");
        if has_language
            && !self.languages.is_empty()
            && !self.languages.iter().any(|l| matches(l, spoken, '-'))
        {
            return false;
        }
        let mut of_kind = self.codecs.iter().filter(|codec| kind_of(codec) == Some(kind)).peekable();
        of_kind.peek().is_none() || of_kind.any(|codec| matches(codec, &rendition.info.codec, '.'))
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |values: &BTreeSet<String>| values.iter().cloned().collect::<Vec<_>>().join(",");
        let number = |value: Option<u64>| value.map_or_else(String::new, |n| n.to_string());
        let parameters = [
            ("codec", list(&self.codecs)),
            ("lang", list(&self.languages)),
            ("max_bitrate", number(self.bitrate_max)),
            ("max_height", number(self.height_max)),
            ("min_height", number(self.height_min)),
        ];
        let mut separator = "";
        for (key, value) in parameters.iter().filter(|(_, value)| !value.is_empty()) {
            write!(f, "{separator}{key}={value}")?;
            separator = "&";
        }
        Ok(())
    }
}

impl OnDemand {
    /// Returns the presentation with only the selected tracks, on the same timeline.
    ///
    /// # Errors
    ///
    /// Returns an error if the presentation has video or audio, but none of it is selected.
    pub fn select(&self, selection: &Selection) -> Result<OnDemand, NothingSelected> {
        let keep = selection.keep(&self.renditions())?;
        let mut selected = self.clone();
        retain(&mut selected.tracks, &keep);
        retain(&mut selected.roles, &keep);
        Ok(selected)
    }
}

impl Live {
    /// Returns the channel with only the selected tracks. Earlier epochs without such a track are
    /// left out.
    ///
    /// # Errors
    ///
    /// Returns an error if the newest epoch has video or audio, but none of it is selected.
    pub fn select(mut self, selection: &Selection) -> Result<Live, NothingSelected> {
        if selection.is_everything() {
            return Ok(self);
        }
        let mut last = None;
        self.epochs.retain_mut(|epoch| {
            let keep = selection.keep(&epoch.renditions());
            let is_kept = keep.is_ok();
            last = Some(keep.map(|keep| retain(&mut epoch.tracks, &keep)));
            is_kept
        });
        last.transpose()?;
        Ok(self)
    }
}

fn retain<T>(items: &mut Vec<T>, keep: &[bool]) {
    let mut keep = keep.iter();
    items.retain(|_| keep.next().copied().unwrap_or(true));
}

fn set_number(number: &mut Option<u64>, key: &str, value: &str, form: &str) -> Result<(), BadParameter> {
    let fault = |what: &str| Err(BadParameter { message: format!("{key}={value}: {what}") });
    let is_number = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    let Some(parsed) = value.parse().ok().filter(|_| is_number) else {
        return fault(&format!("expected a whole number of {form}"));
    };
    match number.replace(parsed) {
        Some(before) if before != parsed => fault(&format!("{key} is also {before}; give it once")),
        _ => Ok(()),
    }
}

/// Adds the values of a comma-separated list.
fn add_values(
    values: &mut BTreeSet<String>,
    key: &str,
    list: &str,
    check: impl Fn(&str) -> Result<(), String>,
) -> Result<(), BadParameter> {
    for value in list.split(',') {
        let value = value.to_ascii_lowercase();
        check(&value).map_err(|why| BadParameter { message: format!("{key}={list}: {why}") })?;
        values.insert(value);
    }
    if values.len() > VALUES_MAX {
        return Err(BadParameter { message: format!("{key}: more than {VALUES_MAX} values") });
    }
    Ok(())
}

fn check_language(tag: &str) -> Result<(), String> {
    let is_subtag = |s: &str| (1..=8).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_alphanumeric());
    let starts_alphabetic = tag.split('-').next().is_some_and(|s| s.bytes().all(|b| b.is_ascii_alphabetic()));
    if starts_alphabetic && tag.split('-').all(is_subtag) {
        return Ok(());
    }
    Err(String::from("expected language tags (BCP 47) separated by commas, as in de,pt-BR"))
}

fn check_codec(codec: &str) -> Result<(), String> {
    if kind_of(codec).is_some() && codec.bytes().all(|b| b.is_ascii_alphanumeric() || b".-".contains(&b)) {
        return Ok(());
    }
    let families: Vec<&str> = FAMILIES.iter().map(|(family, _)| *family).collect();
    Err(format!(
        "expected codecs (RFC 6381) separated by commas, which begin with one of {}",
        families.join(" ")
    ))
}

/// Returns the media kind of a codec, given in lower case.
fn kind_of(codec: &str) -> Option<Kind> {
    let family = codec.split('.').next()?;
    FAMILIES.iter().find(|(known, _)| *known == family).map(|(_, kind)| *kind)
}

/// Returns whether `value` is `wanted` or a more specific form of it, such as `de-AT` for `de` (RFC
/// 4647 §3.3.1) or `avc1.64001f` for `avc1`.
fn matches(wanted: &str, value: &str, separator: char) -> bool {
    let Some((front, rest)) = value.split_at_checked(wanted.len()) else { return false };
    front.eq_ignore_ascii_case(wanted) && (rest.is_empty() || rest.starts_with(separator))
}

/// Describes the tracks of a kind.
fn exist(renditions: &[Rendition<'_>], kind: Kind) -> String {
    let of_kind = || renditions.iter().filter(|r| r.role == Role::Main && Kind::of(r.info) == kind);
    let mut text = String::new();
    for (i, rendition) in of_kind().take(NAMED_MAX).enumerate() {
        let Rendition { name, info, bitrate, .. } = rendition;
        let separator = if i == 0 { "" } else { ", " };
        let _ = write!(text, "{separator}{name} (");
        match info.media {
            Media::Video { height, .. } => drop(write!(text, "{height} lines, ")),
            _ => drop(write!(text, "{}, ", language(info).unwrap_or("und"))),
        }
        let _ = write!(text, "{} bit/s, {})", bitrate.peak, info.codec);
    }
    let others = of_kind().count().saturating_sub(NAMED_MAX);
    if others > 0 {
        let _ = write!(text, " and {others} more");
    }
    text
}

#[cfg(test)]
#[path = "select_tests.rs"]
mod tests;
