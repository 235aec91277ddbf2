//! What answers a request: a stored response, a fill to join, a fetch of our own, a pass, or a refusal.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use thalweg_cache::fill::Progress;
use thalweg_cache::freshness::Freshness;
use thalweg_cache::{Failure, Fill, Head, Lookup, Reader, Stored};
use thalweg_http::cache_control::RequestCacheControl;
use thalweg_http::cache_status::{CacheStatus, Forward};
use thalweg_http::{Framing, Method, RequestHead};
use thalweg_policy::Sub;
use thalweg_policy::step::Action;
use thalweg_record::CacheResult;
use tokio::net::TcpStream;

use crate::backend::Route;
use crate::content::Content;
use crate::fetch;
use crate::interim::{Asker, head_of};
use crate::now_ms;
use crate::policy::{Heads, Instead, Transaction};
use crate::request::write_key;
use crate::slices::{self, Opened, Sliced};
use crate::upload::Upload;
use crate::worker::Worker;

/// How often a request waits for a head that then turns out not to answer it, before it is passed.
const WAITS_MAX: usize = 4;

/// A response to hand on.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) head: Arc<Head>,
    pub(crate) content: Content,
    pub(crate) cache: CacheResult,
    freshness: Freshness,
    /// It was fetched for this client, which gets the fields that are for it alone.
    pub(crate) own: bool,
    /// The backend answered this very request: its conditions and range are not ours to apply.
    pub(crate) verbatim: bool,
    /// A policy has made the head all that the client is told; with the reason phrase, if it is another.
    pub(crate) told: Option<Option<String>>,
    /// `None` if it is a hit.
    forwarded: Option<Forwarded>,
}

/// That a request went to a backend, or waited for one that did, for `Cache-Status` (RFC 9211).
#[derive(Debug, Clone, Copy)]
struct Forwarded {
    why: Forward,
    /// What the backend answered with, where that is known.
    status: Option<u16>,
    /// What it sent is stored.
    stored: bool,
    collapsed: bool,
}

impl Forwarded {
    fn new(why: Forward, status: Option<u16>) -> Self {
        Self { why, status, stored: false, collapsed: false }
    }

    /// Behind somebody else's fetch.
    fn collapsed(why: Forward, status: Option<u16>) -> Self {
        Self { collapsed: true, ..Self::new(why, status) }
    }
}

/// A response of our own.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// What the client is told.
    pub(crate) reason: &'static str,
    pub(crate) forward: Option<Forward>,
    /// What the backend answered with, if it did.
    pub(crate) forward_status: Option<u16>,
    /// It waited for somebody else's fetch.
    pub(crate) collapsed: bool,
}

impl Found {
    fn stored(stored: &Stored, cache: CacheResult) -> Self {
        let content = Content::Fill(stored.content.reader(0));
        let freshness = stored.freshness();
        let (own, verbatim, forwarded) = (false, false, None);
        Self { head: stored.head.clone(), content, cache, freshness, own, verbatim, told: None, forwarded }
    }

    /// Stale, because the backend failed (RFC 5861 §4).
    fn in_need(stored: &Stored, failure: &Failure) -> Self {
        let forwarded = Some(Forwarded::new(Forward::Stale, failure.status()));
        Self { forwarded, ..Self::stored(stored, CacheResult::Stale) }
    }

    /// Still arriving, for somebody else.
    fn joined(stored: &Stored) -> Self {
        let forwarded = Some(Forwarded::collapsed(Forward::Miss, None));
        Self { forwarded, ..Self::stored(stored, CacheResult::Join) }
    }

    fn fetched(head: Arc<Head>, content: Reader<Arc<Head>>, forwarded: Forwarded) -> Self {
        let cache = if head.private.is_some() { CacheResult::Pass } else { CacheResult::Miss };
        let (freshness, content) = (head.freshness, Content::Fill(content));
        Self {
            head,
            content,
            cache,
            freshness,
            own: true,
            verbatim: false,
            told: None,
            forwarded: Some(forwarded),
        }
    }

