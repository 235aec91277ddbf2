//! Media kinds.

/// Media kinds, in the order in which manifests list them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Video.
    Video,
    /// Audio.
    Audio,
    /// Subtitles.
    Text,
}
