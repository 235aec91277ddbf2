//! Requests that may change something (RFC 9110 §9.2.1): passed on with their content, which may still be on its way
//! when the response goes back.
//!
//! Both run side by side on the connection's task. **Invariant:** the connection goes on only after all of the
//! request's content was taken by its fetch: else the next request would begin in the middle of it.

use std::pin::{Pin, pin};

use thalweg_http::{Framing, Version};

use super::policed::Turn;
use super::{Connection, Next};
use crate::answer::{Ask, Found, Refusal, change};
use crate::policy::{Instead, Transaction};
use crate::reply::Part;
use crate::request::{Requests, Unsent};
use crate::upload;

const SENT_ALREADY: Refusal = Refusal::own(503, "a request whose content was sent cannot restart");
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

impl Connection {
    /// Passes the request on, with content that `framing` delimits, and its response back.
    pub(super) async fn change(
        &mut self,
        framing: Framing,
        policy: Option<&mut Transaction>,
        out: &mut Vec<u8>,
    ) -> Turn {
        let mut requests = std::mem::take(&mut self.requests);
        let turn = self.exchange_content(&mut requests, framing, policy, out).await;
        self.requests = requests;
        turn
    }

    async fn exchange_content(
        &self,
        requests: &mut Requests,
        framing: Framing,
        mut policy: Option<&mut Transaction>,
        out: &mut Vec<u8>,
    ) -> Turn {
        let expects = match self.expects() {
            Ok(expects) => expects,
            Err(refusal) => return Turn::Sent(self.refuse(&refusal, Next::Close, out).await),
        };
        let (source, content) = upload::channel(framing).unzip();
        let answered = match policy.as_deref_mut() {
            Some(transaction) => {
                change(&self.worker, &mut self.ask(transaction), (framing, content), self.asker())
            }
            None => {
                let mut ask = Ask { request: &self.request, policy: None };
                change(&self.worker, &mut ask, (framing, content), self.asker())
            }
        };
        let mut answered = pin!(answered);
        let Some(mut source) = source else {
            return self.answer_change(answered.await, policy, self.after(), out).await;
        };
        // Nothing else is written before: interim responses come after the backend has the head.
        let refused = tokio::select! {
            biased;
            wanted = source.is_wanted() => wanted.is_err(),
            answered = &mut answered => {
                return self.answer_change(answered, policy, Next::Close, out).await;
            }
        };
        if refused {
            return self.answer_change(answered.await, policy, Next::Close, out).await;
        }
        if expects && !requests.has_more() {
            self.asker().tell(&self.worker, CONTINUE).await;
        }
        let stall = self.worker.timeouts().send_stall;
        let mut upload = pin!(requests.upload(&self.stream, source, stall));
        let mut uploaded = None;
        let mut answered = beside(answered, upload.as_mut(), &mut uploaded).await;
        if answered.is_err()
            && let Some(Err(Unsent::Refused(refusal))) = &uploaded
        {
            // It ended the fetch.
            answered = Err(refusal.clone().into());
        }
        let next =
            if answered.is_ok() || matches!(uploaded, Some(Ok(()))) { self.after() } else { Next::Close };
        let answer = self.answer_change(answered, policy, next, out);
        let mut sent = match beside(answer, upload.as_mut(), &mut uploaded).await {
            Turn::Sent(sent) => sent,
            Turn::Restart => self.refuse(&SENT_ALREADY, Next::Close, out).await,
        };
        if uploaded.is_none() && sent.next == Next::Request {
            uploaded = Some(upload.await);
        }
        if !matches!(uploaded, Some(Ok(()))) {
            sent.next = Next::Close;
        }
        Turn::Sent(sent)
    }

    async fn answer_change(
        &self,
        answered: Result<Found, Instead>,
        policy: Option<&mut Transaction>,
        next: Next,
        out: &mut Vec<u8>,
    ) -> Turn {
        let Some(transaction) = policy else {
            return Turn::Sent(match answered {
                Ok(found) => self.reply(found, Part::Whole, next, out).await,
                Err(Instead::Refusal(refusal)) => self.refuse(&refusal, next, out).await,
                Err(Instead::Action(_)) => unreachable!("only a policy acts"),
            });
        };
        let delivered = match answered {
            Ok(mut found) => self.delivered(transaction, &mut found).map(|()| found),
            Err(instead) => Err(instead),
        };
        match delivered {
            Ok(found) => Turn::Sent(self.reply(found, Part::Whole, next, out).await),
            Err(instead) => self.instead(transaction, instead, next, out).await,
        }
    }

    /// Whether the client waits for a 100 before it sends content (RFC 9110 §10.1.1). That expectation of an HTTP/1.0
    /// client is ignored, any other is refused.
    fn expects(&self) -> Result<bool, Refusal> {
        let fields = &self.request.fields;
        if !fields.list("expect").all(|expected| expected.eq_ignore_ascii_case(b"100-continue")) {
            return Err(Refusal::own(417, "only 100-continue can be expected here"));
        }
        Ok(self.request.version == Version::Http11 && fields.contains("expect"))
    }
}

/// Waits for `other` while the upload goes on. `uploaded` is how that ended, if it has.
async fn beside<T>(
    other: impl Future<Output = T>,
    mut upload: Pin<&mut impl Future<Output = Result<(), Unsent>>>,
    uploaded: &mut Option<Result<(), Unsent>>,
) -> T {
    let mut other = pin!(other);
    loop {
        tokio::select! {
            done = &mut other => return done,
            sent = upload.as_mut(), if uploaded.is_none() => *uploaded = Some(sent),
        }
    }
}
