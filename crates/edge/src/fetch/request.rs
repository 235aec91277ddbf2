//! Fetch request: the request head, what to fetch, and where to report interim responses and the
//! status.

use std::sync::Arc;

use thalweg_cache::{Failure, Stored};
use thalweg_http::{Framing, Method, RequestHead, ResponseHead};
use tokio::sync::{mpsc, oneshot};

use super::policy::BackendSide;
use super::upload::Upload;
use crate::backend::Route;
use crate::slices::SliceRequest;

const NOT_REPEATABLE: &str = "a request with content or a non-idempotent method cannot be retried";

/// A request to a backend, and everything needed to fetch the response.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) head: RequestHead,
    /// Backend and timeouts to use.
    pub(crate) route: Route,
    pub(super) want: Want,
    /// Whether the fetch runs in the background, because it revalidates a stale response or no
    /// client reads its content.
    pub(super) is_background: bool,
    /// The policy to run at each step.
    pub(super) policy: Option<Box<BackendSide>>,
    /// Channel for interim responses.
    pub(crate) interim: Option<mpsc::Sender<ResponseHead>>,
    /// Channel for the backend's status, sent before the head is published.
    status: Option<oneshot::Sender<u16>>,
}

/// The kind of fetch.
#[derive(Debug)]
pub(super) enum Want {
    /// The whole response, stored if permitted.
    Whole,
    /// A validated stored response or, if it is no longer valid, its replacement.
    Validation(Validation),
    /// One slice, stored separately.
    Slice(SliceRequest),
    /// The client's exact request, with its conditions and range; the response is never stored.
    Pass(Pass),
}

/// A stored response to validate.
#[derive(Debug)]
pub(super) struct Validation {
    pub(super) stale: Arc<Stored>,
    /// Channel for the stored response with its updated head, sent if it is still valid.
    pub(super) confirmed: oneshot::Sender<Arc<Stored>>,
}

/// A passed request.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) content: Option<Upload>,
    /// Framing of the client's content, even if a policy changes the framing fields.
    pub(super) framing: Framing,
    /// A stored response that a HEAD response may update.
    pub(super) known: Option<Arc<Stored>>,
    /// Whether the client's method is HEAD, even if a policy changes it. The client then expects no
    /// content.
    pub(super) is_head: bool,
}

impl Request {
    fn new(head: RequestHead, want: Want) -> Self {
        let route = Route::default();
        Self { head, route, want, is_background: false, policy: None, interim: None, status: None }
    }

    /// Requests the whole response, which is stored if permitted. HEAD becomes GET.
    pub(crate) fn whole(head: &RequestHead) -> Self {
        Self::new(get(head), Want::Whole)
    }

    /// Requests one slice of the response; the slice is stored separately.
    pub(crate) fn slice(head: &RequestHead, slice: SliceRequest) -> Self {
        Self::new(get(head), Want::Slice(slice))
    }

    /// Requests the validation of `stale`, or its replacement if it has no validator or is no
    /// longer valid. If `stale` is still valid, the receiver gets the response with an updated head
    /// before the fill ends with [`Failure::Superseded`].
    pub(crate) fn validation(
        head: &RequestHead,
        stale: Arc<Stored>,
    ) -> (Self, oneshot::Receiver<Arc<Stored>>) {
        let (sender, receiver) = oneshot::channel();
        (Self::new(get(head), Want::Validation(Validation { stale, confirmed: sender })), receiver)
    }

    /// Forwards the client's exact request.
    pub(crate) fn verbatim(head: &RequestHead) -> Self {
        Self::change(head, Framing::None, None)
    }

    /// Forwards a request that may change state, with its content.
    pub(crate) fn change(head: &RequestHead, framing: Framing, content: Option<Upload>) -> Self {
        let is_head = head.method == Method::Head;
        Self::new(head.clone(), Want::Pass(Pass { content, framing, known: None, is_head }))
    }

    /// Turns the request into a background fetch, for which no client waits.
    pub(crate) fn in_background(self) -> Self {
        Self { is_background: true, policy: self.policy.map(BackendSide::in_background), ..self }
    }

    /// Attaches a policy to the request.
    pub(crate) fn under(self, policy: Box<BackendSide>) -> Self {
        Self { policy: Some(policy), ..self }
    }

    /// Sets the request's route.
    pub(crate) fn via(self, route: Route) -> Self {
        Self { route, ..self }
    }

    /// Lets the response to a passed HEAD update the stored response `known`.
    pub(crate) fn with_known(mut self, known: Option<Arc<Stored>>) -> Self {
        if let Want::Pass(pass) = &mut self.want {
            pass.known = known;
        }
        self
    }

    /// Returns whether only a slice is requested.
    pub(crate) fn is_slice(&self) -> bool {
        matches!(self.want, Want::Slice(_))
    }

    /// Returns a receiver for the backend's status, which is sent before the head is published.
    pub(crate) fn status_receiver(&mut self) -> oneshot::Receiver<u16> {
        let (sender, receiver) = oneshot::channel();
        self.status = Some(sender);
        receiver
    }

    pub(super) fn report_status(&mut self, status: u16) {
        if let Some(sender) = self.status.take() {
            // The receiver may be gone.
            let _ = sender.send(status);
        }
    }

    /// Returns whether the response is sent to this client only.
    pub(super) fn is_passed(&self) -> bool {
        matches!(self.want, Want::Pass(_))
    }

    /// Returns the stored response to validate.
    pub(super) fn stale(&self) -> Option<&Arc<Stored>> {
        if let Want::Validation(Validation { stale, .. }) = &self.want { Some(stale) } else { None }
    }

    /// Returns the stored response that `status` confirms, if the request had a validator.
    pub(super) fn confirmed_by(&self, status: u16) -> Option<&Arc<Stored>> {
        self.stale().filter(|stale| status == 304 && stale.has_validator())
    }

    /// Returns the framing of the request content.
    pub(super) fn framing(&self) -> Framing {
        if let Want::Pass(Pass { framing, .. }) = self.want { framing } else { Framing::None }
    }

    /// Removes the request content.
    pub(super) fn drop_content(&mut self) {
        if let Want::Pass(pass) = &mut self.want {
            (pass.content, pass.framing) = (None, Framing::None);
        }
    }

    /// Prepares a retry requested by the policy.
    ///
    /// # Errors
    ///
    /// Returns an error if the request has content, is not idempotent, or has been retried too
    /// often.
    pub(super) fn retry(&mut self) -> Result<(), Failure> {
        let has_content = !matches!(self.framing(), Framing::None | Framing::Length(0));
        if has_content || !self.head.method.is_idempotent() {
            return Err(Failure::Policy(NOT_REPEATABLE));
        }
        if self.policy.as_mut().is_none_or(|policy| policy.retry()) {
            Ok(())
        } else {
            Err(Failure::Policy("too many retries"))
        }
    }

    /// Adds the failure to the policy's log lines in the record.
    pub(super) fn log_failure(&self, failure: &Failure) {
        if let Some(policy) = &self.policy {
            policy.log_failure(failure.to_string());
        }
    }

    /// Returns whether a stale response is served if the fetch fails (RFC 5861 §4); never under a
    /// policy that handles failures itself.
    pub(super) fn serves_stale_on_error(&self, now_ms: u64) -> bool {
        let is_answered = self.policy.as_ref().is_some_and(|policy| policy.answers_failures());
        !is_answered && self.stale().is_some_and(|stale| stale.freshness().serves_on_error(now_ms))
    }
}

fn get(head: &RequestHead) -> RequestHead {
    RequestHead { method: Method::Get, ..head.clone() }
}
