//! A request that is answered from what was found: which part of it goes out, as what, and how it ends.

use std::ops::Range;
use std::time::Duration;

use thalweg_cache::Failure;
use thalweg_http::{Fields, Method, Version, range, status, trailer};
use thalweg_record::CacheResult;

use super::content::{cut_of, send_content, send_parts};
use super::{Connection, Next};
use crate::answer::{Ask, Found, Refusal, answer};
use crate::content::Content;
use crate::multipart::Multipart;
use crate::now_ms;
use crate::policy::Instead;
use crate::reply::{Delimited, Part, ReplyHead, part};
use crate::send::Sender;
use crate::sent::Sent;

/// Ranges of one request that are answered from slices; what begins in one may have to be fetched for it.
const SLICED_RANGES_MAX: usize = 4;
/// How often one request looks for its answer, where what it finds cannot be read.
const LOOKS_MAX: usize = 4;

/// What of a response goes out, and as what.
struct Selected {
    status: u16,
    /// In place of the response's own.
    fields: Option<Fields>,
    /// Up to `u64::MAX` where the end is not known.
    content: Range<u64>,
    content_range: Option<String>,
    parts: Option<Multipart>,
}

impl Selected {
    fn of(found: &Found, chosen: Part) -> Self {
        let (length, stored) = (found.length(), &found.head.fields);
        let fields_of_error = || Some(fields_of_error(found));
        let plain =
            |status, content| Self { status, fields: None, content, content_range: None, parts: None };
        match chosen {
            Part::Whole | Part::After(_) => plain(found.head.status, 0..length.unwrap_or(u64::MAX)),
            Part::Range(range) => {
                let content_range = Some(range::content_range(&range, length));
                Self { content_range, ..plain(206, range) }
            }
            Part::Ranges(ranges) => {
                let parts = Multipart::new(&ranges, length, stored);
                let (fields, length) = (Some(parts.fields(stored)), parts.length());
                Self { fields, parts: Some(parts), ..plain(206, 0..length) }
            }
            Part::NotModified => plain(304, 0..0),
            Part::PreconditionFailed => Self { fields: fields_of_error(), ..plain(412, 0..0) },
            Part::Unsatisfiable(length) => {
                let content_range = Some(range::unsatisfied_range(length));
                Self { fields: fields_of_error(), content_range, ..plain(416, 0..0) }
            }
        }
    }
}

impl Connection {
    /// What answers the request, and which part of it. What turns out to be unreadable before a byte was sent has left
    /// the cache: another look finds, or fetches, something else.
    pub(super) async fn answered(&self) -> Result<(Found, Part), Refusal> {
        let mut looks = 0;
        loop {
            looks += 1;
            let mut ask = Ask { request: &self.request, policy: None };
            let mut found = match answer(&self.worker, &self.key, &mut ask, self.asker()).await {
                Ok(found) => found,
                Err(Instead::Refusal(refusal)) => return Err(refusal),
                Err(Instead::Action(_)) => unreachable!("only a policy acts"),
            };
            let chosen = match self.choose(&mut found).await {
                Ok(part) => self.ready(&mut found, &part).await.map(|()| part),
                Err(failure) => Err(failure),
            };
            match chosen {
                Ok(part) => return Ok((found, part)),
                Err(Failure::Unreadable) if looks < LOOKS_MAX => {}
                Err(failure) => return Err(found.refusal(&failure)),
            }
        }
    }

    /// Waits until the first content can be sent, if that has to be read from a disk.
    async fn ready(&self, found: &mut Found, part: &Part) -> Result<(), Failure> {
        let first = match part {
            _ if self.request.method == Method::Head => return Ok(()),
            Part::Whole | Part::After(_) => &(0..u64::MAX),
            Part::Range(range) => range,
            Part::Ranges(ranges) => &ranges[0],
            Part::NotModified | Part::PreconditionFailed | Part::Unsatisfiable(_) => return Ok(()),
        };
        found.content.seek(first);
        found.content.ready().await
    }

    /// Sends `chosen` of `found`.
    pub(super) async fn reply(&self, mut found: Found, chosen: Part, after: Next, out: &mut Vec<u8>) -> Sent {
        let is_head = self.request.method == Method::Head;
        let is_whole = matches!(chosen, Part::Whole | Part::After(_));
        let trailers = is_whole && !is_head && trailer::are_accepted(&self.request.fields);
        let selected = Selected::of(&found, chosen);
        let delimited = self.delimited(&selected, trailers && found.content.trailer().is_some());
        let closes = found.told.as_ref().is_some_and(|told| told.closes);
        let next = if delimited == Delimited::Close || closes { Next::Close } else { after };
        self.write_head(&found, &selected, (delimited, next), out);
        let (status, content) = (selected.status, selected.content);
        let (cache, detail) = (found.cache, found.detail());
        let mut sent = Sent { status, cache, detail, bytes: 0, first_byte: None, cut: None, next };
        if delimited == Delimited::Close {
            self.set_reset_on_close(true);
        }
        let mut sender = Sender::new(&self.stream, self.worker.timeouts().send_stall);
        let is_alone =
            is_head || status::is_bodyless(status) || content.is_empty() && delimited != Delimited::Chunked;
        let result = if is_alone {
            sender.head(out, false).await.map_err(cut_of)
        } else if let Some(parts) = selected.parts {
            // Boxed: few ask for several ranges, and every connection would be larger for it.
            Box::pin(send_parts(&mut sender, out, &mut found, &parts, &mut sent)).await
        } else {
            found.content.seek(&content);
            let left = (content.end < u64::MAX).then(|| content.end - content.start);
            send_content(&mut sender, out, &mut found, (left, delimited, trailers), &mut sent).await
        };
        sent.first_byte = sender.first_byte();
        if let Content::Sliced(sliced) = &found.content
            && sent.cache == CacheResult::Hit
            && !sliced.all_stored()
        {
            // Known only now.
            sent.cache = CacheResult::Miss;
        }
        match result {
            Ok(()) if delimited == Delimited::Close => self.set_reset_on_close(false),
            Ok(()) => {}
            Err(cut) => {
                sent.cut = Some(cut);
                sent.next = Next::Close;
            }
        }
        sent
    }

