//! What may be stored (RFC 9111 §3), for a shared cache, and which request a stored response answers (§4.1).

use thalweg_http::cache_control::{CacheControl, Qualified, RequestCacheControl};
use thalweg_http::{Fields, Method, RequestHead};

use crate::freshness::Freshness;

/// Whether a response may answer other requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storable {
    /// It may, as long as it is fresh or has been validated.
    Yes,
    /// It may not, and neither may the next one; the reason, for `Cache-Status`.
    No(&'static str),
    /// It may not because of this request; a response to another might.
    NotThis(&'static str),
}

/// Decides by the request, the response and its freshness.
///
/// Stricter than §3 in three places, each the safe side: a response that sets a cookie is not shared, `private`
/// with field names keeps the whole response out, and so does a request without a plain GET.
pub fn storable(
    request: &RequestHead,
    status: u16,
    fields: &Fields,
    directives: &CacheControl,
    freshness: &Freshness,
) -> Storable {
    let no = Storable::No;
    if request.method != Method::Get {
        return Storable::NotThis("method");
    }
    if !is_understood(status) {
        return no("status");
    }
    if directives.no_store {
        return no("no-store");
    }
    if RequestCacheControl::from_fields(&request.fields).no_store {
        return Storable::NotThis("no-store");
    }
    if directives.private != Qualified::Absent {
        return no("private");
    }
    if request.fields.contains("authorization")
        && !(directives.public || directives.s_maxage.is_some() || directives.must_revalidate)
    {
        return Storable::NotThis("authorization");
    }
    if fields.contains("set-cookie") {
        return no("set-cookie");
    }
    if fields.list("vary").any(|name| name == b"*") {
        return no("vary");
    }
    let can_be_validated = fields.contains("etag") || fields.contains("last-modified");
    if freshness.lifetime_s == 0 && !can_be_validated {
        return no("not-fresh");
    }
    Storable::Yes
}

/// Status codes whose caching is understood here (§3): final, and not partial (206) or about another response
/// (304).
fn is_understood(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300 | 301 | 302 | 307 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// The request fields that a response was selected by (`Vary`), with their values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection(Vec<(Box<str>, Vec<u8>)>);

impl Selection {
    /// What `response`'s `Vary` names, as `request` has it.
    pub fn of(request: &Fields, response: &Fields) -> Self {
        let mut names: Vec<String> =
            response.list("vary").map(|name| String::from_utf8_lossy(name).to_ascii_lowercase()).collect();
        names.sort_unstable();
        names.dedup();
        Self(names.into_iter().map(|name| (name.as_str().into(), normalised(request, &name))).collect())
    }

    /// Whether `request` selects the same response.
    pub fn matches(&self, request: &Fields) -> bool {
        self.0.iter().all(|(name, value)| normalised(request, name) == *value)
    }
}

impl Selection {
    /// Bytes that it takes up.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }
}

/// A field's members, each line's joined, without the white space that means nothing (§4.1). Absent is empty: for
/// what a request may say there is no difference that a response could be selected by.
fn normalised(request: &Fields, name: &str) -> Vec<u8> {
    let mut value = Vec::new();
    for member in request.list(name) {
        if !value.is_empty() {
            value.push(b',');
        }
        value.extend_from_slice(member);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn fields(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in lines {
            fields.push(name, value);
        }
        fields
    }

    fn check(request: &[(&str, &str)], status: u16, response: &[(&str, &str)], expect: Expect) {
        let request = RequestHead { method: Method::Get, fields: fields(request), ..RequestHead::default() };
        let response = fields(response);
        let directives = CacheControl::from_fields(&response);
        let freshness = Freshness::of(&response, &directives, 0, 0);
        expect.assert_eq(&format!("{:?}", storable(&request, status, &response, &directives, &freshness)));
    }

    #[test]
    fn rfc9111_3_what_is_fresh_or_can_be_validated_is_stored() {
        check(&[], 200, &[("Cache-Control", "max-age=1")], expect!["Yes"]);
        check(&[], 200, &[("ETag", "\"a\"")], expect!["Yes"]);
        check(&[], 200, &[("Cache-Control", "no-cache"), ("ETag", "\"a\"")], expect!["Yes"]);
        check(&[], 200, &[], expect![[r#"No("not-fresh")"#]]);
        check(&[], 404, &[("Cache-Control", "max-age=1")], expect!["Yes"]);
    }

    #[test]
    fn rfc9111_3_what_is_not_for_all_is_not_stored() {
        check(&[], 200, &[("Cache-Control", "no-store, max-age=1")], expect![[r#"No("no-store")"#]]);
        check(
            &[("Cache-Control", "no-store")],
            200,
            &[("ETag", "\"a\"")],
            expect![[r#"NotThis("no-store")"#]],
        );
        check(&[], 200, &[("Cache-Control", "private, max-age=1")], expect![[r#"No("private")"#]]);
        check(
            &[],
            200,
            &[("Cache-Control", "max-age=1"), ("Set-Cookie", "a=b")],
            expect![[r#"No("set-cookie")"#]],
        );
        check(&[], 200, &[("Cache-Control", "max-age=1"), ("Vary", "a, *")], expect![[r#"No("vary")"#]]);
        check(&[], 206, &[("Cache-Control", "max-age=1")], expect![[r#"No("status")"#]]);
        check(&[], 500, &[("Cache-Control", "max-age=1")], expect![[r#"No("status")"#]]);
    }

    #[test]
    fn rfc9111_3_5_authorization_needs_leave() {
        let request = [("Authorization", "Basic YTpi")];
        check(&request, 200, &[("Cache-Control", "max-age=1")], expect![[r#"NotThis("authorization")"#]]);
        check(&request, 200, &[("Cache-Control", "public, max-age=1")], expect!["Yes"]);
        check(&request, 200, &[("Cache-Control", "s-maxage=1")], expect!["Yes"]);
    }

    #[test]
    fn rfc9111_4_1_vary_selects_by_members_not_by_white_space() {
        let vary = fields(&[("Vary", "Accept-Encoding"), ("Vary", "accept-language")]);
        let stored = Selection::of(&fields(&[("Accept-Encoding", "gzip, br")]), &vary);
        assert!(stored.matches(&fields(&[("accept-encoding", "gzip"), ("Accept-Encoding", "br")])));
        assert!(!stored.matches(&fields(&[("Accept-Encoding", "br, gzip")])));
        assert!(!stored.matches(&fields(&[("Accept-Encoding", "gzip, br"), ("Accept-Language", "de")])));
        assert!(Selection::default().matches(&fields(&[("Accept-Language", "de")])));
    }
}
