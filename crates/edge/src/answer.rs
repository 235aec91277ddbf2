//! What answers a request: a stored response, a fill to join, a fetch of our own, a pass, or a refusal.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use thalweg_cache::{Failure, Fill, Head, Lookup, Reader, Stored};
use thalweg_http::cache_status::Forward;
use thalweg_http::{Framing, Method};
use thalweg_record::CacheResult;

use crate::content::Content;
use crate::fetch;
use crate::interim::{Asker, head_of};
use crate::now_ms;
use crate::policy::Instead;
use crate::request::write_key;
use crate::slices::{self, Sliced};
use crate::upload::Upload;
use crate::worker::Worker;
pub(crate) use ask::{Ask, Policed};
use found::Forwarded;
pub(crate) use found::{Found, Refusal, Told};

mod ask;
mod found;

/// How often a request waits for a head that then turns out not to answer it, before it is passed.
const WAITS_MAX: usize = 4;

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

/// Finds or fetches a response; its content may be elsewhere. `slices` is whether the backend may be asked for a slice, which
/// is taken back if it has none to give.
async fn find(
    worker: &Arc<Worker>,
    key: &str,
    ask: &mut Ask<'_>,
    client: Asker<'_>,
    slices: &mut bool,
) -> Result<Found, Instead> {
    let mut anew = ask.always_misses();
    let mut waited = false;
    ask.begin_look_up();
    for _ in 0..WAITS_MAX {
        let begun = match look_up(worker, key, ask, anew) {
            Lookup::Hit(stored) if ask.hit(worker, &stored)? => {
                return Ok(Found::here(&stored, CacheResult::Hit, waited));
            }
            Lookup::Joined(stored) if ask.hit(worker, &stored)? => return Ok(Found::joined(&stored)),
            Lookup::Hit(_) | Lookup::Joined(_) => return pass(worker, ask, client, Forward::Bypass).await,
            Lookup::Miss(fill, content) => (fill, content),
            Lookup::HitMiss(fill, content) => {
                ask.found_hit_for_miss();
                // What is for one client alone is not kept in slices.
                *slices = false;
                (fill, content)
            }
            Lookup::Refresh(stored, fill) => {
                let delivers = ask.hit(worker, &stored)?;
                if let Some(fill) = fill {
                    refresh(worker, fill, ask, &stored, client.ip);
                }
                if !delivers {
                    return pass(worker, ask, client, Forward::Bypass).await;
                }
                return Ok(Found::here(&stored, CacheResult::Stale, waited));
            }
            // It is the policy's to find it too old: the backend is not asked about it.
            Lookup::Stale(fill, content, stored) if ask.is_fresh_by_itself(&stored) => (fill, content),
            Lookup::Stale(fill, content, stale) => {
                return Box::pin(validated(worker, key, ask, client, (fill, content), stale)).await;
            }
            Lookup::Nothing => return Err(Refusal::own(504, "nothing stored answers the request").into()),
            Lookup::Wait(..) if ask.ignores_busy() => {
                anew = true;
                continue;
            }
            Lookup::Wait(content, number) => match joined(worker, key, ask, content, number).await? {
                Joined::Found(found) if ask.policy.is_none() => return Ok(found),
                // A policy is asked about what is found, and whether that is too old.
                Joined::Found(_) | Joined::LookAgain => {
                    waited = true;
                    continue;
                }
                Joined::NotShared => return pass(worker, ask, client, Forward::Miss).await,
            },
            Lookup::Pass => {
                ask.found_hit_for_pass();
                return pass(worker, ask, client, Forward::Bypass).await;
            }
        };
        if let Some(found) = Box::pin(missed(worker, key, ask, client, begun, slices)).await? {
            return Ok(found);
        }
    }
    pass(worker, ask, client, Forward::Miss).await
}

/// Looks it up as the policy, if there is one, will have it.
fn look_up(worker: &Worker, key: &str, ask: &Ask<'_>, anew: bool) -> Lookup {
    if anew {
        return worker.cache().begin_anew(key);
    }
    let (fields, mut asked) = (&ask.head().fields, ask.asked(worker));
    let looked_up = worker.cache().look_up(key, fields, &asked, now_ms());
    let is_too_old = match &looked_up {
        Lookup::Hit(stored) | Lookup::Joined(stored) | Lookup::Refresh(stored, _) => ask.is_too_old(stored),
        _ => false,
    };
    if !is_too_old {
        return looked_up;
    }
    // As if it were no good any more: whoever finds it then has another fetched, and waits. First this refresh is given up.
    drop(looked_up);
    asked.no_cache = true;
    worker.cache().look_up(key, fields, &asked, now_ms())
}

