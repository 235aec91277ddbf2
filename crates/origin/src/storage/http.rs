//! Web servers: files below a URL, with ranges.
//!
//! HTTP has no listings, so each directory needs one: either the one that nginx sends with
//! `autoindex_format json`, or a file `tracks.txt`. That file names one file per line, relative to
//! its directory; a subdirectory ends in a slash, and lines that begin with `#` are comments.
//!
//! A file's version is its strong entity tag or, without one, its Last-Modified and size.

use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use hyper::header::{ACCEPT, CONTENT_LENGTH, ETAG, HeaderName, LAST_MODIFIED, RANGE};
use hyper::http::response::Parts;
use hyper::{Request, StatusCode, Uri};
use serde::Deserialize;
use std::time::{Duration, SystemTime};
use thalweg_http::date;
use thalweg_media::track::is_track_file;

use super::fetcher::Fetcher;
use super::listing::{Listed, encode, is_presentation_name, is_strong, kind_of};
use super::object::{DEPTH_MAX, OBJECTS_MAX};
use super::pool::{Failure, FailureKind};

/// Name of the file that lists a directory.
const LISTING: &str = "tracks.txt";
/// Maximum length of a listing, in bytes.
const LISTING_BYTES_MAX: usize = 16 << 20;

/// A web server.
#[derive(Debug)]
pub(super) struct Http {
    /// URL with a slash at its end.
    base: String,
}

/// An entry of nginx's JSON listing.
#[derive(Debug, Deserialize)]
struct Entry {
    name: String,
    #[serde(rename = "type")]
    kind: String,
}

impl Http {
    pub(super) fn new(base: &Uri) -> Http {
        Http { base: base.to_string() }
    }

    /// Returns a request for a range of a file.
    pub(super) fn get(&self, key: &str, range: &str) -> Result<Request<Bytes>, Failure> {
        request("GET", &self.url(key), RANGE, range)
    }

    /// Lists the presentations: the subdirectories.
    pub(super) async fn names(&self, fetcher: &Fetcher) -> Result<Vec<String>, Failure> {
        let Some(entries) = self.list(fetcher, "").await? else {
            let message =
                format!("the server has no listing: enable autoindex_format json, or add {LISTING}");
            return Err(Failure::new(FailureKind::Protocol, message));
        };
        let names = entries.iter().filter_map(|entry| entry.strip_suffix('/'));
        Ok(names.filter(|name| is_presentation_name(name)).map(str::to_owned).collect())
    }

    /// Lists the tracks of a presentation; `None` if its directory has no listing.
    pub(super) async fn tracks(&self, fetcher: &Fetcher, name: &str) -> Result<Option<Vec<Listed>>, Failure> {
        let mut level = vec![format!("{name}/")];
        let (mut keys, mut is_known) = (Vec::new(), false);
        for _ in 0..=DEPTH_MAX {
            let listings = try_join_all(level.iter().map(|directory| self.list(fetcher, directory))).await?;
            let mut below = Vec::new();
            for (directory, entries) in level.iter().zip(listings) {
                is_known |= entries.is_some();
                for entry in entries.into_iter().flatten().map(|entry| format!("{directory}{entry}")) {
                    if entry.ends_with('/') {
                        below.push(entry);
                    } else if entry.rsplit('/').next().is_some_and(is_track_file) {
                        keys.push(entry);
                    }
                }
            }
            if keys.len() > OBJECTS_MAX || below.len() > OBJECTS_MAX {
                let message = format!("more than {OBJECTS_MAX} tracks or directories");
                return Err(Failure::new(FailureKind::Protocol, message));
            }
            level = below;
        }
        let described = join_all(keys.into_iter().map(|key| self.describe(fetcher, key))).await;
        let described: Result<Vec<Option<Listed>>, Failure> = described.into_iter().collect();
        Ok(is_known.then_some(described?.into_iter().flatten().collect()))
    }

