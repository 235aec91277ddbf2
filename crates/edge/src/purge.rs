//! Purge requests: the method `PURGE` from an authorised client, or a request to the admin
//! interface.
//!
//! `PURGE` is not standardised. As in Varnish and Fastly, it purges the request URL, or the tags in
//! `Surrogate-Key` or `xkey`. `Soft-Purge: 1`, `Fastly-Soft-Purge: 1` or tags in `xkey-softpurge`
//! make it a soft purge.

use std::sync::Arc;

use serde_json::{Value, json};
use thalweg_cache::tags::{tags, xkeys};
use thalweg_cache::{Cache, PurgeScope, TooManyPurges};
use thalweg_http::{Authority, Fields, target};

use crate::clock::now_ms;
use crate::key::write_key;

/// Keys and tags to purge.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PurgeRequest {
    what: Vec<(PurgeTarget, Mode)>,
}

#[derive(Debug, PartialEq, Eq)]
enum PurgeTarget {
    Key(Box<str>),
    Tag(Box<[u8]>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Hard,
    Soft,
}

impl PurgeRequest {
    /// Creates a hard purge of everything stored under `key`.
    pub(crate) fn of_key(key: &str) -> Self {
        Self { what: vec![(PurgeTarget::Key(key.into()), Mode::Hard)] }
    }

    /// Parses a `PURGE` request for `key` with `fields`.
    pub(crate) fn from_request(fields: &Fields, key: &str) -> Self {
        let is_set = |name| fields.get(name).is_some_and(|value| value != b"0");
        let soft = is_set("soft-purge") || is_set("fastly-soft-purge");
        let mode = if soft { Mode::Soft } else { Mode::Hard };
        let tag = |mode| move |tag: &[u8]| (PurgeTarget::Tag(tag.into()), mode);
        let mut what: Vec<_> = tags([fields]).map(tag(mode)).collect();
        what.extend(fields.get_all("xkey-softpurge").flat_map(xkeys).map(tag(Mode::Soft)));
        if what.is_empty() {
            what.push((PurgeTarget::Key(key.into()), mode));
        }
        Self { what }
    }

    /// Parses an admin request: `url`, `urls`, `tag`, `tags` and `soft`, in the query or in a JSON
    /// object.
    ///
    /// # Errors
    ///
    /// Returns an error message for the client if the request is invalid.
    pub(crate) fn from_admin(query: &str, content: &[u8]) -> Result<Self, String> {
        let mut request = AdminRequest::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value =
                target::decode(&value.replace('+', " ")).and_then(|text| String::from_utf8(text).ok());
            let value = value.ok_or_else(|| format!("{name}: must be percent-encoded UTF-8"))?;
            request.add_member(name, &Value::String(value))?;
        }
        if !content.is_empty() {
            let object =
                serde_json::from_slice(content).map_err(|error| format!("content must be JSON: {error}"))?;
            let Value::Object(members) = object else { return Err("content must be a JSON object".into()) };
            members.iter().try_for_each(|(name, value)| request.add_member(name, value))?;
        }
        if request.named.is_empty() {
            return Err("nothing to purge: expected url, urls, tag or tags".into());
        }
        let mode = if request.soft { Mode::Soft } else { Mode::Hard };
        Ok(Self { what: request.named.into_iter().map(|named| (named, mode)).collect() })
    }

    /// Executes the purge on a blocking thread, because it may wait for the disk tier's journal.
    /// Returns the number of purged responses, or `None` if tags are purged, for which the number
    /// is unknown.
    ///
    /// # Errors
    ///
    /// Returns an error if too many purges are in force; some targets may already be purged.
    pub(crate) async fn execute(self, cache: &Arc<Cache>) -> Result<Option<usize>, TooManyPurges> {
        run_blocking(cache, |cache| self.execute_blocking(cache)).await
    }

    fn execute_blocking(self, cache: &Cache) -> Result<Option<usize>, TooManyPurges> {
        let mut count = Some(0);
        for (named, mode) in self.what {
            let soft_ms = (mode == Mode::Soft).then(now_ms);
            let what = match named {
                PurgeTarget::Key(key) => PurgeScope::Url(key),
                PurgeTarget::Tag(tag) => PurgeScope::Tag(tag),
            };
            let purged = cache.purge(what, soft_ms)?;
            count = count.zip(purged).map(|(count, purged)| count + purged);
        }
        Ok(count)
    }
}

/// Runs `work`, which may wait for the disk, on a blocking thread.
pub(crate) async fn run_blocking<T: Send + 'static>(
    cache: &Arc<Cache>,
    work: impl FnOnce(&Cache) -> T + Send + 'static,
) -> T {
    let cache = cache.clone();
    tokio::task::spawn_blocking(move || work(&cache)).await.expect("a purge does not panic")
}

