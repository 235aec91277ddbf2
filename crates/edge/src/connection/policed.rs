//! A request under a policy: the client's side of the steps that vcl-step(7) draws.
//!
//! ```text
//! recv ─ hash ─ look-up ─ hit ──────────────┐
//!  │               └───── miss ─ fetch ─────┤
//!  ├─ pass ─ fetch ─────────────────────────┼─ deliver ─ reply
//!  ├─ purge ────┐                           │
//!  ├─ synth ────┴─ synth ─ reply            │
//!  └─ pipe ─ the connection, handed through └─ restart: again, a few times
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use thalweg_cache::{Failure, Head};
use thalweg_http::cache_status::Forward;
use thalweg_http::{Fields, Framing, ResponseHead, Version, date, framing, status};
use thalweg_policy::Sub;
use thalweg_policy::step::Action;
use thalweg_policy::task::Session;
use thalweg_record::CacheResult;

use super::own::Own;
use super::{Connection, Next, is_read};
use crate::CACHE_NAME;
use crate::answer::{Ask, Found, Policed, Refusal, Told, answer, pass};
use crate::now_ms;
use crate::policy::{Heads, Instead, Loaded, Transaction, shown};
use crate::purge::Order;
use crate::reply::{Part, part};
use crate::sent::Sent;

/// Other policies that one request may be sent through by `return (vcl(…))`.
const POLICIES_MAX: usize = 4;
/// How often one request looks for its answer, where what it finds cannot be read.
const LOOKS_MAX: usize = 4;

/// Numbers of requests.
static NUMBER: AtomicU64 = AtomicU64::new(1);

const FAILED: Refusal = Refusal::own(503, "the policy failed");
const RESTARTED: Refusal = Refusal::own(503, "the policy restarted the request too often");

/// What a turn from `vcl_recv` on has come to.
pub(super) enum Turn {
    Sent(Sent),
    Restart,
}

impl Connection {
    /// Answers a request as its policy says. What is left of `self.request` is the request as it came.
    pub(super) async fn policed(&mut self, loaded: Arc<Loaded>, framing: Framing, out: &mut Vec<u8>) -> Sent {
        let session = self.session.take().unwrap_or_else(|| Box::new(self.new_session()));
        let own = (session, std::mem::take(&mut self.steering));
        let mut transaction =
            Transaction::new(loaded, self.request.clone(), own, NUMBER.fetch_add(1, Relaxed));
        let sent = loop {
            match self.turn(&mut transaction, framing, out).await {
                Turn::Sent(sent) => break sent,
                Turn::Restart if transaction.restart() => {}
                Turn::Restart => {
                    break self.refuse(&RESTARTED, self.after_own(framing), out).await;
                }
            }
        };
        let (received, session, steering, noted) = transaction.end(self.worker.log().is_followed());
        (self.request, self.session, self.steering, self.noted) = (received, Some(session), steering, noted);
        sent
    }

    fn new_session(&self) -> Session {
        let local = self.stream.local_addr().unwrap_or(self.client);
        let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Session {
            client: self.client,
            remote: self.client,
            server: local,
            local,
            identity: hostname.clone(),
            hostname,
            endpoint: self.worker.config().listen.to_string(),
            socket: "a0".into(),
            xid: NUMBER.fetch_add(1, Relaxed),
            ..Session::default()
        }
    }

    /// After an answer that left the request's content, if there is any, unread.
    fn after_own(&self, framing: Framing) -> Next {
        if framing == Framing::None { self.after() } else { Next::Close }
    }

