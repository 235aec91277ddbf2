//! Slices as a reply reads them: found or fetched one after the other, one ahead.

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

use super::fetching::fetch_slice;
use super::{Representation, serves_ranges, slice_bytes};
use crate::answer::{Ask, Found};
use crate::backend::Route;
use crate::content::Content;
use crate::now_ms;
use crate::policy::Fetching;
use crate::reply::{Part, part};
use crate::worker::Worker;

/// A slice that is for another reader alone, or cannot be read from the disk, is fetched anew, so often for one piece.
const OPENS_MAX: usize = 3;

/// The content of a sliced response, read from any offset on.
#[derive(Debug)]
pub(crate) struct Sliced {
    worker: Arc<Worker>,
    request: RequestHead,
    /// What the policy has to say of fetches of slices, where there is one.
    policy: Option<Box<Fetching>>,
    /// With what slices are asked for, and where, once one was; nowhere if the policy will not have it.
    asking: Option<(RequestHead, Option<Route>)>,
    client: IpAddr,
    of: Representation,
    /// What is still to be read.
    left: Range<u64>,
    slice: Option<Slice>,
    /// The one after it, so that its fetch is under way when it is needed.
    ahead: Option<Slice>,
    /// What was read so far was all stored.
    all_stored: bool,
}

/// Where the first slice of an answer was found.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) cache: CacheResult,
    /// That the backend sent it with.
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
    /// What answers `request` instead of `found`: where its content is in slices, or, if `far` may be fetched so, has not
    /// come that far by far.
    pub(crate) fn instead(
        worker: &Arc<Worker>,
        key: &str,
        ask: &Ask<'_>,
        client: IpAddr,
        found: &Found,
        far: bool,
    ) -> Option<Self> {
        let request = ask.head();
        let far = far && found.cache != CacheResult::Hit;
        if found.verbatim || !(found.head.sliced || far && is_far(worker, request, found)) {
            return None;
        }
        let of = Representation::of(worker, key, &found.head)?;
        let (worker, request) = (worker.clone(), request.clone());
        Some(Self {
            worker,
            request,
            policy: ask.slices(),
            asking: None,
            client,
            left: 0..of.length,
            of,
            slice: None,
            ahead: None,
            all_stored: true,
        })
    }

    /// Bytes of all of the content.
    pub(crate) fn length(&self) -> u64 {
        self.of.length
    }

    pub(crate) fn seek(&mut self, range: &Range<u64>) {
        self.left = range.start..range.end.min(self.of.length);
    }

    /// Waits for the head of the first slice that the answer to the request needs, so that a backend that does not bring it
    /// is known before anything is sent. `None` if none is needed.
    pub(crate) async fn open_first(&mut self, head: &Head) -> Result<Option<Opened>, Failure> {
        let range = match part(&self.request, head, Progress::Complete(self.of.length)) {
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
            Ok(Some(piece)) => Some(Ok(Some(self.took(piece)))),
            Ok(None) => Some(Err(too_short())),
            // To be had anew, by waiting for it.
            Err(failure) if may_come_again(&failure) => None,
            Err(failure) => Some(Err(failure)),
        }
    }

    pub(crate) async fn next(&mut self, max: usize) -> Result<Option<Piece>, Failure> {
        let mut opened = 0;
        while let Some(slice) = self.current() {
            match slice.reader.next(max).await {
                Ok(Some(piece)) => return Ok(Some(self.took(piece))),
                Ok(None) => return Err(too_short()),
                Err(Failure::NotShared) if opened < OPENS_MAX => {
                    opened += 1;
                    self.slice = Some(self.open_alone(self.left.start / self.of.slice_bytes));
                }
                // It has left the cache: from the backend, once more.
                Err(failure) if may_come_again(&failure) && opened < OPENS_MAX => {
                    opened += 1;
                    self.slice = None;
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(None)
    }

    /// Whether all that answers the request is stored.
    pub(crate) fn is_stored(&self, head: &Head) -> bool {
        let whole = 0..self.of.length;
        let ranges = match part(&self.request, head, Progress::Complete(self.of.length)) {
            _ if self.request.method == Method::Head => return true,
            Part::Whole | Part::After(_) => vec![whole],
            Part::Range(range) => vec![range],
            Part::Ranges(ranges) => ranges,
            Part::NotModified | Part::PreconditionFailed | Part::Unsatisfiable(_) => return true,
        };
        let slices =
            |range: &Range<u64>| range.start / self.of.slice_bytes..range.end.div_ceil(self.of.slice_bytes);
        ranges.iter().flat_map(slices).all(|index| {
            let asked = RequestCacheControl { only_if_cached: true, ..RequestCacheControl::default() };
            let found =
                self.worker.cache().look_up(&self.of.slice_key(index), &Fields::new(), &asked, now_ms());
            matches!(found, Lookup::Hit(_))
        })
    }

    /// Whether the backend was asked for none of what was read.
    pub(crate) fn all_stored(&self) -> bool {
        self.all_stored
    }

    fn took(&mut self, piece: Piece) -> Piece {
        self.all_stored &= self.slice.as_ref().is_none_or(|slice| slice.cache != CacheResult::Miss);
        self.left.start += piece.len() as u64;
        piece
    }

    /// The slice that the next byte lies in, at that byte; `None` if nothing is left.
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

    /// Slice `index`, as it is stored or comes; else it is fetched.
    fn open(&mut self, index: u64) -> Slice {
        let key = self.of.slice_key(index);
        let (reader, cache) = match self.worker.cache().look_up(
            &key,
            &Fields::new(),
            &RequestCacheControl::default(),
            now_ms(),
        ) {
            // A soft purge does not change what follows from the key.
            Lookup::Hit(stored) | Lookup::Refresh(stored, _) | Lookup::Stale(_, _, stored) => {
                (stored.content.reader(0), CacheResult::Hit)
            }
            Lookup::Joined(stored) => (stored.content.reader(0), CacheResult::Join),
            Lookup::Wait(reader, _) => (reader, CacheResult::Join),
            Lookup::Miss(fill, reader) | Lookup::HitMiss(fill, reader) => {
                self.fetch(fill, index);
                (reader, CacheResult::Miss)
            }
            Lookup::Pass | Lookup::Nothing => return self.open_alone(index),
        };
        Slice { index, reader, cache }
    }

    /// Slice `index`, for this reader alone.
    fn open_alone(&mut self, index: u64) -> Slice {
        let (fill, reader) = self.worker.cache().pass();
        self.fetch(fill, index);
        Slice { index, reader, cache: CacheResult::Miss }
    }

    /// What `vcl_backend_fetch` makes of the request, once for all slices of an answer.
    fn asking(&mut self) -> Option<(RequestHead, Route)> {
        if self.asking.is_none() {
            let mut request = self.request.clone();
            let cache = self.worker.cache();
            let route = match &mut self.policy {
                None => Some(Route::default()),
                Some(policy) => match policy.run(Sub::BackendFetch, &mut request, None, cache) {
                    Action::Fetch => policy.route(&mut request, cache),
                    _ => None,
                },
            };
            self.asking = Some((request, route));
        }
        let (request, route) = self.asking.as_ref()?;
        Some((request.clone(), route.clone()?))
    }

    fn fetch(&mut self, fill: Fill, index: u64) {
        let Some(to) = self.asking() else {
            return fill.fail(Failure::Backend("the policy lets no slice be fetched".into()));
        };
        let (worker, of) = (self.worker.clone(), self.of.clone());
        self.worker.spawn(fetch_slice(worker, fill, to, of, index, self.client));
    }
}

/// Failures after which a slice may be had by fetching it anew.
fn may_come_again(failure: &Failure) -> bool {
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

/// Whether what `request` asks for begins more than a slice after what has come of `found`.
fn is_far(worker: &Worker, request: &RequestHead, found: &Found) -> bool {
    let Content::Fill(reader) = &found.content else { return false };
    let Progress::Filling(arrived) = reader.progress() else { return false };
    if !serves_ranges(&found.head.fields) {
        return false;
    }
    let is_far = |start: u64| slice_bytes(worker).is_some_and(|bytes| start > arrived + bytes);
    match part(request, &found.head, reader.progress()) {
        Part::Range(range) => is_far(range.start),
        Part::Ranges(ranges) => ranges.iter().any(|range| is_far(range.start)),
        _ => false,
    }
}