    /// The same, with its content from slices; `opened` is where the first one was found.
    fn sliced(self, sliced: Sliced, opened: Option<Opened>) -> Self {
        let (cache, forwarded) = match (self.cache, self.forwarded, opened) {
            // The head is here, or somebody else's content that has not come so far.
            (_, None, Some(opened)) | (CacheResult::Join, _, Some(opened)) => match opened.cache {
                CacheResult::Hit if self.cache == CacheResult::Join => (CacheResult::Hit, None),
                CacheResult::Hit => (self.cache, None),
                CacheResult::Join => (opened.cache, Some(Forwarded::collapsed(Forward::Partial, None))),
                fetched => {
                    let partial = Forwarded::new(Forward::Partial, Some(opened.status));
                    (fetched, Some(Forwarded { stored: opened.stored, ..partial }))
                }
            },
            (CacheResult::Miss, Some(forwarded), Some(opened)) if opened.cache == CacheResult::Miss => {
                (self.cache, Some(Forwarded { status: Some(opened.status), ..forwarded }))
            }
            (cache, forwarded, _) => (cache, forwarded),
        };
        Self { content: Content::Sliced(Box::new(sliced)), cache, forwarded, ..self }
    }

    /// `Cache-Status` (RFC 9211).
    pub(crate) fn status(&self, now_ms: u64) -> CacheStatus<'_> {
        let forwarded = self.forwarded;
        CacheStatus {
            hit: forwarded.is_none(),
            forward: forwarded.map(|forwarded| forwarded.why),
            forward_status: forwarded.and_then(|forwarded| forwarded.status),
            ttl_s: self.head.private.is_none().then(|| self.freshness.ttl_s(now_ms)),
            stored: forwarded.is_some_and(|forwarded| forwarded.stored),
            collapsed: forwarded.is_some_and(|forwarded| forwarded.collapsed),
            key: None,
            detail: self.head.private.map(|private| private.reason),
        }
    }

    /// Its content failed before any of it was sent.
    pub(crate) fn refusal(&self, failure: &Failure) -> Refusal {
        let refusal = Refusal::failed(failure, self.forwarded.map(|forwarded| forwarded.why));
        let status = self.forwarded.and_then(|forwarded| forwarded.status);
        Refusal {
            forward_status: refusal.forward_status.or(status),
            collapsed: self.forwarded.is_some_and(|forwarded| forwarded.collapsed),
            ..refusal
        }
    }

    /// The age to tell: of what was stored before, or had an age when it came.
    pub(crate) fn age_s(&self, now_ms: u64) -> Option<u64> {
        let age = self.freshness.age_s(now_ms);
        let stored = matches!(self.cache, CacheResult::Hit | CacheResult::Join | CacheResult::Stale);
        (age > 0 || stored).then_some(age)
    }
}

impl Refusal {
    pub(crate) const fn own(status: u16, reason: &'static str) -> Self {
        Self { status, reason, forward: None, forward_status: None, collapsed: false }
    }

    pub(crate) fn failed(failure: &Failure, forward: impl Into<Option<Forward>>) -> Self {
        let (status, reason) = match failure {
            Failure::BackendTimeout(_) => (504, "the backend did not answer in time"),
            Failure::Busy(_) => (503, "too many fetches are under way"),
            Failure::Policy(reason) => (503, *reason),
            Failure::NoRoom => (503, "no room for the response"),
            _ => (502, "no valid answer came from the backend"),
        };
        let (forward, forward_status) = (forward.into(), failure.status());
        Self { status, reason, forward, forward_status, collapsed: false }
    }
}

/// A request that looks for its answer.
pub(crate) struct Ask<'a> {
    /// As it came.
    pub(crate) request: &'a RequestHead,
    /// The policy that it runs through.
    pub(crate) policy: Option<Policed<'a>>,
}

