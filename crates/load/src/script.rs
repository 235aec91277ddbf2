//! Support for unmodified wrk scripts, which define the requests, their timing, and the final
//! report.
//!
//! Each thread has its own Lua state with the script; another state runs `setup` and `done`. States
//! share only values copied by [`thread`]. While requests run, a state is used only by its own
//! thread.
//!
//! **Invariant:** an error in the script ends the run with a one-line message; an endless loop is
//! an error ([`CALL_MAX`]).

mod batch;
pub(super) mod client;
mod state;
mod summary;
mod thread;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mlua::{Function, Value};
use thalweg_http::Fields;
use tokio::sync::watch;

use self::batch::Batch;
use self::state::State;
use self::summary::{Distribution, summary};
use self::thread::{Handle, Thread};
use super::figures::{Figures, Time};
use super::target::Target;

pub use state::CALL_MAX;

/// Maximum delay a script can request.
const DELAY_MAX: Duration = Duration::from_secs(3600);
/// Interval at which the request rate is sampled, as in wrk.
const RATE_EVERY: Duration = Duration::from_millis(100);
/// Maximum recorded rate; higher rates count as this value.
const RATE_PER_S_MAX: u64 = 10_000_000;

/// A script, and the load parameters it requires.
#[derive(Debug)]
pub struct ScriptFile {
    name: Arc<str>,
    text: String,
    url: Url,
    fields: Vec<(String, String)>,
    is_output_taken: bool,
}

/// Parts of the URL, split as in wrk.
#[derive(Debug)]
struct Url {
    whole: String,
    scheme: &'static str,
    host: String,
    port: Option<u16>,
    target: String,
}

impl ScriptFile {
    /// Reads a script for a target. `fields` are the script's initial request fields. If
    /// `is_output_taken` is set, the script prints to standard error instead of standard output.
    ///
    /// # Errors
    ///
    /// Returns a one-line error message if the script cannot be read.
    pub fn read(
        file: &Path,
        target: &Target,
        fields: &[(String, String)],
        is_output_taken: bool,
    ) -> Result<Self, String> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let name = file.file_name().map_or_else(|| file.to_string_lossy(), |name| name.to_string_lossy());
        let url = Url {
            whole: target.url.clone(),
            scheme: if target.server.is_tls() { "https" } else { "http" },
            host: target.authority.host().trim_matches(['[', ']']).to_owned(),
            port: target.authority.port(),
            target: target.target.clone(),
        };
        Ok(Self { name: name.into(), text, url, fields: fields.to_vec(), is_output_taken })
    }
}

/// A loaded script, with one state per thread.
#[derive(Debug)]
pub struct Script {
    main: State,
    threads: Vec<Arc<ScriptThread>>,
}

impl Script {
    /// Loads the script into each state. For each thread, calls `setup` and then the thread's
    /// `init` with the arguments.
    ///
    /// # Errors
    ///
    /// Returns a one-line error message if the script fails.
    pub fn load(
        source: &ScriptFile,
        arguments: &[String],
        threads: usize,
        address: SocketAddr,
    ) -> Result<Self, String> {
        let main = State::load(source)?;
        let failed = watch::Sender::new(false);
        let mut script = Self { main, threads: Vec::new() };
        for index in 0..threads {
            let state = State::load(source)?;
            let (lua, stop) = (state.lua.weak(), watch::Sender::new(false));
            let thread = Arc::new(Thread { lua, address: Mutex::new(address), stop });
            let set = state.table().and_then(|wrk| wrk.raw_set("thread", Handle(Arc::clone(&thread))));
            set.map_err(|error| state.explain(&error))?;
            if let Some(setup) = script.main.function("setup") {
                script.main.call::<()>(&setup, Handle(Arc::clone(&thread)))?;
            }
            let init_arguments = state.lua.create_table().and_then(|table| {
                let all = std::iter::once(&source.url.whole).chain(arguments);
                all.enumerate().try_for_each(|(at, text)| table.raw_set(at, &**text))?;
                Ok(table)
            });
            state.call::<()>(&state.wrk("init")?, init_arguments.map_err(|error| state.explain(&error))?)?;
            let thread = ScriptThread::new(state, thread, failed.clone())?;
            if index == 0 {
                // As in wrk, the first thread's first request is only checked, not sent.
                thread.request(&mut Batch::default())?;
            }
            script.threads.push(Arc::new(thread));
        }
        script.main.flush();
        Ok(script)
    }

    /// Calls `done` if the script defines it.
    ///
    /// # Errors
    ///
    /// Returns a one-line error message if the script fails.
    pub fn done(&self, figures: &Figures) -> Result<(), String> {
        let Some(done) = self.main.function("done") else { return Ok(()) };
        let summary = summary(&self.main.lua, figures).map_err(|error| self.main.explain(&error))?;
        let latency = figures.time(Time::Ttlb).cloned().unwrap_or_else(empty);
        let mut rates = empty();
        for thread in &self.threads {
            rates.add(&thread.rate().counted).expect("all histograms have the same bounds");
        }
        let called = self.main.call(&done, (summary, Distribution(latency), Distribution(rates)));
        self.main.flush();
        called
    }

