//! Libraries reached over HTTP: listings, and ranged reads of one version of an object.
//!
//! Each read names the version that was listed: with `If-Match` and the strong entity tag or, if
//! the server has none, with `If-Unmodified-Since`. The response must confirm range, size and
//! version, so that bytes of two versions never mix. A read that breaks off is resumed at the exact
//! byte.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::response::Parts;
use hyper::{Request, Response, StatusCode};
use thalweg_http::date;
use thalweg_surface::{ClientTls, TlsSettings};
use tokio::sync::Mutex as AsyncMutex;

use super::collapse::{Open, ReadKey, Reads, SharedReader, Source};
use super::fetcher::Fetcher;
use super::http::Http;
use super::listing::{Listed, is_presentation_name, kind_of};
use super::object::{OBJECTS_MAX, Object, StorageError, short_hash};
use super::options::{MediaLocation, StorageOptions};
use super::pool::{Content, Failure, FailureKind, Pool};
use super::s3::S3;

/// Maximum times that a read is resumed.
const RESUMES_MAX: u32 = 3;
/// Settings that configure TLS to storage.
const TLS_SETTINGS: TlsSettings = TlsSettings { ca: "storage_ca", pair: None };

/// A remote library.
#[derive(Debug)]
pub(crate) struct Remote {
    index: usize,
    service: Service,
    pub(crate) fetcher: Fetcher,
    reads: Reads,
    names: AsyncMutex<Option<(Instant, Arc<Vec<String>>)>>,
    listing_max_age: Duration,
}

#[derive(Debug)]
enum Service {
    S3(Box<S3>),
    Http(Http),
}

/// Creates the pool for remote libraries, the first of which is at `location`.
pub(super) fn pool(options: &StorageOptions, location: &MediaLocation) -> io::Result<Pool> {
    let needs_tls = options.ca.is_some()
        || matches!(location, MediaLocation::Http(uri) if uri.scheme_str() == Some("https"));
    let tls = match ClientTls::open_for(TLS_SETTINGS, options.ca.clone(), None) {
        Ok(tls) => Some(tls),
        Err(fault) if needs_tls => return Err(io::Error::other(fault)),
        // Without authorities, requests to https URLs fail with this remedy.
        Err(_) => None,
    };
    Ok(Pool::new(options.clone(), tls))
}

impl Remote {
    pub(super) fn new(
        index: usize,
        location: &MediaLocation,
        options: &StorageOptions,
        pool: Pool,
        listing_max_age: Duration,
    ) -> io::Result<Remote> {
        let fetcher = Fetcher::new(pool);
        let service = match location {
            MediaLocation::S3 { bucket, prefix } => {
                Service::S3(Box::new(S3::new(bucket, prefix, &options.s3, &fetcher)))
            }
            MediaLocation::Http(base) => Service::Http(Http::new(base)),
            MediaLocation::Directory(_) => return Err(io::Error::other("not a remote library")),
        };
        Ok(Remote {
            index,
            service,
            fetcher,
            reads: Reads::default(),
            names: AsyncMutex::default(),
            listing_max_age,
        })
    }

    /// Returns the names of all presentations, sorted. Concurrent calls share one listing.
    pub(super) async fn names(&self) -> Result<Arc<Vec<String>>, StorageError> {
        let mut known = self.names.lock().await;
        if let Some((_, names)) = known.as_ref().filter(|(listed, _)| listed.elapsed() < self.listing_max_age)
        {
            return Ok(names.clone());
        }
        let listed = Instant::now();
        let names = match &self.service {
            Service::S3(s3) => s3.names(&self.fetcher).await,
            Service::Http(http) => http.names(&self.fetcher).await,
        };
        let mut names = names.map_err(|failure| StorageError::remote("media", failure))?;
        names.sort();
        let names = Arc::new(names);
        *known = Some((listed, names.clone()));
        Ok(names)
    }

    /// Returns whether a presentation is called `name`. Only names in the listing are looked up, so
    /// that requests for unknown names cause no requests to storage.
    async fn is_listed(&self, name: &str) -> Result<bool, StorageError> {
        if !is_presentation_name(name) {
            return Ok(false);
        }
        let has = |names: &[String]| names.binary_search_by(|known| known.as_str().cmp(name)).is_ok();
        let is_known = self.names.lock().await.as_ref().is_some_and(|(_, names)| has(names));
        Ok(is_known || has(&self.names().await?))
    }

