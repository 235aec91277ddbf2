//! The text of a policy: its files and places in them.
//!
//! The crate opens no file: a caller's loader gives the main file's includes.

use std::ops::Range;

/// Files of one policy.
pub const FILES_MAX: usize = 256;
/// Bytes of one file.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Includes within includes.
pub const INCLUDE_DEPTH_MAX: usize = 16;

/// One file.
#[derive(Debug, Clone)]
pub struct File {
    /// Its path, as given or as an include names it.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// Gives the file that an `include` names: what it says, and in which file it stands. An error is told as it is.
pub type Loader<'l> = dyn FnMut(&str, &str) -> Result<File, String> + 'l;

/// A piece of one file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// Which file.
    pub(crate) file: u32,
    /// First byte.
    pub(crate) start: u32,
    /// Behind the last byte.
    pub(crate) end: u32,
}

impl Span {
    /// From the start of this to the end of `other`, which lies behind it in the same file, else this alone.
    pub(crate) fn to(self, other: Span) -> Span {
        if other.file == self.file && other.end >= self.end { Span { end: other.end, ..self } } else { self }
    }

    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// All files of a policy, the built-in one among them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    files: Vec<File>,
}

/// A place that people read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file's name.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl Sources {
    /// Adds a file. Whoever includes one asks [`is_full`](Self::is_full) first.
    pub(crate) fn add(&mut self, file: File) -> u32 {
        self.files.push(file);
        self.count() - 1
    }

    /// Whether no file may be included any more. The built-in one is none of those.
    pub(crate) fn is_full(&self) -> bool {
        self.files.len() >= FILES_MAX
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.files.len()).expect("there are FILES_MAX files and the built-in one")
    }

    /// All, the main one first, the built-in one last.
    pub(crate) fn all(&self) -> &[File] {
        &self.files
    }

    pub(crate) fn file(&self, index: u32) -> &File {
        &self.files[index as usize]
    }

    pub(crate) fn text(&self, span: Span) -> &str {
        self.file(span.file).text.get(span.range()).unwrap_or_default()
    }

    pub(crate) fn place(&self, span: Span) -> Place {
        let file = self.file(span.file);
        let before = &file.text[..span.start as usize];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Place {
            file: file.name.clone(),
            line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    /// The first line of `span`, and where in it the span lies.
    pub(crate) fn line(&self, span: Span) -> (&str, Range<usize>) {
        let text = &self.file(span.file).text;
        let start = text[..span.start as usize].rfind('\n').map_or(0, |at| at + 1);
        let end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let line = text[start..end].trim_end_matches('\r');
        let from = (span.start as usize - start).min(line.len());
        let to = (span.end as usize).saturating_sub(start).clamp(from, line.len());
        (line, from..to)
    }
}