    async fn turn(&mut self, transaction: &mut Transaction, framing: Framing, out: &mut Vec<u8>) -> Turn {
        let action = self.received(transaction);
        let has_content = framing != Framing::None;
        let found = match action {
            Action::Hash if is_read(transaction.req.method) && !has_content => {
                self.looked_up(transaction).await
            }
            // An answer to what may change something is for this client alone.
            Action::Hash | Action::Pass if !is_read(transaction.req.method) || has_content => {
                self.take_request(transaction);
                return self.change(framing, Some(transaction), out).await;
            }
            Action::Hash | Action::Pass => {
                let mut ask = self.ask(transaction);
                pass(&self.worker, &mut ask, self.asker(), Forward::Bypass).await
            }
            Action::Pipe => return self.pipe(transaction, out).await,
            Action::Purge => match self.purged(transaction).await {
                Ok(action) => Err(Instead::Action(action)),
                Err(refusal) => Err(Instead::Refusal(refusal)),
            },
            action => Err(Instead::Action(action)),
        };
        let after = self.after_own(framing);
        let delivered = match found {
            Ok(mut found) => self.delivered(transaction, &mut found).map(|()| found),
            Err(instead) => Err(instead),
        };
        self.take_request(transaction);
        let mut found = match delivered {
            Ok(found) => found,
            Err(instead) => return self.instead(transaction, instead, after, out).await,
        };
        Turn::Sent(match self.choose(&mut found).await {
            Ok(chosen) => {
                transaction.follow_bundle(self.content_bytes(&found, &chosen), &self.stream, &self.worker);
                self.reply(found, chosen, after, out).await
            }
            Err(failure) => self.refuse(&Refusal::failed(&failure, Forward::UriMiss), after, out).await,
        })
    }

    /// Conditions and ranges count as the policy has left them. How the response is framed is between the client and us.
    fn take_request(&mut self, transaction: &Transaction) {
        let received = &transaction.received;
        self.request.clone_from(&transaction.req);
        (self.request.method, self.request.version) = (received.method, received.version);
        self.request.method_text.clone_from(&received.method_text);
    }

    pub(super) fn ask<'a>(&'a self, transaction: &'a mut Transaction) -> Ask<'a> {
        Ask { request: &self.request, policy: Some(Policed { transaction, stream: &self.stream }) }
    }

    /// `vcl_recv`, in the policy that is active or another that it names, and `vcl_hash`.
    fn received(&mut self, transaction: &mut Transaction) -> Action {
        let mut action = self.run(transaction, Sub::Recv, Heads::default());
        for _ in 0..POLICIES_MAX {
            let Action::Vcl(name) = &action else { break };
            let Some(loaded) = self.worker.policies().labelled(name) else {
                tracing::warn!(name, "there is no policy of this name");
                return Action::Fail { reason: None };
            };
            transaction.enter(loaded);
            action = self.run(transaction, Sub::Recv, Heads::default());
        }
        // Also for what is passed, as on Varnish: `req.hash` says where it belongs.
        if matches!(action, Action::Hash | Action::Purge | Action::Pass | Action::Pipe) {
            transaction.client.hash_data.clear();
            if self.run(transaction, Sub::Hash, Heads::default()) != Action::Lookup {
                return Action::Fail { reason: None };
            }
            transaction.write_key(&mut self.key);
        }
        action
    }

    /// Runs a subroutine of the client's side.
    fn run(&self, transaction: &mut Transaction, sub: Sub, heads: Heads<'_>) -> Action {
        transaction.run(sub, heads, &self.stream, &self.worker)
    }

    /// What is stored, or fetched, and can be read.
    async fn looked_up(&self, transaction: &mut Transaction) -> Result<Found, Instead> {
        for _ in 0..LOOKS_MAX {
            let mut ask = self.ask(transaction);
            let mut found = answer(&self.worker, &self.key, &mut ask, self.asker()).await?;
            // Where it will most likely be read first: `vcl_deliver` could still change that.
            let begins = match part(ask.head(), &found.head, found.content.progress()) {
                _ if found.verbatim || found.head.private.is_some() => 0,
                Part::Range(range) => range.start,
                Part::Ranges(ranges) => ranges.first().map_or(0, |range| range.start),
                _ => 0,
            };
            found.content.seek(&(begins..u64::MAX));
            match found.content.ready().await {
                Ok(()) => return Ok(found),
                Err(Failure::Unreadable) => {}
                Err(failure) => return Err(Refusal::failed(&failure, Forward::UriMiss).into()),
            }
        }
        Err(Refusal::failed(&Failure::Unreadable, Forward::UriMiss).into())
    }

    async fn purged(&self, transaction: &mut Transaction) -> Result<Action, Refusal> {
        let order = Order::from_request(&Fields::new(), &self.key);
        if order.carry_out(self.worker.cache()).await.is_err() {
            return Err(Refusal::own(503, "too many purges are in force"));
        }
        Ok(self.run(transaction, Sub::Purge, Heads::default()))
    }