/// A request's way through a policy, and the connection it came on.
pub(crate) struct Policed<'a> {
    pub(crate) transaction: &'a mut Transaction,
    pub(crate) stream: &'a TcpStream,
}

impl Ask<'_> {
    /// The request as it is by now.
    pub(crate) fn head(&self) -> &RequestHead {
        self.policy.as_ref().map_or(self.request, |policy| &policy.transaction.req)
    }

    /// Whether what was found answers the request; else it is passed.
    fn hit(&mut self, worker: &Worker, stored: &Stored) -> Result<bool, Instead> {
        let Some(Policed { transaction, stream }) = &mut self.policy else { return Ok(true) };
        match transaction.hit(stored, stream, worker) {
            Action::Deliver => Ok(true),
            Action::Pass => Ok(false),
            action => Err(Instead::Action(action)),
        }
    }

    /// Whether what is missing is fetched to be stored; else the request is passed.
    fn miss(&mut self, worker: &Worker) -> Result<bool, Instead> {
        match self.run(worker, Sub::Miss) {
            None | Some(Action::Fetch) => Ok(true),
            Some(Action::Pass) => Ok(false),
            Some(action) => Err(Instead::Action(action)),
        }
    }

    fn passed(&mut self, worker: &Worker) -> Result<(), Instead> {
        if let Some(policy) = &mut self.policy {
            policy.transaction.forget_found();
        }
        match self.run(worker, Sub::Pass) {
            None | Some(Action::Fetch) => Ok(()),
            Some(action) => Err(Instead::Action(action)),
        }
    }

    /// What the policy says at this step, if it says anything.
    fn run(&mut self, worker: &Worker, sub: Sub) -> Option<Action> {
        let Policed { transaction, stream } = self.policy.as_mut().filter(|it| it.transaction.says(sub))?;
        Some(transaction.run(sub, Heads::default(), stream, worker))
    }

    /// The fetch as the policy has its say in it.
    fn fetch(&self, request: fetch::Request, is_pass: bool) -> fetch::Request {
        match &self.policy {
            Some(policy) => request.under(policy.transaction.fetching(is_pass)),
            None => request,
        }
    }

    /// With what slices of its answer are asked for, and where: what `vcl_backend_fetch` makes of the request. `None` where
    /// the policy lets none be fetched.
    pub(crate) fn slices(&self, worker: &Worker) -> (RequestHead, Option<Route>) {
        let mut bereq = self.head().clone();
        let Some(policy) = &self.policy else { return (bereq, Some(Route::default())) };
        let mut fetching = policy.transaction.fetching(false);
        let route = match fetching.run(Sub::BackendFetch, &mut bereq, None, worker.cache()) {
            Action::Fetch => fetching.route(&mut bereq, worker.cache()),
            _ => None,
        };
        (bereq, route)
    }

    /// What the request says of caching, where that counts. Under a policy that is the policy's to say.
    fn asked(&self, worker: &Worker) -> RequestCacheControl {
        match &self.policy {
            Some(policy) => policy.transaction.asked(),
            None => asked(worker, self.request),
        }
    }

    /// Whether the policy allows less grace than `stored` has taken by now.
    fn is_past_grace(&self, stored: &Stored) -> bool {
        let grace_s = self.policy.as_ref().and_then(|policy| policy.transaction.client.grace_s);
        grace_s.is_some_and(|grace_s| -(stored.freshness().ttl_s(now_ms()) as f64) >= grace_s)
    }

    /// Whether it does not wait for a fetch of somebody else.
    fn ignores_busy(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.transaction.client.hash_ignore_busy)
    }
}

