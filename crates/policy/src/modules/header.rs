//! `header`: access to individual lines of a repeated field such as Set-Cookie (vmod_header(3) of
//! varnish-modules).
//!
//! The caller passes regular expressions as closures over the value or, in [`regsub`], over the
//! line. The caller also decides which fields a policy may change.

use std::fmt;

use thalweg_http::Fields;
use thalweg_http::token::is_token;

/// Reason why fields could not be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The name is not a token (RFC 9110 §5.1).
    Name(String),
    /// The result of a substitution is not a `Name: value` line.
    Line(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Name(name) => write!(f, "{name:?} is not a field name"),
            Error::Line(line) => write!(f, "{line:?} is not a field line"),
        }
    }
}

impl std::error::Error for Error {}

/// Appends a line and keeps existing lines with the same name.
pub fn append(fields: &mut Fields, name: &str, value: &[u8]) -> Result<(), Error> {
    check_name(name)?;
    fields.push(name, value);
    Ok(())
}

/// Appends each line called `name` in `from` to `to`, renamed to `to_name`.
pub fn copy(from: &Fields, name: &str, to: &mut Fields, to_name: &str) -> Result<(), Error> {
    check_name(to_name)?;
    for value in from.get_all(name) {
        to.push(to_name, value);
    }
    Ok(())
}

/// Like [`copy`], but within one section.
pub fn copy_within(fields: &mut Fields, name: &str, to_name: &str) -> Result<(), Error> {
    let mut copied = Fields::new();
    copy(fields, name, &mut copied, to_name)?;
    for (name, value) in copied.iter() {
        fields.push(name, value);
    }
    Ok(())
}

/// Returns the first value of `name` accepted by `matches`.
pub fn get<'a>(
    fields: &'a Fields,
    name: &'a str,
    mut matches: impl FnMut(&[u8]) -> bool,
) -> Option<&'a [u8]> {
    fields.get_all(name).find(|value| matches(value))
}

/// Removes the lines called `name` with a value accepted by `matches`, and returns the number
/// removed.
pub fn remove(fields: &mut Fields, name: &str, mut matches: impl FnMut(&[u8]) -> bool) -> usize {
    fields.remove_where(|line_name, value| line_name.eq_ignore_ascii_case(name.as_bytes()) && matches(value))
}

/// Replaces each `Name: value` line with the result of `substitute`; `None` keeps the line. On
/// error, nothing changes.
pub fn regsub(
    fields: &mut Fields,
    mut substitute: impl FnMut(&[u8]) -> Option<Vec<u8>>,
) -> Result<(), Error> {
    let mut changed = Fields::new();
    let mut line = Vec::new();
    for (name, value) in fields.iter() {
        line.clear();
        line.extend_from_slice(name.as_bytes());
        line.extend_from_slice(b": ");
        line.extend_from_slice(value);
        match substitute(&line) {
            None => changed.push(name, value),
            Some(line) => {
                let (name, value) = split_line(&line)
                    .ok_or_else(|| Error::Line(String::from_utf8_lossy(&line).into_owned()))?;
                changed.push(name, value);
            }
        }
    }
    *fields = changed;
    Ok(())
}

fn split_line(line: &[u8]) -> Option<(&str, &[u8])> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let name = str::from_utf8(&line[..colon]).ok().filter(|name| is_token(name.as_bytes()))?;
    Some((name, &line[colon + 1..]))
}

fn check_name(name: &str) -> Result<(), Error> {
    if is_token(name.as_bytes()) { Ok(()) } else { Err(Error::Name(name.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fields() -> Fields {
        [("Set-Cookie", "a=1"), ("Vary", "x"), ("set-cookie", "JSESSIONID=2")].into_iter().collect()
    }

    fn text(fields: &Fields) -> &str {
        str::from_utf8(fields.text()).unwrap()
    }

    #[test]
    fn append_and_copy_add_lines() {
        let mut fields = fields();
        append(&mut fields, "Set-Cookie", b"VSESS=abbabeef").unwrap();
        copy_within(&mut fields, "vary", "X-Vary").unwrap();
        assert_eq!(
            text(&fields),
            "Set-Cookie: a=1\r\nVary: x\r\nset-cookie: JSESSIONID=2\r\nSet-Cookie: VSESS=abbabeef\r\nX-Vary: x\r\n"
        );
        let mut other = Fields::new();
        copy(&fields, "Set-Cookie", &mut other, "X-Old").unwrap();
        assert_eq!(text(&other), "X-Old: a=1\r\nX-Old: JSESSIONID=2\r\nX-Old: VSESS=abbabeef\r\n");
        for name in ["", "a b", "a:"] {
            assert_eq!(append(&mut fields, name, b""), Err(Error::Name(name.into())));
            assert_eq!(copy_within(&mut fields, "Vary", name), Err(Error::Name(name.into())));
        }
    }

    #[test]
    fn get_and_remove_match_values() {
        let mut fields = fields();
        let is_session = |value: &[u8]| value.starts_with(b"JSESSIONID=");
        assert_eq!(get(&fields, "SET-COOKIE", is_session), Some(&b"JSESSIONID=2"[..]));
        assert_eq!(get(&fields, "Vary", is_session), None);
        assert_eq!(remove(&mut fields, "Set-Cookie", is_session), 1);
        assert_eq!(text(&fields), "Set-Cookie: a=1\r\nVary: x\r\n");
    }

    #[test]
    fn regsub_replaces_lines_in_place() {
        let mut fields = fields();
        regsub(&mut fields, |line| Some(line.strip_prefix(b"Vary")?.to_vec())).unwrap_err();
        assert_eq!(text(&fields), text(&self::fields()));
        regsub(&mut fields, |line| Some([b"X-Varied", line.strip_prefix(b"Vary")?].concat())).unwrap();
        assert_eq!(text(&fields), "Set-Cookie: a=1\r\nX-Varied: x\r\nset-cookie: JSESSIONID=2\r\n");
        assert_eq!(regsub(&mut fields, |_| Some(b"none".to_vec())), Err(Error::Line("none".into())));
    }

    proptest! {
        #[test]
        fn substitution_never_adds_a_line(line in proptest::collection::vec(any::<u8>(), 0..32)) {
            let mut fields = fields();
            let _ = regsub(&mut fields, |_| Some(line.clone()));
            prop_assert_eq!(fields.text().windows(2).filter(|pair| *pair == b"\r\n").count(), 3);
        }
    }
}
