//! Storage decisions of a shared cache (RFC 9111 §3), and selection of stored responses by requests
//! (§4.1).

use thalweg_http::cache_control::{CacheControl, RequestCacheControl};
use thalweg_http::validators::has_validator;
use thalweg_http::{Fields, Method, RequestHead, date};

use crate::freshness::{Freshness, is_heuristically_cacheable};
use crate::tags::has_too_many_tags;

/// Whether a response may be reused for other requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storable {
    /// The response may be reused while it is fresh or after validation.
    Yes,
    /// The response may not be reused, and the next one is not expected to be reusable either. The
    /// reason is for `Cache-Status`.
    No(&'static str),
    /// The response may not be reused because of this request. A response to another request may
    /// be.
    NotThis(&'static str),
}

/// Decides whether a response may be stored, given the request, the response and its freshness.
/// `fields` are the fields that other clients may receive.
///
/// Stricter than §3 in two ways, both safe: a response is not shared if it sets a cookie, or if the
/// request method is not GET.
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
    // For a cache that understands the status, must-understand overrides no-store (§5.2.2.3).
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
    if has_too_many_tags([fields]) {
        return no("tags");
    }
    let can_be_validated = has_validator(fields);
    if freshness.lifetime_ms == 0 && !(can_be_validated && understood) {
        return no("not-fresh");
    }
    Storable::Yes
}

/// Returns whether this cache understands the caching requirements of a status (§3). All these
/// statuses are final; 206 (partial) and 304 (about another response) are excluded.
fn is_understood(status: u16) -> bool {
    is_heuristically_cacheable(status) || matches!(status, 302 | 307)
}

/// Removes from `fields`, and returns, those that only the requesting client may receive: the
/// fields named in `private` and `no-cache` (§5.2.2.4, §5.2.2.7).
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

/// The request fields named in a response's `Vary`, with their normalised values; `None` for an
/// absent field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection(Vec<(Box<str>, Option<Vec<u8>>)>);

impl Selection {
    /// Returns the fields named in `response`'s `Vary`, with `request`'s values.
    pub fn of(request: &Fields, response: &Fields) -> Self {
        let mut names: Vec<String> =
            response.list("vary").map(|name| String::from_utf8_lossy(name).to_ascii_lowercase()).collect();
        names.sort_unstable();
        names.dedup();
        Self(names.into_iter().map(|name| (name.as_str().into(), normalised(request, &name))).collect())
    }

    /// Returns a selection by the same fields, with `request`'s values.
    pub fn for_request(&self, request: &Fields) -> Self {
        Self(self.0.iter().map(|(name, _)| (name.clone(), normalised(request, name))).collect())
    }

    /// Returns whether `request` selects the response.
    pub fn matches(&self, request: &Fields) -> bool {
        !self.is_unmatchable() && self.0.iter().all(|(name, value)| normalised(request, name) == *value)
    }

    /// Returns whether no request selects the response (`Vary: *`).
    pub fn is_unmatchable(&self) -> bool {
        self.0.iter().any(|(name, _)| **name == *"*")
    }

    /// Returns the total length of names and values, in bytes.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.as_ref().map_or(0, Vec::len)).sum()
    }
}

#[cfg(not(loom))]
impl Selection {
    /// Returns the fields and their values, for storage.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        self.0.iter().map(|(name, value)| (&**name, value.as_deref()))
    }

    /// Creates a selection from the output of [`Selection::lines`].
    pub(crate) fn from_lines(lines: Vec<(Box<str>, Option<Vec<u8>>)>) -> Self {
        Self(lines)
    }
}

/// Preference fields, whose members are unordered and case-insensitive (RFC 9110 §12.5).
const PREFERENCES: [&str; 3] = ["accept-charset", "accept-encoding", "accept-language"];

