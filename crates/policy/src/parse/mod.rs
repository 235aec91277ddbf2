//! Parser: turns tokens into a syntax tree. After a fault, parsing resumes at the next statement or
//! declaration.
//!
//! **Invariant:** every loop iteration consumes a token or is the last, and nesting is bounded. No
//! input can hang the parser or overflow the stack.

mod declaration;
mod expression;
mod statement;

use statement::ELSES;
pub(crate) use statement::STATEMENT_FUNCTIONS;

use crate::ast::{Declaration, Expression, Name};
use crate::fault::Faults;
use crate::idioms::{Place, advice};
use crate::lex::{Kind, Token, lex, lex_condition};
use crate::source::{FILE_BYTES_MAX, File, INCLUDE_DEPTH_MAX, Loader, Sources, Span};

/// Maximum nesting depth of blocks and parentheses.
pub(crate) const NESTING_MAX: usize = 48;

/// The language version, as declared by `vcl 4.1;`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    V40,
    V41,
}

/// A declaration and the version of its file.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) version: Version,
    pub(crate) declaration: Declaration,
}

/// Parsing of the current construct stopped at a fault, which is already reported.
pub(crate) struct Stopped;

type Parsed<T> = Result<T, Stopped>;

/// Parses `main` and its includes; returns all declarations in source order.
pub(crate) fn parse(
    main: File,
    sources: &mut Sources,
    loader: &mut Loader<'_>,
    faults: &mut Faults,
) -> Vec<Item> {
    let mut parser = Parser::new(sources, loader, faults);
    parser.main(main);
    parser.items
}

/// Parses `text` as a single condition.
pub(crate) fn condition(text: &str, sources: &mut Sources, faults: &mut Faults) -> Option<Expression> {
    let file = sources.add(File { name: String::new(), text: text.to_owned() });
    let loader: &mut Loader<'_> = &mut |path, _| Err(path.to_owned());
    let mut parser = Parser::new(sources, loader, faults);
    parser.is_condition = true;
    parser.tokens = lex_condition(text, file, parser.faults);
    let expression = parser.expression().ok()?;
    if !parser.at_end() {
        parser.expected("&&, || or the end");
    }
    Some(expression)
}

struct Parser<'p, 'l> {
    tokens: Vec<Token>,
    at: usize,
    sources: &'p mut Sources,
    faults: &'p mut Faults,
    loader: &'p mut Loader<'l>,
    items: Vec<Item>,
    version: Version,
    version_max: Version,
    includes: usize,
    nesting: usize,
    operators: usize,
    /// Whether to parse a condition rather than a policy.
    is_condition: bool,
}

impl<'p, 'l> Parser<'p, 'l> {
    fn new(sources: &'p mut Sources, loader: &'p mut Loader<'l>, faults: &'p mut Faults) -> Self {
        Parser {
            tokens: Vec::new(),
            at: 0,
            sources,
            faults,
            loader,
            items: Vec::new(),
            version: Version::V41,
            version_max: Version::V41,
            includes: 0,
            nesting: 0,
            operators: 0,
            is_condition: false,
        }
    }
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
            let help = "start the policy with vcl 4.1;";
            self.faults.error_help(Span { end: start.start, ..start }, "missing version", help);
        }
        self.declarations();
    }

    /// Makes `file` the current file; returns `false` if a limit is exceeded.
    fn enter(&mut self, file: File, from: Span) -> bool {
        if file.text.len() > FILE_BYTES_MAX {
            let index = self.sources.add(File { name: file.name, text: String::new() });
            let at = if self.includes == 0 { Span { file: index, ..Span::default() } } else { from };
            self.faults.error(at, format!("file larger than {FILE_BYTES_MAX} bytes"));
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

    /// Parses `include "FILE";`: parses the included file with `read`, then resumes in the current
    /// file.
    fn include(&mut self, read: &mut dyn FnMut(&mut Self)) -> Parsed<()> {
        self.next();
        if self.at_symbol("+") {
            let span = self.span();
            self.faults.error_help(span, "include takes no flags here", "name each file: include \"a.vcl\";");
            return Err(Stopped);
        }
        let span = self.span();
        let path = self.text("a file's name in quotes")?;
        self.symbol(";")?;
        if self.includes >= INCLUDE_DEPTH_MAX {
            let help = "a file must not include itself";
            self.faults.error_help(span, format!("includes nested more than {INCLUDE_DEPTH_MAX} deep"), help);
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
        // The last token is `End`, and `next` never moves past it.
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

    /// Consumes `symbol`, or reports that it is missing. A missing `;` is marked at the end of its
    /// line.
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
            // Continue as if the `;` were present: the next line is a separate statement.
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
                Err(self.expected(what))
            }
        }
    }

    fn text(&mut self, what: &str) -> Parsed<String> {
        match self.next() {
            Token { kind: Kind::Text(text), .. } => Ok(text),
            token => {
                self.at -= usize::from(token.kind != Kind::End);
                Err(self.expected(what))
            }
        }
    }

    /// Reports that `what` is expected here.
    fn expected(&mut self, what: &str) -> Stopped {
        let (span, message) = (self.span(), format!("expected {what}, found {}", self.shown()));
        if self.at_symbol(":") {
            self.faults.error_help(span, message, "a blob is base64 between colons, :YQ==:");
        } else {
            self.faults.error(span, message);
        }
        Stopped
    }

    /// Reports and skips Fastly's subfield syntax, as in `req.http.Cookie:name`.
    fn no_subfield(&mut self) {
        let (before, colon) = (self.span_before(), self.span());
        let part = self.tokens.get(self.at + 1).filter(|part| matches!(part.kind, Kind::Name(_)));
        if let Some(part) = part.filter(|part| part.span.start == colon.end)
            && self.at_symbol(":")
            && before.end == colon.start
        {
            let span = before.to(part.span);
            let message = format!("{} is not a variable", self.sources.text(span));
            let help = advice(Place::Name, "subfield").unwrap_or_default();
            self.faults.error_help(span, message, help);
            self.at += 2;
        }
    }

    /// Returns the current token, as shown in messages.
    fn shown(&self) -> String {
        match self.kind() {
            Kind::End if self.is_condition => "the end".to_owned(),
            Kind::End => "the end of the file".to_owned(),
            Kind::Text(_) => "a string".to_owned(),
            Kind::Blob(_) => "a blob".to_owned(),
            _ => self.sources.text(self.span()).to_owned(),
        }
    }

    /// Runs `read` one nesting level deeper. Reports an error if the level exceeds [`NESTING_MAX`].
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.nesting >= NESTING_MAX {
            let span = self.span();
            self.faults.error(span, format!("nested more than {NESTING_MAX} deep"));
            // Skip the rest of the file. Otherwise, each enclosing level would report the fault
            // again.
            self.at = self.tokens.len() - 1;
            return Err(Stopped);
        }
        self.nesting += 1;
        let result = read(self);
        self.nesting -= 1;
        result
    }

    /// Skips past the next `;` or closed block, or to the `}` that closes the enclosing block.
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
                    // An `else` continues the statement.
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
