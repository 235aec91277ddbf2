//! Tokens to the tree. A fault in a statement or a declaration costs that one: what follows is read all the same.
//!
//! **Invariant:** every loop takes a token or ends, and nesting is bounded: no text hangs or overflows the stack.

mod declaration;
mod expression;
mod statement;

use statement::ELSES;
pub(crate) use statement::STATEMENT_FUNCTIONS;

use crate::ast::{Declaration, Name};
use crate::fault::Faults;
use crate::idioms::{Place, advice};
use crate::lex::{Kind, Token, lex};
use crate::source::{FILE_BYTES_MAX, File, INCLUDE_DEPTH_MAX, Loader, Sources, Span};

/// Blocks in blocks and brackets in brackets.
pub(crate) const NESTING_MAX: usize = 48;

/// The version of the language, of `vcl 4.1;`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    V40,
    V41,
}

/// A declaration and the version that its file has.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) version: Version,
    pub(crate) declaration: Declaration,
}

/// What stopped the piece that was being read; its fault is told already.
pub(crate) struct Stopped;

type Parsed<T> = Result<T, Stopped>;

/// All declarations of `main` and of what it includes, in the order of the text.
pub(crate) fn parse(
    main: File,
    sources: &mut Sources,
    loader: &mut Loader<'_>,
    faults: &mut Faults,
) -> Vec<Item> {
    let mut items = Vec::new();
    let mut parser = Parser {
        tokens: Vec::new(),
        at: 0,
        sources,
        faults,
        loader,
        items: &mut items,
        version: Version::V41,
        version_max: Version::V41,
        includes: 0,
        nesting: 0,
        operators: 0,
    };
    parser.main(main);
    items
}

struct Parser<'p, 'l> {
    tokens: Vec<Token>,
    at: usize,
    sources: &'p mut Sources,
    faults: &'p mut Faults,
    loader: &'p mut Loader<'l>,
    items: &'p mut Vec<Item>,
    version: Version,
    version_max: Version,
    includes: usize,
    nesting: usize,
    operators: usize,
}

impl Parser<'_, '_> {
    fn main(&mut self, main: File) {
        if !self.enter(main, Span::default()) {
            return;
        }
        let start = self.span();
        if self.at_word("vcl") {
            match self.version() {
                Ok(()) => self.version_max = self.version,
                Err(Stopped) => self.recover_declaration(),
            }
        } else {
            let help = "a policy begins with vcl 4.1;";
            self.faults.error_help(Span { end: start.start, ..start }, "no version", help);
        }
        self.declarations();
    }

    /// Makes `file` the one that is read; false if it is past a limit.
    fn enter(&mut self, file: File, from: Span) -> bool {
        if file.text.len() > FILE_BYTES_MAX {
            let index = self.sources.add(File { name: file.name, text: String::new() });
            let at = if self.includes == 0 { Span { file: index, ..Span::default() } } else { from };
            self.faults.error(at, format!("a file of more than {FILE_BYTES_MAX} bytes"));
            return false;
        }
        if self.includes > 0 && self.sources.is_full() {
            self.faults.error(from, format!("more than {} files", crate::source::FILES_MAX));
            return false;
        }
        let index = self.sources.add(file);
        self.tokens = lex(&self.sources.file(index).text, index, self.faults);
        self.at = 0;
        true
    }

    /// `include "FILE";`: reads the file's tokens with `read`, then goes on here.
    fn include(&mut self, read: &mut dyn FnMut(&mut Self)) -> Parsed<()> {
        self.next();
        if self.at_symbol("+") {
            let span = self.span();
            self.faults.error_help(span, "include has no flags here", "name each file: include \"a.vcl\";");
            return Err(Stopped);
        }
        let span = self.span();
        let path = self.text("a file's name in quotes")?;
        self.symbol(";")?;
        if self.includes >= INCLUDE_DEPTH_MAX {
            let help = "a file that includes itself never ends";
            self.faults.error_help(span, format!("includes more than {INCLUDE_DEPTH_MAX} deep"), help);
            return Ok(());
        }
        let within = self.sources.file(span.file).name.clone();
        let file = match (self.loader)(&path, &within) {
            Ok(file) => file,
            Err(error) => {
                self.faults.error(span, format!("cannot include {path:?}: {error}"));
                return Ok(());
            }
        };
        let (tokens, at, version) = (std::mem::take(&mut self.tokens), self.at, self.version);
        self.includes += 1;
        if self.enter(file, span) {
            read(self);
        }
        self.includes -= 1;
        (self.tokens, self.at, self.version) = (tokens, at, version);
        Ok(())
    }

    fn kind(&self) -> &Kind {
        // The last token is the end and is never passed.
        &self.tokens[self.at].kind
    }

    fn span(&self) -> Span {
        self.tokens[self.at].span
    }

