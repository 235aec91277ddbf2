//! Scripts of wrk, unchanged: what they define says what is asked for, when, and what is told at the end.
//!
//! Each thread has a state of its own with the script in it, and there is one more: that of `setup` and `done`. They share nothing but
//! what [`thread`] copies. A thread's state is used by that thread alone, from the first request to the last.
//!
//! **Invariant:** an error of the script ends the run, told in one line; an endless loop is an error ([`CALL_MAX`]).

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

/// A script may wait so long before a request.
const DELAY_MAX: Duration = Duration::from_secs(3600);
/// A rate of requests is taken for each stretch of so long, as in wrk.
const RATE_EVERY: Duration = Duration::from_millis(100);
/// Higher rates count as this one.
const RATE_PER_S_MAX: u64 = 10_000_000;

/// A script and what it is told of the load.
#[derive(Debug)]
pub struct ScriptFile {
    name: Arc<str>,
    text: String,
    url: Url,
    fields: Vec<(String, String)>,
    is_output_taken: bool,
}

/// The URL in parts, as `wrk` has them.
#[derive(Debug)]
struct Url {
    whole: String,
    scheme: &'static str,
    host: String,
    port: Option<u16>,
    target: String,
}

impl ScriptFile {
    /// Reads a script for a target; its requests begin with these fields. What it prints goes to standard error if the output is taken.
    ///
    /// # Errors
    /// In one line: it cannot be read.
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

/// A script that is loaded, for so many threads.
#[derive(Debug)]
pub struct Script {
    main: State,
    threads: Vec<Arc<ScriptThread>>,
}

impl Script {
    /// Loads it into each state, calls `setup` for each thread and then its `init` with the URL and the arguments.
    ///
    /// # Errors
    /// In one line: what is wrong with it.
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
            let told = state.table().and_then(|wrk| wrk.raw_set("thread", Handle(Arc::clone(&thread))));
            told.map_err(|error| state.explain(&error))?;
            if let Some(setup) = script.main.function("setup") {
                script.main.call::<()>(&setup, Handle(Arc::clone(&thread)))?;
            }
            let given = state.lua.create_table().and_then(|table| {
                let all = std::iter::once(&source.url.whole).chain(arguments);
                all.enumerate().try_for_each(|(at, text)| table.raw_set(at, &**text))?;
                Ok(table)
            });
            state.call::<()>(&state.wrk("init")?, given.map_err(|error| state.explain(&error))?)?;
            let thread = ScriptThread::new(state, thread, failed.clone())?;
            if index == 0 {
                // As wrk does: what the first thread asks for first is only looked at.
                thread.request(&mut Batch::default())?;
            }
            script.threads.push(Arc::new(thread));
        }
        script.main.flush();
        Ok(script)
    }

    /// Calls `done`, if the script has it.
    ///
    /// # Errors
    /// In one line: what is wrong with it.
    pub fn done(&self, figures: &Figures) -> Result<(), String> {
        let Some(done) = self.main.function("done") else { return Ok(()) };
        let told = summary(&self.main.lua, figures).map_err(|error| self.main.explain(&error))?;
        let latency = figures.time(Time::Ttlb).cloned().unwrap_or_else(empty);
        let mut rates = empty();
        for thread in &self.threads {
            rates.add(&thread.rate().counted).expect("all histograms have the same bounds");
        }
        let called = self.main.call(&done, (told, Distribution(latency), Distribution(rates)));
        self.main.flush();
        called
    }

    /// The thread of that index.
    pub(super) fn thread(&self, index: usize) -> &Arc<ScriptThread> {
        &self.threads[index]
    }
}

/// A histogram of rates.
fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, RATE_PER_S_MAX, 3).expect("the bounds are within the crate's")
}

/// One thread's state and what the script defines in it.
#[derive(Debug)]
pub(super) struct ScriptThread {
    state: State,
    thread: Arc<Thread>,
    /// Of all threads.
    failed: watch::Sender<bool>,
    asks: Asks,
    delay: Option<Function>,
    response: Option<Function>,
    rate: Mutex<Rate>,
}

/// What is asked for.
#[derive(Debug)]
enum Asks {
    /// The same each time: the script does not say.
    Same(Batch),
    Each(Function),
}

/// Whole responses, and how many a second there were of them in each stretch.
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
        let asks = state.function("request").map(Asks::Each);
        let is_same = asks.is_none();
        let asks = asks.map_or_else(|| state.wrk("request").map(Asks::Each), Ok)?;
        let mut thread = Self { state, thread, failed, asks, delay, response, rate };
        if is_same {
            let mut same = Batch::default();
            thread.request(&mut same)?;
            thread.asks = Asks::Same(same);
        }
        Ok(thread)
    }

    /// Where this thread's requests go.
    pub(super) fn address(&self) -> SocketAddr {
        *self.thread.address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long to wait before the next request.
    pub(super) fn delay(&self) -> Result<Duration, String> {
        let Some(delay) = &self.delay else { return Ok(Duration::ZERO) };
        let delay_ms: f64 = self.state.call(delay, ())?;
        // Less than nothing is nothing, as is what is no number.
        Ok(Duration::try_from_secs_f64(delay_ms / 1e3).unwrap_or_default().min(DELAY_MAX))
    }

    /// Asks the script for what comes next.
    fn request(&self, into: &mut Batch) -> Result<(), String> {
        let ask = match &self.asks {
            Asks::Same(same) => {
                into.clone_from(same);
                return Ok(());
            }
            Asks::Each(ask) => ask,
        };
        let wrong =
            |what: String| self.state.explain(&mlua::Error::runtime(format!("request() returned {what}")));
        match self.state.call(ask, ())? {
            Value::String(requests) => into.fill(&requests.as_bytes()).map_err(wrong),
            value => Err(wrong(format!("a {}: a request is a string", value.type_name()))),
        }
    }

    /// Whether the script is to be told of responses.
    pub(super) fn wants_responses(&self) -> bool {
        self.response.is_some()
    }

    /// Tells of one, if it is to be told.
    pub(super) fn respond(&self, status: u16, fields: &Fields, content: &[u8]) -> Result<(), String> {
        let Some(response) = &self.response else { return Ok(()) };
        let lua = &self.state.lua;
        let values = lua.create_table().and_then(|table| {
            fields.iter().try_for_each(|(name, value)| table.raw_set(name, lua.create_string(value)?))?;
            Ok((status, table, lua.create_string(content)?))
        });
        self.state.call(response, values.map_err(|error| self.state.explain(&error))?)
    }

    /// A whole response has come.
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

    /// Ends all threads: the script is of no more use.
    pub(super) fn fail(&self) {
        self.failed.send_replace(true);
    }

    /// Whether this thread is to begin no more.
    pub(super) fn is_stopped(&self) -> bool {
        *self.thread.stop.borrow() || *self.failed.borrow()
    }

    /// Waits until it is to end.
    pub(super) async fn stopped(&self) {
        let (mut stop, mut failed) = (self.thread.stop.subscribe(), self.failed.subscribe());
        // Neither can be gone: they are this thread's own.
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => {}
            _ = failed.wait_for(|failed| *failed) => {}
        }
    }
}