    /// Returns the size and version of a file, or `None` if it is gone.
    async fn describe(&self, fetcher: &Fetcher, key: String) -> Result<Option<Listed>, Failure> {
        let request = request("HEAD", &self.url(&key), ACCEPT, "*/*")?;
        let (head, _) = fetcher.fetch(&request, false, &accept_gone).await?.into_parts();
        if head.status != StatusCode::OK {
            return Ok(None);
        }
        let field = |name: HeaderName| head.headers.get(name)?.to_str().ok();
        let fault = |what: &str| Failure::new(FailureKind::Protocol, format!("the server sends no {what}"));
        let size = field(CONTENT_LENGTH).and_then(|size| size.parse().ok());
        let size = size.ok_or_else(|| fault("Content-Length"))?;
        let modified_s = field(LAST_MODIFIED).and_then(|time| date::parse(time.as_bytes()));
        let etag = field(ETAG).filter(|etag| is_strong(etag)).map(str::to_owned);
        if etag.is_none() && modified_s.is_none() {
            return Err(fault("ETag or Last-Modified, so that changes would go unnoticed"));
        }
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(modified_s.unwrap_or(0));
        Ok(Some(Listed { key, size, modified, etag }))
    }

    /// Lists a directory, whose path is empty or ends in a slash. Subdirectories end in a slash.
    async fn list(&self, fetcher: &Fetcher, directory: &str) -> Result<Option<Vec<String>>, Failure> {
        let index = self.read(fetcher, directory).await?;
        if let Some(entries) = index.and_then(|index| serde_json::from_slice::<Vec<Entry>>(&index).ok()) {
            let names = entries.into_iter().map(|entry| {
                let slash = if entry.kind == "directory" { "/" } else { "" };
                format!("{}{slash}", entry.name)
            });
            return Ok(Some(names.filter(|name| is_entry(name)).collect()));
        }
        let text = self.read(fetcher, &format!("{directory}{LISTING}")).await?;
        Ok(text.map(|text| {
            let text = String::from_utf8_lossy(&text).into_owned();
            let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
            lines.filter(|line| is_entry(line)).map(str::to_owned).collect()
        }))
    }

    /// Reads a listing, or `None` if the server does not have or show it.
    async fn read(&self, fetcher: &Fetcher, path: &str) -> Result<Option<Bytes>, Failure> {
        let request = request("GET", &self.url(path), ACCEPT, "application/json, text/plain")?;
        let (head, content) = fetcher.fetch(&request, false, &accept_absent).await?.into_parts();
        let content = content.collect(LISTING_BYTES_MAX).await?;
        Ok((head.status == StatusCode::OK).then_some(content))
    }

    fn url(&self, path: &str) -> String {
        format!("{}{}", self.base, encode(path, true))
    }
}

fn request(method: &str, url: &str, name: HeaderName, value: &str) -> Result<Request<Bytes>, Failure> {
    let request = Request::builder().method(method).uri(url).header(name, value).body(Bytes::new());
    request.map_err(|error| Failure::new(FailureKind::Protocol, error.to_string()))
}

/// Accepts a file that is absent or not shown.
/// Accepts the head of a file's description. A refusal may pass, and is no reason to leave a track
/// out.
fn accept_gone(head: &Parts) -> Result<(), FailureKind> {
    match head.status {
        StatusCode::FORBIDDEN => Err(FailureKind::Denied),
        _ => accept_absent(head),
    }
}

fn accept_absent(head: &Parts) -> Result<(), FailureKind> {
    match head.status {
        StatusCode::OK | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND | StatusCode::GONE => Ok(()),
        status => Err(kind_of(status).unwrap_or(FailureKind::Protocol)),
    }
}

/// Returns whether a listed name is a path below the directory, without hidden segments.
fn is_entry(name: &str) -> bool {
    let path = name.strip_suffix('/').unwrap_or(name);
    path.split('/').all(is_presentation_name)
}

#[cfg(test)]
mod tests {
    use super::is_entry;

    #[test]
    fn entries_are_below_their_directory() {
        for yes in ["v.mp4", "hd/", "hd/v.mp4", "é $.mp4"] {
            assert!(is_entry(yes), "{yes}");
        }
        for no in ["", "/", "/v.mp4", "..", "../v.mp4", "a/../v.mp4", ".hidden", "a//v.mp4", "a\\v.mp4"] {
            assert!(!is_entry(no), "{no}");
        }
    }
}
