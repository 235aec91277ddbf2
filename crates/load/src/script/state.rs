//! Lua state with the script and its environment, and a time limit for each call.
//!
//! Scripts run in Lua 5.1 instead of wrk's LuaJIT. Code compiled by LuaJIT does not call hooks, so
//! endless loops could not be stopped. LuaJIT also takes five times as long to build.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use mlua::{
    Error, FromLuaMulti, Function, HookTriggers, IntoLua, IntoLuaMulti, Lua, MetaMethod, MultiValue, Table,
    UserData, UserDataMethods, Value, VmState,
};

use super::ScriptFile;

const PRELUDE: &str = include_str!("prelude.lua");

/// Time limit for one call into a script; loading counts as one call.
pub const CALL_MAX: Duration = Duration::from_secs(5);
/// Instructions between checks of the time limit; they take a few hundred microseconds.
const CHECK_INSTRUCTIONS: u32 = 10_000;
/// Memory limit per state.
const STATE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Time limit for `wrk.connect`.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// A state with the script loaded.
#[derive(Debug)]
pub(super) struct State {
    pub(super) lua: Lua,
    /// Script name for error messages.
    name: Arc<str>,
    time_limit: TimeLimit,
}

/// Time limit for the current call.
#[derive(Debug, Clone)]
struct TimeLimit {
    began: Instant,
    /// Deadline, in milliseconds since `began`.
    until_ms: Arc<AtomicU64>,
}

impl TimeLimit {
    fn start(&self) {
        self.until_ms.store((self.began.elapsed() + CALL_MAX).as_millis() as u64, Relaxed);
    }

    fn is_over(&self) -> bool {
        self.began.elapsed().as_millis() as u64 > self.until_ms.load(Relaxed)
    }
}

impl State {
    /// Creates a state and runs the script's top-level statements.
    ///
    /// # Errors
    ///
    /// Returns a one-line error message if the script fails.
    pub(super) fn load(source: &ScriptFile) -> Result<Self, String> {
        let lua = Lua::new();
        let time_limit = TimeLimit { began: Instant::now(), until_ms: Arc::default() };
        let state = Self { lua, name: Arc::clone(&source.name), time_limit };
        state.prepare(source).map_err(|error| state.explain(&error))?;
        Ok(state)
    }

    fn prepare(&self, source: &ScriptFile) -> mlua::Result<()> {
        let (lua, time_limit) = (&self.lua, self.time_limit.clone());
        lua.set_memory_limit(STATE_BYTES_MAX)?;
        let triggers = HookTriggers::new().every_nth_instruction(CHECK_INSTRUCTIONS);
        lua.set_global_hook(triggers, move |_, at| {
            if time_limit.is_over() {
                let (source, line) = (at.source(), at.current_line().unwrap_or_default());
                let place = source.short_src.unwrap_or_default();
                return Err(Error::runtime(format!("{place}:{line}: takes longer than {CALL_MAX:?}")));
            }
            Ok(VmState::Continue)
        })?;
        self.time_limit.start();
        let native = native(lua, source)?;
        lua.load(PRELUDE).set_name("=wrk").call::<()>(native)?;
        lua.load(&*source.text).set_name(format!("@{}", self.name)).exec()
    }

    /// Returns the script's global `name`, if it is a function.
    pub(super) fn function(&self, name: &str) -> Option<Function> {
        match self.lua.globals().raw_get(name) {
            Ok(Value::Function(function)) => Some(function),
            _ => None,
        }
    }

    /// Returns function `name` in the table `wrk`.
    pub(super) fn wrk(&self, name: &str) -> Result<Function, String> {
        let found = self.table().and_then(|wrk| wrk.raw_get(name));
        found.map_err(|_| format!("{}: wrk.{name} is not a function", self.name))
    }

    /// Returns the table `wrk`.
    pub(super) fn table(&self) -> mlua::Result<Table> {
        self.lua.globals().raw_get("wrk")
    }

    /// Calls a function, limited to [`CALL_MAX`].
    ///
    /// # Errors
    ///
    /// Returns a one-line error message if the call fails.
    pub(super) fn call<R: FromLuaMulti>(
        &self,
        function: &Function,
        arguments: impl IntoLuaMulti,
    ) -> Result<R, String> {
        self.time_limit.start();
        function.call(arguments).map_err(|error| self.explain(&error))
    }

    /// Flushes the script's output.
    pub(super) fn flush(&self) {
        self.time_limit.start();
        // Ignore errors: standard output may be closed.
        let _ = self.lua.load("io.flush()").exec();
    }

    /// Formats an error as one line, with the script's line number if Lua reports one, even if only
    /// in the traceback.
    pub(super) fn explain(&self, error: &Error) -> String {
        let text = match error {
            Error::CallbackError { traceback, cause } => format!("{cause}\n{traceback}"),
            error => error.to_string(),
        };
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let first = ["runtime error: ", "syntax error: "]
            .iter()
            .fold(first, |text, kind| text.strip_prefix(kind).unwrap_or(text));
        // Errors inside wrk's own functions come from the script's arguments, so their location is
        // removed.
        let own = first.strip_prefix("wrk:").and_then(|rest| rest.split_once(": "));
        let first = own.map_or(first, |(_, what)| what);
        let place = format!("{}:", self.name);
        if first.contains(&place) {
            return first.to_owned();
        }
        let number = lines.find_map(|line| line.trim_start().strip_prefix(&place)?.split(':').next());
        number.map_or_else(|| format!("{}: {first}", self.name), |number| format!("{place}{number}: {first}"))
    }
}

/// Creates the values from which the prelude builds `wrk`.
fn native(lua: &Lua, source: &ScriptFile) -> mlua::Result<Table> {
    let native = lua.create_table()?;
    let url = &source.url;
    native.raw_set("scheme", url.scheme)?;
    native.raw_set("host", &*url.host)?;
    native.raw_set("port", url.port.map(|port| port.to_string()))?;
    native.raw_set("path", &*url.target)?;
    native.raw_set(
        "headers",
        lua.create_table_from(source.fields.iter().map(|(name, value)| (&**name, &**value)))?,
    )?;
    native.raw_set("is_output_taken", source.is_output_taken)?;
    native.raw_set(
        "lookup",
        lua.create_function(|lua, (host, service): (String, String)| look_up(lua, &host, &service))?,
    )?;
    let connect = |_: &Lua, address: mlua::UserDataRef<Address>| {
        Ok(TcpStream::connect_timeout(&address.0, CONNECT_MAX).is_ok())
    };
    native.raw_set("connect", lua.create_function(connect)?)?;
    Ok(native)
}

/// Looks up a host's addresses. Returns them, or nil and an error message.
fn look_up(lua: &Lua, host: &str, service: &str) -> mlua::Result<MultiValue> {
    let port = match service {
        "http" => Ok(80),
        "https" => Ok(443),
        number => {
            number.parse().map_err(|_| format!("{service:?} is not a service: write http, https or a port"))
        }
    };
    let found = port.and_then(|port: u16| {
        let found = (host, port).to_socket_addrs();
        found.map_err(|error| format!("cannot look up {host}: {error}"))
    });
    match found {
        Ok(addresses) => lua.create_sequence_from(addresses.map(Address))?.into_lua_multi(lua),
        Err(wrong) => (Value::Nil, wrong.into_lua(lua)?).into_lua_multi(lua),
    }
}

/// A server's address as a Lua value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Address(pub(super) SocketAddr);

impl UserData for Address {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_meta_method(MetaMethod::ToString, |_, address, ()| Ok(address.0.to_string()));
    }
}
