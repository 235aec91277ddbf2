//! The text of an expression as tokens, each with its place.

use std::ops::Range;

use super::QueryError;

/// A token and the bytes that it is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) is: Lexeme<'a>,
    pub(super) place: Range<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lexeme<'a> {
    Open,
    Close,
    /// Of [`OPERATORS`].
    Operator(&'static str),
    /// A name, a number with its unit, or a value without quotes.
    Word(&'a str),
    /// What stands between quotes.
    Quoted(String),
    End,
}

/// The longer before what they begin with.
pub(super) const OPERATORS: [&str; 8] = ["==", "!=", "!~", "<=", ">=", "<", ">", "~"];

/// All tokens, the last of which is the end.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, QueryError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    loop {
        at += text[at..].len() - text[at..].trim_start().len();
        let (is, len) = token(text, at).map_err(|error| match &tokens[..] {
            // A value goes on here: `path ~ s=42`.
            [.., Token { is: Lexeme::Operator(_), .. }, Token { is: Lexeme::Word(_), place }]
                if place.end == at =>
            {
                let rest = text[at..].find(char::is_whitespace).map_or(text.len(), |length| at + length);
                let whole = place.start..rest;
                let message = format!("write it in quotes: \"{}\"", &text[whole.clone()]);
                QueryError::new(text, whole, message)
            }
            _ => error,
        })?;
        let ended = is == Lexeme::End;
        tokens.push(Token { is, place: at..at + len });
        if ended {
            return Ok(tokens);
        }
        at += len;
    }
}

/// The token that begins at `at`, and its length in bytes.
fn token(text: &str, at: usize) -> Result<(Lexeme<'_>, usize), QueryError> {
    let rest = &text[at..];
    let first = match rest.as_bytes().first() {
        None => return Ok((Lexeme::End, 0)),
        Some(b'(') => return Ok((Lexeme::Open, 1)),
        Some(b')') => return Ok((Lexeme::Close, 1)),
        Some(b'"') => return quoted(text, at),
        Some(first) => *first,
    };
    if let Some(operator) = OPERATORS.into_iter().find(|operator| rest.starts_with(operator)) {
        return Ok((Lexeme::Operator(operator), operator.len()));
    }
    let wrong = |len, message: &str| Err(QueryError::new(text, at..at + len, message.to_owned()));
    match first {
        b'=' => return wrong(1, "equality is written =="),
        b'!' => return wrong(1, "negation is written: not"),
        b'&' => return wrong(if rest.starts_with("&&") { 2 } else { 1 }, "write: and"),
        b'|' => return wrong(if rest.starts_with("||") { 2 } else { 1 }, "write: or"),
        b'\'' => return wrong(1, "text stands in double quotes"),
        _ => {}
    }
    let ends = |c: char| c.is_whitespace() || "()\"'=!<>~&|".contains(c);
    let word = rest.split(ends).next().unwrap_or_default();
    Ok((Lexeme::Word(word), word.len()))
}

/// A text in quotes, in which a backslash stands for itself but before a quote: regular expressions have many.
fn quoted(text: &str, at: usize) -> Result<(Lexeme<'_>, usize), QueryError> {
    let inside = &text[at + 1..];
    let mut escaped = false;
    for (end, character) in inside.char_indices() {
        match character {
            '"' if !escaped => return Ok((Lexeme::Quoted(inside[..end].replace("\\\"", "\"")), end + 2)),
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    Err(QueryError::new(text, at..text.len(), "this quote does not end".to_owned()))
}
