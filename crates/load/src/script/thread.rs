//! Thread handles for scripts: access to a thread's variables and address, and `stop`. A Lua state
//! can store handles of other threads.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use mlua::{Error, Lua, Table, UserData, UserDataFields, UserDataMethods, UserDataRef, Value, WeakLua};
use tokio::sync::watch;

use super::state::Address;

/// Maximum nesting of tables copied between states.
const DEPTH_MAX: usize = 16;

/// Thread data shared by all Lua states.
pub(super) struct Thread {
    /// The thread's own Lua state.
    pub(super) lua: WeakLua,
    pub(super) address: Mutex<SocketAddr>,
    pub(super) stop: watch::Sender<bool>,
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread")
            .field("address", &self.address)
            .field("stop", &self.stop)
            .finish_non_exhaustive()
    }
}

/// Lua value that represents a thread.
#[derive(Debug, Clone)]
pub(super) struct Handle(pub(super) Arc<Thread>);

impl Handle {
    fn variables(&self) -> mlua::Result<Table> {
        let lua = self.0.lua.try_upgrade().ok_or_else(|| Error::runtime("the thread no longer exists"))?;
        Ok(lua.globals())
    }
}

impl UserData for Handle {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        fields.add_field_method_get("addr", |_, thread| {
            Ok(Address(*thread.0.address.lock().unwrap_or_else(PoisonError::into_inner)))
        });
        fields.add_field_method_set("addr", |_, thread, address: UserDataRef<Address>| {
            *thread.0.address.lock().unwrap_or_else(PoisonError::into_inner) = address.0;
            Ok(())
        });
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("get", |lua, thread, name: String| {
            let value: Value = thread.variables()?.raw_get(name)?;
            copy(value, lua, DEPTH_MAX)
        });
        methods.add_method("set", |_, thread, (name, value): (String, Value)| {
            let lua =
                thread.0.lua.try_upgrade().ok_or_else(|| Error::runtime("the thread no longer exists"))?;
            let value = copy(value, &lua, DEPTH_MAX)?;
            lua.globals().raw_set(name, value)
        });
        methods.add_method("stop", |_, thread, ()| {
            thread.0.stop.send_replace(true);
            Ok(())
        });
    }
}

/// Copies a value into another state.
fn copy(value: Value, into: &Lua, depth: usize) -> mlua::Result<Value> {
    match value {
        Value::Nil | Value::Boolean(_) | Value::Integer(_) | Value::Number(_) => Ok(value),
        Value::String(text) => into.create_string(text.as_bytes()).map(Value::String),
        Value::Table(table) if depth > 0 => {
            let copied = into.create_table()?;
            for pair in table.pairs() {
                let (name, value): (Value, Value) = pair?;
                copied.raw_set(copy(name, into, depth - 1)?, copy(value, into, depth - 1)?)?;
            }
            Ok(Value::Table(copied))
        }
        Value::Table(_) => {
            Err(Error::runtime(format!("cannot transfer tables nested deeper than {DEPTH_MAX}")))
        }
        value => Err(Error::runtime(format!("cannot transfer a {} between threads", value.type_name()))),
    }
}
