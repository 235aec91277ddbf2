//! Buckets: requests to the S3 protocol (ListObjectsV2, GetObject) and their signatures.

use std::time::SystemTime;

use bytes::Bytes;
use hyper::header::RANGE;
use hyper::http::response::Parts;
use hyper::{Request, StatusCode, Uri};
use quick_xml::de;
use serde::Deserialize;
use thalweg_media::track::is_track_file;

use super::fetcher::Fetcher;
use super::listing::{Listed, encode, is_presentation_name, is_strong, kind_of};
use super::object::{DEPTH_MAX, OBJECTS_MAX};
use super::options::S3Options;
use super::pool::{Failure, FailureKind};
use super::sign::Sign;

/// Region without a setting.
const REGION: &str = "us-east-1";
/// Maximum pages of a listing, of 1000 entries each.
const PAGES_MAX: usize = 200;
/// Maximum length of a page, in bytes: 1000 keys of 1024 bytes, each of which may be escaped.
const PAGE_BYTES_MAX: usize = 16 << 20;

/// A bucket.
#[derive(Debug)]
pub(super) struct S3 {
    /// URL of the bucket, without a slash at its end.
    url: String,
    /// Start of the keys, empty or with a slash at its end.
    prefix: String,
    /// `None` for anonymous access.
    sign: Option<Sign>,
}

impl S3 {
    pub(super) fn new(bucket: &str, prefix: &str, options: &S3Options, fetcher: &Fetcher) -> S3 {
        let environment =
            || ["AWS_REGION", "AWS_DEFAULT_REGION"].iter().find_map(|name| std::env::var(name).ok());
        let region = options.region.clone().or_else(environment).unwrap_or_else(|| REGION.to_owned());
        let sign = (!options.is_anonymous).then(|| Sign::new(&region, fetcher.pool().clone()));
        S3 { url: bucket_url(bucket, &region, options), prefix: prefix.to_owned(), sign }
    }

    /// Returns a request for a range of an object.
    pub(super) fn get(&self, key: &str, range: &str) -> Result<Request<Bytes>, Failure> {
        let url = format!("{}/{}{}", self.url, encode(&self.prefix, true), encode(key, true));
        let request = Request::get(url).header(RANGE, range).body(Bytes::new());
        request.map_err(|error| Failure::new(FailureKind::Protocol, error.to_string()))
    }

    /// Adds the signature.
    pub(super) async fn sign(&self, request: Request<Bytes>) -> Result<Request<Bytes>, Failure> {
        match &self.sign {
            Some(sign) => sign.sign(request).await,
            None => Ok(request),
        }
    }

    /// Loads credentials again after the service refused them; returns whether to try again.
    pub(super) fn renew(&self) -> bool {
        self.sign.as_ref().is_some_and(Sign::renew)
    }

    /// Lists the presentations: the first segments of all keys.
    pub(super) async fn names(&self, fetcher: &Fetcher) -> Result<Vec<String>, Failure> {
        let mut names = Vec::new();
        self.list(fetcher, "", "/", |page| {
            let prefixes = page.common_prefixes.iter();
            names.extend(prefixes.filter_map(|it| {
                let name = it.prefix.strip_prefix(&self.prefix)?.strip_suffix('/')?;
                is_presentation_name(name).then(|| name.to_owned())
            }));
            true
        })
        .await?;
        Ok(names)
    }

    /// Lists the tracks of a presentation; `None` if no key is below its name.
    pub(super) async fn tracks(&self, fetcher: &Fetcher, name: &str) -> Result<Option<Vec<Listed>>, Failure> {
        let (mut tracks, mut is_known) = (Vec::new(), false);
        self.list(fetcher, &format!("{name}/"), "", |page| {
            is_known |= !page.contents.is_empty();
            let found = page.contents.into_iter().filter_map(|it| {
                let key = it.key.strip_prefix(&self.prefix)?.to_owned();
                is_track(&key).then(|| Listed {
                    key,
                    size: it.size,
                    modified: modified(&it.last_modified),
                    etag: it.etag.filter(|etag| is_strong(etag)),
                })
            });
            tracks.extend(found);
            tracks.len() <= OBJECTS_MAX
        })
        .await?;
        Ok(is_known.then_some(tracks))
    }

    /// Passes the pages of a listing to `each` until it returns false.
    async fn list(
        &self,
        fetcher: &Fetcher,
        below: &str,
        delimiter: &str,
        mut each: impl FnMut(Page) -> bool,
    ) -> Result<(), Failure> {
        let prefix = encode(&format!("{}{below}", self.prefix), false);
        let mut query = format!("list-type=2&prefix={prefix}");
        if !delimiter.is_empty() {
            query = format!("delimiter={}&{query}", encode(delimiter, false));
        }
        let mut next = String::new();
        for _ in 0..PAGES_MAX {
            let page = self.page(fetcher, &format!("{}/?{next}{query}", self.url)).await?;
            let token = page.next_continuation_token.clone().filter(|_| page.is_truncated);
            if !each(page) {
                return Ok(());
            }
            match token {
                Some(token) => next = format!("continuation-token={}&", encode(&token, false)),
                None => return Ok(()),
            }
        }
        Err(Failure::new(FailureKind::Protocol, format!("the listing has more than {PAGES_MAX} pages")))
    }

