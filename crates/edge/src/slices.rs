//! Large content in slices: each is a fill under a key of its own, fetched by range when somebody reads it.
//!
//! A response is sliced where its content is too large to be stored whole, or where somebody asks for bytes far from what
//! has come of it: a seek into a film does not wait for its start. Its head is found under its own key as ever, and is
//! fresh, validated and purged there; of content it has none there. The slices' keys have its strong entity tag in them,
//! so a slice never belongs to another representation, and is good for as long as the head is.
//!
//! **Invariant:** only what a backend sent as exactly this range of exactly this representation becomes a slice.

use std::fmt::Write;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use thalweg_cache::fill::Progress;
use thalweg_cache::freshness::Freshness;
use thalweg_cache::storage::Selection;
use thalweg_cache::{Failure, Fill, Head, Lookup, Piece, Reader};
use thalweg_http::cache_control::RequestCacheControl;
use thalweg_http::range::{self, ByteRange};
use thalweg_http::validators::EntityTag;
use thalweg_http::{Fields, Method, RequestHead, ResponseHead};
use thalweg_record::CacheResult;

use crate::answer::Found;
use crate::exchange::Exchange;
use crate::now_ms;
use crate::reply::{Part, part};
use crate::worker::Worker;
use crate::{content::Content, fetch};

/// A slice that is for another reader alone, or cannot be read from the disk, is fetched anew, so often for one piece.
const OPENS_MAX: usize = 3;

/// A representation whose content can be had in slices.
#[derive(Debug, Clone)]
struct Representation {
    /// The key of the response.
    key: Arc<str>,
    /// Its strong entity tag.
    etag: Arc<[u8]>,
    /// Bytes of all of it.
    length: u64,
    /// Bytes of each slice but the last.
    slice_bytes: u64,
    /// The head that slices are stored with, but for their length. It has the fields of the response, so that a ban or a
    /// tag takes the slices away with it; it does not age: what is in a slice follows from its key.
    head: Arc<Head>,
}

impl Representation {
    /// Of the response with `head` under `key`, if its head says enough.
    fn of(worker: &Worker, key: &str, head: &Head) -> Option<Self> {
        let (length, etag) = (head.length?, strong_etag(&head.fields)?);
        let slice_bytes = slice_bytes(worker)?;
        if head.status != 200 || head.private.is_some() {
            return None;
        }
        let freshness = Freshness { lifetime_s: u64::MAX, ..Freshness::default() };
        let selection = Selection::default();
        let slice_head = Head {
            status: 206,
            withheld: Fields::new(),
            freshness,
            selection,
            sliced: false,
            ..head.clone()
        };
        Some(Self { key: key.into(), etag: etag.into(), length, slice_bytes, head: Arc::new(slice_head) })
    }

    /// The bytes of slice `index`.
    fn bytes(&self, index: u64) -> Range<u64> {
        let start = index * self.slice_bytes;
        start..(start + self.slice_bytes).min(self.length)
    }

    /// The key of slice `index`, derived from that of the response: no client can ask for a key with a space in it.
    fn slice_key(&self, index: u64) -> String {
        let mut key = format!("{} ", self.key);
        for byte in &*self.etag {
            // A tag may have bytes that are no text.
            let _ = write!(key, "{byte:02x}");
        }
        let _ = write!(key, " {}/{}*{index}", self.length, self.slice_bytes);
        key
    }

    /// The head that slice `index` is stored with.
    fn slice_head(&self, index: u64) -> Head {
        let bytes = self.bytes(index);
        Head { length: Some(bytes.end - bytes.start), ..Head::clone(&self.head) }
    }
}

/// What a fetch asks for that is to bring a slice.
#[derive(Debug)]
pub(crate) struct Asked {
    bytes: Range<u64>,
    /// The representation that it must belong to; any, if nothing is known of it yet.
    of: Option<Representation>,
}

impl Asked {
    /// The conditions of the request.
    pub(crate) fn write(&self, fields: &mut Fields) {
        fields.push("Range", format!("bytes={}-{}", self.bytes.start, self.bytes.end - 1));
        if let Some(of) = &self.of {
            fields.push("If-Range", &*of.etag);
        }
    }
}