    fn write_head(
        &self,
        found: &Found,
        selected: &Selected,
        (delimited, next): (Delimited, Next),
        out: &mut Vec<u8>,
    ) {
        let now_ms = now_ms();
        // A policy has seen Age and Cache-Status, and they are what it has made of them.
        let told = found.told.as_ref();
        let head = ReplyHead {
            status: selected.status,
            reason: found.head.reason.as_deref().filter(|_| selected.status == found.head.status),
            fields: selected.fields.as_ref().unwrap_or(&found.head.fields),
            is_told: told.is_some(),
            own: found.own.then_some(&found.head.withheld),
            age_s: if told.is_some() { None } else { found.age_s(now_ms) },
            delimited,
            content_range: selected.content_range.as_deref(),
            cache_status: if told.is_some() { None } else { Some(found.status(now_ms)) },
            version: self.request.version,
            keep_alive: next == Next::Request,
        };
        head.write(out);
    }

    /// How what goes out is delimited. Only the chunked coding can carry a `trailer` that is stored.
    fn delimited(&self, selected: &Selected, trailer: bool) -> Delimited {
        let content = &selected.content;
        match self.request.version {
            _ if status::is_bodyless(selected.status) => Delimited::None,
            Version::Http11 if trailer => Delimited::Chunked,
            _ if content.end < u64::MAX => Delimited::Length(content.end - content.start),
            _ if self.request.method == Method::Head => Delimited::None,
            Version::Http11 => Delimited::Chunked,
            Version::Http10 => Delimited::Close,
        }
    }

    /// Without a length a clean close would make a part look whole. Set before the first byte, it holds also
    /// where the process stops and this task is dropped in the middle.
    fn set_reset_on_close(&self, reset: bool) {
        let _ = socket2::SockRef::from(&self.stream).set_linger(reset.then_some(Duration::ZERO));
    }

    /// How much content `chosen` of `found` is, as far as it is known.
    pub(super) fn content_bytes(&self, found: &Found, chosen: &Part) -> Option<u64> {
        let length = |range: &Range<u64>| range.end - range.start;
        match chosen {
            _ if self.request.method == Method::Head => Some(0),
            Part::Whole | Part::After(_) => found.length(),
            Part::Range(range) => Some(length(range)),
            Part::Ranges(ranges) => Some(ranges.iter().map(length).sum()),
            Part::NotModified | Part::PreconditionFailed | Part::Unsatisfiable(_) => Some(0),
        }
    }

    /// Which part of what was found answers the request; waits where that cannot be known yet.
    pub(super) async fn choose(&self, found: &mut Found) -> Result<Part, Failure> {
        if found.verbatim {
            return Ok(Part::Whole);
        }
        loop {
            match part(&self.request, &found.head, found.content.progress()) {
                // What is passed cannot be read twice: all of it is an answer as well (RFC 9110 §14.2).
                Part::After(_) | Part::Ranges(_) if found.head.private.is_some() => return Ok(Part::Whole),
                // Each may need slices of its own: the first of them are an answer as well (RFC 9110 §15.3.7).
                Part::Ranges(mut ranges) if matches!(found.content, Content::Sliced(_)) => {
                    ranges.truncate(SLICED_RANGES_MAX);
                    return Ok(if ranges.len() == 1 {
                        Part::Range(ranges.swap_remove(0))
                    } else {
                        Part::Ranges(ranges)
                    });
                }
                Part::After(offset) => found.content.arrived(offset).await?,
                part => return Ok(part),
            }
        }
    }
}

/// What an error of ours keeps of the stored head it is about: when, for whom it was chosen, through whom it came (RFC 9110
/// §7.6.3), who may read it, and what a policy has added.
fn fields_of_error(found: &Found) -> Fields {
    const KEPT: [&str; 4] = ["date", "vary", "via", "timing-allow-origin"];
    const KEPT_START: &[u8] = b"access-control-";
    let mut fields = Fields::new();
    let has_made =
        |name: &str, value: &[u8]| found.told.as_ref().is_some_and(|told| told.has_made(name, value));
    for (name, value) in found.head.fields.iter() {
        let starts = name.as_bytes().get(..KEPT_START.len());
        if starts.is_some_and(|start| start.eq_ignore_ascii_case(KEPT_START))
            || KEPT.iter().any(|kept| kept.eq_ignore_ascii_case(name))
            || has_made(name, value)
        {
            fields.push(name, value);
        }
    }
    fields
}
