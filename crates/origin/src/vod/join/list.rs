//! Playlist file: the presentations that one presentation joins, one a line.
//!
//! ```text
//! # Lines that begin with # are comments.
//! intro
//! film        1:30-1:02:15.5
//! "my credits" 5-
//! ```
//!
//! A line names a presentation and, optionally, a clip of it: `START-END`, each in seconds or as
//! `[HH:]MM:SS`. Without START the clip begins at the start, and without END it ends at the end. A
//! name with spaces or `"` is written in double quotes, with `\` before `"` and `\`.

use std::fmt;

use thalweg_media::presentation::clip::Clip;

/// Maximum entries of a playlist file.
pub(crate) const ENTRIES_MAX: usize = 256;

/// A line of a playlist file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// Number of the line, counted from 1.
    pub(super) number: usize,
    /// Name of the presentation.
    pub(super) name: String,
    pub(super) clip: Option<Clip>,
}

/// A malformed line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListError {
    /// Number of the line, counted from 1.
    pub(super) line: usize,
    message: String,
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Parses a playlist file.
pub(super) fn parse(text: &str) -> Result<Vec<Line>, ListError> {
    let mut lines = Vec::new();
    for (i, text) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let line = i + 1;
        let (name, clip) = entry(text).map_err(|message| ListError { line, message })?;
        if lines.len() == ENTRIES_MAX {
            let message = format!("too many entries: a playlist has at most {ENTRIES_MAX}");
            return Err(ListError { line, message });
        }
        lines.push(Line { number: line, name, clip });
    }
    if lines.is_empty() {
        let message = String::from("no entry: write the name of a presentation on each line");
        return Err(ListError { line: 1, message });
    }
    Ok(lines)
}

fn entry(text: &str) -> Result<(String, Option<Clip>), String> {
    let (name, rest) = match text.strip_prefix('"') {
        Some(quoted) => unquote(quoted).ok_or("the name has no closing double quote")?,
        None => {
            let end = text.find(char::is_whitespace).unwrap_or(text.len());
            (text[..end].to_owned(), &text[end..])
        }
    };
    if name.is_empty() {
        return Err(String::from("the name is empty"));
    }
    let rest = rest.trim();
    if rest.is_empty() || rest.starts_with('#') {
        return Ok((name, None));
    }
    let rest = rest.split_once(" #").map_or(rest, |(clip, _)| clip.trim_end());
    Ok((name, Some(clip(rest)?)))
}

/// Reads a name up to its closing quote; returns it and the rest of the line.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((name, &text[at + 1..])),
            '\\' => name.push(chars.next()?.1),
            c => name.push(c),
        }
    }
    None
}

fn clip(text: &str) -> Result<Clip, String> {
    let fault = || {
        format!(
            "{text:?} is not a clip: write START-END, each in seconds or as HH:MM:SS, as in 90-1:02:15.5; \
             put a name that contains spaces in double quotes"
        )
    };
    let (start, end) = text.split_once('-').ok_or_else(fault)?;
    let time = |text: &str| if text.is_empty() { Ok(None) } else { micros(text).map(Some).ok_or_else(fault) };
    let (start, end_us) = (time(start)?, time(end)?);
    if start.is_none() && end_us.is_none() {
        return Err(fault());
    }
    let start_us = start.unwrap_or(0);
    if end_us.is_some_and(|end| end <= start_us) {
        return Err(format!("clip {text}: the end must be after the start"));
    }
    Ok(Clip { start_us, end_us })
}

/// Parses seconds, or `[HH:]MM:SS`, with up to six decimals.
fn micros(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |s: &str, max| (1..=max).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_digit());
    let fields: Vec<&str> = whole.split(':').collect();
    if fields.len() > 3 || !fields.iter().all(|f| is_number(f, 8)) || !is_number(fraction, 6) {
        return None;
    }
    let mut seconds: u64 = 0;
    for (i, field) in fields.iter().enumerate() {
        let number: u64 = field.parse().ok()?;
        if i > 0 && number >= 60 {
            return None;
        }
        seconds = seconds * 60 + number;
    }
    Some(seconds * 1_000_000 + format!("{fraction:0<6}").parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    fn check(text: &str, expected: Expect) {
        let out = match parse(text) {
            Err(error) => format!("{}: {error}\n", error.line),
            Ok(lines) => {
                let time = |us: u64| us as f64 / 1e6;
                let clip = |c: &Clip| format!(" {}-{:?}", time(c.start_us), c.end_us.map(time));
                let line = |l: &Line| {
                    format!("{}: {}{}\n", l.number, l.name, l.clip.as_ref().map(clip).unwrap_or_default())
                };
                lines.iter().map(line).collect()
            }
        };
        expected.assert_eq(&out);
    }

    #[test]
    fn entries_have_names_and_clips() {
        check(
            "\u{feff}# All of it\r\n\r\nintro\r\n  film\t1:30-1:02:15.5 # the story\n\"a \\\"b\\\"\" 5-\nend -0.25\n\
             film # again\n",
            expect![[r#"
                3: intro
                4: film 90-Some(3735.5)
                5: a "b" 5-None
                6: end 0-Some(0.25)
                7: film
            "#]],
        );
    }

    #[test]
    fn faults_name_the_line_and_the_remedy() {
        check(
            "",
            expect![[r#"
            1: no entry: write the name of a presentation on each line
        "#]],
        );
        check(
            "a\nmy film",
            expect![[r#"
            2: "film" is not a clip: write START-END, each in seconds or as HH:MM:SS, as in 90-1:02:15.5; put a name that contains spaces in double quotes
        "#]],
        );
        check(
            "a 1:60-2:00",
            expect![[r#"
            1: "1:60-2:00" is not a clip: write START-END, each in seconds or as HH:MM:SS, as in 90-1:02:15.5; put a name that contains spaces in double quotes
        "#]],
        );
        check(
            "a 20-10",
            expect![[r#"
            1: clip 20-10: the end must be after the start
        "#]],
        );
        check(
            "\"a",
            expect![[r#"
            1: the name has no closing double quote
        "#]],
        );
        let long = "a\n".repeat(ENTRIES_MAX + 1);
        check(
            &long,
            expect![[r#"
            257: too many entries: a playlist has at most 256
        "#]],
        );
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "[a\"\\\\ #:.0-9\n-]{0,40}") {
            let _ = parse(&text);
        }
    }
}
