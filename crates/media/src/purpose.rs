//! Purposes of a track: why a viewer would choose it, such as a commentary or forced subtitles.
//!
//! A file states its purposes with kind boxes in the DASH role scheme (ISO/IEC 14496-12 §8.10.4,
//! ISO/IEC 23009-1 §5.8.5.5) or with words in its name, such as `audio.en.commentary.mp4`. MPDs
//! repeat the role; playlists have characteristics and flags instead.

use crate::kind::Kind;

/// URI of the DASH role scheme.
pub const ROLE_SCHEME: &str = "urn:mpeg:dash:role:2011";

/// A purpose of a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// Text for the deaf, with speakers and sounds; on a video track, CEA-608 captions in the video.
    Caption,
    /// Only text that every viewer needs, such as translations of signs.
    Forced,
    /// Text that is easy to read.
    EasyReader,
    /// Audio that describes the picture for the blind.
    Description,
    /// Audio with emphasised speech.
    ClearSpeech,
    /// A dubbed translation.
    Dub,
    /// A commentary on the film.
    Commentary,
    /// Music without the voice, to sing along.
    Karaoke,
    /// Video with a sign language interpreter.
    Sign,
}

/// Names of one purpose.
struct Row {
    purpose: Purpose,
    /// Value in the DASH role scheme.
    role: &'static str,
    /// Words in file names, in upper or lower case, and the kinds of track to which they apply.
    words: &'static [&'static str],
    kinds: &'static [Kind],
    /// CHARACTERISTICS in HLS (rfc8216bis §4.4.6.1).
    characteristics: &'static str,
}

const ROWS: [Row; 9] = [
    Row {
        purpose: Purpose::Caption,
        role: "caption",
        words: &["caption", "captions", "cc", "sdh"],
        kinds: &[Kind::Text, Kind::Video],
        characteristics: "public.accessibility.transcribes-spoken-dialog,\
                          public.accessibility.describes-music-and-sound",
    },
    Row {
        purpose: Purpose::Forced,
        role: "forced-subtitle",
        words: &["forced"],
        kinds: &[Kind::Text],
        characteristics: "",
    },
    Row {
        purpose: Purpose::EasyReader,
        role: "easyreader",
        words: &["easyreader"],
        kinds: &[Kind::Text],
        characteristics: "public.easy-to-read",
    },
    Row {
        purpose: Purpose::Description,
        role: "description",
        words: &["description", "described", "descriptive", "ad", "dvs"],
        kinds: &[Kind::Audio],
        characteristics: "public.accessibility.describes-video",
    },
    Row {
        purpose: Purpose::ClearSpeech,
        role: "enhanced-audio-intelligibility",
        words: &["clearspeech"],
        kinds: &[Kind::Audio],
        characteristics: "public.accessibility.enhances-speech-intelligibility",
    },
    Row {
        purpose: Purpose::Dub,
        role: "dub",
        words: &["dub", "dubbed"],
        kinds: &[Kind::Audio],
        characteristics: "",
    },
    Row {
        purpose: Purpose::Commentary,
        role: "commentary",
        words: &["commentary"],
        kinds: &[Kind::Audio, Kind::Text],
        characteristics: "",
    },
    Row {
        purpose: Purpose::Karaoke,
        role: "karaoke",
        words: &["karaoke"],
        kinds: &[Kind::Audio, Kind::Text],
        characteristics: "",
    },
    Row {
        purpose: Purpose::Sign,
        role: "sign",
        words: &["sign"],
        kinds: &[Kind::Video],
        characteristics: "public.accessibility.displays-sign-language",
    },
];

/// Word in the name of an audio or subtitle file that players select by default.
const DEFAULT_WORD: &str = "default";
/// Role of a track that players select by default.
const DEFAULT_ROLE: &str = "main";

/// The purposes of a track, and whether players select it by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Purposes {
    /// Purposes, sorted, without repetition.
    pub list: Vec<Purpose>,
    /// Whether the file states that players select the track by default.
    pub is_default: bool,
}

impl Purpose {
    fn row(self) -> &'static Row {
        // The table has a row for each purpose, as a test checks.
        ROWS.iter().find(|row| row.purpose == self).unwrap_or(&ROWS[0])
    }

    /// Returns the value in the DASH role scheme.
    #[must_use]
    pub fn role(self) -> &'static str {
        self.row().role
    }

    /// Returns the comma-separated characteristics in HLS; empty without any.
    #[must_use]
    pub fn characteristics(self) -> &'static str {
        self.row().characteristics
    }
}

impl Purposes {
    /// Adds a value of the DASH role scheme. Values without an effect on manifests are ignored.
    pub fn add_role(&mut self, role: &str) {
        self.is_default |= role == DEFAULT_ROLE;
        self.extend(ROWS.iter().filter(|row| row.role == role));
    }

    /// Adds the purposes stated by the words in the name of a file with a track of this kind.
    pub fn add_name(&mut self, file: &str, kind: Kind) {
        let is = |word: &str, known: &str| word.eq_ignore_ascii_case(known);
        self.is_default |= kind != Kind::Video && words(file).any(|word| is(word, DEFAULT_WORD));
        let stated = |row: &&Row| {
            row.kinds.contains(&kind) && words(file).any(|w| row.words.iter().any(|known| is(w, known)))
        };
        self.extend(ROWS.iter().filter(stated));
    }

    fn extend(&mut self, rows: impl Iterator<Item = &'static Row>) {
        self.list.extend(rows.map(|row| row.purpose));
        self.list.sort_unstable();
        self.list.dedup();
    }

    /// Returns whether the track has this purpose.
    #[must_use]
    pub fn has(&self, purpose: Purpose) -> bool {
        self.list.contains(&purpose)
    }
}

/// Returns whether a word states a purpose or the default, for a track of any kind.
#[must_use]
pub fn is_purpose_word(word: &str) -> bool {
    let known = ROWS.iter().flat_map(|row| row.words).chain([&DEFAULT_WORD]);
    known.into_iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// Splits the last path segment of a key into words at punctuation.
pub(crate) fn words(file: &str) -> impl Iterator<Item = &str> {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_name(file: &str, kind: Kind) -> String {
        let mut purposes = Purposes::default();
        purposes.add_name(file, kind);
        format!("{:?} {}", purposes.list, purposes.is_default)
    }

    #[test]
    fn names_state_purposes_of_their_kind() {
        assert_eq!(of_name("f/audio.en.AD.mp4", Kind::Audio), "[Description] false");
        assert_eq!(of_name("f/ad.mp4", Kind::Video), "[] false");
        assert_eq!(of_name("f/subs_de-default-SDH.vtt", Kind::Text), "[Caption] true");
        assert_eq!(of_name("commentary/audio.mp4", Kind::Audio), "[] false");
        assert_eq!(of_name("audio.dub.commentary.mp4", Kind::Audio), "[Dub, Commentary] false");
        assert_eq!(of_name("default.mp4", Kind::Video), "[] false");
    }

    #[test]
    fn every_purpose_has_a_row() {
        let mut purposes = Purposes::default();
        for row in &ROWS {
            purposes.add_role(row.role);
            assert_eq!(row.purpose.role(), row.role);
        }
        assert_eq!(purposes.list.len(), ROWS.len());
        purposes.add_role("main");
        purposes.add_role("supplementary");
        assert!(purposes.is_default);
        assert_eq!(purposes.list.len(), ROWS.len());
    }
}
