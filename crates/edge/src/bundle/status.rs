//! What is told of a source: its last refusal, and whether it is heard.

use serde_json::{Value, json};

use super::cut;

/// Bytes of what is told of a refusal; the faults of a hostile document can be as long as that.
pub(super) const REASON_BYTES_MAX: usize = 4096;

/// A document that was refused, or one that could not be had.
#[derive(Debug, Clone)]
pub(super) struct Refused {
    pub(super) reason: String,
    /// That of the document, as far as it is known.
    pub(super) checksum: Option<String>,
    pub(super) at_ms: u64,
}

/// What a source has given and not given.
#[derive(Debug, Default)]
pub(super) struct Status {
    refused: Option<Refused>,
    /// Whether nothing good has come since that. No clock tells: one may be set between the two.
    is_refusal_last: bool,
    /// When the source last had an answer: a file was there, or a server said something that has a meaning.
    heard_ms: Option<u64>,
    /// Why a server is not heard, and since when; nothing once it is.
    unheard: Option<(String, u64)>,
}

impl Status {
    /// Notes a refusal; it, and whether something else came last.
    pub(super) fn refuse(
        &mut self,
        reason: String,
        checksum: Option<String>,
        now_ms: u64,
    ) -> (Refused, bool) {
        let refused = Refused { reason: cut(reason, REASON_BYTES_MAX), checksum, at_ms: now_ms };
        let last = self.refused.replace(refused.clone()).filter(|_| self.is_refusal_last);
        self.is_refusal_last = true;
        let is_new = last.is_none_or(|last| {
            (last.reason, last.checksum) != (refused.reason.clone(), refused.checksum.clone())
        });
        (refused, is_new)
    }

    /// Notes a good one.
    pub(super) fn take(&mut self) {
        self.is_refusal_last = false;
    }

    /// Notes an answer; whether there was none before.
    pub(super) fn hear(&mut self, now_ms: u64) -> bool {
        self.heard_ms = Some(now_ms);
        self.unheard.take().is_some()
    }

    /// Notes that there was none; whether that is new.
    pub(super) fn miss(&mut self, reason: String, now_ms: u64) -> bool {
        let since = self.unheard.as_ref().map(|(_, since)| *since);
        self.unheard = Some((reason, since.unwrap_or(now_ms)));
        since.is_none()
    }

    /// Adds itself to what the admin interface tells.
    pub(super) fn tell(&self, told: &mut Value) {
        told["heard_unix_ms"] = self.heard_ms.into();
        told["unheard"] = self
            .unheard
            .as_ref()
            .map(|(reason, since)| json!({"reason": reason, "since_unix_ms": since}))
            .into();
        let refused = |refused: &Refused| {
            json!({
                "reason": refused.reason,
                "checksum": refused.checksum,
                "unix_ms": refused.at_ms,
                "is_last": self.is_refusal_last,
            })
        };
        told["refused"] = self.refused.as_ref().map(refused).into();
    }
}