/// Finds or fetches what answers a request.
pub(crate) async fn answer(
    worker: &Arc<Worker>,
    key: &str,
    ask: &mut Ask<'_>,
    client: Asker<'_>,
) -> Result<Found, Instead> {
    let mut slices = true;
    for _ in 0..WAITS_MAX {
        let found = find(worker, key, ask, client, &mut slices).await?;
        let Some(mut sliced) = Sliced::instead(worker, key, ask, client.ip, &found, slices) else {
            return Ok(found);
        };
        if ask.asked(worker).only_if_cached && !sliced.is_stored(&found.head) {
            return Err(Refusal::own(504, "nothing stored answers the request").into());
        }
        match sliced.open_first(&found.head).await {
            Ok(opened) => return Ok(found.sliced(sliced, opened)),
            // What was found is not at the backend any more, or not in slices.
            Err(Failure::NotSliced(_)) => slices &= found.head.sliced,
            Err(Failure::Unreadable) => {}
            Err(failure) => return Err(Refusal::failed(&failure, Forward::Partial).into()),
        }
    }
    pass(worker, ask, client, Forward::Miss).await
}

/// What the request says of caching, where that counts.
fn asked(worker: &Worker, request: &RequestHead) -> RequestCacheControl {
    if worker.config().rules.request_directives {
        RequestCacheControl::from_fields(&request.fields)
    } else {
        RequestCacheControl::default()
    }
}

/// Finds or fetches a response; its content may be elsewhere. `slices` is whether the backend may be asked for a slice, which
/// is taken back if it has none to give.
async fn find(
    worker: &Arc<Worker>,
    key: &str,
    ask: &mut Ask<'_>,
    client: Asker<'_>,
    slices: &mut bool,
) -> Result<Found, Instead> {
    let mut asked = ask.asked(worker);
    for _ in 0..WAITS_MAX {
        match worker.cache().look_up(key, &ask.head().fields, &asked, now_ms()) {
            Lookup::Hit(stored) if ask.hit(worker, &stored)? => {
                return Ok(Found::stored(&stored, CacheResult::Hit));
            }
            Lookup::Joined(stored) if ask.hit(worker, &stored)? => return Ok(Found::joined(&stored)),
            Lookup::Hit(_) | Lookup::Joined(_) => return pass(worker, ask, client, Forward::Bypass).await,
            Lookup::Miss(fill, mut content) => {
                let forward = fill.forward();
                if !ask.miss(worker)? {
                    drop(fill);
                    return pass(worker, ask, client, forward).await;
                }
                let request = ask.head();
                let mut wanted = match slices::cold(worker, request).filter(|_| *slices) {
                    Some(slice) => {
                        // Once: what comes is in slices then, or the backend has none.
                        *slices = false;
                        fetch::Request::slice(request, slice)
                    }
                    // Nobody reads what a HEAD has had fetched, and it is not to be fetched for each anew.
                    None if request.method == Method::Head => fetch::Request::whole(request).behind(),
                    None => fetch::Request::whole(request),
                };
                let told = wanted.is_slice().then(|| wanted.tell_status());
                let wanted = ask.fetch(wanted, false);
                return match head_of(worker, fill, wanted, &mut content, client).await {
                    Ok(head) => {
                        // A slice came with another status than the head of the whole has.
                        let status = told.and_then(|mut told| told.try_recv().ok()).unwrap_or(head.status);
                        let forwarded = forwarded(worker, key, &head, forward, status);
                        Ok(Found::fetched(head, content, forwarded))
                    }
                    // The backend has no such slice to give: all of it then.
                    Err(Failure::NotSliced(_)) => continue,
                    Err(Failure::NotShared) => return pass(worker, ask, client, forward).await,
                    Err(failure) => Err(Refusal::failed(&failure, forward).into()),
                };
            }
            Lookup::Refresh(stored, fill) if ask.is_past_grace(&stored) => {
                // As if it had none: whoever finds it then asks about it and waits.
                drop(fill);
                asked.no_cache = true;
            }
            Lookup::Refresh(stored, fill) => {
                let delivers = ask.hit(worker, &stored)?;
                if let Some(fill) = fill {
                    refresh(worker, fill, ask, &stored, client.ip);
                }
                if !delivers {
                    return pass(worker, ask, client, Forward::Bypass).await;
                }
                return Ok(Found::stored(&stored, CacheResult::Stale));
            }
            Lookup::Stale(fill, mut content, stale) => {
                let forward = fill.forward();
                if !ask.miss(worker)? {
                    drop(fill);
                    return pass(worker, ask, client, forward).await;
                }
                let (validation, told) = fetch::Request::validation(ask.head(), stale.clone());
                let validation = ask.fetch(validation, false);
                return match head_of(worker, fill, validation, &mut content, client).await {
                    Ok(head) => {
                        let forwarded = forwarded(worker, key, &head, forward, head.status);
                        Ok(Found::fetched(head, content, forwarded))
                    }
                    Err(Failure::Superseded) => match told.await {
                        Ok(stored) => {
                            let found = Found::stored(&stored, CacheResult::Validated);
                            let forwarded = Some(Forwarded::new(forward, Some(304)));
                            Ok(Found { own: true, forwarded, ..found })
                        }
                        Err(_) => Err(Refusal::failed(&Failure::Abandoned, forward).into()),
                    },
                    Err(failure) if stale.freshness().serves_on_error(now_ms()) => {
                        Ok(Found::in_need(&stale, &failure))
                    }
                    Err(failure) => Err(Refusal::failed(&failure, forward).into()),
                };
            }
            Lookup::Nothing => return Err(Refusal::own(504, "nothing stored answers the request").into()),
            Lookup::Wait(..) if ask.ignores_busy() => return pass(worker, ask, client, Forward::Miss).await,
            Lookup::Wait(content, number) => match joined(worker, key, ask.head(), content, number).await? {
                Joined::Found(found) if ask.policy.is_none() => return Ok(found),
                // A policy is asked about what is found.
                Joined::Found(_) | Joined::LookAgain => {}
                Joined::NotShared => return pass(worker, ask, client, Forward::Miss).await,
            },
            Lookup::Pass => return pass(worker, ask, client, Forward::Bypass).await,
        }
    }
    pass(worker, ask, client, Forward::Miss).await
}

