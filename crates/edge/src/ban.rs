//! Ban expressions: the fields they may use, and each field's value for a stored response.
//!
//! `req.url` and `req.http.host` are taken from the cache key, any other `req.http.NAME` from the
//! request that looks up the response.

use std::sync::Arc;

use thalweg_cache::{Ban, Predicate, Subject};
use thalweg_http::Fields;
use thalweg_http::name::Name;
use thalweg_policy::expression::{Error, Expression, Kind, Quantity, Record, Schema};
use thalweg_policy::value::Value;

use crate::clock::now_ms;

const NAMES: &str = "known fields: req.url, req.http.NAME, obj.status, obj.age, obj.http.NAME";

/// Compiles `text` into a ban on all matching responses stored before now.
///
/// # Errors
///
/// Returns an error if `text` is not a valid ban expression.
pub(crate) fn new(text: &str) -> Result<Ban, Error> {
    let compiled = Compiled::new(text)?;
    let text = compiled.0.as_str().to_owned();
    Ok(Ban::new(&text, Arc::new(compiled), now_ms()))
}

/// Compiles a ban loaded from an earlier run; `None` if it is invalid.
pub(crate) fn compile(text: &str) -> Option<Arc<dyn Predicate>> {
    Compiled::new(text).ok().map(|compiled| Arc::new(compiled) as _)
}

/// Checks that `text` is a valid ban expression.
///
/// # Errors
///
/// Returns an error if `text` is not a valid ban expression.
pub fn check_ban(text: &str) -> Result<(), Error> {
    Compiled::new(text).map(drop)
}

#[derive(Debug)]
enum Field {
    Url,
    Host,
    Status,
    Age,
    Request(Name),
    Response(Name),
}

struct Names;

#[derive(Debug)]
struct Compiled(Expression<Field>);

struct Found<'s, 'a>(&'s Subject<'a>);

impl Compiled {
    fn new(text: &str) -> Result<Self, Error> {
        // The current time is irrelevant, because no ban field is a point in time.
        Expression::compile(text, &Names, 0).map(Self)
    }
}

impl Schema for Names {
    type Field = Field;

    fn find(&self, name: &str) -> Option<(Field, Kind)> {
        let header = |scope: &str| {
            let named = name.get(..scope.len()).is_some_and(|start| start.eq_ignore_ascii_case(scope));
            named.then(|| Name::new(&name[scope.len()..])).flatten()
        };
        Some(match name {
            "req.url" => (Field::Url, Kind::Text),
            "obj.status" => (Field::Status, Kind::Number(Quantity::count("a status code such as 404"))),
            "obj.age" => {
                (Field::Age, Kind::Number(Quantity::seconds("an age such as 90, 90s, 15m, 2h or 1d")))
            }
            _ if name.eq_ignore_ascii_case("req.http.host") => (Field::Host, Kind::Text),
            _ => match (header("req.http."), header("obj.http.")) {
                (Some(name), _) => (Field::Request(name), Kind::Text),
                (None, Some(name)) => (Field::Response(name), Kind::Text),
                (None, None) => return None,
            },
        })
    }

    fn advice(&self, _: &str) -> String {
        NAMES.to_owned()
    }

    fn needs_comparison(&self, field: &Field) -> bool {
        !matches!(field, Field::Request(_) | Field::Response(_))
    }
}

impl Record<Field> for Found<'_, '_> {
    fn any(&self, field: &Field, test: &mut dyn FnMut(&Value<'_>) -> bool) -> bool {
        let Self(subject) = self;
        let header = |fields: &Fields, name| fields.get_joined(name).map(std::borrow::Cow::into_owned);
        let text = match field {
            Field::Url => return test(&Value::text(subject.url)),
            Field::Host => return test(&Value::text(subject.host)),
            Field::Status => return test(&Value::Int(i64::from(subject.status))),
            Field::Age => return test(&Value::Int(i64::try_from(subject.age_s).unwrap_or(i64::MAX))),
            Field::Request(name) => subject.request.and_then(|fields| header(fields, name)),
            Field::Response(name) => subject.fields.into_iter().find_map(|fields| header(fields, name)),
        };
        text.is_some_and(|text| test(&Value::owned(text)))
    }
}

impl Predicate for Compiled {
    fn has_age(&self) -> bool {
        self.0.names(|field| matches!(field, Field::Age))
    }

