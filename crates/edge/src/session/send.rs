//! Send: writes the selected part of a response to the transport as content arrives.

use std::ops::Range;

use thalweg_cache::Failure;
use thalweg_http::{Fields, Method, range, status, trailer};
use thalweg_record::{CacheResult, Cut};

use super::Session;
use super::multipart::Multipart;
use crate::clock::now_ms;
use crate::lookup::{Content, Found, Part};
use crate::sent::Sent;
use crate::transport::{Outgoing, ReplyHead};

/// Maximum number of content bytes per read while the length is unknown.
const PIECE_BYTES_MAX: usize = 1 << 20;

/// The selected part of a response: its content and the corresponding head values.
struct Selected {
    status: u16,
    /// Fields that replace the response's own.
    fields: Option<Fields>,
    /// Byte range of the content to send; ends at `u64::MAX` if the length is unknown.
    content: Range<u64>,
    content_range: Option<String>,
    parts: Option<Multipart>,
}

/// A run of content to send.
#[derive(Clone, Copy)]
struct Pieces {
    /// Length in bytes; `None` for all content.
    length: Option<u64>,
    takes_trailer: bool,
    /// Whether the response ends with this run.
    ends: bool,
}

impl Selected {
    fn of(found: &Found, part: Part) -> Self {
        let (length, stored) = (found.length(), &found.head.fields);
        let fields_of_error = || Some(fields_of_error(found));
        let plain =
            |status, content| Self { status, fields: None, content, content_range: None, parts: None };
        match part {
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

    fn length(&self) -> Option<u64> {
        (self.content.end < u64::MAX).then(|| self.content.end - self.content.start)
    }
}

impl<O: Outgoing> Session<'_, O> {
    pub(super) async fn send(&mut self, found: &mut Found, part: Part) -> Sent {
        let is_whole = matches!(part, Part::Whole | Part::After(_));
        let is_head = self.received.method == Method::Head;
        let takes_trailer = is_whole
            && !is_head
            && self.out.carries_trailers()
            && trailer::are_accepted(&self.request().fields);
        let selected = Selected::of(found, part);
        self.begin(found, &selected, takes_trailer && found.content.trailer().is_some());
        let mut sent = Sent {
            status: selected.status,
            cache: found.cache,
            detail: found.detail(),
            bytes: 0,
            first_byte: None,
            cut: None,
        };
        let is_alone = is_head || status::is_bodyless(selected.status);
        let result = if is_alone {
            self.out.finish(None).await
        } else if let Some(parts) = &selected.parts {
            // Boxed, because few requests have several ranges, and an unboxed future would enlarge
            // every connection's future.
            Box::pin(self.send_parts(found, parts)).await
        } else {
            found.content.seek(&selected.content);
            self.send_content(found, selected.length(), takes_trailer).await
        };
        sent.cut = result.err();
        if matches!(sent.cut, Some(Cut::BackendFailed | Cut::StorageFailed)) {
            // Send the head and the content received so far before the connection is cut.
            let _ = self.out.flush().await;
        }
        sent.bytes = self.out.content_bytes();
        sent.first_byte = self.out.first_byte();
        if let Content::Sliced(sliced) = &found.content
            && sent.cache == CacheResult::Hit
            && !sliced.all_stored()
        {
            // Whether all slices were stored is known only after reading them.
            sent.cache = CacheResult::Miss;
        }
        sent
    }

    fn begin(&mut self, found: &Found, selected: &Selected, has_trailer: bool) {
        let now_ms = now_ms();
        let by_policy = found.by_policy.as_ref();
        let closes = self.closes() || by_policy.is_some_and(|made| made.closes);
        self.out.begin(&ReplyHead {
            status: selected.status,
            reason: found.head.reason.as_deref().filter(|_| selected.status == found.head.status),
            fields: selected.fields.as_ref().unwrap_or(&found.head.fields),
            by_policy: by_policy.is_some(),
            withheld: found.is_fetcher.then_some(&found.head.withheld),
            // A policy has already seen `Age` and `Cache-Status`, and may have changed them.
            age_s: if by_policy.is_some() { None } else { found.age_s(now_ms) },
            length: selected.length(),
            has_trailer,
            content_range: selected.content_range.as_deref(),
            cache_status: if by_policy.is_some() { None } else { Some(found.status(now_ms)) },
            closes,
        });
    }

    async fn send_parts(&mut self, found: &mut Found, multipart: &Multipart) -> Result<(), Cut> {
        for (part_head, range) in &multipart.parts {
            self.out.buffer(part_head);
            found.content.seek(range);
            let pieces = Pieces { length: Some(range.end - range.start), takes_trailer: false, ends: false };
            self.send_pieces(found, pieces).await?;
        }
        self.out.buffer(&multipart.end());
        self.out.finish(None).await
    }

    async fn send_content(
        &mut self,
        found: &mut Found,
        length: Option<u64>,
        takes_trailer: bool,
    ) -> Result<(), Cut> {
        let pieces = Pieces { length, takes_trailer, ends: true };
        self.send_pieces(found, pieces).await?;
        let trailer = found.content.trailer().filter(|_| takes_trailer);
        self.out.finish(trailer.as_deref()).await
    }

    /// Sends content as it arrives: `length` bytes, or all content.
    async fn send_pieces(
        &mut self,
        found: &mut Found,
        Pieces { length, takes_trailer, ends }: Pieces,
    ) -> Result<(), Cut> {
        let mut left = length;
        while left != Some(0) {
            let most = left.map_or(PIECE_BYTES_MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
            let next = match found.content.try_next(most) {
                Some(next) => next,
                None => {
                    self.out.flush().await?;
                    found.content.next(most).await
                }
            };
            let piece = match next {
                Ok(Some(piece)) => piece,
                Ok(None) if left.is_none() => return Ok(()),
                Ok(None) => return Err(Cut::BackendFailed),
                Err(Failure::Unreadable) => return Err(Cut::StorageFailed),
                Err(_) => return Err(Cut::BackendFailed),
            };
            let is_end = found.content.is_at_end() || ends && left == Some(piece.len() as u64);
            let is_last = is_end && !takes_trailer;
            self.out.piece(&piece, is_last).await?;
            left = left.map(|left| left - piece.len() as u64);
        }
        Ok(())
    }
}

/// Returns the fields of a stored response to keep in an edge-generated error about it: `Date`,
/// `Vary`, `Via` (RFC 9110 §7.6.3), fields that permit access to the response (CORS,
/// Timing-Allow-Origin), and fields written by a policy.
fn fields_of_error(found: &Found) -> Fields {
    const KEPT: [&str; 4] = ["date", "vary", "via", "timing-allow-origin"];
    const KEPT_START: &[u8] = b"access-control-";
    let mut fields = Fields::new();
    let is_from_policy =
        |name: &str, value: &[u8]| found.by_policy.as_ref().is_some_and(|made| made.wrote(name, value));
    for (name, value) in found.head.fields.iter() {
        let start = name.as_bytes().get(..KEPT_START.len());
        if start.is_some_and(|start| start.eq_ignore_ascii_case(KEPT_START))
            || KEPT.iter().any(|kept| kept.eq_ignore_ascii_case(name))
            || is_from_policy(name, value)
        {
            fields.push(name, value);
        }
    }
    fields
}
