//! Architecture tests: crates must depend on each other as `ARCHITECTURE.md` declares, and no cycle
//! of references between a crate's files may have more than three files.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of files that may refer to each other in a cycle.
const CIRCLE_FILES_MAX: usize = 3;

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn crates() -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(top().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let mut crates: Vec<_> =
        entries.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path)).collect();
    crates.sort();
    crates
}

/// Returns the workspace crates that a manifest lists as dependencies, except dev-dependencies.
fn dependencies(manifest: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(manifest).unwrap();
    let section = text.split("\n[").find_map(|section| section.strip_prefix("dependencies]"));
    let names = section.unwrap_or_default().lines().filter_map(|line| line.strip_prefix("thalweg-"));
    names.map(|name| name.split(['.', ' ', '=']).next().unwrap_or_default().to_owned()).collect()
}

/// Reads the arrows in `ARCHITECTURE.md`: `X → Y Z` between backquotes.
fn arrows() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(top().join("ARCHITECTURE.md")).unwrap();
    let paragraph = text.split("\n\n").find(|paragraph| paragraph.starts_with("**Arrows**")).unwrap();
    let paragraph = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut arrows = BTreeMap::new();
    // The paragraph also names crates outside the arrows.
    for (from, to) in paragraph.split('`').skip(1).step_by(2).filter_map(|code| code.split_once(" → ")) {
        let to = match to.strip_prefix("all but ") {
            Some(but) => crates()
                .into_iter()
                .map(|(name, _)| name)
                .filter(|name| name != but && name != from)
                .collect(),
            None => to.split(' ').map(str::to_owned).collect(),
        };
        arrows.insert(from.to_owned(), to);
    }
    arrows
}

