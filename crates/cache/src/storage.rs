//! What may be stored (RFC 9111 §3), for a shared cache, and which request a stored response answers (§4.1).

use thalweg_http::cache_control::{CacheControl, RequestCacheControl};
use thalweg_http::validators::has_validator;
use thalweg_http::{Fields, Method, RequestHead, date};

use crate::freshness::Freshness;
use crate::tags::has_too_many_tags;

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

/// Decides by the request, the response and its freshness. `fields` are those that others may get.
///
/// Stricter than §3 in two places, each the safe side: a response that sets a cookie is not shared, and neither is the
/// answer to anything but a plain GET.
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
    let understood = is_understood(status);
    if status < 200 || matches!(status, 206 | 304) || (directives.must_understand && !understood) {
        return no("status");
    }
    // For a cache that understands the status, must-understand takes no-store back (§5.2.2.3).
    if directives.no_store && !directives.must_understand {
        return no("no-store");
    }
    if RequestCacheControl::from_fields(&request.fields).no_store {
        return Storable::NotThis("no-store");
    }
    if directives.private.is_whole() {
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
    if has_too_many_tags(fields) {
        return no("tags");
    }
    let can_be_validated = has_validator(fields);
    if freshness.lifetime_ms == 0 && !(can_be_validated && understood) {
        return no("not-fresh");
    }
    Storable::Yes
}

/// Status codes whose caching is understood here (§3): final, and not partial (206) or about another response
/// (304).
fn is_understood(status: u16) -> bool {
    is_heuristically_cacheable(status) || matches!(status, 302 | 307)
}

/// Status codes that may be reused though nothing says for how long (RFC 9110 §15.1).
pub(crate) fn is_heuristically_cacheable(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Takes out of `fields` what only the client that caused the fetch may get: the fields that `private` and `no-cache`
/// name (§5.2.2.4, §5.2.2.7).
pub fn withhold(fields: &mut Fields, directives: &CacheControl) -> Fields {
    let mut withheld = Fields::new();
    let names = || directives.private.names().chain(directives.no_cache.names());
    if names().next().is_none() {
        return withheld;
    }
    let is_named = |name: &[u8]| names().any(|named| named.eq_ignore_ascii_case(name));
    for (name, value) in fields.iter().filter(|(name, _)| is_named(name.as_bytes())) {
        withheld.push(name, value);
    }
    fields.remove_where(|name, _| is_named(name));
    withheld
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

#[cfg(not(loom))]
impl Selection {
    /// The fields and their values, for one who stores them.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// What [`Selection::lines`] gave.
    pub(crate) fn from_lines(lines: Vec<(Box<str>, Vec<u8>)>) -> Self {
        Self(lines)
    }
}

impl Selection {
    /// Bytes that it takes up.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }
}

/// Fields of preferences, whose members have no order and no case (RFC 9110 §12.5).
const PREFERENCES: [&str; 3] = ["accept-charset", "accept-encoding", "accept-language"];

/// A field's members, all lines joined, without the white space that means nothing (§4.1); of a field of preferences
/// also without the order and case that mean nothing. Absent is empty: for what a request may say there is no
/// difference that a response could be selected by.
fn normalised(request: &Fields, name: &str) -> Vec<u8> {
    if !PREFERENCES.contains(&name) {
        return request.list(name).collect::<Vec<_>>().join(&b","[..]);
    }
    let lower = |member: &[u8]| {
        let solid = member.iter().filter(|byte| !matches!(byte, b' ' | b'\t'));
        solid.map(u8::to_ascii_lowercase).collect::<Vec<u8>>()
    };
    let mut members: Vec<Vec<u8>> = request.list(name).map(lower).collect();
    members.sort_unstable();
    members.dedup();
    members.join(&b","[..])
}

/// When a response was made, in unix seconds (§4.1: of several that match, the most recent by `Date` is used).
pub(crate) fn made_s(fields: &Fields) -> u64 {
    fields.get("date").and_then(date::parse).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Rules;
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
        let freshness = Freshness::of(status, &response, &directives, true, &Rules::default(), (0, 0));
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
    }

    #[test]
    fn rfc9111_3_a_status_that_is_not_understood_needs_a_lifetime() {
        check(&[], 599, &[("Cache-Control", "max-age=1")], expect!["Yes"]);
        check(&[], 599, &[("ETag", "\"a\"")], expect![[r#"No("not-fresh")"#]]);
        check(&[], 304, &[("Cache-Control", "max-age=1")], expect![[r#"No("status")"#]]);
    }

    #[test]
    fn rfc9111_5_2_2_3_must_understand_takes_no_store_back() {
        let both = [("Cache-Control", "max-age=1, no-store, must-understand")];
        check(&[], 200, &both, expect!["Yes"]);
        check(&[], 599, &both, expect![[r#"No("status")"#]]);
    }

    #[test]
    fn rfc9111_5_2_2_4_and_7_named_fields_are_for_one_client() {
        let mut all = fields(&[
            ("Cache-Control", "max-age=1, private=\"x-user\", no-cache=\"Set-Cookie, x-b\""),
            ("X-User", "me"),
            ("set-cookie", "a=b"),
            ("ETag", "\"a\""),
        ]);
        let directives = CacheControl::from_fields(&all);
        let withheld = withhold(&mut all, &directives);
        assert_eq!(withheld.text(), b"X-User: me\r\nset-cookie: a=b\r\n");
        assert!(!all.contains("x-user") && !all.contains("set-cookie") && all.contains("etag"));
        // A list that names nothing is about the whole response.
        check(&[], 200, &[("Cache-Control", "max-age=1, private=\"\"")], expect![[r#"No("private")"#]]);
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
        assert!(stored.matches(&fields(&[("Accept-Encoding", "BR,gzip")])));
        assert!(!stored.matches(&fields(&[("Accept-Encoding", "br")])));
        assert!(!stored.matches(&fields(&[("Accept-Encoding", "gzip, br"), ("Accept-Language", "de")])));
        let stored = Selection::of(&fields(&[("Accept", "a/b ,c/d")]), &fields(&[("Vary", "Accept")]));
        assert!(stored.matches(&fields(&[("Accept", "a/b"), ("accept", "c/d")])));
        assert!(!stored.matches(&fields(&[("Accept", "c/d, a/b")])));
        assert!(Selection::default().matches(&fields(&[("Accept-Language", "de")])));
    }
}