/// What became of a request that had a response fetched for `why`.
fn forwarded(worker: &Worker, key: &str, head: &Arc<Head>, why: Forward, status: u16) -> Forwarded {
    // What was purged on its way goes to those who had asked before, and is not stored.
    let stored = head.private.is_none() && worker.cache().is_stored(key, head);
    Forwarded { stored, ..Forwarded::new(why, Some(status)) }
}

/// Fetches anew, or asks about, what is being served stale meanwhile.
fn refresh(worker: &Arc<Worker>, fill: Fill, ask: &Ask<'_>, stored: &Arc<Stored>, client: IpAddr) {
    let request = if stored.is_complete() {
        fetch::Request::validation(ask.head(), stored.clone()).0
    } else {
        fetch::Request::whole(ask.head())
    };
    let request = ask.fetch(request, false).behind();
    worker.spawn(fetch::run(worker.clone(), fill, request, client));
}

/// What became of waiting for somebody else's fetch.
enum Joined {
    Found(Found),
    /// It brought what another kind of request selects, or what was purged on its way.
    LookAgain,
    /// It brought nothing that may be shared: everybody goes their own way, at once.
    NotShared,
}

async fn joined(
    worker: &Worker,
    key: &str,
    request: &RequestHead,
    mut content: Reader<Arc<Head>>,
    number: u64,
) -> Result<Joined, Refusal> {
    let joined = |head: Arc<Head>, content| Found {
        freshness: head.freshness,
        head,
        content: Content::Fill(content),
        cache: CacheResult::Join,
        own: false,
        verbatim: false,
        told: None,
        forwarded: Some(Forwarded::collapsed(Forward::Miss, None)),
    };
    match content.head().await {
        Ok(head) if head.private.is_some() => Ok(Joined::NotShared),
        Ok(head) if !head.selection.matches(&request.fields) => Ok(Joined::LookAgain),
        Ok(head) if worker.cache().has_purged(key, &head, number) => Ok(Joined::LookAgain),
        Ok(head) if head.freshness.is_fresh(now_ms()) => Ok(Joined::Found(joined(head, content))),
        Ok(_) => Ok(Joined::NotShared),
        // Whoever was to fetch it has turned away.
        Err(Failure::NotSliced(_) | Failure::Abandoned) => Ok(Joined::LookAgain),
        Err(Failure::NotShared) => Ok(Joined::NotShared),
        Err(Failure::Superseded) => match worker.cache().peek(key, &request.fields) {
            Some(stored) if stored.freshness().is_fresh(now_ms()) => {
                let forwarded = Some(Forwarded::collapsed(Forward::Stale, Some(304)));
                Ok(Joined::Found(Found { forwarded, ..Found::stored(&stored, CacheResult::Hit) }))
            }
            _ => Ok(Joined::NotShared),
        },
        Err(failure) => match worker.cache().peek(key, &request.fields) {
            Some(stored) if stored.freshness().serves_on_error(now_ms()) => {
                let forwarded = Some(Forwarded::collapsed(Forward::Stale, failure.status()));
                Ok(Joined::Found(Found { forwarded, ..Found::in_need(&stored, &failure) }))
            }
            _ => Err(Refusal { collapsed: true, ..Refusal::failed(&failure, Forward::Miss) }),
        },
    }
}