#[test]
fn crates_depend_on_each_other_as_the_architecture_says() {
    let arrows = arrows();
    let mut faults = Vec::new();
    for (name, path) in crates() {
        let allowed = arrows.get(&name).cloned().unwrap_or_default();
        for dependency in dependencies(&path.join("Cargo.toml")) {
            if !allowed.contains(&dependency) {
                faults.push(format!("{name} → {dependency} is not in ARCHITECTURE.md"));
            }
        }
        for arrow in allowed.iter().filter(|_| !arrows[&name].is_empty() && name != "thalweg") {
            if !dependencies(&path.join("Cargo.toml")).contains(arrow) {
                faults.push(format!("{name} → {arrow} is in ARCHITECTURE.md, but not in the crate"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn cycles_of_files_are_small() {
    let mut faults = Vec::new();
    for (name, path) in crates() {
        for circle in circles(&references(&path.join("src"))) {
            if circle.len() > CIRCLE_FILES_MAX {
                faults.push(format!("{name}: {} files: {}", circle.len(), circle.join(", ")));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Returns a crate's modules by path (`a::b`), each with the modules to which it refers by
/// `crate::`, `super::` or `self::`. Declaring or re-exporting a child is not a reference.
fn references(source: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut modules = BTreeMap::new();
    collect(source, source, &mut modules);
    let known: BTreeSet<String> = modules.keys().cloned().collect();
    modules
        .iter()
        .map(|(module, text)| {
            let paths = paths(text, module).into_iter().filter_map(|path| module_of(&path, &known, &modules));
            (module.clone(), paths.filter(|other| other != module && !other.is_empty()).collect())
        })
        .collect()
}

fn collect(source: &Path, folder: &Path, modules: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        if ["tests", "testing", "main"].contains(&stem) {
            continue;
        }
        if path.is_dir() {
            collect(source, &path, modules);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let module = path.strip_prefix(source).unwrap().with_extension("");
            let module = module.to_str().unwrap().replace('/', "::");
            let module = module.strip_suffix("::mod").unwrap_or(&module);
            let module = if module == "lib" || module == "mod" { "" } else { module };
            let text = fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
            modules.insert(module.to_owned(), code(&text));
        }
    }
}

/// Removes the comments from a file's text.
fn code(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Returns the full paths of the items that a file uses from its own crate. Groups in braces are
/// expanded.
fn paths(text: &str, module: &str) -> Vec<String> {
    let mut found = Vec::new();
    let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
    for (keyword, base) in [("crate::", ""), ("super::", parent), ("self::", module)] {
        for (at, _) in text.match_indices(keyword) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|char| char.is_alphanumeric() || char == '_' || char == ':' || char == '$')
            {
                continue;
            }
            // A re-export is not a use.
            let line = text[..at].rsplit('\n').next().unwrap_or_default().trim_start();
            if line.starts_with("pub use")
                || line.starts_with("pub(crate) use")
                || line.starts_with("pub(super) use")
            {
                continue;
            }
            let rest = &text[at + keyword.len()..];
            let end = rest
                .find(|char: char| !(char.is_alphanumeric() || char == '_' || char == ':'))
                .unwrap_or(rest.len());
            let head = rest[..end].trim_end_matches("::");
            let join = |tail: &str| {
                [base, head, tail]
                    .iter()
                    .filter(|part| !part.is_empty())
                    .copied()
                    .collect::<Vec<_>>()
                    .join("::")
            };
            match rest[end..].strip_prefix('{').filter(|_| rest[..end].ends_with("::") || end == 0) {
                Some(group) => {
                    let group = group.split('}').next().unwrap_or_default();
                    found.extend(
                        group.split(',').map(|item| join(item.trim().split(' ').next().unwrap_or_default())),
                    );
                }
                None => found.push(join("")),
            }
        }
    }
    found
}

/// Returns the module that a path refers to: the longest known prefix, or, if that module
/// re-exports the name, the module that defines it.
fn module_of(path: &str, known: &BTreeSet<String>, modules: &BTreeMap<String, String>) -> Option<String> {
    let parts: Vec<&str> = path.split("::").collect();
    let length = (0..=parts.len()).rev().find(|length| known.contains(&parts[..*length].join("::")))?;
    let module = parts[..length].join("::");
    let Some(name) = parts.get(length) else { return Some(module) };
    handed_on(&module, name, known, modules, 4).or(Some(module))
}

/// Follows re-exports, `pub use child::Name`, up to `most` times.
fn handed_on(
    module: &str,
    name: &str,
    known: &BTreeSet<String>,
    modules: &BTreeMap<String, String>,
    most: usize,
) -> Option<String> {
    for line in modules.get(module)?.split(';').filter(|line| line.contains("pub") && line.contains("use ")) {
        let (head, names) = line.split_once("use ")?.1.rsplit_once("::").unwrap_or(("", line));
        let is_named = names
            .trim_matches(|char: char| "{} \n".contains(char))
            .split(',')
            .any(|item| item.trim() == name);
        if is_named {
            let head = head.trim().trim_start_matches("self::");
            let path = match head.strip_prefix("crate::") {
                Some(path) => path.to_owned(),
                None if module.is_empty() => head.to_owned(),
                None => format!("{module}::{head}"),
            };
            if known.contains(&path) {
                let further = (most > 0).then(|| handed_on(&path, name, known, modules, most - 1)).flatten();
                return further.or(Some(path));
            }
        }
    }
    None
}

/// Returns the sets of modules in which each module reaches all others.
fn circles(references: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        references.keys().map(|module| (module, reach(module, references))).collect();
    let mut circles = BTreeSet::new();
    for (module, all) in &reached {
        let circle: Vec<String> = all
            .iter()
            .filter(|other| reached[**other].contains(module))
            .map(|other| (*other).clone())
            .collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn reach<'a>(from: &String, references: &'a BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut left: Vec<&String> = references[from].iter().collect();
    while let Some(module) = left.pop() {
        if let Some((module, next)) = references.get_key_value(module)
            && reached.insert(module)
        {
            left.extend(next);
        }
    }
    reached
}

#[test]
fn cycle_is_found_in_every_form_of_reference() {
    let modules = [
        ("a", "use crate::b::{B, c::C};\n"),
        ("b", "mod c;\npub(crate) use c::C;\nfn f() -> super::d::D {}\n"),
        ("b::c", "use crate::e::E;\n"),
        ("d", "use crate::a;\n"),
        ("e", "// crate::a::A\npub(crate) use crate::a::A;\n"),
    ];
    let modules: BTreeMap<String, String> =
        modules.iter().map(|(name, text)| ((*name).to_owned(), code(text))).collect();
    let known: BTreeSet<String> = modules.keys().cloned().collect();
    let references = modules
        .iter()
        .map(|(module, text)| {
            let paths = paths(text, module).into_iter().filter_map(|path| module_of(&path, &known, &modules));
            (module.clone(), paths.filter(|other| other != module).collect())
        })
        .collect();
    assert_eq!(circles(&references), [["a", "b", "d"]]);
}
