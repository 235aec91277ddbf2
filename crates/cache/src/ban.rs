//! Ban predicates: select stored responses for removal by their properties rather than by key.
//!
//! The caller defines the ban language. The cache stores a [`Predicate`] with its source text and
//! evaluates it against a [`Subject`]. Source texts stored by an earlier process are recompiled
//! with a [`Compile`] function.

use std::fmt;
use std::sync::Arc;

use thalweg_http::Fields;

/// The response, and the request if any, against which a predicate is evaluated.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Host and port of the request.
    pub host: &'a str,
    /// Path and query of the request.
    pub url: &'a str,
    /// Status code.
    pub status: u16,
    /// Response fields.
    pub fields: [&'a Fields; 2],
    /// Age of the response when the ban was created, in seconds.
    pub age_s: u64,
    /// Fields of the request whose look-up found the response. Always set if the predicate depends
    /// on request fields.
    pub request: Option<&'a Fields>,
}

/// A compiled ban expression.
pub trait Predicate: fmt::Debug + Send + Sync {
    /// Returns whether the predicate depends on the response's age, and therefore on when the ban
    /// was created.
    fn has_age(&self) -> bool;

    /// Returns whether the predicate depends on request fields. Only a look-up can evaluate such a
    /// predicate.
    fn needs_request(&self) -> bool;

    /// Returns whether the predicate matches `subject`.
    fn matches(&self, subject: &Subject<'_>) -> bool;
}

/// Function that compiles a ban expression, or returns `None` if it is invalid.
pub type Compile = fn(&str) -> Option<Arc<dyn Predicate>>;

/// Predicates for tests, compiled from texts such as `obj.status == 404`.
#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Conditions joined by `&&`, each `NAME == VALUE`.
    #[derive(Debug)]
    struct Conditions(Vec<(String, String)>);

    impl Predicate for Conditions {
        fn has_age(&self) -> bool {
            self.0.iter().any(|(name, _)| name == "obj.age")
        }

        fn needs_request(&self) -> bool {
            self.0.iter().any(|(name, _)| name == "req.http.x")
        }

        fn matches(&self, subject: &Subject<'_>) -> bool {
            let value = |name: &str| match name {
                "req.http.host" => Some(subject.host.to_owned()),
                "req.url" => Some(subject.url.to_owned()),
                "obj.status" => Some(subject.status.to_string()),
                "obj.age" => Some(subject.age_s.to_string()),
                "req.http.x" => subject.request?.get_str("x").map(str::to_owned),
                name => {
                    let name = name.strip_prefix("obj.http.")?;
                    subject.fields.iter().find_map(|fields| fields.get_str(name)).map(str::to_owned)
                }
            };
            self.0.iter().all(|(name, wanted)| value(name).as_ref() == Some(wanted))
        }
    }

    pub(crate) fn compile(text: &str) -> Option<Arc<dyn Predicate>> {
        let conditions = text.split(" && ").map(|condition| {
            let (name, value) = condition.split_once(" == ")?;
            let is_known = name.starts_with("obj.") || name.starts_with("req.");
            is_known.then(|| (name.to_owned(), value.trim_matches('"').to_owned()))
        });
        Some(Arc::new(Conditions(conditions.collect::<Option<_>>()?)))
    }

    pub(crate) fn ban(text: &str, made_ms: u64) -> crate::Ban {
        crate::Ban::new(text, compile(text).expect("the expression is valid"), made_ms)
    }
}