/// Has what is missing fetched, and stored; `None` if it is to be looked up again. Boxed by who calls it, as is
/// `validated`: what a hit does not go through is not to make an idle connection larger.
async fn missed(
    worker: &Arc<Worker>,
    key: &str,
    ask: &mut Ask<'_>,
    client: Asker<'_>,
    (fill, mut content): (Fill, Reader<Arc<Head>>),
    slices: &mut bool,
) -> Result<Option<Found>, Instead> {
    let forward = fill.forward();
    if !ask.miss(worker)? {
        drop(fill);
        return pass(worker, ask, client, forward).await.map(Some);
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
    match head_of(worker, fill, wanted, &mut content, client).await {
        Ok(head) => {
            // A slice came with another status than the head of the whole has.
            let status = told.and_then(|mut told| told.try_recv().ok()).unwrap_or(head.status);
            let forwarded = forwarded(worker, key, &head, forward, status);
            Ok(Some(Found::fetched(head, content, forwarded)))
        }
        // The backend has no such slice to give: all of it then.
        Err(Failure::NotSliced(_)) => Ok(None),
        Err(Failure::NotShared) => pass(worker, ask, client, forward).await.map(Some),
        Err(failure) => Err(Refusal::failed(&failure, forward).into()),
    }
}

/// Asks the backend about `stale`, or serves it where the backend fails and it may be.
async fn validated(
    worker: &Arc<Worker>,
    key: &str,
    ask: &mut Ask<'_>,
    client: Asker<'_>,
    (fill, mut content): (Fill, Reader<Arc<Head>>),
    stale: Arc<Stored>,
) -> Result<Found, Instead> {
    let forward = fill.forward();
    if !ask.miss(worker)? {
        drop(fill);
        return pass(worker, ask, client, forward).await;
    }
    let (validation, told) = fetch::Request::validation(ask.head(), stale.clone());
    let validation = ask.fetch(validation, false);
    match head_of(worker, fill, validation, &mut content, client).await {
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
        Err(failure) if ask.serves_on_error(&stale) => Ok(Found::in_need(&stale, &failure)),
        Err(failure) => Err(Refusal::failed(&failure, forward).into()),
    }
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
    ask: &Ask<'_>,
    mut content: Reader<Arc<Head>>,
    number: u64,
) -> Result<Joined, Refusal> {
    let request = ask.head();
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
        // What is known of the next ones is in the index.
        Ok(head) if head.private.is_some_and(|private| private.lasting.is_of_policy()) => {
            Ok(Joined::LookAgain)
        }
        Ok(head) if head.private.is_some() => Ok(Joined::NotShared),
        Ok(head) if !head.selection.matches(&request.fields) => Ok(Joined::LookAgain),
        Ok(head) if worker.cache().has_purged(key, &head, number) => Ok(Joined::LookAgain),
        Ok(head) if head.freshness.is_fresh(now_ms()) => Ok(Joined::Found(joined(head, content))),
        // A policy has it stored for its grace.
        Ok(_) if ask.policy.is_some() => Ok(Joined::LookAgain),
        Ok(_) => Ok(Joined::NotShared),
        // Whoever was to fetch it has turned away.
        Err(Failure::NotSliced(_) | Failure::Abandoned) => Ok(Joined::LookAgain),
        Err(Failure::NotShared) => Ok(Joined::NotShared),
        Err(Failure::Superseded) => match worker.cache().peek(key, &request.fields, now_ms()) {
            Some(stored) if stored.freshness().is_fresh(now_ms()) => {
                let forwarded = Some(Forwarded::collapsed(Forward::Stale, Some(304)));
                Ok(Joined::Found(Found { forwarded, ..Found::stored(&stored, CacheResult::Hit) }))
            }
            _ => Ok(Joined::NotShared),
        },
        Err(failure) => match worker.cache().peek(key, &request.fields, now_ms()) {
            Some(stored) if ask.serves_on_error(&stored) => {
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
        passed.known = worker.cache().peek(&key, &request.fields, now_ms());
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
                let cache = if found.head.is_error() { CacheResult::Error } else { CacheResult::Pass };
                Ok(Found { cache, verbatim: true, ..found })
            }
            Err(failure) => Err(Refusal::failed(&failure, forward).into()),
        }
    })
}
