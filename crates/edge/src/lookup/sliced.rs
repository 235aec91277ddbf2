//! Sliced content: reads slices in order, from the cache or a backend, and prefetches the next one.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use thalweg_cache::fill::Progress;
use thalweg_cache::{Failure, Fill, Head, Lookup, Piece, Reader};
use thalweg_http::cache_control::RequestCacheControl;
use thalweg_http::{Fields, Method, RequestHead};
use thalweg_policy::Sub;
use thalweg_policy::step::Action;
use thalweg_record::CacheResult;

use super::{Content, Found, Part, part};
use crate::backend::Route;
use crate::clock::now_ms;
use crate::fetch::{self, BackendSide};
use crate::slices::{Representation, SliceRequest, serves_ranges, slice_bytes};
use crate::worker::Worker;

/// Maximum number of attempts per piece to reopen a slice that is unreadable or was fetched only
/// for another reader.
const OPENS_MAX: usize = 3;

/// The content of a sliced response, readable from any offset.
#[derive(Debug)]
pub(crate) struct Sliced {
    worker: Arc<Worker>,
    request: RequestHead,
    /// Policy for slice fetches, if any.
    policy: Option<Box<BackendSide>>,
    /// Request and route of slice fetches, set by the first fetch; no route if the policy refuses
    /// slice fetches.
    slice_request: Option<(RequestHead, Option<Route>)>,
    client: IpAddr,
    of: Representation,
    /// Range still to be read, in bytes of the whole content.
    left: Range<u64>,
    slice: Option<Slice>,
    /// The next slice, prefetched.
    ahead: Option<Slice>,
    /// Whether all content read so far came from the cache.
    all_stored: bool,
}

/// Outcome of opening a response's first slice.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) cache: CacheResult,
    /// Status of the backend's response for the slice.
    pub(crate) status: u16,
    pub(crate) stored: bool,
}

#[derive(Debug)]
struct Slice {
    index: u64,
    reader: Reader<Arc<Head>>,
    cache: CacheResult,
}

impl Sliced {
    /// Returns sliced content as a replacement for the content of `found`. Returns `None` unless
    /// `found` is stored in slices or, with `may_slice`, the requested range starts far ahead of
    /// the content received so far.
    pub(crate) fn for_found(
        worker: &Arc<Worker>,
        key: &str,
        request: &RequestHead,
        client: IpAddr,
        found: &Found,
        may_slice: bool,
    ) -> Option<Self> {
        let may_slice = may_slice && found.cache != CacheResult::Hit;
        if found.is_passed || !(found.head.sliced || may_slice && is_far(worker, request, found)) {
            return None;
        }
        let of = Representation::of(worker, key, &found.head)?;
        let (worker, request) = (worker.clone(), request.clone());
        Some(Self {
            worker,
            request,
            policy: None,
            slice_request: None,
            client,
            left: 0..of.length,
            of,
            slice: None,
            ahead: None,
            all_stored: true,
        })
    }

    /// Attaches a policy, which runs once before slices are fetched.
    pub(crate) fn under(self, policy: Option<Box<BackendSide>>) -> Self {
        Self { policy, ..self }
    }

