//! Resolution of URI references in responses (RFC 3986 §5.2): finds the same-host target named by
//! `Location` or `Content-Location`.

use crate::{Authority, Target};

/// Returns the target named by `reference` in a response to a request for `base` at `authority`.
/// Returns `None` for another host or port, a non-HTTP scheme or an invalid target.
pub fn resolve(authority: &Authority, base: &Target, reference: &str) -> Option<Target> {
    let reference = reference.split('#').next().unwrap_or_default();
    let (scheme, rest) = split_scheme(reference);
    let default_port = match scheme.map(str::to_ascii_lowercase).as_deref() {
        None | Some("http") => 80,
        Some("https") => 443,
        Some(_) => return None,
    };
    let Some(with_authority) = rest.strip_prefix("//") else {
        // An HTTP URI with a scheme must have an authority (RFC 9110 §4.2).
        return if scheme.is_none() { Target::new(&merge(base, rest)).ok() } else { None };
    };
    let end = with_authority.find(['/', '?']).unwrap_or(with_authority.len());
    let (named, path) = with_authority.split_at(end);
    let named = Authority::parse(named.as_bytes()).ok()?;
    let port = |authority: &Authority| authority.port().unwrap_or(default_port);
    if named.host() != authority.host() || port(&named) != port(authority) {
        return None;
    }
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Target::new(&without_dot_segments(&path)).ok()
}

/// Splits off the scheme before the first colon, if valid.
fn split_scheme(reference: &str) -> (Option<&str>, &str) {
    let is_scheme = |text: &str| {
        text.starts_with(|first: char| first.is_ascii_alphabetic())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
    };
    match reference.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => (Some(scheme), rest),
        _ => (None, reference),
    }
}

/// Resolves a reference without scheme and authority to a path and query (RFC 3986 §5.2.2).
fn merge(base: &Target, reference: &str) -> String {
    match reference.as_bytes().first() {
        None => base.as_str().to_owned(),
        Some(b'/') => without_dot_segments(reference),
        Some(b'?') => format!("{}{reference}", base.path()),
        Some(_) => {
            let directory = base.path().rfind('/').map_or("/", |slash| &base.path()[..=slash]);
            without_dot_segments(&format!("{directory}{reference}"))
        }
    }
}

/// Removes dot segments (RFC 3986 §5.2.4) from a path that starts with `/`; the query is unchanged.
fn without_dot_segments(target: &str) -> String {
    let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
    let mut resolved: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    resolved.pop();
                }
                // A path that ends in a dot segment names a directory.
                if is_last {
                    resolved.push("");
                }
            }
            segment => resolved.push(segment),
        }
    }
    format!("/{}{query}", resolved.join("/"))
}
