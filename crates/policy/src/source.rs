//! A policy's source files and positions in them.
//!
//! This crate opens no files: the caller's loader provides the includes.

use std::ops::Range;

/// Maximum number of files in one policy.
pub const FILES_MAX: usize = 256;
/// Maximum file size in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Maximum include depth.
pub const INCLUDE_DEPTH_MAX: usize = 16;

/// A source file.
#[derive(Debug, Clone)]
pub struct File {
    /// Path, as specified by the caller or in the `include` statement.
    pub name: String,
    /// Source text.
    pub text: String,
}

/// Loads an included file, given the included path and the name of the including file. The loader's
/// error message is reported verbatim.
pub type Loader<'l> = dyn FnMut(&str, &str) -> Result<File, String> + 'l;

/// A byte range in one file.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// The file's index.
    pub(crate) file: u32,
    /// The position of the first byte.
    pub(crate) start: u32,
    /// The position after the last byte.
    pub(crate) end: u32,
}

impl std::fmt::Debug for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}..{}", self.file, self.start, self.end)
    }
}

impl Span {
    /// Returns the range from the start of this span to the end of `other`. If `other` is in
    /// another file or ends earlier, returns this span.
    pub(crate) fn to(self, other: Span) -> Span {
        if other.file == self.file && other.end >= self.end { Span { end: other.end, ..self } } else { self }
    }

    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// All files of a policy, including the built-in policy.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    files: Vec<File>,
}

/// A human-readable position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file's name.
    pub file: String,
    /// The line, starting at 1.
    pub line: usize,
    /// The column, in characters, starting at 1.
    pub column: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl Sources {
    /// Adds a file and returns its index. Check [`is_full`](Self::is_full) before adding an
    /// include.
    pub(crate) fn add(&mut self, file: File) -> u32 {
        self.files.push(file);
        self.count() - 1
    }

    /// Returns whether [`FILES_MAX`] is reached, so that no include may be added. The built-in
    /// policy does not count.
    pub(crate) fn is_full(&self) -> bool {
        self.files.len() >= FILES_MAX
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.files.len()).expect("FILES_MAX + 1 fits in a u32")
    }

    /// Returns all files: the main file first and the built-in policy last.
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

    /// Returns the first line of `span` and the byte range of `span` within that line.
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
