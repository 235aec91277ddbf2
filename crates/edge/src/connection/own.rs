//! Responses that the edge makes itself: refusals, and the word on a purge.

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
pub(super) struct Own {
    pub(super) status: u16,
    pub(super) content_type: &'static str,
    pub(super) content: String,
}

impl Connection {
    /// A response of our own.
    pub(super) async fn refuse(&self, refusal: &Refusal, next: Next, out: &mut Vec<u8>) -> Sent {
        let mut fields = Fields::new();
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
            detail: Some(refusal.reason),
            ..CacheStatus::default()
        };
        let own = Own { status: refusal.status, content_type: "text/plain; charset=utf-8", content };
        self.send_own(own, fields, cache_status, next, out).await
    }

    pub(super) async fn send_own(
        &self,
        own: Own,
        mut fields: Fields,
        cache_status: CacheStatus<'static>,
        next: Next,
        out: &mut Vec<u8>,
    ) -> Sent {
        let Own { status, content_type, content } = own;
        fields.push("Date", date::format(now_ms() / 1000));
        fields.push("Content-Type", content_type);
        fields.push("Cache-Control", "no-store");
        let head = ReplyHead {
            status,
            fields: &fields,
            own: None,
            age_s: None,
            delimited: Delimited::Length(content.len() as u64),
            content_range: None,
            cache_status,
            version: self.request.version,
            keep_alive: next == Next::Request,
        };
        head.write(out);
        let has_content = self.request.method != Method::Head;
        if has_content {
            out.extend_from_slice(content.as_bytes());
        }
        let mut sender = Sender::new(&self.stream, self.worker.timeouts().send_stall);
        let result = sender.bytes(out, false).await;
        let cut = result.err().map(cut_of);
        Sent {
            status,
            cache: CacheResult::Error,
            bytes: if has_content && cut.is_none() { content.len() as u64 } else { 0 },
            first_byte: sender.first_byte(),
            cut,
            next: if cut.is_none() { next } else { Next::Close },
        }
    }
}