    fn span_before(&self) -> Span {
        self.tokens[self.at.saturating_sub(1)].span
    }

    fn next(&mut self) -> Token {
        let token = self.tokens[self.at].clone();
        if token.kind != Kind::End {
            self.at += 1;
        }
        token
    }

    fn at_symbol(&self, symbol: &str) -> bool {
        matches!(self.kind(), Kind::Symbol(found) if *found == symbol)
    }

    fn at_word(&self, word: &str) -> bool {
        matches!(self.kind(), Kind::Name(found) if found == word)
    }

    fn at_end(&self) -> bool {
        *self.kind() == Kind::End
    }

    fn take_symbol(&mut self, symbol: &str) -> bool {
        let found = self.at_symbol(symbol);
        if found {
            self.next();
        }
        found
    }

    /// Takes `symbol`, or tells that it is missing: behind what stands before it, if that is on an earlier line.
    fn symbol(&mut self, symbol: &'static str) -> Parsed<()> {
        if self.take_symbol(symbol) {
            return Ok(());
        }
        let found = self.shown();
        let before = self.span_before();
        let here = self.span();
        let apart =
            before.file == here.file && before.end <= here.start && self.between(before, here).contains('\n');
        if apart && symbol == ";" {
            // Goes on as if it were there: the next line is a statement of its own.
            self.faults.error(Span { start: before.end, ..before }, "expected ; at the end of the statement");
            return Ok(());
        }
        let message = format!("expected {symbol}, found {found}");
        match advice(Place::Name, "if").filter(|_| self.at_word("if")) {
            Some(help) => self.faults.error_help(here, message, help),
            None => self.faults.error(here, message),
        }
        Err(Stopped)
    }

    fn between(&self, before: Span, here: Span) -> &str {
        self.sources.text(Span { file: here.file, start: before.end, end: here.start })
    }

    fn name(&mut self, what: &str) -> Parsed<Name> {
        match self.next() {
            Token { kind: Kind::Name(text), span } => {
                self.no_subfield();
                Ok(Name { text, span })
            }
            token => {
                self.at -= usize::from(token.kind != Kind::End);
                self.expected(what);
                Err(Stopped)
            }
        }
    }

    fn text(&mut self, what: &str) -> Parsed<String> {
        match self.next() {
            Token { kind: Kind::Text(text), .. } => Ok(text),
            token => {
                self.at -= usize::from(token.kind != Kind::End);
                self.expected(what);
                Err(Stopped)
            }
        }
    }

    fn expected(&mut self, what: &str) {
        let (span, message) = (self.span(), format!("expected {what}, found {}", self.shown()));
        if self.at_symbol(":") {
            self.faults.error_help(span, message, "a blob is base64 between colons, :YQ==:");
        } else {
            self.faults.error(span, message);
        }
    }

    /// Tells and passes over what some take for a part of a header, in `req.http.Cookie:name`.
    fn no_subfield(&mut self) {
        let (before, colon) = (self.span_before(), self.span());
        let part = self.tokens.get(self.at + 1).filter(|part| matches!(part.kind, Kind::Name(_)));
        if let Some(part) = part.filter(|part| part.span.start == colon.end)
            && self.at_symbol(":")
            && before.end == colon.start
        {
            let span = before.to(part.span);
            let message = format!("{} is no variable", self.sources.text(span));
            let help = advice(Place::Name, "subfield").unwrap_or_default();
            self.faults.error_help(span, message, help);
            self.at += 2;
        }
    }

    /// The token here as people name it.
    fn shown(&self) -> String {
        match self.kind() {
            Kind::End => "the end of the file".to_owned(),
            Kind::Text(_) => "a string".to_owned(),
            Kind::Blob(_) => "a blob".to_owned(),
            _ => self.sources.text(self.span()).to_owned(),
        }
    }

    /// Runs `read` one level deeper.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.nesting >= NESTING_MAX {
            let span = self.span();
            self.faults.error(span, format!("nested more than {NESTING_MAX} deep"));
            // Nothing of this file is read any more: each level would tell it again.
            self.at = self.tokens.len() - 1;
            return Err(Stopped);
        }
        self.nesting += 1;
        let result = read(self);
        self.nesting -= 1;
        result
    }

    /// Goes to behind the next `;` or closed block, or to a `}` that closes what is around.
    fn recover(&mut self) {
        let mut depth = 0_usize;
        while !self.at_end() {
            if self.at_symbol("{") {
                depth += 1;
            } else if self.at_symbol("}") {
                if depth == 0 {
                    return;
                }
                depth -= 1;
                if depth == 0 {
                    self.next();
                    // What goes on with else is no statement of its own.
                    if ELSES.iter().any(|word| self.at_word(word)) {
                        continue;
                    }
                    return;
                }
            } else if self.at_symbol(";") && depth == 0 {
                self.next();
                return;
            }
            self.next();
        }
    }
}