    /// Returns the length of the whole content in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.of.length
    }

    pub(crate) fn seek(&mut self, range: &Range<u64>) {
        self.left = range.start..range.end.min(self.of.length);
    }

    /// Waits for the head of the first slice needed, so that a failing backend is detected before
    /// anything is sent. Returns `None` if no slice is needed.
    pub(crate) async fn open_first(&mut self, head: &Head) -> Result<Option<Opened>, Failure> {
        let range = match part(&self.request, self.request.method, head, Progress::Complete(self.of.length)) {
            _ if self.request.method == Method::Head => return Ok(None),
            Part::Whole | Part::After(_) => 0..self.of.length,
            Part::Range(range) => range,
            Part::Ranges(ranges) => ranges[0].clone(),
            Part::NotModified | Part::PreconditionFailed | Part::Unsatisfiable(_) => return Ok(None),
        };
        self.seek(&range);
        let Some(slice) = self.current() else { return Ok(None) };
        let slice_head = slice.reader.head().await?;
        slice.reader.ready().await?;
        let (index, cache) = (slice.index, slice.cache);
        let stored = self.worker.cache().is_stored(&self.of.slice_key(index), &slice_head);
        Ok(Some(Opened { cache, status: slice_head.status, stored }))
    }

    pub(crate) fn try_next(&mut self, max: usize) -> Option<Result<Option<Piece>, Failure>> {
        let Some(slice) = self.current() else { return Some(Ok(None)) };
        match slice.reader.try_next(max)? {
            Ok(Some(piece)) => Some(Ok(Some(self.count_read(piece)))),
            Ok(None) => Some(Err(too_short())),
            // [`Sliced::next`] fetches the slice again.
            Err(failure) if can_refetch(&failure) => None,
            Err(failure) => Some(Err(failure)),
        }
    }

    pub(crate) async fn next(&mut self, max: usize) -> Result<Option<Piece>, Failure> {
        let mut opened = 0;
        while let Some(slice) = self.current() {
            match slice.reader.next(max).await {
                Ok(Some(piece)) => return Ok(Some(self.count_read(piece))),
                Ok(None) => return Err(too_short()),
                Err(Failure::NotShared) if opened < OPENS_MAX => {
                    opened += 1;
                    self.slice = Some(self.open_private(self.left.start / self.of.slice_bytes));
                }
                // The slice is unreadable or its fetch failed, so fetch it again.
                Err(failure) if can_refetch(&failure) && opened < OPENS_MAX => {
                    opened += 1;
                    self.slice = None;
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(None)
    }

    /// Returns whether all content that the request needs is stored.
    pub(crate) fn is_stored(&self, head: &Head) -> bool {
        let whole = 0..self.of.length;
        let ranges = match part(&self.request, self.request.method, head, Progress::Complete(self.of.length))
        {
            _ if self.request.method == Method::Head => return true,
            Part::Whole | Part::After(_) => vec![whole],
            Part::Range(range) => vec![range],
            Part::Ranges(ranges) => ranges,
            Part::NotModified | Part::PreconditionFailed | Part::Unsatisfiable(_) => return true,
        };
        let slices =
            |range: &Range<u64>| range.start / self.of.slice_bytes..range.end.div_ceil(self.of.slice_bytes);
        ranges.iter().flat_map(slices).all(|index| {
            let directives = RequestCacheControl { only_if_cached: true, ..RequestCacheControl::default() };
            let found =
                self.worker.cache().look_up(&self.of.slice_key(index), &Fields::new(), &directives, now_ms());
            matches!(found, Lookup::Hit(_))
        })
    }

    /// Returns whether no slice read so far was fetched for this request.
    pub(crate) fn all_stored(&self) -> bool {
        self.all_stored
    }

    fn count_read(&mut self, piece: Piece) -> Piece {
        self.all_stored &= self.slice.as_ref().is_none_or(|slice| slice.cache != CacheResult::Miss);
        self.left.start += piece.len() as u64;
        piece
    }

    /// Returns the slice that contains the next byte, positioned at that byte; `None` at the end.
    fn current(&mut self) -> Option<&mut Slice> {
        if self.left.is_empty() {
            return None;
        }
        let index = self.left.start / self.of.slice_bytes;
        if self.slice.as_ref().is_none_or(|slice| slice.index != index) {
            let ahead = self.ahead.take().filter(|slice| slice.index == index);
            self.slice = Some(ahead.unwrap_or_else(|| self.open(index)));
            if self.of.bytes(index).end < self.left.end {
                self.ahead = Some(self.open(index + 1));
            }
        }
        let within = self.left.start - self.of.bytes(index).start;
        let slice = self.slice.as_mut()?;
        slice.reader.seek(within);
        Some(slice)
    }

    /// Opens slice `index`: from the cache, by joining a fetch, or with a new fetch.
    fn open(&mut self, index: u64) -> Slice {
        let key = self.of.slice_key(index);
        let (reader, cache) = match self.worker.cache().look_up(
            &key,
            &Fields::new(),
            &RequestCacheControl::default(),
            now_ms(),
        ) {
            // A soft purge does not make slices stale, because their keys identify the
            // representation.
            Lookup::Hit(stored) | Lookup::Refresh(stored, _) | Lookup::Stale(_, _, stored) => {
                (stored.content.reader(0), CacheResult::Hit)
            }
            Lookup::Joined(stored) => (stored.content.reader(0), CacheResult::Join),
            Lookup::Wait(reader, _) => (reader, CacheResult::Join),
            Lookup::Miss(fill, reader) | Lookup::HitMiss(fill, reader) => {
                self.fetch(fill, index);
                (reader, CacheResult::Miss)
            }
            Lookup::Pass | Lookup::Nothing => return self.open_private(index),
        };
        Slice { index, reader, cache }
    }

    /// Fetches slice `index` for this reader only.
    fn open_private(&mut self, index: u64) -> Slice {
        let (fill, reader) = self.worker.cache().pass();
        self.fetch(fill, index);
        Slice { index, reader, cache: CacheResult::Miss }
    }

    /// Returns the request and route after `vcl_backend_fetch`, which runs once for all slices of a
    /// response.
    fn slice_request(&mut self) -> Option<(RequestHead, Route)> {
        if self.slice_request.is_none() {
            let mut request = self.request.clone();
            let cache = self.worker.cache();
            let route = match &mut self.policy {
                None => Some(Route::default()),
                Some(policy) => match policy.run(Sub::BackendFetch, &mut request, None, cache) {
                    Action::Fetch => policy.route(&mut request, cache),
                    _ => None,
                },
            };
            self.slice_request = Some((request, route));
        }
        let (request, route) = self.slice_request.as_ref()?;
        Some((request.clone(), route.clone()?))
    }

    fn fetch(&mut self, fill: Fill, index: u64) {
        let Some((request, route)) = self.slice_request() else {
            return fill.fail(Failure::Backend("the policy does not allow slice fetches".into()));
        };
        let slice = SliceRequest::Known { of: self.of.clone(), index };
        let request = fetch::Request::slice(&request, slice).via(route);
        self.worker.spawn(fetch::run(self.worker.clone(), fill, request, self.client));
    }
}

/// Returns whether a new fetch of the slice may succeed.
fn can_refetch(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::NotShared
            | Failure::Unreadable
            | Failure::Backend(_)
            | Failure::BackendTimeout(_)
            | Failure::Status(_)
    )
}

fn too_short() -> Failure {
    Failure::Backend("a slice is too short".into())
}

/// Returns whether the requested range starts more than one slice beyond the content of `found`
/// received so far.
fn is_far(worker: &Worker, request: &RequestHead, found: &Found) -> bool {
    let Content::Fill(reader) = &found.content else { return false };
    let Progress::Filling(arrived) = reader.progress() else { return false };
    if !serves_ranges(&found.head.fields) {
        return false;
    }
    let is_far = |start: u64| slice_bytes(worker).is_some_and(|bytes| start > arrived + bytes);
    match part(request, request.method, &found.head, reader.progress()) {
        Part::Range(range) => is_far(range.start),
        Part::Ranges(ranges) => ranges.iter().any(|range| is_far(range.start)),
        _ => false,
    }
}
