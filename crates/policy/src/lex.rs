//! Lexer: turns source text into names, numbers with units, strings, blobs and operators.
//!
//! **Invariant:** every source byte belongs to a token, white space, a comment or a fault, and no
//! input causes a panic.

use base64::alphabet;
use base64::engine::{Engine as _, GeneralPurpose, GeneralPurposeConfig};

use crate::fault::Faults;
use crate::idioms::{Place, advice};
use crate::source::Span;
use crate::units::{duration_unit, size_unit};

/// Maximum number of tokens in one file.
pub(crate) const TOKENS_MAX: usize = 200_000;
/// Maximum length of a name in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 256;

/// The kind of a token and its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    /// A dotted name such as `req.http.host`, or a keyword. A quoted last part is stored without
    /// quotes.
    Name(String),
    /// Digits without a unit.
    Int(i64),
    /// Digits with a decimal point.
    Real(f64),
    /// A duration, in seconds.
    Duration(f64),
    /// A size, in bytes.
    Bytes(i64),
    /// The raw string between the quotes.
    Text(String),
    /// `:base64:`, decoded.
    Blob(Vec<u8>),
    /// An operator or a bracket.
    Symbol(&'static str),
    /// The end of the file.
    End,
}

/// A token and its position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) span: Span,
}

impl Token {
    /// Returns whether the token is a relation, which is followed by a value.
    fn is_relation(&self) -> bool {
        let relations = ["==", "!=", "<", "<=", ">", ">=", "~", "!~", "="];
        matches!(self.kind, Kind::Symbol(symbol) if relations.contains(&symbol))
    }
}

/// All symbols, longest first, because the first match wins.
const SYMBOLS: [&str; 28] = [
    "==", "!=", "!~", "<=", ">=", "&&", "||", "+=", "-=", "*=", "/=", "{", "}", "(", ")", ";", ",", "=", "!",
    "~", "<", ">", "+", "-", "*", "/", "%", ":",
];

/// Maximum number of digits of an integer, as in Varnish. An integer within this limit is also
/// exact as a REAL.
const DIGITS_MAX: usize = 15;

/// Lexes `text`; the last token is always [`Kind::End`].
pub(crate) fn lex(text: &str, file: u32, faults: &mut Faults) -> Vec<Token> {
    tokens(Lexer { text, at: 0, file, faults, tokens: Vec::new() }, false)
}

/// Lexes a condition. The value after a relation may be quoted or bare.
pub(crate) fn lex_condition(text: &str, file: u32, faults: &mut Faults) -> Vec<Token> {
    tokens(Lexer { text, at: 0, file, faults, tokens: Vec::new() }, true)
}

