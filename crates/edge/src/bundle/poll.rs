//! Long polling for bundles: one request at a time, each held by the server until a new bundle is
//! available.
//!
//! `If-None-Match` lists the active bundle's checksum, then the refused bundle's entity tag, so
//! that the server sends neither again. If the server's own entity tag for the active bundle
//! differs from the checksum, that tag comes last. If a bundle was refused and none is active, the
//! first entry is `""`. Each request thus acknowledges the previous bundle. `Thalweg-Refused`
//! reports the last refusal as the checksum, if known, a space and the reason. A server that
//! ignores these fields and replies immediately is polled once per second.

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use thalweg_bundle::{BYTES_MAX, is_checksum};
use tokio::time::{Instant, sleep};

use super::http::{Reply, WAIT_S, client, request_bundle};
use super::{BundleServer, Bundles, LoadedFrom, RefusedBundle};

/// Minimum time between the starts of two requests, however fast the server replies.
const EVERY_MIN: Duration = Duration::from_secs(1);
/// Pause after a failure or refusal; doubles with each further failure. A random time of up to the
/// same length is added, so that edges do not all return to a recovered server at once.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Maximum pause, including the random time.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Maximum length of `Thalweg-Refused`, in bytes.
const REFUSED_BYTES_MAX: usize = 1024;

const _: () = assert!(PAUSE_MIN.as_secs() * 2 <= PAUSE_MAX.as_secs());

/// Polls the server forever.
pub(super) async fn run(bundles: Arc<Bundles>, server: BundleServer) -> Infallible {
    let (client, mut known, mut failures) = (client(server.tls.clone()), PollState::default(), 0_u32);
    loop {
        let started = Instant::now();
        let mut fields = known.fields(bundles.checksum().as_deref());
        fields.extend(bundles.number().map(|number| ("thalweg-bundle-number", number.to_string())));
        let answer = request_bundle(&client, &server, &fields).await;
        let is_good = known.handle_reply(&bundles, answer).await;
        failures = if is_good { 0 } else { failures.saturating_add(1) };
        sleep(pause(failures, started.elapsed(), fraction())).await;
    }
}

/// Returns the pause after `failures` consecutive failures and a last request that took `took`;
/// `random` is in 0..=1.
fn pause(failures: u32, took: Duration, random: f64) -> Duration {
    let Some(doublings) = failures.checked_sub(1) else { return EVERY_MIN.saturating_sub(took) };
    let least = PAUSE_MIN.saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(PAUSE_MAX / 2);
    least + least.mul_f64(random)
}

/// Returns a random number in 0..=1.
fn fraction() -> f64 {
    f64::from((RandomState::new().hash_one(()) >> 32) as u32) / f64::from(u32::MAX)
}

/// State from earlier replies, reported to the server with each request.
#[derive(Debug, Default)]
struct PollState {
    /// Checksum of a bundle, and the server's own entity tag for it.
    tag: Option<(String, String)>,
    /// The bundle refused since the last good one, and its entity tag.
    refused: Option<(RefusedBundle, Option<String>)>,
}

impl PollState {
    /// Handles a reply. Returns whether polling may continue immediately.
    async fn handle_reply(&mut self, bundles: &Arc<Bundles>, answer: Result<Reply, String>) -> bool {
        let (content, etag) = match answer {
            Ok(Reply::Document { content, etag }) => (content, etag),
            Ok(Reply::TooLong { etag }) => {
                bundles.record_reply();
                let refused =
                    bundles.refuse(format!("longer than {BYTES_MAX} bytes"), checksum_of(etag.as_deref()));
                self.refused = Some((refused, etag));
                return false;
            }
            Ok(Reply::Unchanged | Reply::Nothing) => {
                bundles.record_reply();
                return true;
            }
            Err(reason) => {
                bundles.record_failure(reason);
                return false;
            }
        };
        bundles.record_reply();
        let (shared, stated) = (bundles.clone(), checksum_of(etag.as_deref()));
        match tokio::task::spawn_blocking(move || shared.load_document(&content, stated, LoadedFrom::Http))
            .await
        {
            Ok(Ok(checksum)) => {
                self.refused = None;
                self.tag = etag.map(|etag| (checksum, etag));
                true
            }
            Ok(Err(refused)) => {
                self.refused = Some((refused, etag));
                false
            }
            Err(panic) => {
                bundles.record_failure(format!("cannot process the reply: {panic}"));
                false
            }
        }
    }

    /// Returns the request fields to send while the bundle with checksum `active_checksum` is
    /// active.
    fn fields(&self, active_checksum: Option<&str>) -> Vec<(&'static str, String)> {
        let mut fields = vec![("prefer", format!("wait={WAIT_S}"))];
        let tags = self.tags(active_checksum);
        if !tags.is_empty() {
            fields.push(("if-none-match", tags.join(", ")));
        }
        if let Some((refused, _)) = &self.refused {
            fields.push(("thalweg-refused", refusal(refused)));
        }
        fields
    }

    fn tags(&self, active_checksum: Option<&str>) -> Vec<String> {
        let quoted = |checksum: &str| format!("\"{checksum}\"");
        let refused = self
            .refused
            .as_ref()
            .and_then(|(refused, etag)| etag.clone().or_else(|| refused.checksum.as_deref().map(quoted)));
        let first = active_checksum.map(quoted).or_else(|| refused.as_ref().map(|_| quoted("")));
        let tag = self
            .tag
            .as_ref()
            .filter(|(checksum, _)| active_checksum == Some(checksum))
            .map(|(_, tag)| tag.clone());
        let tag = tag.filter(|tag| Some(tag) != first.as_ref());
        [first, refused, tag].into_iter().flatten().collect()
    }
}

/// Returns the checksum in an entity tag.
fn checksum_of(etag: Option<&str>) -> Option<String> {
    let opaque = etag?.strip_prefix('"')?.strip_suffix('"')?;
    is_checksum(opaque).then(|| opaque.to_owned())
}

/// Formats a refusal as one line of visible characters. Truncation never splits a character or an
/// escape.
fn refusal(refused: &RefusedBundle) -> String {
    let mut line = refused.checksum.as_ref().map(|checksum| format!("{checksum} ")).unwrap_or_default();
    for char in refused.reason.chars() {
        let escaped = escape(char.encode_utf8(&mut [0; 4]));
        if line.len() + escaped.len() > REFUSED_BYTES_MAX {
            break;
        }
        line.push_str(&escaped);
    }
    line
}

/// Percent-encodes every byte that is not visible ASCII, and the percent sign (RFC 3986 §2.1).
fn escape(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'%';
    let byte = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
mod tests;
