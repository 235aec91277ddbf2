//! Golden tests: token and syntax tree dumps of a file that contains every kind of token and node.

use std::fmt::Write as _;

use expect_test::expect_file;

use crate::fault::Faults;
use crate::lex::lex;
use crate::parse::parse;
use crate::source::{File, Sources};

const TEXT: &str = include_str!("../tests/golden/all.vcl");

fn file() -> File {
    File { name: "all.vcl".to_owned(), text: TEXT.to_owned() }
}

#[test]
fn token_dump_matches() {
    let (mut sources, mut faults, mut dump) = (Sources::default(), Faults::default(), String::new());
    let file = sources.add(file());
    for token in lex(TEXT, file, &mut faults) {
        let place = sources.place(token.span);
        let length = token.span.end - token.span.start;
        writeln!(dump, "{:>2}:{:<3} {length:>2} {:?}", place.line, place.column, token.kind)
            .expect("writing to a String cannot fail");
    }
    assert!(!faults.has_errors(), "{}", faults.report(&sources));
    expect_file!["../tests/golden/all.tokens.txt"].assert_eq(&dump);
}

#[test]
fn tree_dump_matches() {
    let (mut sources, mut faults) = (Sources::default(), Faults::default());
    let items = parse(file(), &mut sources, &mut |path, _| Err(path.to_owned()), &mut faults);
    assert!(!faults.has_errors(), "{}", faults.report(&sources));
    let declarations: Vec<_> = items.iter().map(|item| &item.declaration).collect();
    expect_file!["../tests/golden/all.tree.txt"].assert_eq(&format!("{declarations:#?}\n"));
}