/// The slice to ask for first, where nothing is stored and `request` begins too far in to wait for the start.
pub(crate) fn cold(worker: &Worker, request: &RequestHead) -> Option<Asked> {
    let slice_bytes = slice_bytes(worker)?;
    let ranges = range::parse(request.fields.get("range").filter(|_| request.method == Method::Get)?)?;
    // The end of what is not known is not known.
    let (ByteRange::FromTo(first, _) | ByteRange::From(first)) = ranges.single()? else { return None };
    if first <= slice_bytes {
        return None;
    }
    let start = first - first % slice_bytes;
    Some(Asked { bytes: start..start.checked_add(slice_bytes)?, of: None })
}

fn slice_bytes(worker: &Worker) -> Option<u64> {
    let bytes = worker.config().slice_bytes;
    (bytes > 0 && bytes <= worker.cache().content_bytes_max()).then_some(bytes)
}

fn serves_ranges(fields: &Fields) -> bool {
    fields.list("accept-ranges").any(|unit| unit.eq_ignore_ascii_case(b"bytes"))
}

fn strong_etag(fields: &Fields) -> Option<&[u8]> {
    let etag = fields.get("etag")?;
    EntityTag::parse(etag).filter(|etag| etag.strong_eq(etag)).map(|_| etag)
}

/// The first answer of a backend that was asked for a slice before anything was known: 206 with what was asked for.
/// `head` is the head of the whole that it tells of. Whatever happens, `fill` ends.
pub(crate) async fn begin(
    worker: &Arc<Worker>,
    fill: Fill,
    asked: &Asked,
    mut head: Head,
    mut exchange: Exchange,
) {
    let Some(key) = fill.key().map(str::to_owned) else { return fill.fail(Failure::NotSliced("passed")) };
    if head.private.is_some() {
        return fill.not_shared(now_ms());
    }
    let length = range_of(&exchange.head)
        .filter(|(bytes, length)| {
            bytes.start == asked.bytes.start && bytes.end == asked.bytes.end.min(*length)
        })
        .map(|(_, length)| length);
    head.length = length;
    let Some(of) = Representation::of(worker, &key, &head) else {
        return fill.fail(Failure::NotSliced("the range is another, or may not be stored"));
    };
    split(worker, fill, &of, head, asked.bytes.start / of.slice_bytes, &mut exchange).await;
    worker.finish(exchange);
}

/// The head of content that is too large to be stored whole: from here on it is fetched in slices, of which what comes now
/// is the first. Gives all back if it cannot be had so.
pub(crate) async fn begin_large(
    worker: &Arc<Worker>,
    fill: Fill,
    head: Head,
    exchange: &mut Exchange,
) -> Option<(Fill, Head)> {
    let is_large = head.length.is_some_and(|length| length > worker.cache().content_bytes_max());
    let of = fill.key().filter(|_| is_large && serves_ranges(&head.fields));
    match of.and_then(|key| Representation::of(worker, key, &head)) {
        Some(of) => {
            split(worker, fill, &of, head, 0, exchange).await;
            None
        }
        None => Some((fill, head)),
    }
}

/// What is left of a fill that nobody reads any more: the head, for what is asked for next to be had in slices.
#[derive(Debug)]
pub(crate) struct Left {
    key: String,
    head: Head,
    length: u64,
}

impl Left {
    /// Of a fill whose head has come, if its content can be had in slices.
    pub(crate) fn of(worker: &Worker, fill: &Fill, head: &Head) -> Option<Self> {
        let key = fill.key()?;
        let of = Representation::of(worker, key, head).filter(|_| serves_ranges(&head.fields))?;
        (of.length > of.slice_bytes).then(|| Self { key: key.into(), head: head.clone(), length: of.length })
    }

    /// Stores it, unless somebody has begun anew.
    pub(crate) fn keep(self, worker: &Worker, request: &RequestHead) {
        let asked = RequestCacheControl::default();
        if let Lookup::Miss(fill, _) = worker.cache().look_up(&self.key, &request.fields, &asked, now_ms()) {
            fill.complete_sliced(self.head, self.length);
        }
    }
}

/// Stores `head` as one whose content is in slices, and slice `index` from what comes now.
async fn split(
    worker: &Arc<Worker>,
    fill: Fill,
    of: &Representation,
    head: Head,
    index: u64,
    exchange: &mut Exchange,
) {
    let slice = match worker.cache().look_up(
        &of.slice_key(index),
        &Fields::new(),
        &RequestCacheControl::default(),
        now_ms(),
    ) {
        Lookup::Miss(mut slice, _) => {
            slice.begin(of.slice_head(index), now_ms());
            Some(slice)
        }
        // It is there already, or somebody is about it.
        _ => None,
    };
    // Who is told of the head goes on to the slice: it must be found by then.
    fill.complete_sliced(head, of.length);
    if let Some(slice) = slice {
        let bytes = of.bytes(index);
        fetch::copy_first(exchange, slice, bytes.end - bytes.start).await;
    }
}