fn tokens(mut lexer: Lexer<'_>, is_condition: bool) -> Vec<Token> {
    while lexer.step() {
        let last = lexer.tokens.last();
        if is_condition && last.is_some_and(|last| lexer.at == last.span.end as usize && last.is_relation()) {
            lexer.value();
        }
        if lexer.tokens.len() > TOKENS_MAX {
            let span = lexer.span(lexer.at, lexer.at);
            lexer.faults.error(span, format!("more than {TOKENS_MAX} tokens in a file"));
            break;
        }
    }
    lexer.push(Kind::End, lexer.at);
    lexer.tokens
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    file: u32,
    faults: &'a mut Faults,
    tokens: Vec<Token>,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn span(&self, start: usize, end: usize) -> Span {
        let small = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Span { file: self.file, start: small(start), end: small(end) }
    }

    fn push(&mut self, kind: Kind, start: usize) {
        let span = self.span(start, self.at);
        self.tokens.push(Token { kind, span });
    }

    fn error(&mut self, start: usize, message: &str, help: &str) {
        let span = self.span(start, self.at);
        self.faults.error_help(span, message, help);
    }

    /// Consumes one token, white-space character, comment or fault; returns `false` at the end.
    fn step(&mut self) -> bool {
        let start = self.at;
        let Some(first) = self.rest().chars().next() else { return false };
        if first.is_ascii_whitespace() || first == '\u{b}' {
            self.at += 1;
        } else if first == '#' || self.rest().starts_with("//") {
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
            self.macro_comment(start);
        } else if self.rest().starts_with("/*") {
            self.delimited(2, "*/", "comment", "*/");
        } else if self.rest().starts_with("C{") {
            self.delimited(2, "}C", "inline C", "}C");
            let help = "Thalweg runs no C; use the modules std, tcp, header and cookie";
            self.error(start, "inline C is not allowed", help);
        } else if self.rest().starts_with("\"\"\"") {
            self.string(3, "\"\"\"");
        } else if self.rest().starts_with("{\"") {
            self.string(2, "\"}");
        } else if first == '"' {
            self.short_string();
        } else if first.is_ascii_alphabetic() {
            self.name();
        } else if first.is_ascii_digit() {
            self.number();
        } else if first == ':' {
            self.blob();
        } else if let Some(symbol) = SYMBOLS.iter().find(|symbol| self.rest().starts_with(**symbol)) {
            self.at += symbol.len();
            self.push(Kind::Symbol(symbol), start);
        } else if first == '.' {
            self.at += 1;
            self.push(Kind::Symbol("."), start);
        } else {
            self.at += first.len_utf8();
            self.error(start, &format!("unexpected character {first:?}"), "text needs quotes");
        }
        true
    }

    /// Warns about a comment that is a macro in Fastly VCL, such as `#FASTLY recv`.
    fn macro_comment(&mut self, start: usize) {
        let comment = &self.text[start..self.at];
        // Fastly's macros have no white space after the `#`; any other comment is prose.
        let word = comment[1..].split(|c: char| c.is_ascii_whitespace()).next().unwrap_or_default();
        if let Some(help) = advice(Place::Comment, word) {
            let message = format!("{} is a comment here", comment.trim_end());
            self.faults.warning(self.span(start, self.at), message, Some(help.to_owned()));
        }
    }

    /// Skips past `end` and returns the text before it, without the opening delimiter.
    fn delimited(&mut self, open_bytes: usize, end: &str, what: &str, close: &str) -> Option<String> {
        let start = self.at;
        let inner = &self.rest()[open_bytes..];
        if let Some(length) = inner.find(end) {
            let inner = inner[..length].to_owned();
            self.at += open_bytes + length + end.len();
            return Some(inner);
        }
        self.at += open_bytes;
        self.error(start, &format!("unterminated {what}"), &format!("end it with {close}"));
        self.at = self.text.len();
        None
    }

    fn string(&mut self, open_bytes: usize, end: &str) {
        let start = self.at;
        if let Some(text) = self.delimited(open_bytes, end, "long string", end) {
            self.text_token(text, start);
        }
    }

    fn short_string(&mut self) {
        let start = self.at;
        let inner = &self.rest()[1..];
        match inner.find(['"', '\n']) {
            Some(length) if inner.as_bytes()[length] == b'"' => {
                let text = inner[..length].to_owned();
                self.at += length + 2;
                self.text_token(text, start);
            }
            found => {
                self.at += 1 + found.unwrap_or(inner.len());
                let help = "write a multi-line string as {\"…\"} or \"\"\"…\"\"\"";
                self.error(start, "unterminated string", help);
                // Push a token anyway, so that parsing continues after it.
                self.push(Kind::Text(String::new()), start);
            }
        }
    }

    /// Reads the value in a condition: a quoted or a bare string. In a quoted string, a backslash
    /// is literal except before a quote. A bare string ends at white space, `&&`, `||` or an
    /// unmatched closing parenthesis.
    fn value(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
        let (start, rest) = (self.at, self.rest());
        let mut escaped = false;
        if let Some(inner) = rest.strip_prefix('"') {
            let ends = |c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            };
            let Some(length) = inner.find(ends) else {
                self.at = self.text.len();
                self.error(start, "unterminated string", "end it with \"");
                return self.push(Kind::Text(String::new()), start);
            };
            let text = inner[..length].replace("\\\"", "\"");
            self.at += length + 2;
            return self.text_token(text, start);
        }
        let mut depth = 0_usize;
        let ends = |(at, c): &(usize, char)| {
            match c {
                '(' => depth += 1,
                ')' if depth > 0 => depth -= 1,
                ')' => return true,
                '&' | '|' if depth == 0 => return rest[at + 1..].starts_with(*c),
                _ => {}
            }
            c.is_whitespace()
        };
        let length = rest.char_indices().find(ends).map_or(rest.len(), |(at, _)| at);
        let text = rest[..length].to_owned();
        self.at += length;
        if text.starts_with('\'') {
            self.error(start, "single quotes are not supported", "use double quotes or none");
        }
        if !text.is_empty() {
            self.text_token(text, start);
        }
    }

    fn text_token(&mut self, text: String, start: usize) {
        if text.contains('\0') {
            self.error(start, "string contains a NUL character", "NUL is not allowed in headers or content");
        }
        self.push(Kind::Text(text), start);
    }

    fn name(&mut self) {
        let start = self.at;
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let mut name = String::new();
        loop {
            let length = self.rest().find(|c| !word(c)).unwrap_or(self.rest().len());
            name.push_str(&self.rest()[..length]);
            self.at += length;
            let mut next = self.rest().chars();
            match (next.next(), next.next()) {
                (Some('.'), Some(c)) if word(c) => {
                    self.at += 1;
                    name.push('.');
                }
                (Some('.'), Some('"')) => {
                    let inner = &self.rest()[2..];
                    let length = inner.find(['"', '\n']).unwrap_or(inner.len());
                    name.push('.');
                    name.push_str(&inner[..length]);
                    let closed = inner.as_bytes().get(length) == Some(&b'"');
                    self.at += 2 + length + usize::from(closed);
                    break;
                }
                _ => break,
            }
        }
        if name.len() > NAME_BYTES_MAX {
            self.error(start, "name too long", &format!("the limit is {NAME_BYTES_MAX} bytes"));
            name.truncate(0);
            name.push_str("too-long");
        }
        self.push(Kind::Name(name), start);
    }

    fn number(&mut self) {
        let start = self.at;
        let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let whole = digits(self.rest());
        self.at += whole;
        let mut fraction = 0;
        if let Some(after) = self.rest().strip_prefix('.')
            && after.starts_with(|c: char| c.is_ascii_digit())
        {
            fraction = 1 + digits(after);
            self.at += fraction;
        }
        let number = &self.text[start..self.at];
        let value: f64 = number.parse().unwrap_or(f64::MAX);
        let int: Option<i64> = (fraction == 0).then(|| number.parse().unwrap_or(i64::MAX));
        let mut unit = self.word().to_owned();
        if unit.is_empty() {
            // White space may precede a unit. Any other word there is a separate token.
            let after = self.rest().trim_start_matches(|c: char| c.is_ascii_whitespace());
            let space = self.rest().len() - after.len();
            let next = word_of(after);
            if space > 0 && (duration_unit(next).is_some() || size_unit(next).is_some()) {
                unit = next.to_owned();
                self.at += space;
            }
        }
        self.at += unit.len();
        if whole > DIGITS_MAX || fraction > DIGITS_MAX {
            let help = format!("the limit is {DIGITS_MAX} digits");
            self.error(start, "number with too many digits", &help);
        }
        let kind = match (unit.as_str(), int) {
            ("", Some(int)) => Kind::Int(int),
            ("", None) => Kind::Real(value),
            (unit, int) => match (duration_unit(unit), size_unit(unit)) {
                (Some(seconds), _) => Kind::Duration(value * seconds),
                (None, Some(bytes)) => Kind::Bytes(match int {
                    Some(int) => int.saturating_mul(bytes),
                    None => (value * bytes as f64) as i64,
                }),
                (None, None) => {
                    let help = "durations take ms, s, m, h, d, w or y; sizes take B, KB, MB, GB, TB or PB";
                    self.error(start, &format!("unknown unit {unit:?}"), help);
                    Kind::Duration(value)
                }
            },
        };
        self.push(kind, start);
    }

    /// Returns the letters and digits at the current position.
    fn word(&self) -> &str {
        word_of(self.rest())
    }

    fn blob(&mut self) {
        let start = self.at;
        let inner = &self.rest()[1..];
        let length =
            inner.find(|c: char| !(c.is_ascii_alphanumeric() || "+/=".contains(c))).unwrap_or(inner.len());
        let decoded = if inner[length..].starts_with(':') { decode_base64(&inner[..length]) } else { None };
        match decoded {
            Some(bytes) => {
                self.at += length + 2;
                self.push(Kind::Blob(bytes), start);
            }
            // Not a blob: the parser reports the stray colon.
            None => {
                self.at += 1;
                self.push(Kind::Symbol(":"), start);
            }
        }
    }
}

/// Returns the leading letters and digits of `text`.
fn word_of(text: &str) -> &str {
    &text[..text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len())]
}

/// Decodes padded Base64 (RFC 4648 §4), ignoring non-zero trailing bits. Returns `None` if `text`
/// is anything else.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
    );
    LENIENT.decode(text).ok()
}