/// Hands the request on as it is, and its response to this client alone.
pub(crate) fn pass<'a>(
    worker: &'a Arc<Worker>,
    ask: &mut Ask<'_>,
    client: Asker<'a>,
    forward: Forward,
) -> Pin<Box<dyn Future<Output = Result<Found, Instead>> + Send + 'a>> {
    if let Err(instead) = ask.passed(worker) {
        return Box::pin(std::future::ready(Err(instead)));
    }
    let request = ask.head();
    let mut passed = ask.fetch(fetch::Request::verbatim(request), true);
    if request.method == Method::Head {
        let mut key = String::new();
        write_key(&request.authority, request.target.as_str(), &mut key);
        passed.known = worker.cache().peek(&key, &request.fields);
    }
    hand_on(worker, passed, client, forward)
}

/// Hands on a request that may change something (RFC 9110 §9.2.1), with its content.
pub(crate) fn change<'a>(
    worker: &'a Arc<Worker>,
    ask: &mut Ask<'_>,
    (framing, content): (Framing, Option<Upload>),
    client: Asker<'a>,
) -> Pin<Box<dyn Future<Output = Result<Found, Instead>> + Send + 'a>> {
    if let Err(instead) = ask.passed(worker) {
        return Box::pin(std::future::ready(Err(instead)));
    }
    let request = ask.fetch(fetch::Request::change(ask.head(), framing, content), true);
    hand_on(worker, request, client, Forward::Method)
}

/// Boxed, as it is not on the way of a hit: idle connections are to be small.
fn hand_on<'a>(
    worker: &'a Arc<Worker>,
    request: fetch::Request,
    client: Asker<'a>,
    forward: Forward,
) -> Pin<Box<dyn Future<Output = Result<Found, Instead>> + Send + 'a>> {
    let (fill, mut content) = worker.cache().pass();
    Box::pin(async move {
        match head_of(worker, fill, request, &mut content, client).await {
            Ok(head) => {
                let forwarded = Forwarded::new(forward, Some(head.status));
                let found = Found::fetched(head, content, forwarded);
                Ok(Found { cache: CacheResult::Pass, verbatim: true, ..found })
            }
            Err(failure) => Err(Refusal::failed(&failure, forward).into()),
        }
    })
}

impl Found {
    /// Content bytes, if their number is known by now.
    pub(crate) fn length(&self) -> Option<u64> {
        match self.content.progress() {
            Progress::Complete(length) if !self.verbatim => Some(length),
            _ => self.head.length,
        }
    }
}
