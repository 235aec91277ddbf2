//! The head that is kept of a response: judged by its fields, or brought up to date by what a later one says.

use std::sync::Arc;

use thalweg_cache::fill::Progress;
use thalweg_cache::freshness::Freshness;
use thalweg_cache::rules::{self, Rules};
use thalweg_cache::storage::{Selection, Storable, storable, withhold};
use thalweg_cache::tags::SURROGATE_KEY;
use thalweg_cache::{Head, Lasting, Private, Stored};
use thalweg_http::{Fields, Method, RequestHead, date, framing};

use super::Request;
use crate::exchange::Exchange;
use crate::now_ms;
use crate::worker::Worker;

/// The head to keep, of a response as it came.
pub(super) fn take_head(request: &Request, exchange: &Exchange, rules: &Rules, asked_ms: u64) -> Head {
    let mut fields = exchange.head.fields.clone();
    // Framing was checked before the head was handed out; a HEAD response says what GET would have.
    let length = framing::content_length(&fields).ok().flatten();
    fields.remove_hop_by_hop();
    fields.remove("content-length");
    let (mut status, mut reason) = (exchange.head.status, exchange.head.reason.clone());
    if request.slice.is_some() && status == 206 {
        // What is kept is the head of the whole.
        (status, reason) = (200, None);
        fields.remove("content-range");
    }
    let mut head = head_of(&request.head, status, fields, length, rules, asked_ms);
    head.reason = reason;
    if request.verbatim {
        head.private = Some(Private { reason: "pass", lasting: Lasting::No });
    }
    head
}

/// Judges a response by its fields, of which `Age` goes into the freshness.
pub(super) fn head_of(
    request: &RequestHead,
    status: u16,
    mut fields: Fields,
    length: Option<u64>,
    rules: &Rules,
    asked_ms: u64,
) -> Head {
    let now_ms = now_ms();
    if !fields.contains("date") {
        fields.push("Date", date::format(now_ms / 1000));
    }
    let (directives, expires) = rules::directives(&fields, rules);
    let freshness = Freshness::of(status, &fields, &directives, expires, rules, (asked_ms, now_ms));
    let mut withheld = withhold(&mut fields, &directives);
    let private = match storable(request, status, &fields, &directives, &freshness) {
        Storable::Yes => None,
        // An error is over sooner than its key would be passed.
        Storable::No(reason) if status < 400 => Some(Private { reason, lasting: Lasting::Moment }),
        Storable::No(reason) | Storable::NotThis(reason) => Some(Private { reason, lasting: Lasting::No }),
    };
    let selection = Selection::of(&request.fields, &fields);
    fields.remove("age");
    let surrogate: Fields = fields.get_all(SURROGATE_KEY).map(|tags| ("Surrogate-Key", tags)).collect();
    if !surrogate.is_empty() {
        fields.remove(SURROGATE_KEY);
    }
    if private.is_some() {
        // It is for one client anyway.
        for (name, value) in withheld.iter() {
            fields.push(name, value);
        }
        withheld.clear();
    }
    let (reason, sliced, made) = (None, false, None);
    Head { status, reason, fields, withheld, surrogate, length, freshness, selection, private, sliced, made }
}

/// What the response to a HEAD says of what is stored: with the same validators and length it brings that up to date,
/// else what is stored is of something that was replaced, and stale (RFC 9111 §4.3.5).
pub(super) fn learn(
    worker: &Worker,
    request: &RequestHead,
    known: &Arc<Stored>,
    news: &Fields,
    asked_ms: u64,
) {
    let Progress::Complete(bytes) = known.content.progress() else { return };
    let same_validators = ["etag", "last-modified"]
        .into_iter()
        .all(|name| news.get(name).is_none_or(|value| known.head.fields.get(name) == Some(value)));
    // A length that cannot be read has been refused with the head.
    let same_length = framing::content_length(news).ok().flatten().is_none_or(|length| length == bytes);
    let head = if same_validators && same_length {
        let get = RequestHead { method: Method::Get, ..request.clone() };
        brought_up_to_date(&get, &known.head, news, &worker.config().rules, asked_ms)
    } else {
        let freshness =
            Freshness { lifetime_ms: 0, while_revalidate_ms: 0, if_error_ms: 0, ..known.head.freshness };
        Head { freshness, ..Head::clone(&known.head) }
    };
    worker.cache().update(known, head);
}

/// The stored head with the fields of a 304, or of a HEAD, in place of its own (RFC 9111 §3.2, §4.3.4).
pub(super) fn brought_up_to_date(
    request: &RequestHead,
    stored: &Head,
    news: &Fields,
    rules: &Rules,
    asked_ms: u64,
) -> Head {
    /// About the 304 itself. What is stored is the content as it came, so all else that is said of it holds.
    const NOT_TAKEN: [&str; 2] = ["content-length", "content-range"];
    let mut news = news.clone();
    news.remove_hop_by_hop();
    let mut fields = stored.fields.clone();
    for (name, value) in stored.surrogate.iter() {
        fields.push(name, value);
    }
    // When the 304 came is when it was made, if it does not say (RFC 9110 §6.6.1).
    fields.remove("date");
    let taken = |name: &str| !NOT_TAKEN.iter().any(|not| not.eq_ignore_ascii_case(name));
    for (name, _) in news.iter().filter(|(name, _)| taken(name)) {
        fields.remove(name);
    }
    for (name, value) in news.iter().filter(|(name, _)| taken(name)) {
        fields.push(name, value);
    }
    let head = head_of(request, stored.status, fields, stored.length, rules, asked_ms);
    Head { sliced: stored.sliced, reason: stored.reason.clone(), ..head }
}