/// Formats the reply to a completed purge.
pub(crate) fn reply(count: Option<usize>) -> Value {
    json!({"status": "ok", "purged": count})
}

/// An admin request under construction, one member at a time.
#[derive(Default)]
struct AdminRequest {
    named: Vec<PurgeTarget>,
    soft: bool,
}

impl AdminRequest {
    fn add_member(&mut self, name: &str, value: &Value) -> Result<(), String> {
        let values = match value {
            Value::Array(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        for value in values {
            match (name, value) {
                ("url" | "urls", Value::String(url)) => self.named.push(PurgeTarget::Key(key_of(url)?)),
                ("tag" | "tags", Value::String(tags)) => {
                    self.named.extend(xkeys(tags.as_bytes()).map(|tag| PurgeTarget::Tag(tag.into())));
                }
                ("soft", Value::Bool(soft)) => self.soft = *soft,
                ("soft", Value::String(text)) => self.soft = !matches!(text.as_str(), "0" | "false"),
                ("url" | "urls" | "tag" | "tags", _) => {
                    return Err(format!("{name}: must be a string or a list of strings"));
                }
                ("soft", _) => return Err("soft: must be true or false".into()),
                _ => return Err(format!("unknown member {name} (expected url, urls, tag, tags or soft)")),
            }
        }
        Ok(())
    }
}

/// Returns the cache key of a URL; the scheme is optional.
fn key_of(url: &str) -> Result<Box<str>, String> {
    if let Some((scheme, _)) =
        url.split_once("://").filter(|(scheme, _)| !matches!(*scheme, "http" | "https"))
    {
        return Err(format!("{url}: scheme must be http or https, got {scheme}"));
    }
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")).unwrap_or(url);
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let authority = Authority::parse(authority.as_bytes()).map_err(|error| format!("{url}: {error}"))?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    target::check(&path).map_err(|error| format!("{url}: {error}"))?;
    let mut key = String::new();
    write_key(&authority, &path, &mut key);
    Ok(key.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn text(order: &PurgeRequest) -> String {
        let text = |(named, mode): &(PurgeTarget, Mode)| match named {
            PurgeTarget::Key(key) => format!("{mode:?} url {key}"),
            PurgeTarget::Tag(tag) => format!("{mode:?} tag {}", String::from_utf8_lossy(tag)),
        };
        order.what.iter().map(text).collect::<Vec<_>>().join(", ")
    }

    fn check_request(fields: &[(&str, &str)], expect: Expect) {
        let fields: Fields = fields.iter().copied().collect();
        expect.assert_eq(&text(&PurgeRequest::from_request(&fields, "a/b")));
    }

    fn check_admin(query: &str, content: &str, expect: Expect) {
        let parsed = PurgeRequest::from_admin(query, content.as_bytes());
        expect.assert_eq(&parsed.map_or_else(|error| error, |order| text(&order)));
    }

    #[test]
    fn request_names_url_or_tags() {
        check_request(&[], expect!["Hard url a/b"]);
        check_request(&[("Soft-Purge", "1")], expect!["Soft url a/b"]);
        check_request(&[("Soft-Purge", "0")], expect!["Hard url a/b"]);
        check_request(
            &[("Surrogate-Key", "a b"), ("xkey", "c,d")],
            expect!["Hard tag a, Hard tag b, Hard tag c, Hard tag d"],
        );
        check_request(&[("xkey", "a"), ("Fastly-Soft-Purge", "1")], expect!["Soft tag a"]);
        check_request(&[("xkey-softpurge", "a b")], expect!["Soft tag a, Soft tag b"]);
    }

    #[test]
    fn admin_interface_accepts_query_or_json() {
        check_admin(
            "url=http%3A%2F%2FA.example%2fb&tag=c+d&soft=1",
            "",
            expect!["Soft url a.example/b, Soft tag c, Soft tag d"],
        );
        check_admin(
            "",
            r#"{"urls": ["a/%7eb?c", "a:81"], "tags": ["c"]}"#,
            expect!["Hard tag c, Hard url a/~b?c, Hard url a:81/"],
        );
        check_admin("", "", expect!["nothing to purge: expected url, urls, tag or tags"]);
        check_admin("soft", "", expect!["nothing to purge: expected url, urls, tag or tags"]);
        check_admin("uri=a", "", expect!["unknown member uri (expected url, urls, tag, tags or soft)"]);
        check_admin("", "[]", expect!["content must be a JSON object"]);
        check_admin("", r#"{"url": 1}"#, expect!["url: must be a string or a list of strings"]);
        check_admin("url=/a", "", expect!["/a: host is empty"]);
        check_admin("url=a/../b", "", expect!["a/../b: path contains a dot segment"]);
    }
}