/// Fetches slice `index` into `fill`. Whatever happens, the fill ends.
async fn fetch_slice(
    worker: Arc<Worker>,
    mut fill: Fill,
    request: RequestHead,
    of: Representation,
    index: u64,
    client: IpAddr,
) {
    let bytes = of.bytes(index);
    let asked = Asked { bytes: bytes.clone(), of: Some(of.clone()) };
    let mut exchange = match fetch::start(&worker, &mut fetch::Request::slice(&request, asked), client).await
    {
        Ok(exchange) => exchange,
        Err(failure) => return fill.fail(failure),
    };
    let head = &exchange.head;
    let is_same = strong_etag(&head.fields) == Some(&*of.etag);
    match head.status {
        206 if is_same => {}
        200 if is_same => {
            worker.cache().forget_sliced(&of.key, now_ms());
            return fill.fail(Failure::NotSliced("the backend serves no ranges of it"));
        }
        200 | 206 | 404 | 410 | 416 => {
            worker.cache().forget(&of.key, &of.etag);
            return fill.fail(Failure::NotSliced("the content at the backend has changed"));
        }
        status => return fill.fail(Failure::Backend(format!("status {status} to a range"))),
    }
    if range_of(head) != Some((bytes.clone(), of.length)) {
        worker.cache().forget_sliced(&of.key, now_ms());
        return fill.fail(Failure::NotSliced("the backend gave another range"));
    }
    fill.begin(of.slice_head(index), now_ms());
    fetch::copy_first(&mut exchange, fill, bytes.end - bytes.start).await;
    worker.finish(exchange);
}

/// The range that a 206 holds, and the length of the whole.
fn range_of(head: &ResponseHead) -> Option<(Range<u64>, u64)> {
    let told = range::parse_content_range(head.fields.get("content-range")?)?;
    Some((told.range?, told.length?)).filter(|_| head.status == 206)
}

/// The content of a sliced response, read from any offset on.
#[derive(Debug)]
pub(crate) struct Sliced {
    worker: Arc<Worker>,
    request: RequestHead,
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
        request: &RequestHead,
        client: IpAddr,
        found: &Found,
        far: bool,
    ) -> Option<Self> {
        let far = far && found.cache != CacheResult::Hit;
        if found.verbatim || !(found.head.sliced || far && is_far(worker, request, found)) {
            return None;
        }
        let of = Representation::of(worker, key, &found.head)?;
        let (worker, request) = (worker.clone(), request.clone());
        Some(Self {
            worker,
            request,
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
    /// is known before anything is sent. Says where it was found, `None` if none is needed.
    pub(crate) async fn open_first(&mut self, head: &Head) -> Result<Option<CacheResult>, Failure> {
        let range = match part(&self.request, head, Progress::Complete(self.of.length)) {
            _ if self.request.method == Method::Head => return Ok(None),
            Part::Whole | Part::After(_) => 0..self.of.length,
            Part::Range(range) => range,
            Part::Ranges(ranges) => ranges[0].clone(),
            Part::NotModified | Part::PreconditionFailed | Part::Unsatisfiable(_) => return Ok(None),
        };
        self.seek(&range);
        let Some(slice) = self.current() else { return Ok(None) };
        slice.reader.head().await?;
        slice.reader.ready().await?;
        Ok(Some(slice.cache))
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
    fn open(&self, index: u64) -> Slice {
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
            Lookup::Miss(fill, reader) => {
                self.fetch(fill, index);
                (reader, CacheResult::Miss)
            }
            Lookup::Pass | Lookup::Nothing => return self.open_alone(index),
        };
        Slice { index, reader, cache }
    }

    /// Slice `index`, for this reader alone.
    fn open_alone(&self, index: u64) -> Slice {
        let (fill, reader) = self.worker.cache().pass();
        self.fetch(fill, index);
        Slice { index, reader, cache: CacheResult::Miss }
    }

    fn fetch(&self, fill: Fill, index: u64) {
        let (worker, request) = (self.worker.clone(), self.request.clone());
        self.worker.spawn(fetch_slice(worker, fill, request, self.of.clone(), index, self.client));
    }
}

/// Failures after which a slice may be had by fetching it anew.
fn may_come_again(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::NotShared | Failure::Unreadable | Failure::Backend(_) | Failure::BackendTimeout(_)
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