    fn needs_request(&self) -> bool {
        self.0.names(|field| matches!(field, Field::Request(_)))
    }

    fn matches(&self, subject: &Subject<'_>) -> bool {
        // If a regular expression exceeds its limits, assume a match: refetching is better than
        // serving banned content.
        self.0.holds(&Found(subject)).unwrap_or(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(text: &str) -> bool {
        let fields: Fields =
            [("Content-Type", "video/mp4"), ("X-A", "1"), ("x-a", "2")].into_iter().collect();
        let request: Fields = [("X-Device", "tv")].into_iter().collect();
        let subject = Subject {
            host: "media.example",
            url: "/live/a.mp4?b=\"c\"",
            status: 404,
            fields: [&fields, &Fields::new()],
            age_s: 100,
            request: Some(&request),
        };
        Compiled::new(text).unwrap_or_else(|error| panic!("{error}")).matches(&subject)
    }

    #[test]
    fn bans_match_the_named_fields() {
        for (text, expected) in [
            (r#"req.url ~ "^/live/" && obj.http.content-type == "video/mp4""#, true),
            (r#"req.url ~ "^/live/" && obj.http.content-type == "video/mp2t""#, false),
            ("req.http.host == media.example && req.url !~ ^/vod/ && obj.status != 200", true),
            (r#"req.url ~ "\.mp4\?b=\"c\"$""#, true),
            (r#"req.url ~ "[.]MP4""#, false),
            (r#"req.url ~ "(?i)[.]MP4""#, true),
            ("obj.http.x-a == \"1, 2\"", true),
            ("req.http.x-device == tv && req.http.x-other != tv", true),
            ("REQ.HTTP.Host == media.example && req.http.x-device ~ ^d", false),
            ("obj.status >= 400 && obj.status < 500", true),
            ("obj.status > 404", false),
            ("obj.age > 1m && obj.age <= 100s && obj.age < 1d && obj.age < 1w", true),
            ("obj.age < 100 || obj.age >= 2h", false),
            // An absent field is unequal to any value and matches no regular expression.
            ("obj.http.x-b == \"\"", false),
            ("obj.http.x-b ~ .", false),
            ("obj.http.x-b != a && obj.http.x-b !~ a", true),
        ] {
            assert_eq!(matches(text), expected, "{text}");
        }
    }

    #[test]
    fn dependence_on_request_and_age_is_detected() {
        let of = |text: &str| {
            let compiled = Compiled::new(text).unwrap_or_else(|error| panic!("{error}"));
            (compiled.has_age(), compiled.needs_request())
        };
        assert_eq!(of("req.url == /a && req.http.host == h && obj.http.b == c"), (false, false));
        assert_eq!(of("obj.status == 200 && !(obj.age < 5)"), (true, false));
        assert_eq!(of("obj.status == 200 && req.http.b ~ c"), (false, true));
    }

    #[test]
    fn error_names_position_and_alternatives() {
        let error_of = |text: &str| Compiled::new(text).map(drop).expect_err("an invalid ban").to_string();
        assert_eq!(
            error_of("req.url ~ a && req.method == GET"),
            format!("column 16: unknown field req.method; {NAMES}")
        );
        assert_eq!(
            error_of("obj.http.a && req.url"),
            "column 15: every response has req.url: compare it with a value"
        );
        assert_eq!(
            error_of("obj.status ~ 4"),
            "column 12: obj.status does not support ~; it supports == != < <= > >="
        );
        assert_eq!(
            error_of("obj.age > 3x"),
            "column 11: compare obj.age with an age such as 90, 90s, 15m, 2h or 1d; \
             units: ms, s, m, h, d, w, y"
        );
    }
}
