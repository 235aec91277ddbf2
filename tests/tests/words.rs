//! Checks of the sources' prose and size: width of comments, length of files and functions, phrases
//! that sound translated, and links between pages.
//!
//! Faults fail the test. Findings that need a reader's judgement are warnings, which are only
//! counted. To print them with their positions, run `WORDS=1 cargo test -p thalweg-tests --test
//! words`.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Maximum width of a comment in columns, including its indentation.
const COMMENT_COLUMNS_MAX: usize = 100;
/// Maximum width of a line of prose in a page, in columns.
const PROSE_COLUMNS_MAX: usize = 120;
/// Maximum number of lines in a page.
const PAGE_LINES_MAX: usize = 400;
/// Number of lines above which a source file (without its tests) or a function causes a warning.
const FILE_LINES: usize = 500;
const FUNCTION_LINES: usize = 70;

/// Phrases that are grammatical but that nobody in the field would write.
const PATTERNS: &[&str] = &[
    "that which",
    "is told",
    "are told",
    "was told",
    "tells of",
    "hears of",
    "says so",
    "is none",
    "are none",
    "none that",
    "of none",
    "to be had",
    "stands for so",
    "about it that",
    "goes its own way",
    "come by",
    "comes by",
    "so many of",
    "the one before",
    "the one after",
    "who asks",
    "who reads",
    "who has",
    "what is not",
    "what comes",
    "what came",
    "what has",
    "of which nothing",
    "goes with",
    "nobody hears",
    "reckon",
];

/// Faults and warnings, each with its position.
#[derive(Default)]
struct Report {
    faults: Vec<String>,
    warnings: BTreeMap<&'static str, Vec<String>>,
}

impl Report {
    fn fault(&mut self, path: &Path, line: usize, text: &str) {
        self.faults.push(format!("{}:{line}: {text}", shown(path)));
    }

    fn warn(&mut self, kind: &'static str, path: &Path, line: usize, text: &str) {
        self.warnings.entry(kind).or_default().push(format!("{}:{line}: {text}", shown(path)));
    }
}

fn main() -> ExitCode {
    let mut report = Report::default();
    let mut files = Vec::new();
    for folder in ["assets", "console", "crates", "docs", "fuzz", "policies", "schema", "tests", "tools"] {
        collect(&top().join(folder), &mut files);
    }
    collect_pages(&top(), &mut files);
    for path in &files {
        let text = fs::read_to_string(path).unwrap_or_default();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => source(path, &text, &mut report),
            Some("ts" | "mjs") => comments(path, &text, &mut report),
            Some("md") => page(path, &text, &mut report),
            _ => {}
        }
    }
    let show_warnings = env::var_os("WORDS").is_some();
    for (kind, places) in &report.warnings {
        println!("warning: {}: {kind}", places.len());
        for place in places.iter().filter(|_| show_warnings) {
            println!("  {place}");
        }
    }
    for fault in &report.faults {
        println!("{fault}");
    }
    println!("{} files, {} faults", files.len(), report.faults.len());
    if report.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn shown(path: &Path) -> String {
    path.strip_prefix(top()).unwrap_or(path).display().to_string()
}

/// Collects the files under `folder`, except installed dependencies and build output.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap_or_default();
        if ["node_modules", "dist", "target", "out", "corpus"].contains(&name) {
            continue;
        }
        if path.is_dir() { collect(&path, files) } else { files.push(path) }
    }
}

