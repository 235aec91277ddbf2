//! Pass: forwards the request and its content to a backend unchanged, and sends the response to
//! this client only.
//!
//! Upload and response run concurrently, because the response may start while request content is
//! still arriving.
//!
//! **Invariant:** the connection is reused only after the fetch has read all request content.
//! Otherwise, remaining content would be parsed as the next request.

use std::pin::{Pin, pin};
use std::sync::Arc;

use thalweg_cache::{Failure, Head};
use thalweg_http::cache_status::Forward;
use thalweg_http::{Framing, Method, Version};
use thalweg_policy::Sub;
use thalweg_policy::step::Action;

use super::fetch_head::Started;
use super::synth::GeneratedResponse;
use super::{Session, Step};
use crate::clock::now_ms;
use crate::fetch;
use crate::fetch::upload::{self, Source, Upload};
use crate::key::write_key;
use crate::lookup::{Forwarded, Found};
use crate::refusal::Refusal;
use crate::transport::{Incoming, Outgoing, UploadError};

const SENT_ALREADY: Refusal = Refusal::by_edge(503, "cannot restart: the request content was already sent");
const ONLY_CONTINUE: Refusal = Refusal::by_edge(417, "the only supported expectation is 100-continue");

impl<O: Outgoing> Session<'_, O> {
    pub(super) async fn pass(&mut self, forward: Forward, incoming: &mut impl Incoming) -> Step {
        let expects = match self.expects_continue() {
            Ok(expects) => expects,
            // Ignore the expectation: it concerns content, which is already discarded for GET and
            // HEAD requests.
            Err(_) if self.is_read() => false,
            Err(refusal) => return Step::Generated(GeneratedResponse::refused(&refusal)),
        };
        if let Some(policy) = &mut self.policy {
            policy.forget_found();
        }
        match self.hook(Sub::Pass) {
            None | Some(Action::Fetch) => {}
            Some(action) => return self.divert(action),
        }
        let (source, content) = upload::channel(self.framing).unzip();
        let (fill, reader) = self.worker.cache().pass();
        let started = self.start(fill, self.passed_request(content), reader);
        match source {
            Some(source) => self.pass_content(started, source, expects, forward, incoming).await,
            None => self.passed(started, forward).await,
        }
    }

    fn passed_request(&self, content: Option<Upload>) -> fetch::Request {
        let request = self.request();
        if !self.is_read() {
            return self.under_policy(fetch::Request::change(request, self.framing, content), true);
        }
        let passed = self.under_policy(fetch::Request::verbatim(request), true);
        if request.method != Method::Head {
            return passed;
        }
        let mut key = String::new();
        write_key(&request.authority, request.target.as_str(), &mut key);
        passed.with_known(self.worker.cache().peek(&key, &request.fields, now_ms()))
    }

    async fn passed(&mut self, mut started: Started, forward: Forward) -> Step {
        let head = started.head(self.out).await;
        passed_step(head, started, forward)
    }

    /// Forwards content concurrently with the response, once a backend has received the request
    /// head.
    async fn pass_content(
        &mut self,
        mut started: Started,
        mut source: Source,
        expects: bool,
        forward: Forward,
        incoming: &mut impl Incoming,
    ) -> Step {
        // Dropping `started.head` here cuts no write to the client short: a backend sends interim
        // responses only after it has received the request head.
        let is_recording = tokio::select! {
            biased;
            wanted = source.is_wanted() => wanted.is_ok(),
            head = started.head(self.out) => return passed_step(head, started, forward),
        };
        if !is_recording {
            return self.passed(started, forward).await;
        }
        if expects && !incoming.has_arrived() {
            self.out.proceed().await;
        }
        let stall = self.worker.timeouts().send_stall;
        let mut upload = pin!(incoming.upload(source, stall));
        let mut uploaded = None;
        let head = beside(started.head(self.out), upload.as_mut(), &mut uploaded).await;
        if head.is_ok() || matches!(uploaded, Some(Ok(()))) {
            // The connection can be reused once the upload, if still in progress, has ended.
            self.framing = Framing::None;
        }
        let mut step = match &uploaded {
            // The fetch failed because the upload was refused.
            Some(Err(UploadError::Refused(refusal))) if head.is_err() => refusal.clone().into(),
            _ => passed_step(head, started, forward),
        };
        let sent = loop {
            step = match step {
                Step::Deliver(ref mut found) => {
                    match beside(self.deliver(found), upload.as_mut(), &mut uploaded).await {
                        Ok(part) => {
                            break beside(self.send(found, part), upload.as_mut(), &mut uploaded).await;
                        }
                        Err(step) => *step,
                    }
                }
                Step::Synth(synth) => self.synth(synth),
                Step::Generated(own) => {
                    break beside(self.send_own(own), upload.as_mut(), &mut uploaded).await;
                }
                _ => {
                    self.framing = Framing::UntilClose;
                    Step::Generated(GeneratedResponse::refused(&SENT_ALREADY))
                }
            };
        };
        if uploaded.is_none() && !self.out.closes() {
            // Ignore the result: the transport records whether the content was read to its end.
            let _ = upload.await;
        }
        Step::Done(sent)
    }

    /// Returns whether the client waits for a 100 before it sends content (RFC 9110 §10.1.1). An
    /// HTTP/1.0 client's expectation is ignored; any other expectation is refused.
    pub(super) fn expects_continue(&self) -> Result<bool, Refusal> {
        let fields = &self.received.fields;
        if !fields.list("expect").all(|expected| expected.eq_ignore_ascii_case(b"100-continue")) {
            return Err(ONLY_CONTINUE);
        }
        Ok(self.received.version == Version::Http11 && fields.contains("expect"))
    }
}

fn passed_step(head: Result<Arc<Head>, Failure>, started: Started, forward: Forward) -> Step {
    match head {
        Ok(head) => {
            let forwarded = Forwarded::new(forward, Some(head.status));
            Step::Deliver(Found::passed(head, started.content, forwarded))
        }
        Err(failure) => Refusal::failed(&failure, forward).into(),
    }
}

/// Waits for `other` while the upload continues. Stores the upload's result in `uploaded`.
async fn beside<T>(
    other: impl Future<Output = T>,
    mut upload: Pin<&mut impl Future<Output = Result<(), UploadError>>>,
    uploaded: &mut Option<Result<(), UploadError>>,
) -> T {
    let mut other = pin!(other);
    loop {
        tokio::select! {
            done = &mut other => return done,
            sent = upload.as_mut(), if uploaded.is_none() => *uploaded = Some(sent),
        }
    }
}
