//! Purges as they are asked for: by the method `PURGE` from a client that may, or over the admin interface.
//!
//! `PURGE` has no standard. What Varnish's and Fastly's users send is understood: the URL of the request, or the tags in
//! its `Surrogate-Key` or `xkey`; soft with `Soft-Purge: 1`, `Fastly-Soft-Purge: 1`, or tags in `xkey-softpurge`.

use std::sync::Arc;

use serde_json::{Value, json};
use thalweg_cache::tags::{tags, xkeys};
use thalweg_cache::{Cache, TooMany, What};
use thalweg_http::{Authority, Fields, target};

use crate::now_ms;
use crate::request::write_key;

/// What is to be purged.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    what: Vec<(Named, Mode)>,
}

#[derive(Debug, PartialEq, Eq)]
enum Named {
    Key(Box<str>),
    Tag(Box<[u8]>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Hard,
    Soft,
}

impl Order {
    /// What a `PURGE` request with `fields` for `key` asks for.
    pub(crate) fn from_request(fields: &Fields, key: &str) -> Self {
        let is_set = |name| fields.get(name).is_some_and(|value| value != b"0");
        let soft = is_set("soft-purge") || is_set("fastly-soft-purge");
        let mode = if soft { Mode::Soft } else { Mode::Hard };
        let tag = |mode| move |tag: &[u8]| (Named::Tag(tag.into()), mode);
        let mut what: Vec<_> = tags([fields]).map(tag(mode)).collect();
        what.extend(fields.get_all("xkey-softpurge").flat_map(xkeys).map(tag(Mode::Soft)));
        if what.is_empty() {
            what.push((Named::Key(key.into()), mode));
        }
        Self { what }
    }

    /// What a request to the admin interface asks for: `url`, `urls`, `tag`, `tags`, `soft`, in its query or in a JSON
    /// object.
    ///
    /// # Errors
    /// What is wrong with it, in words for the client.
    pub(crate) fn from_admin(query: &str, content: &[u8]) -> Result<Self, String> {
        let mut asked = Asked::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value =
                target::decode(&value.replace('+', " ")).and_then(|text| String::from_utf8(text).ok());
            let value = value.ok_or_else(|| format!("{name}: the value is not UTF-8, percent-encoded"))?;
            asked.take(name, &Value::String(value))?;
        }
        if !content.is_empty() {
            let object = serde_json::from_slice(content).map_err(|error| format!("not JSON: {error}"))?;
            let Value::Object(members) = object else { return Err("not a JSON object".into()) };
            members.iter().try_for_each(|(name, value)| asked.take(name, value))?;
        }
        if asked.named.is_empty() {
            return Err("nothing to purge: give url, urls, tag or tags".into());
        }
        let mode = if asked.soft { Mode::Soft } else { Mode::Hard };
        Ok(Self { what: asked.named.into_iter().map(|named| (named, mode)).collect() })
    }

    /// Does it, on a thread that may wait for the journal of the disk tier. Says how many responses there were, where
    /// that is known: not with tags.
    ///
    /// # Errors
    /// When too many purges are in force; some of this may have been done.
    pub(crate) async fn carry_out(self, cache: &Arc<Cache>) -> Result<Option<usize>, TooMany> {
        in_background(cache, |cache| self.carry_out_here(cache)).await
    }

    fn carry_out_here(self, cache: &Cache) -> Result<Option<usize>, TooMany> {
        let mut count = Some(0);
        for (named, mode) in self.what {
            let soft_ms = (mode == Mode::Soft).then(now_ms);
            let what = match named {
                Named::Key(key) => What::Url(key),
                Named::Tag(tag) => What::Tag(tag),
            };
            let purged = cache.purge(what, soft_ms)?;
            count = count.zip(purged).map(|(count, purged)| count + purged);
        }
        Ok(count)
    }
}

/// Does something to `cache` that may wait for the disk.
pub(crate) async fn in_background<T: Send + 'static>(
    cache: &Arc<Cache>,
    work: impl FnOnce(&Cache) -> T + Send + 'static,
) -> T {
    let cache = cache.clone();
    tokio::task::spawn_blocking(move || work(&cache)).await.expect("a purge does not panic")
}

/// The answer to a purge that was done.
pub(crate) fn done(count: Option<usize>) -> String {
    json!({"status": "ok", "purged": count}).to_string()
}

/// What the admin interface was asked, member by member.
#[derive(Default)]
struct Asked {
    named: Vec<Named>,
    soft: bool,
}

impl Asked {
    fn take(&mut self, name: &str, value: &Value) -> Result<(), String> {
        let values = match value {
            Value::Array(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        for value in values {
            match (name, value) {
                ("url" | "urls", Value::String(url)) => self.named.push(Named::Key(key_of(url)?)),
                ("tag" | "tags", Value::String(tags)) => {
                    self.named.extend(xkeys(tags.as_bytes()).map(|tag| Named::Tag(tag.into())));
                }
                ("soft", Value::Bool(soft)) => self.soft = *soft,
                ("soft", Value::String(text)) => self.soft = !matches!(text.as_str(), "0" | "false"),
                ("url" | "urls" | "tag" | "tags", _) => {
                    return Err(format!("{name}: a string or a list of strings"));
                }
                ("soft", _) => return Err("soft: true or false".into()),
                _ => return Err(format!("{name} is not known; known are url, urls, tag, tags, soft")),
            }
        }
        Ok(())
    }
}

/// The key of a URL, whose scheme may be absent.
fn key_of(url: &str) -> Result<Box<str>, String> {
    if let Some((scheme, _)) =
        url.split_once("://").filter(|(scheme, _)| !matches!(*scheme, "http" | "https"))
    {
        return Err(format!("{url}: {scheme} is not served here"));
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

    fn text(order: &Order) -> String {
        let text = |(named, mode): &(Named, Mode)| match named {
            Named::Key(key) => format!("{mode:?} url {key}"),
            Named::Tag(tag) => format!("{mode:?} tag {}", String::from_utf8_lossy(tag)),
        };
        order.what.iter().map(text).collect::<Vec<_>>().join(", ")
    }

    fn check_request(fields: &[(&str, &str)], expect: Expect) {
        let fields: Fields = fields.iter().copied().collect();
        expect.assert_eq(&text(&Order::from_request(&fields, "a/b")));
    }

    fn check_admin(query: &str, content: &str, expect: Expect) {
        let said = Order::from_admin(query, content.as_bytes());
        expect.assert_eq(&said.map_or_else(|error| error, |order| text(&order)));
    }

    #[test]
    fn a_request_names_its_url_or_tags() {
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
    fn the_admin_interface_takes_a_query_or_json() {
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
        check_admin("", "", expect!["nothing to purge: give url, urls, tag or tags"]);
        check_admin("soft", "", expect!["nothing to purge: give url, urls, tag or tags"]);
        check_admin("uri=a", "", expect!["uri is not known; known are url, urls, tag, tags, soft"]);
        check_admin("", "[]", expect!["not a JSON object"]);
        check_admin("", r#"{"url": 1}"#, expect!["url: a string or a list of strings"]);
        check_admin("url=/a", "", expect!["/a: host is empty"]);
        check_admin("url=a/../b", "", expect!["a/../b: path has a dot segment"]);
    }
}