    /// Returns thread `index`.
    pub(super) fn thread(&self, index: usize) -> &Arc<ScriptThread> {
        &self.threads[index]
    }
}

/// Creates an empty histogram of rates.
fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, RATE_PER_S_MAX, 3).expect("histogram bounds are valid")
}

/// One thread's Lua state, and the functions defined in it by the script.
#[derive(Debug)]
pub(super) struct ScriptThread {
    state: State,
    thread: Arc<Thread>,
    /// Set when the script fails in any thread; shared by all threads.
    failed: watch::Sender<bool>,
    source: RequestSource,
    delay: Option<Function>,
    response: Option<Function>,
    rate: Mutex<Rate>,
}

/// The source of requests.
#[derive(Debug)]
enum RequestSource {
    /// The same request every time, because the script does not define `request`.
    Same(Batch),
    Each(Function),
}

/// Responses per second, sampled at intervals.
#[derive(Debug)]
struct Rate {
    since: Instant,
    count: u64,
    counted: Histogram<u64>,
}

impl ScriptThread {
    fn new(state: State, thread: Arc<Thread>, failed: watch::Sender<bool>) -> Result<Self, String> {
        let (delay, response) = (state.function("delay"), state.function("response"));
        let rate = Mutex::new(Rate { since: Instant::now(), count: 0, counted: empty() });
        let source = state.function("request").map(RequestSource::Each);
        let is_same = source.is_none();
        let source = source.map_or_else(|| state.wrk("request").map(RequestSource::Each), Ok)?;
        let mut thread = Self { state, thread, failed, source, delay, response, rate };
        if is_same {
            let mut same = Batch::default();
            thread.request(&mut same)?;
            thread.source = RequestSource::Same(same);
        }
        Ok(thread)
    }

    /// Returns the address of this thread's server.
    pub(super) fn address(&self) -> SocketAddr {
        *self.thread.address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the delay before the next request.
    pub(super) fn delay(&self) -> Result<Duration, String> {
        let Some(delay) = &self.delay else { return Ok(Duration::ZERO) };
        let delay_ms: f64 = self.state.call(delay, ())?;
        // Negative delays and NaN count as zero.
        Ok(Duration::try_from_secs_f64(delay_ms / 1e3).unwrap_or_default().min(DELAY_MAX))
    }

    /// Fills `into` with the next requests from the script.
    fn request(&self, into: &mut Batch) -> Result<(), String> {
        let function = match &self.source {
            RequestSource::Same(same) => {
                into.clone_from(same);
                return Ok(());
            }
            RequestSource::Each(function) => function,
        };
        let wrong =
            |what: String| self.state.explain(&mlua::Error::runtime(format!("request() returned {what}")));
        match self.state.call(function, ())? {
            Value::String(requests) => into.fill(&requests.as_bytes()).map_err(wrong),
            value => Err(wrong(format!("a {} instead of a string", value.type_name()))),
        }
    }

    /// Returns whether the script defines `response`.
    pub(super) fn wants_responses(&self) -> bool {
        self.response.is_some()
    }

    /// Calls `response`, if defined.
    pub(super) fn respond(&self, status: u16, fields: &Fields, content: &[u8]) -> Result<(), String> {
        let Some(response) = &self.response else { return Ok(()) };
        let lua = &self.state.lua;
        let values = lua.create_table().and_then(|table| {
            fields.iter().try_for_each(|(name, value)| table.raw_set(name, lua.create_string(value)?))?;
            Ok((status, table, lua.create_string(content)?))
        });
        self.state.call(response, values.map_err(|error| self.state.explain(&error))?)
    }

    /// Counts a complete response.
    pub(super) fn count(&self, at: Instant) {
        let mut rate = self.rate();
        rate.count += 1;
        let span = at.saturating_duration_since(rate.since);
        if span >= RATE_EVERY {
            let per_s = rate.count as f64 / span.as_secs_f64();
            rate.counted.saturating_record(per_s as u64);
            (rate.since, rate.count) = (at, 0);
        }
    }

    fn rate(&self) -> std::sync::MutexGuard<'_, Rate> {
        self.rate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops all threads after an error in the script.
    pub(super) fn fail(&self) {
        self.failed.send_replace(true);
    }

    /// Returns whether the thread must stop.
    pub(super) fn is_stopped(&self) -> bool {
        *self.thread.stop.borrow() || *self.failed.borrow()
    }

    /// Waits until the thread must stop.
    pub(super) async fn stopped(&self) {
        let (mut stop, mut failed) = (self.thread.stop.subscribe(), self.failed.subscribe());
        // Both senders live as long as `self`, so neither wait can fail.
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => {}
            _ = failed.wait_for(|failed| *failed) => {}
        }
    }
}