    /// Returns the tracks of a presentation, sorted by key; `None` if no presentation is called
    /// `name`.
    pub(super) async fn tracks(&self, name: &str) -> Result<Option<Vec<Object>>, StorageError> {
        if !self.is_listed(name).await? {
            return Ok(None);
        }
        let tracks = match &self.service {
            Service::S3(s3) => s3.tracks(&self.fetcher, name).await,
            Service::Http(http) => http.tracks(&self.fetcher, name).await,
        };
        let Some(mut tracks) = tracks.map_err(|failure| StorageError::remote(name, failure))? else {
            return Ok(None);
        };
        if tracks.len() > OBJECTS_MAX {
            return Err(StorageError::TooMany { key: name.to_owned() });
        }
        tracks.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Some(tracks.into_iter().map(|listed| self.object(listed)).collect()))
    }

    /// Reads a small file in the directory of presentation `name`; `None` if there is no such file.
    pub(super) async fn text(
        &self,
        name: &str,
        file: &str,
        bytes_max: u64,
    ) -> Result<Option<Bytes>, StorageError> {
        if !self.is_listed(name).await? {
            return Ok(None);
        }
        let key = format!("{name}/{file}");
        let mut content = match self.get_start(&key, bytes_max).await {
            Ok(response) => response.into_body(),
            Err(failure) if failure.kind == FailureKind::Changed => return Ok(None),
            Err(failure) => return Err(StorageError::remote(&key, failure)),
        };
        let mut text = BytesMut::new();
        while let Some(bytes) = content.next().await.map_err(|failure| StorageError::remote(&key, failure))? {
            text.extend_from_slice(&bytes);
            if text.len() as u64 > bytes_max {
                return Err(StorageError::TooLarge { key, bytes_max });
            }
        }
        Ok(Some(text.freeze()))
    }

    /// Requests the first `bytes_max + 1` bytes of a file in any version.
    async fn get_start(&self, key: &str, bytes_max: u64) -> Result<Response<Content>, Failure> {
        let wanted = format!("bytes=0-{bytes_max}");
        let request = match &self.service {
            Service::S3(s3) => s3.sign(s3.get(key, &wanted)?).await?,
            Service::Http(http) => http.get(key, &wanted)?,
        };
        let accept = |head: &Parts| match head.status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => Ok(()),
            status => Err(kind_of(status).unwrap_or(FailureKind::Protocol)),
        };
        self.fetcher.fetch(&request, true, &accept).await
    }

    fn object(&self, listed: Listed) -> Object {
        let Listed { key, size, modified, etag } = listed;
        let modified_s = unix_s(modified);
        let identity = match &etag {
            Some(etag) => format!("{size:x} {etag}"),
            None => format!("{size:x} {modified_s:x}"),
        };
        let version = short_hash(identity.bytes());
        let validator = format!("{size:x}-{modified_s:x}-{version}");
        Object {
            library: self.index,
            key,
            size,
            modified: modified.min(SystemTime::now()),
            validator,
            version,
            etag,
        }
    }

    /// Reads a short range.
    pub(super) async fn read(
        self: &Arc<Self>,
        object: &Arc<Object>,
        range: Range<u64>,
    ) -> Result<Bytes, StorageError> {
        let mut reader = self.join(object, range.clone());
        let mut bytes = BytesMut::new();
        while let Some(piece) = reader.next().await? {
            if bytes.is_empty() && piece.len() as u64 == range.end - range.start {
                return Ok(piece);
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.freeze())
    }

    /// Begins to read a range; its first bytes have arrived when this returns.
    pub(super) async fn stream(
        self: Arc<Self>,
        object: Arc<Object>,
        range: Range<u64>,
    ) -> Result<SharedReader, StorageError> {
        let mut reader = self.join(&object, range);
        reader.begin().await?;
        Ok(reader)
    }

    /// Joins an equal read in progress, or begins one.
    fn join(self: &Arc<Self>, object: &Arc<Object>, range: Range<u64>) -> SharedReader {
        let key = ReadKey { key: object.key.clone(), validator: object.validator.clone(), range };
        let (remote, object) = (self.clone(), object.clone());
        let open: Open = Arc::new(move |range| remote.clone().source(object.clone(), range));
        let (reader, has_joined) = self.reads.join(key, open);
        if has_joined {
            self.fetcher.pool().stats().collapsed.inc();
        }
        reader
    }

    /// Returns the bytes of a range, resumed if a response breaks off.
    fn source(self: Arc<Self>, object: Arc<Object>, range: Range<u64>) -> Source {
        let start = Reading { remote: self, object, range, content: None, resumes: 0 };
        stream::unfold(Some(start), |reading| async {
            let mut reading = reading?;
            match reading.next().await {
                Ok(Some(bytes)) => Some((Ok(bytes), Some(reading))),
                Ok(None) => None,
                Err(failure) => Some((Err(StorageError::remote(&reading.object.key, failure)), None)),
            }
        })
        .boxed()
    }

    /// Requests a range, and returns the response once its head confirms range and version.
    async fn get(&self, object: &Object, range: &Range<u64>) -> Result<Response<Content>, Failure> {
        let wanted = format!("bytes={}-{}", range.start, range.end - 1);
        let accept = |head: &Parts| accept(head, object, range);
        let s3 = match &self.service {
            Service::S3(s3) => s3,
            Service::Http(http) => {
                let request = guarded(http.get(&object.key, &wanted)?, object);
                return self.fetcher.fetch(&request, true, &accept).await;
            }
        };
        let mut is_renewed = false;
        loop {
            let request = guarded(s3.get(&object.key, &wanted)?, object);
            let request = s3.sign(request).await?;
            match self.fetcher.fetch(&request, true, &accept).await {
                Err(failure) if failure.kind == FailureKind::Credentials && !is_renewed && s3.renew() => {
                    is_renewed = true;
                }
                outcome => return outcome,
            }
        }
    }
}

