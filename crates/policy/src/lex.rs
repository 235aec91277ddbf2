//! Text to tokens: names with their dots, numbers with their units, strings of three kinds, blobs, operators.
//!
//! **Invariant:** every byte of the text is in a token, in white space, in a comment or in a fault; no text panics.

use crate::fault::Faults;
use crate::idioms::{Place, advice};
use crate::source::Span;

/// Tokens of one file.
pub(crate) const TOKENS_MAX: usize = 200_000;
/// Bytes of one name.
pub(crate) const NAME_BYTES_MAX: usize = 256;

/// What a token is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    /// `req.http.host`, `if`; with its dots. A quoted last part stands without its quotes.
    Name(String),
    /// Digits without a unit.
    Int(i64),
    /// Digits with a point.
    Real(f64),
    /// Seconds.
    Duration(f64),
    /// Bytes, with their unit.
    Bytes(i64),
    /// What stands between the quotes, as it is.
    Text(String),
    /// `:base64:`, decoded.
    Blob(Vec<u8>),
    /// An operator or a bracket.
    Symbol(&'static str),
    /// The end of the file.
    End,
}

/// A token and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) span: Span,
}

/// Longest first: the first that fits is taken.
const SYMBOLS: [&str; 28] = [
    "==", "!=", "!~", "<=", ">=", "&&", "||", "+=", "-=", "*=", "/=", "{", "}", "(", ")", ";", ",", "=", "!",
    "~", "<", ">", "+", "-", "*", "/", "%", ":",
];

/// Units of a duration in seconds.
const DURATIONS: [(&str, f64); 7] = [
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
    ("d", 86_400.0),
    ("w", 604_800.0),
    ("y", 31_536_000.0),
];
/// Units of a size in bytes.
const SIZES: [(&str, i64); 5] =
    [("B", 1), ("KB", 1 << 10), ("MB", 1 << 20), ("GB", 1 << 30), ("TB", 1 << 40)];
/// Digits of an integer, as in Varnish, so that every one is exact as a REAL too.
const DIGITS_MAX: usize = 15;

/// The tokens of `text`, always with an [`Kind::End`].
pub(crate) fn lex(text: &str, file: u32, faults: &mut Faults) -> Vec<Token> {
    let mut lexer = Lexer { text, at: 0, file, faults, tokens: Vec::new() };
    while lexer.step() {
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

    /// One token or one piece of what is none; false at the end.
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
            let help = "Thalweg runs no C; what C was for is in the modules std, tcp, header, cookie";
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
            self.error(start, &format!("{first:?} means nothing here"), "text stands in quotes");
        }
        true
    }

    /// Tells a comment that says something elsewhere: `#FASTLY recv`.
    fn macro_comment(&mut self, start: usize) {
        let comment = &self.text[start..self.at];
        // Fastly's macros have no white space there; with it, it is prose.
        let word = comment[1..].split(|c: char| c.is_ascii_whitespace()).next().unwrap_or_default();
        if let Some(help) = advice(Place::Comment, word) {
            let message = format!("{} is a comment here", comment.trim_end());
            self.faults.warning(self.span(start, self.at), message, Some(help.to_owned()));
        }
    }

    /// Skips to behind `end`; returns what stands between.
    fn delimited(&mut self, open_bytes: usize, end: &str, what: &str, close: &str) -> Option<String> {
        let start = self.at;
        let inner = &self.rest()[open_bytes..];
        if let Some(length) = inner.find(end) {
            let inner = inner[..length].to_owned();
            self.at += open_bytes + length + end.len();
            return Some(inner);
        }
        self.at += open_bytes;
        self.error(start, &format!("{what} that does not end"), &format!("it ends with {close}"));
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
                let help = "a string over several lines is {\"…\"} or \"\"\"…\"\"\"";
                self.error(start, "string that does not end on its line", help);
                // Goes on as if it did, so that what follows is read.
                self.push(Kind::Text(String::new()), start);
            }
        }
    }

    fn text_token(&mut self, text: String, start: usize) {
        if text.contains('\0') {
            self.error(start, "string with a NUL character", "no header and no body may have one");
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
            self.error(start, "a name this long", &format!("a name has at most {NAME_BYTES_MAX} bytes"));
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
        let unit_bytes = self.rest().find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest().len());
        let unit = self.rest()[..unit_bytes].to_owned();
        self.at += unit_bytes;
        if whole > DIGITS_MAX || fraction > DIGITS_MAX {
            let help = format!("a number has at most {DIGITS_MAX} digits");
            self.error(start, "a number with too many digits", &help);
        }
        let kind = match (unit.as_str(), int) {
            ("", Some(int)) => Kind::Int(int),
            ("", None) => Kind::Real(value),
            (unit, int) => {
                let duration = DURATIONS.iter().find(|(name, _)| *name == unit);
                let size = SIZES.iter().find(|(name, _)| *name == unit);
                match (duration, size) {
                    (Some((_, seconds)), _) => Kind::Duration(value * seconds),
                    (None, Some((_, bytes))) => Kind::Bytes(match int {
                        Some(int) => int.saturating_mul(*bytes),
                        None => (value * *bytes as f64) as i64,
                    }),
                    (None, None) => {
                        let help = "durations have ms, s, m, h, d, w or y, sizes B, KB, MB, GB or TB";
                        self.error(start, &format!("{unit:?} is no unit"), help);
                        Kind::Duration(value)
                    }
                }
            }
        };
        self.push(kind, start);
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
            // What it is else, the parser knows.
            None => {
                self.at += 1;
                self.push(Kind::Symbol(":"), start);
            }
        }
    }
}

/// Base64 with its padding (RFC 4648 §4); `None` for anything else.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if !text.len().is_multiple_of(4) || text.len() - digits.len() > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for digit in digits.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}