    /// `vcl_deliver`.
    pub(super) fn delivered(&self, transaction: &mut Transaction, found: &mut Found) -> Result<(), Instead> {
        if !transaction.says(Sub::Deliver) {
            return Ok(());
        }
        transaction.delivers(found.freshness(), found.head.private.is_some());
        let obj = shown(&found.head);
        let mut resp = told(found);
        let heads = Heads { obj: Some(&obj), resp: Some(&mut resp), ..Heads::default() };
        match self.run(transaction, Sub::Deliver, heads) {
            Action::Deliver => found.tell(resp),
            action => return Err(Instead::Action(action)),
        }
        Ok(())
    }

    /// What is done in place of delivering what was found.
    pub(super) async fn instead(
        &self,
        transaction: &mut Transaction,
        instead: Instead,
        after: Next,
        out: &mut Vec<u8>,
    ) -> Turn {
        let (status, reason, refused) = match instead {
            Instead::Refusal(Refusal { status, reason, .. }) => {
                (status, Some(reason.as_bytes().to_vec()), Some(reason))
            }
            Instead::Action(Action::Restart) => return Turn::Restart,
            Instead::Action(Action::Synth { status, reason }) => (status, reason, None),
            Instead::Action(_) => return Turn::Sent(self.refuse(&FAILED, after, out).await),
        };
        self.synth(transaction, (status, reason, refused), after, out).await
    }

    /// `vcl_synth`, and the response that it makes; `refused` is why there was none, if the policy did not ask for it.
    async fn synth(
        &self,
        transaction: &mut Transaction,
        (status, reason, refused): (u16, Option<Vec<u8>>, Option<&'static str>),
        after: Next,
        out: &mut Vec<u8>,
    ) -> Turn {
        let reason =
            reason.and_then(|text| status::unusual_reason(status % 1000, &String::from_utf8_lossy(&text)));
        let mut resp = ResponseHead { status, reason, ..ResponseHead::default() };
        resp.fields.push("Date", date::format(now_ms() / 1000));
        transaction.client.body = None;
        let heads = Heads { resp: Some(&mut resp), ..Heads::default() };
        match self.run(transaction, Sub::Synth, heads) {
            Action::Deliver => {}
            Action::Restart => return Turn::Restart,
            _ => return Turn::Sent(self.refuse(&FAILED, after, out).await),
        }
        let after = if framing::keep_alive(Version::Http11, &resp.fields) { after } else { Next::Close };
        resp.fields.remove("content-length");
        resp.fields.remove_hop_by_hop();
        let own = Own {
            status: resp.status % 1000,
            reason: resp.reason,
            fields: resp.fields,
            is_told: true,
            content: transaction.client.body.take().unwrap_or_default(),
            cache_status: None,
        };
        let sent = self.send_own(own, after, out).await;
        let cache = if refused.is_some() { CacheResult::Error } else { CacheResult::Synth };
        Turn::Sent(Sent { cache, detail: refused, ..sent })
    }
}

/// What was found, as the client would get all of it.
fn told(found: &Found) -> ResponseHead {
    let now_ms = now_ms();
    let mut resp = shown(&found.head);
    let fields = &mut resp.fields;
    if found.own {
        for (name, value) in found.head.withheld.iter() {
            fields.push(name, value);
        }
    }
    if let Some(age_s) = found.age_s(now_ms) {
        fields.push_number("Age", age_s);
    }
    found.status(now_ms).append_to(CACHE_NAME, fields);
    resp
}

impl Found {
    /// What the policy has made of the head: all that the client is told of it.
    fn tell(&mut self, resp: ResponseHead) {
        let ResponseHead { status, reason, mut fields, .. } = resp;
        let closes = !framing::keep_alive(Version::Http11, &fields);
        fields.remove("content-length");
        fields.remove_hop_by_hop();
        let withheld = Fields::new();
        let head = Head { status: status % 1000, reason, fields, withheld, ..Head::clone(&self.head) };
        let before = std::mem::replace(&mut self.head, Arc::new(head));
        self.told = Some(Told { closes, before });
    }
}
