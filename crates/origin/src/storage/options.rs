//! Where presentations are stored, and how remote storage is accessed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Uri;

/// Minimum and maximum length of a bucket's name.
const BUCKET_LENGTHS: std::ops::RangeInclusive<usize> = 3..=63;

/// A library of presentations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MediaLocation {
    /// A directory; each of its subdirectories is a presentation.
    Directory(PathBuf),
    /// A bucket of an object storage service that speaks the S3 protocol.
    S3 {
        /// Name of the bucket.
        bucket: String,
        /// Start of the keys, empty or with a slash at its end.
        prefix: String,
    },
    /// A URL below which a web server has presentations. It ends in a slash.
    Http(Uri),
}

impl MediaLocation {
    /// Parses a directory, resolved against `base`, or a URL.
    ///
    /// # Errors
    ///
    /// Returns an error that states the expected form.
    pub fn parse(text: &str, base: &Path) -> Result<MediaLocation, String> {
        if let Some(rest) = text.strip_prefix("s3://") {
            return s3(rest).ok_or_else(|| {
                format!("{text:?} is not a bucket: write s3://BUCKET/PREFIX with the name of a bucket")
            });
        }
        if text.starts_with("http://") || text.starts_with("https://") {
            return http(text).ok_or_else(|| {
                format!("{text:?} is not a library: write https://HOST/PATH/ without a query")
            });
        }
        match text.split_once("://") {
            Some((scheme, _)) => Err(format!("{scheme}:// is not supported: write {}", Self::FORM)),
            None if text.is_empty() => Err("the path is empty".to_owned()),
            None => Ok(MediaLocation::Directory(base.join(text))),
        }
    }

    /// Forms of a location, for messages.
    pub const FORM: &'static str = "a directory, s3://BUCKET/PREFIX or https://HOST/PATH/";
}

fn s3(rest: &str) -> Option<MediaLocation> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    if !BUCKET_LENGTHS.contains(&bucket.len()) || !bucket.bytes().all(is_allowed) {
        return None;
    }
    let prefix = prefix.trim_matches('/');
    let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
    Some(MediaLocation::S3 { bucket: bucket.to_owned(), prefix })
}

fn http(text: &str) -> Option<MediaLocation> {
    let slash = if text.ends_with('/') { "" } else { "/" };
    let uri: Uri = format!("{text}{slash}").parse().ok()?;
    // The location is shown to clients and in logs, so it must not contain a password.
    let is_open = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    (is_open
        && uri.host().is_some_and(|host| !host.is_empty())
        && uri.query().is_none()
        && !text.contains('#'))
    .then_some(MediaLocation::Http(uri))
}

impl From<PathBuf> for MediaLocation {
    fn from(path: PathBuf) -> MediaLocation {
        MediaLocation::Directory(path)
    }
}

impl fmt::Display for MediaLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MediaLocation::Directory(path) => write!(f, "{}", path.display()),
            MediaLocation::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
            MediaLocation::Http(uri) => uri.fmt(f),
        }
    }
}

/// Access to remote storage.
#[derive(Debug, Clone)]
pub struct StorageOptions {
    /// Maximum time for which an idle connection is kept. Zero opens a connection for each request.
    pub idle: Duration,
    /// Maximum connections per server.
    pub connections_max: usize,
    /// Maximum wait for one of these connections.
    pub slot_timeout: Duration,
    /// Maximum time to open a connection, including name resolution and TLS.
    pub connect_timeout: Duration,
    /// Maximum time from the request to the head of its response.
    pub first_byte_timeout: Duration,
    /// Maximum pause within a response.
    pub between_bytes_timeout: Duration,
    /// PEM file with the authorities to trust; `None` for those of the system.
    pub ca: Option<PathBuf>,
    /// Access to S3.
    pub s3: S3Options,
}

impl Default for StorageOptions {
    fn default() -> StorageOptions {
        StorageOptions {
            idle: Duration::from_secs(4),
            connections_max: 256,
            slot_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(2),
            first_byte_timeout: Duration::from_secs(10),
            between_bytes_timeout: Duration::from_secs(10),
            ca: None,
            s3: S3Options::default(),
        }
    }
}

/// Access to S3.
#[derive(Debug, Clone, Default)]
pub struct S3Options {
    /// URL of the service; `None` for AWS.
    pub endpoint: Option<Uri>,
    /// Whether the bucket is in the path of URLs rather than in the host name.
    pub is_path_style: bool,
    /// Region of the bucket; `None` for that of the environment, or `us-east-1`.
    pub region: Option<String>,
    /// Whether requests are sent without a signature.
    pub is_anonymous: bool,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic fails the test")]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    #[test]
    fn locations_are_directories_buckets_and_urls() {
        fn check(text: &str, expected: &Expect) {
            let parsed = MediaLocation::parse(text, Path::new("/etc"));
            expected.assert_eq(&parsed.map_or_else(|fault| fault, |location| location.to_string()));
        }
        check("media", &expect!["/etc/media"]);
        check("/srv/media", &expect!["/srv/media"]);
        check("s3://films", &expect!["s3://films/"]);
        check("s3://films/vod//", &expect!["s3://films/vod/"]);
        check("https://a.example/films", &expect!["https://a.example/films/"]);
        let is_not =
            expect![[r#""s3:///vod" is not a bucket: write s3://BUCKET/PREFIX with the name of a bucket"#]];
        check("s3:///vod", &is_not);
        check(
            "https://a/?b",
            &expect![[r#""https://a/?b" is not a library: write https://HOST/PATH/ without a query"#]],
        );
        check(
            "gs://films",
            &expect!["gs:// is not supported: write a directory, s3://BUCKET/PREFIX or https://HOST/PATH/"],
        );
        check("", &expect!["the path is empty"]);
    }
}