/// Returns a field's members, joined from all lines, without insignificant white space (§4.1). The
/// members of a preference field are also sorted and in lower case. Returns `None` if the field is
/// absent, which is different from empty.
fn normalised(request: &Fields, name: &str) -> Option<Vec<u8>> {
    if !request.contains(name) {
        return None;
    }
    if !PREFERENCES.contains(&name) {
        return Some(request.list(name).collect::<Vec<_>>().join(&b","[..]));
    }
    let lower = |member: &[u8]| {
        let solid = member.iter().filter(|byte| !matches!(byte, b' ' | b'\t'));
        solid.map(u8::to_ascii_lowercase).collect::<Vec<u8>>()
    };
    let mut members: Vec<Vec<u8>> = request.list(name).map(lower).collect();
    members.sort_unstable();
    members.dedup();
    Some(members.join(&b","[..]))
}

/// Returns when a response was generated according to `Date`, in Unix seconds; 0 if unknown. Of
/// several matching responses, the most recent one is used (§4.1).
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
    fn rfc9111_3_fresh_or_validatable_response_is_stored() {
        check(&[], 200, &[("Cache-Control", "max-age=1")], expect!["Yes"]);
        check(&[], 200, &[("ETag", "\"a\"")], expect!["Yes"]);
        check(&[], 200, &[("Cache-Control", "no-cache"), ("ETag", "\"a\"")], expect!["Yes"]);
        check(&[], 200, &[], expect![[r#"No("not-fresh")"#]]);
        check(&[], 404, &[("Cache-Control", "max-age=1")], expect!["Yes"]);
    }

    #[test]
    fn rfc9111_3_unshareable_response_is_not_stored() {
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
    fn rfc9111_3_status_not_understood_needs_a_lifetime() {
        check(&[], 599, &[("Cache-Control", "max-age=1")], expect!["Yes"]);
        check(&[], 599, &[("ETag", "\"a\"")], expect![[r#"No("not-fresh")"#]]);
        check(&[], 304, &[("Cache-Control", "max-age=1")], expect![[r#"No("status")"#]]);
    }

    #[test]
    fn rfc9111_5_2_2_3_must_understand_overrides_no_store() {
        let both = [("Cache-Control", "max-age=1, no-store, must-understand")];
        check(&[], 200, &both, expect!["Yes"]);
        check(&[], 599, &both, expect![[r#"No("status")"#]]);
    }

    #[test]
    fn rfc9111_5_2_2_4_and_7_named_fields_are_withheld_from_other_clients() {
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
        // An empty list applies to the whole response.
        check(&[], 200, &[("Cache-Control", "max-age=1, private=\"\"")], expect![[r#"No("private")"#]]);
    }

    #[test]
    fn rfc9111_3_5_authorization_requires_explicit_permission() {
        let request = [("Authorization", "Basic YTpi")];
        check(&request, 200, &[("Cache-Control", "max-age=1")], expect![[r#"NotThis("authorization")"#]]);
        check(&request, 200, &[("Cache-Control", "public, max-age=1")], expect!["Yes"]);
        check(&request, 200, &[("Cache-Control", "s-maxage=1")], expect!["Yes"]);
    }

    #[test]
    fn rfc9111_4_1_vary_compares_members_ignoring_white_space() {
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

    #[test]
    fn rfc9111_4_1_absent_field_differs_from_empty() {
        for name in ["X", "Accept-Encoding"] {
            let vary = fields(&[("Vary", name)]);
            let (absent, empty) = (fields(&[]), fields(&[(name, "")]));
            for (stored, other) in [(&absent, &empty), (&empty, &absent)] {
                let stored_for = Selection::of(stored, &vary);
                assert!(stored_for.matches(stored) && !stored_for.matches(other), "{name}: {stored:?}");
            }
        }
    }

    #[test]
    fn rfc9111_4_1_vary_star_on_any_line_matches_nothing() {
        for lines in [&[("Vary", "*")][..], &[("Vary", "A, *")], &[("Vary", "a,b"), ("vary", "c , *")]] {
            let selection = Selection::of(&fields(&[]), &fields(lines));
            assert!(selection.is_unmatchable() && !selection.matches(&fields(&[])), "{lines:?}");
            let all = [&[("Cache-Control", "max-age=1")], lines].concat();
            check(&[], 200, &all, expect![[r#"No("vary")"#]]);
        }
        assert!(!Selection::of(&fields(&[]), &fields(&[("Vary", "a*, *b")])).is_unmatchable());
    }
}
