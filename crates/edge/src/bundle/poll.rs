//! Asks a server for bundles, one request after the other, each held by it until there is another bundle (long polling).
//!
//! A request tells by `If-None-Match` which bundle is in force here, first and by its checksum (`""`: none, where something was
//! refused), then which was refused: the server sends neither again. So a request is the acknowledgement of the bundle that came
//! before it. Why the last one was refused stands in `Thalweg-Refused`: its checksum as far as it is known, a space, the reason.
//! A server that knows nothing of all that, and answers at once, is asked once a second.

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use thalweg_bundle::{BYTES_MAX, is_checksum};
use tokio::time::{Instant, sleep};

use super::http::{Answer, WAIT_S, ask};
use super::{BundleUrl, Bundles, Came, Refused};

/// From the beginning of a request to that of the next one, at least, however fast the server answers.
const EVERY_MIN: Duration = Duration::from_secs(1);
/// The pause after a failure or a refusal; after each further one twice as long. It is drawn from here to twice that: edges
/// whose server has gone do not come back to it all at once.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Bytes of `Thalweg-Refused`.
const REFUSED_BYTES_MAX: usize = 1024;

const _: () = assert!(PAUSE_MIN.as_secs() * 2 <= PAUSE_MAX.as_secs());

/// Asks for ever.
pub(super) async fn run(bundles: Arc<Bundles>, url: BundleUrl) -> Infallible {
    let (mut known, mut failures) = (Known::default(), 0_u32);
    loop {
        let begun = Instant::now();
        let mut fields = known.fields(bundles.checksum().as_deref());
        fields.extend(bundles.number().map(|number| ("thalweg-bundle-number", number.to_string())));
        let answer = ask(&url, &fields).await;
        let is_heard = known.hear(&bundles, answer).await;
        failures = if is_heard { 0 } else { failures.saturating_add(1) };
        sleep(pause(failures, begun.elapsed(), fraction())).await;
    }
}

/// How long to wait after so many failures in a row, the last request having taken `took`; `random` is from 0 to 1.
fn pause(failures: u32, took: Duration, random: f64) -> Duration {
    let Some(doublings) = failures.checked_sub(1) else { return EVERY_MIN.saturating_sub(took) };
    let least = PAUSE_MIN.saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(PAUSE_MAX / 2);
    least + least.mul_f64(random)
}

/// From 0 up to 1, another one each time.
fn fraction() -> f64 {
    f64::from((RandomState::new().hash_one(()) >> 32) as u32) / f64::from(u32::MAX)
}

/// What the server is told of.
#[derive(Debug, Default)]
struct Known {
    /// The checksum of a bundle, and the entity tag by which the server knows it where that is another.
    tag: Option<(String, String)>,
    /// What was refused since the last bundle that was good, and its entity tag.
    refused: Option<(Refused, Option<String>)>,
}

impl Known {
    /// Takes an answer; whether it is one to go on from at once.
    async fn hear(&mut self, bundles: &Arc<Bundles>, answer: Result<Answer, String>) -> bool {
        let (content, etag) = match answer {
            Ok(Answer::Document { content, etag }) => (content, etag),
            Ok(Answer::TooLong { etag }) => {
                bundles.hear();
                let refused =
                    bundles.refuse(format!("longer than {BYTES_MAX} bytes"), checksum_of(etag.as_deref()));
                self.refused = Some((refused, etag));
                return false;
            }
            Ok(Answer::Unchanged | Answer::Nothing) => {
                bundles.hear();
                return true;
            }
            Err(reason) => {
                bundles.miss(reason);
                return false;
            }
        };
        bundles.hear();
        let (shared, stated) = (bundles.clone(), checksum_of(etag.as_deref()));
        match tokio::task::spawn_blocking(move || shared.offer(&content, stated, Came::Http)).await {
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
                bundles.miss(format!("its answer was not read: {panic}"));
                false
            }
        }
    }

    /// What a request says while the bundle of this checksum is in force.
    fn fields(&self, in_force: Option<&str>) -> Vec<(&'static str, String)> {
        let mut fields = vec![("prefer", format!("wait={WAIT_S}"))];
        let tags = self.tags(in_force);
        if !tags.is_empty() {
            fields.push(("if-none-match", tags.join(", ")));
        }
        if let Some((refused, _)) = &self.refused {
            fields.push(("thalweg-refused", refusal(refused)));
        }
        fields
    }

    fn tags(&self, in_force: Option<&str>) -> Vec<String> {
        let quoted = |checksum: &str| format!("\"{checksum}\"");
        let refused = self
            .refused
            .as_ref()
            .and_then(|(refused, etag)| etag.clone().or_else(|| refused.checksum.as_deref().map(quoted)));
        let first = in_force.map(quoted).or_else(|| refused.as_ref().map(|_| quoted("")));
        let tag =
            self.tag.as_ref().filter(|(checksum, _)| in_force == Some(checksum)).map(|(_, tag)| tag.clone());
        let tag = tag.filter(|tag| Some(tag) != first.as_ref());
        [first, refused, tag].into_iter().flatten().collect()
    }
}

/// The checksum that is an entity tag.
fn checksum_of(etag: Option<&str>) -> Option<String> {
    let opaque = etag?.strip_prefix('"')?.strip_suffix('"')?;
    is_checksum(opaque).then(|| opaque.to_owned())
}

/// One line of visible characters. A cut falls between two of them, or two escapes.
fn refusal(refused: &Refused) -> String {
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

/// Text with each byte that is not visible ASCII, and the percent sign, percent-encoded (RFC 3986 §2.1).
fn escape(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'%';
    let byte = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]
mod tests;
