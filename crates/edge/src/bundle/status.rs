//! Status of a bundle source: the last refused bundle, and whether the source responds.

use serde_json::{Value, json};

use super::cut;

/// Maximum length of a refusal's reason, in bytes; a hostile document can produce very long ones.
pub(super) const REASON_BYTES_MAX: usize = 4096;

/// A document that was refused or could not be read.
#[derive(Debug, Clone)]
pub(super) struct RefusedBundle {
    pub(super) reason: String,
    /// Checksum of the document, if known.
    pub(super) checksum: Option<String>,
    pub(super) at_ms: u64,
}

/// The source's latest results.
#[derive(Debug, Default)]
pub(super) struct Status {
    refused: Option<RefusedBundle>,
    /// Number of refusals that differed from the previous result.
    refusals: u64,
    /// Whether no good bundle has arrived since the refusal. A flag rather than a comparison of two
    /// times, because the clock may be changed in between.
    is_refusal_last: bool,
    /// When the source last responded, in Unix milliseconds: the file existed, or the server sent a
    /// meaningful reply.
    replied_ms: Option<u64>,
    /// Why the server does not respond, and since when, in Unix milliseconds; `None` once it
    /// responds.
    failing: Option<(String, u64)>,
}

impl Status {
    /// Records a refusal. Returns it, and whether it differs from the previous result.
    pub(super) fn refuse(
        &mut self,
        reason: String,
        checksum: Option<String>,
        now_ms: u64,
    ) -> (RefusedBundle, bool) {
        let refused = RefusedBundle { reason: cut(reason, REASON_BYTES_MAX), checksum, at_ms: now_ms };
        let last = self.refused.replace(refused.clone()).filter(|_| self.is_refusal_last);
        self.is_refusal_last = true;
        let is_new = last.is_none_or(|last| {
            (last.reason, last.checksum) != (refused.reason.clone(), refused.checksum.clone())
        });
        self.refusals += u64::from(is_new);
        (refused, is_new)
    }

    /// Returns the number of refused bundles, without repetitions.
    pub(super) fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Records a good bundle.
    pub(super) fn record_success(&mut self) {
        self.is_refusal_last = false;
    }

    /// Records that the source responded. Returns whether the previous attempt failed.
    pub(super) fn record_reply(&mut self, now_ms: u64) -> bool {
        self.replied_ms = Some(now_ms);
        self.failing.take().is_some()
    }

    /// Records a failure. Returns whether it is the first since the last reply.
    pub(super) fn record_failure(&mut self, reason: String, now_ms: u64) -> bool {
        let since = self.failing.as_ref().map(|(_, since)| *since);
        self.failing = Some((reason, since.unwrap_or(now_ms)));
        since.is_none()
    }

    /// Adds this status to the admin interface's JSON.
    pub(super) fn write_json(&self, status: &mut Value) {
        status["heard_unix_ms"] = self.replied_ms.into();
        status["unheard"] = self
            .failing
            .as_ref()
            .map(|(reason, since)| json!({"reason": reason, "since_unix_ms": since}))
            .into();
        let refused = |refused: &RefusedBundle| {
            json!({
                "reason": refused.reason,
                "checksum": refused.checksum,
                "unix_ms": refused.at_ms,
                "is_last": self.is_refusal_last,
            })
        };
        status["refused"] = self.refused.as_ref().map(refused).into();
    }
}
