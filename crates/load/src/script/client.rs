//! Client that sends a script's requests.

use std::sync::Arc;
use std::time::Instant;

use thalweg_http::{Fields, ResponseHead};

use super::ScriptThread;
use super::batch::Batch;
use crate::caller::{Caller, NoResponse, times};
use crate::client::{Plan, RETRY_PAUSE, Starter, status_failure};
use crate::figures::Time;
use crate::recorder::{Arrivals, Counted, InFlight, Recorder};
use crate::response::Sink;
use crate::target::Target;
use crate::{ErrorKind, Failure};

/// Maximum size of the response content passed to a script, in bytes.
const CONTENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// One client.
pub(crate) struct ScriptedClient {
    thread: Arc<ScriptThread>,
    target: Target,
    is_fresh: bool,
    starter: Starter,
    recorder: Recorder,
    caller: Caller,
    batch: Batch,
}

impl ScriptedClient {
    /// Creates client `index`, which uses only the plan's first target.
    pub(crate) fn new(
        index: usize,
        plan: &Plan,
        thread: &Arc<ScriptThread>,
        starter: &Starter,
        recorder: &Recorder,
    ) -> Self {
        let mut target = plan.targets[0].clone();
        target.server.address = thread.address();
        Self {
            thread: Arc::clone(thread),
            target,
            is_fresh: plan.is_fresh,
            starter: starter.clone(),
            recorder: recorder.clone(),
            caller: Caller::new(plan.sources.of(index), plan.timeouts, recorder.clone()),
            batch: Batch::default(),
        }
    }

    /// Sends requests until no more may start or the script fails.
    pub(crate) async fn run(mut self) {
        while !self.thread.is_stopped()
            && let Some(due) = self.starter.next().await
        {
            match self.send_request(due).await {
                Ok(is_connected) if is_connected || due.is_some() => {}
                Ok(_) => tokio::time::sleep(RETRY_PAUSE).await,
                Err(wrong) => {
                    self.recorder.fault(&Failure::new(ErrorKind::Script, wrong));
                    return self.thread.fail();
                }
            }
        }
    }

    /// Sends one request. Returns `false` if no connection could be opened.
    async fn send_request(&mut self, due: Option<Instant>) -> Result<bool, String> {
        // The script's own delay does not count as lateness.
        let free = Instant::now();
        let counted = self.recorder.begin(due.unwrap_or(free));
        if let Some(due) = due {
            self.recorder.time(counted, Time::Lateness, free.saturating_duration_since(due));
        }
        let in_flight = InFlight::new(&self.recorder, counted, due);
        if self.batch.is_empty() {
            let delay = self.thread.delay()?;
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            self.thread.request(&mut self.batch)?;
        }
        let started = Instant::now();
        let mut sink = ResponseSink::new(self, counted);
        let done = self.caller.call(&self.target, self.batch.next(), counted, &mut sink).await;
        in_flight.finish();
        if self.is_fresh {
            self.caller.close();
        }
        match done {
            Ok(exchange) => {
                let failure = status_failure(exchange.status, &self.target);
                let times = times(&exchange, started, due);
                let status = Some(exchange.status);
                self.recorder.end(counted, exchange.last_byte, status, &times, failure.as_ref());
                self.thread.count(exchange.last_byte);
                self.thread.respond(exchange.status, &sink.fields, &sink.content)?;
                Ok(true)
            }
            Err(NoResponse { failure, is_connected }) => {
                self.recorder.end(counted, Instant::now(), sink.status, &[], Some(&failure));
                Ok(is_connected)
            }
        }
    }
}

/// Counts one response, and stores it if the script needs responses.
struct ResponseSink {
    arrivals: Arrivals,
    is_kept: bool,
    status: Option<u16>,
    fields: Fields,
    content: Vec<u8>,
}

impl ResponseSink {
    fn new(client: &ScriptedClient, counted: Counted) -> Self {
        Self {
            arrivals: Arrivals::new(&client.recorder, counted),
            is_kept: client.thread.wants_responses(),
            status: None,
            fields: Fields::new(),
            content: Vec::new(),
        }
    }
}

impl Sink for ResponseSink {
    fn head(&mut self, head: &ResponseHead) -> Result<(), Failure> {
        self.status = Some(head.status);
        if self.is_kept {
            self.fields.clone_from(&head.fields);
        }
        Ok(())
    }

    fn is_reading(&self) -> bool {
        self.is_kept
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if !self.is_kept {
            return Ok(());
        }
        if self.content.len() + bytes.len() > CONTENT_BYTES_MAX {
            let much = format!("more than {CONTENT_BYTES_MAX} bytes of content: too long for response()");
            return Err(Failure::new(ErrorKind::Script, much));
        }
        self.content.extend_from_slice(bytes);
        Ok(())
    }

    fn arrived(&mut self, at: Instant, bytes: u64) {
        self.arrivals.content(at, bytes);
    }

    fn chunk(&mut self, at: Instant) {
        self.arrivals.chunk(at);
    }
}