fn collect_pages(folder: &Path, files: &mut Vec<PathBuf>) {
    let pages = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.extend(pages.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
}

fn source(path: &Path, text: &str, report: &mut Report) {
    comments(path, text, report);
    let is_test = path.components().any(|part| {
        let part = part.as_os_str().to_str().unwrap_or_default();
        part.starts_with("tests") || part == "benches" || part == "testing"
    });
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().count();
    if !is_test && lines > FILE_LINES {
        report.warn("files longer than 500 lines", path, 1, &format!("{lines} lines"));
    }
    for (line, length) in functions(code) {
        if length > FUNCTION_LINES {
            report.warn("functions longer than 70 lines", path, line, &format!("{length} lines"));
        }
    }
    if !is_test && !text.starts_with("//!") && !text.starts_with("#![") {
        report.fault(path, 1, "file must begin with a `//!` head");
    }
}

/// Returns the functions of a formatted file: the first line of each, and its number of lines.
fn functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let words = line.split_whitespace();
        let is_function = words.take_while(|word| !word.contains('(')).any(|word| word == "fn")
            || line.trim_start().starts_with("fn ");
        if !is_function || line.trim_start().starts_with("//") || line.ends_with(['}', ';']) {
            continue;
        }
        let end = format!("{}}}", " ".repeat(indent));
        if let Some(length) = lines[at..].iter().position(|line| *line == end) {
            found.push((at + 1, length + 1));
        }
    }
    found
}

/// Checks the comments of a source file: width, and phrases.
fn comments(path: &Path, text: &str, report: &mut Report) {
    for (at, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let Some(comment) = trimmed.strip_prefix("//").or_else(|| trimmed.strip_prefix("* ")) else {
            continue;
        };
        // Addresses and tables may be longer.
        let is_breakable = comment.trim().contains(' ') && !comment.contains("://") && !comment.contains('|');
        let columns = line.chars().count();
        if columns > COMMENT_COLUMNS_MAX && is_breakable {
            report.fault(
                path,
                at + 1,
                &format!("comment must have at most {COMMENT_COLUMNS_MAX} columns, got {columns}"),
            );
        }
        patterns(path, at + 1, comment, report);
    }
}

fn patterns(path: &Path, line: usize, text: &str, report: &mut Report) {
    let lower = text.to_lowercase();
    if let Some(pattern) = PATTERNS.iter().find(|pattern| lower.contains(*pattern)) {
        report.warn("phrases that sound translated", path, line, pattern);
    }
}

/// Checks a page: length, width of the prose, phrases and links.
fn page(path: &Path, text: &str, report: &mut Report) {
    let lines = text.lines().count();
    if lines > PAGE_LINES_MAX {
        report.fault(path, 1, &format!("page must have at most {PAGE_LINES_MAX} lines, got {lines}"));
    }
    let mut in_code = false;
    for (at, line) in text.lines().enumerate() {
        let mark = line.trim();
        if mark.starts_with("```") {
            in_code = !in_code;
        } else if mark == "<!-- run" || mark == "-->" {
            in_code = mark != "-->";
        }
        if in_code {
            continue;
        }
        links(path, at + 1, line, report);
        if line.starts_with(['|', '!']) {
            continue;
        }
        let columns = line.chars().count();
        if columns > PROSE_COLUMNS_MAX && !line.contains("](") {
            report.fault(
                path,
                at + 1,
                &format!("line must have at most {PROSE_COLUMNS_MAX} columns, got {columns}"),
            );
        }
        patterns(path, at + 1, line, report);
    }
}

/// Checks that links lead to existing files and headings.
fn links(path: &Path, at: usize, line: &str, report: &mut Report) {
    for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        if link.contains("://") || link.starts_with("mailto:") {
            continue;
        }
        let (file, heading) = link.split_once('#').unwrap_or((link, ""));
        let target = if file.is_empty() { path.to_owned() } else { path.parent().unwrap().join(file) };
        if !target.exists() {
            report.fault(path, at, &format!("link to {link}: no such file"));
        } else if !heading.is_empty() && !headings(&target).contains(heading) {
            report.fault(path, at, &format!("link to {link}: no such heading"));
        }
    }
}

/// Returns the anchors of a page's headings, as GitHub generates them.
fn headings(page: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(page).unwrap_or_default();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
    kept.map(|char| if char == ' ' { '-' } else { char }).collect()
}