    async fn page(&self, fetcher: &Fetcher, url: &str) -> Result<Page, Failure> {
        let fault =
            |error: String| Failure::new(FailureKind::Protocol, format!("cannot list the bucket: {error}"));
        let mut is_renewed = false;
        let response = loop {
            let request = Request::get(url).body(Bytes::new()).map_err(|error| fault(error.to_string()))?;
            let request = self.sign(request).await?;
            match fetcher.fetch(&request, false, &accept_listing).await {
                Err(failure) if failure.kind == FailureKind::Credentials && !is_renewed && self.renew() => {
                    is_renewed = true;
                }
                outcome => break outcome?,
            }
        };
        let content = response.into_body().collect(PAGE_BYTES_MAX).await?;
        de::from_reader(&content[..]).map_err(|error| fault(error.to_string()))
    }
}

fn accept_listing(head: &Parts) -> Result<(), FailureKind> {
    match head.status {
        StatusCode::OK => Ok(()),
        status => Err(kind_of(status).unwrap_or(FailureKind::Protocol)),
    }
    .map_err(|kind| if kind == FailureKind::Changed { FailureKind::Protocol } else { kind })
}

fn bucket_url(bucket: &str, region: &str, options: &S3Options) -> String {
    let aws = format!("https://s3.{region}.amazonaws.com");
    let endpoint = options.endpoint.as_ref().map_or(aws, Uri::to_string);
    let endpoint = endpoint.trim_end_matches('/');
    // A certificate for *.s3.REGION.amazonaws.com does not match a bucket name with dots.
    match endpoint.split_once("://") {
        Some((scheme, host)) if !options.is_path_style && !bucket.contains('.') => {
            format!("{scheme}://{bucket}.{host}")
        }
        _ => format!("{endpoint}/{bucket}"),
    }
}

/// Returns whether a key is a track at an allowed depth below its presentation, without hidden
/// directories.
fn is_track(key: &str) -> bool {
    let Some((_, below)) = key.split_once('/') else { return false };
    let mut segments = below.split('/');
    segments.clone().count() <= DEPTH_MAX + 1
        && segments.next_back().is_some_and(is_track_file)
        && !segments.any(|segment| segment.starts_with('.') || segment.is_empty())
}

fn modified(text: &str) -> SystemTime {
    text.parse::<jiff::Timestamp>().map_or(SystemTime::UNIX_EPOCH, SystemTime::from)
}

/// A page of ListObjectsV2.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Page {
    #[serde(default)]
    is_truncated: bool,
    next_continuation_token: Option<String>,
    #[serde(default)]
    contents: Vec<Contents>,
    #[serde(default)]
    common_prefixes: Vec<CommonPrefix>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Contents {
    key: String,
    size: u64,
    last_modified: String,
    #[serde(rename = "ETag")]
    etag: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CommonPrefix {
    prefix: String,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic fails the test")]
mod tests {
    use super::*;

    #[test]
    fn pages_are_parsed() {
        let page: Page = de::from_reader(
            &br#"<?xml version="1.0" encoding="UTF-8"?>
            <ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name>
            <IsTruncated>true</IsTruncated><NextContinuationToken>a+b/=</NextContinuationToken>
            <Contents><LastModified>2026-11-24T15:20:58.000Z</LastModified><ETag>&quot;6a-1&quot;</ETag>
            <Key>lib/a &amp; b/v.mp4</Key><Size>5000000000</Size></Contents>
            <CommonPrefixes><Prefix>lib/c/</Prefix></CommonPrefixes></ListBucketResult>"#[..],
        )
        .unwrap();
        assert!(page.is_truncated);
        assert_eq!(page.next_continuation_token.unwrap(), "a+b/=");
        let [contents] = &page.contents[..] else { panic!("one key") };
        assert_eq!((contents.key.as_str(), contents.size), ("lib/a & b/v.mp4", 5_000_000_000));
        assert_eq!(contents.etag.as_deref(), Some("\"6a-1\""));
        assert_eq!(
            modified(&contents.last_modified).duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs(),
            1_795_533_658
        );
        assert_eq!(page.common_prefixes[0].prefix, "lib/c/");
    }

    #[test]
    fn buckets_are_in_the_host_or_in_the_path() {
        let url = |bucket: &str, endpoint: Option<&str>, is_path_style| {
            let endpoint = endpoint.map(|endpoint| endpoint.parse().unwrap());
            bucket_url(bucket, "eu-west-1", &S3Options { endpoint, is_path_style, ..S3Options::default() })
        };
        assert_eq!(url("films", None, false), "https://films.s3.eu-west-1.amazonaws.com");
        assert_eq!(url("films.example", None, false), "https://s3.eu-west-1.amazonaws.com/films.example");
        assert_eq!(url("films", Some("http://127.0.0.1:9000"), true), "http://127.0.0.1:9000/films");
        assert_eq!(url("films", Some("http://s3.example/"), false), "http://films.s3.example");
    }

    #[test]
    fn only_tracks_at_an_allowed_depth_are_listed() {
        for yes in ["a/v.mp4", "a/b/c/d/v.cmfv"] {
            assert!(is_track(yes), "{yes}");
        }
        for no in ["v.mp4", "a/b/c/d/e/v.mp4", "a/.b/v.mp4", "a/v.txt", "a//v.mp4", "a/"] {
            assert!(!is_track(no), "{no}");
        }
    }
}
