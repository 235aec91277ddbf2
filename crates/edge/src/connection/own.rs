//! Responses that the edge makes itself: refusals, and the word on a purge.

use std::sync::Arc;

use thalweg_http::cache_status::CacheStatus;
use thalweg_http::{Fields, Method, date, status};
use thalweg_record::CacheResult;

use super::content::cut_of;
use super::{Connection, Next};
use crate::answer::Refusal;
use crate::now_ms;
use crate::reply::{Delimited, ReplyHead};
use crate::send::Sender;
use crate::sent::Sent;

/// A response that the edge makes itself.
#[derive(Default)]
pub(super) struct Own {
    pub(super) status: u16,
    /// If it is not that of the status.
    pub(super) reason: Option<Arc<str>>,
    pub(super) fields: Fields,
    /// A policy has made them: they are all that the client is told.
    pub(super) is_told: bool,
    pub(super) content: Vec<u8>,
    pub(super) cache_status: Option<CacheStatus<'static>>,
}

impl Connection {
    /// A response of our own.
    pub(super) async fn refuse(&self, refusal: &Refusal, next: Next, out: &mut Vec<u8>) -> Sent {
        let mut fields = own_fields("text/plain; charset=utf-8");
        // Players come from other origins. An error says nothing that any client could not be told, and a player
        // that cannot read the status cannot tell a bad range from a dead edge.
        fields.push("Access-Control-Allow-Origin", "*");
        if refusal.status == 405 {
            fields.push("Allow", "GET, HEAD, POST, PUT, DELETE, PATCH");
        }
        let content = format!("{} {}: {}\n", refusal.status, status::reason(refusal.status), refusal.reason);
        let cache_status = CacheStatus {
            forward: refusal.forward,
            forward_status: refusal.forward_status,
            collapsed: refusal.collapsed,
            detail: Some(refusal.reason),
            ..CacheStatus::default()
        };
        let content = content.into_bytes();
        let cache_status = Some(cache_status);
        let own = Own { status: refusal.status, fields, content, cache_status, ..Own::default() };
        self.send_own(own, next, out).await
    }

    pub(super) async fn send_own(&self, own: Own, next: Next, out: &mut Vec<u8>) -> Sent {
        let Own { status, reason, fields, is_told, content, cache_status } = own;
        let detail = cache_status.as_ref().and_then(|status| status.detail);
        let has_content = self.request.method != Method::Head && !status::is_bodyless(status);
        let head = ReplyHead {
            status,
            reason: reason.as_deref(),
            fields: &fields,
            is_told,
            own: None,
            age_s: None,
            delimited: if status::is_bodyless(status) {
                Delimited::None
            } else {
                Delimited::Length(content.len() as u64)
            },
            content_range: None,
            cache_status,
            version: self.request.version,
            keep_alive: next == Next::Request,
        };
        head.write(out);
        if has_content {
            out.extend_from_slice(&content);
        }
        let mut sender = Sender::new(&self.stream, self.worker.timeouts().send_stall);
        let result = sender.bytes(out, false).await;
        let cut = result.err().map(cut_of);
        Sent {
            status,
            cache: CacheResult::Error,
            detail,
            bytes: if has_content && cut.is_none() { content.len() as u64 } else { 0 },
            first_byte: sender.first_byte(),
            next: if cut.is_none() { next } else { Next::Close },
            cut,
        }
    }
}

/// The fields that each response of our own has.
pub(super) fn own_fields(content_type: &str) -> Fields {
    let mut fields = Fields::new();
    fields.push("Date", date::format(now_ms() / 1000));
    fields.push("Content-Type", content_type);
    fields.push("Cache-Control", "no-store");
    fields
}