/// A range being read.
struct Reading {
    remote: Arc<Remote>,
    object: Arc<Object>,
    /// Bytes still to be received.
    range: Range<u64>,
    content: Option<Content>,
    resumes: u32,
}

impl Reading {
    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        while self.range.start < self.range.end {
            let content = match &mut self.content {
                Some(content) => content,
                None => {
                    let response = self.remote.get(&self.object, &self.range).await?;
                    self.content.insert(response.into_body())
                }
            };
            let failure = match content.next().await {
                Ok(Some(bytes)) if bytes.len() as u64 <= self.range.end - self.range.start => {
                    self.range.start += bytes.len() as u64;
                    return Ok(Some(bytes));
                }
                Ok(Some(_)) => Failure::new(FailureKind::Range, "storage sent more than the requested range"),
                Ok(None) => Failure::new(FailureKind::Closed, "storage sent less than the requested range"),
                Err(failure) => failure,
            };
            self.content = None;
            self.remote.fetcher.pool().stats().fail(failure.kind);
            self.resumes += 1;
            if !failure.kind.may_pass() || self.resumes > RESUMES_MAX || !self.remote.fetcher.may_repeat() {
                return Err(failure);
            }
            self.remote.fetcher.pool().stats().resumed.inc();
        }
        Ok(None)
    }
}

/// Adds the condition that the object is still the listed version.
fn guarded(mut request: Request<Bytes>, object: &Object) -> Request<Bytes> {
    let (name, value) = match &object.etag {
        Some(etag) => (header::IF_MATCH, HeaderValue::from_str(etag)),
        None => {
            // Some servers compare with the file's time within the second. The response's
            // Last-Modified is compared exactly.
            let date = date::format(unix_s(object.modified) + 1);
            (header::IF_UNMODIFIED_SINCE, HeaderValue::from_bytes(&date[..]))
        }
    };
    if let Ok(value) = value {
        request.headers_mut().insert(name, value);
    }
    request
}

/// Checks that a response carries `range` of the listed version of `object`.
fn accept(head: &Parts, object: &Object, range: &Range<u64>) -> Result<(), FailureKind> {
    match head.status {
        StatusCode::PARTIAL_CONTENT => {
            let expected = format!("bytes {}-{}/{}", range.start, range.end - 1, object.size);
            if field(head, header::CONTENT_RANGE) != Some(expected.as_str()) {
                return Err(FailureKind::Range);
            }
        }
        // A server that does not support ranges sends the whole file.
        StatusCode::OK if *range == (0..object.size) => {}
        StatusCode::OK => return Err(FailureKind::Protocol),
        status => return Err(kind_of(status).unwrap_or(FailureKind::Protocol)),
    }
    let length = (range.end - range.start).to_string();
    if field(head, header::CONTENT_LENGTH).is_some_and(|sent| sent != length) {
        return Err(FailureKind::Range);
    }
    let is_same = match &object.etag {
        Some(etag) => field(head, header::ETAG) == Some(etag),
        None => field(head, header::LAST_MODIFIED)
            .is_some_and(|sent| date::parse(sent.as_bytes()) == Some(unix_s(object.modified))),
    };
    if is_same { Ok(()) } else { Err(FailureKind::Version) }
}

fn field(head: &Parts, name: HeaderName) -> Option<&str> {
    head.headers.get(name)?.to_str().ok()
}

fn unix_s(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
