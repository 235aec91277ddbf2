//! Response evaluation: what to store and for how long, and how to update a stored head.

use std::sync::Arc;

use thalweg_cache::fill::Progress;
use thalweg_cache::freshness::Freshness;
use thalweg_cache::rules::{self, Rules};
use thalweg_cache::storage::{Selection, Storable, storable, withhold};
use thalweg_cache::tags::SURROGATE_KEY;
use thalweg_cache::{Cache, Head, PassMark, Stored, Unshareable};
use thalweg_http::{Fields, Method, RequestHead, ResponseHead, Version, date, framing};

use super::request::{Pass, Request, Want};
use crate::clock::now_ms;

/// A response to evaluate for storage.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    /// Response head without hop-by-hop fields; a policy may have changed it.
    pub(super) head: ResponseHead,
    /// Content length in bytes, if known.
    pub(super) length: Option<u64>,
    /// Whether the content is stored in slices.
    pub(super) sliced: bool,
}

/// Creates the candidate from a received response. A slice gets the head of the whole response.
pub(super) fn candidate_of(request: &Request, head: &ResponseHead) -> Candidate {
    let is_head = matches!(request.want, Want::Pass(Pass { is_head: true, .. }));
    let length = match request.head.method {
        // The policy has changed the method to HEAD, so the response has no content.
        Method::Head if !is_head => Some(0),
        // The framing is already checked. A HEAD response declares the length that GET would
        // return.
        _ => framing::content_length(&head.fields).ok().flatten(),
    };
    let mut head = head.clone();
    head.fields.remove_hop_by_hop();
    if request.is_slice() && head.status == 206 {
        (head.status, head.reason) = (200, None);
        head.fields.remove("content-range");
    }
    Candidate { head, length, sliced: false }
}

/// Updates the stored head with a 304 or a HEAD response (RFC 9111 §3.2, §4.3.4).
pub(super) fn refreshed(stored: &Head, update: &Fields) -> Candidate {
    /// Fields that describe the 304 itself rather than the stored content.
    const NOT_UPDATED: [&str; 2] = ["content-length", "content-range"];
    let mut update = update.clone();
    update.remove_hop_by_hop();
    let mut fields = stored.fields.clone();
    for (_, tags) in stored.surrogate.iter() {
        fields.push(SURROGATE_KEY, tags);
    }
    // Without `Date`, the 304 is taken to be generated on receipt (RFC 9110 §6.6.1).
    fields.remove("date");
    let is_updated = |name: &str| !NOT_UPDATED.iter().any(|not| not.eq_ignore_ascii_case(name));
    for (name, _) in update.iter().filter(|(name, _)| is_updated(name)) {
        fields.remove(name);
    }
    for (name, value) in update.iter().filter(|(name, _)| is_updated(name)) {
        fields.push(name, value);
    }
    let (status, reason) = (stored.status, stored.reason.clone());
    let head = ResponseHead { status, reason, fields, version: Version::Http11 };
    Candidate { head, length: stored.length, sliced: stored.sliced }
}

/// Evaluates a response by its fields. `Age` becomes part of the freshness.
pub(super) fn judge(request: &RequestHead, candidate: Candidate, rules: &Rules, asked_ms: u64) -> Head {
    let Candidate { head: ResponseHead { status, reason, mut fields, .. }, length, sliced } = candidate;
    let now_ms = now_ms();
    fields.remove("content-length");
    if !fields.contains("date") {
        fields.push("Date", date::format(now_ms / 1000));
    }
    let (directives, expires) = rules::directives(&fields, rules);
    let freshness = Freshness::of(status, &fields, &directives, expires, rules, (asked_ms, now_ms));
    let mut withheld = withhold(&mut fields, &directives);
    let private = match storable(request, status, &fields, &directives, &freshness) {
        Storable::Yes => None,
        // Errors set no mark: an error is usually over before the mark would expire.
        Storable::No(reason) if status < 400 => Some(Unshareable { reason, mark: PassMark::Moment }),
        Storable::No(reason) | Storable::NotThis(reason) => Some(Unshareable { reason, mark: PassMark::No }),
    };
    let selection = Selection::of(&request.fields, &fields);
    fields.remove("age");
    let surrogate: Fields = fields.get_all(SURROGATE_KEY).map(|tags| ("Surrogate-Key", tags)).collect();
    if !surrogate.is_empty() {
        fields.remove(SURROGATE_KEY);
    }
    if private.is_some() {
        // The response is sent only to this client, so no field needs to be withheld.
        for (name, value) in withheld.iter() {
            fields.push(name, value);
        }
        withheld.clear();
    }
    let made = None;
    Head { status, reason, fields, withheld, surrogate, length, freshness, selection, private, sliced, made }
}

/// Applies a HEAD response to the stored response `known`. If validators and length match, updates
/// its head. Otherwise, the backend has replaced the content, and `known` becomes stale (RFC 9111
/// §4.3.5).
pub(super) fn update_from_head_response(
    cache: &Cache,
    rules: &Rules,
    request: &RequestHead,
    known: &Arc<Stored>,
    update: &Fields,
    asked_ms: u64,
) {
    let Progress::Complete(bytes) = known.content.progress() else { return };
    let same_validators = ["etag", "last-modified"]
        .into_iter()
        .all(|name| update.get(name).is_none_or(|value| known.head.fields.get(name) == Some(value)));
    // An invalid length was rejected when the head was parsed.
    let same_length = framing::content_length(update).ok().flatten().is_none_or(|length| length == bytes);
    let head = if same_validators && same_length {
        let get = RequestHead { method: Method::Get, ..request.clone() };
        judge(&get, refreshed(&known.head, update), rules, asked_ms)
    } else {
        let freshness =
            Freshness { lifetime_ms: 0, while_revalidate_ms: 0, if_error_ms: 0, ..known.head.freshness };
        Head { freshness, ..Head::clone(&known.head) }
    };
    cache.update(known, head);
}
