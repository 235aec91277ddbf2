//! Arguments of a script's `done`.

use hdrhistogram::Histogram;
use mlua::{Lua, MetaMethod, Table, UserData, UserDataFields, UserDataMethods};

use crate::ErrorKind;
use crate::figures::{Figures, Time};

/// Builds wrk's `summary`: duration in microseconds, complete responses, content bytes, and errors.
pub(super) fn summary(lua: &Lua, figures: &Figures) -> mlua::Result<Table> {
    let count = |kinds: &[ErrorKind]| kinds.iter().filter_map(|kind| figures.errors.get(kind)).sum::<u64>();
    let errors = lua.create_table()?;
    errors.raw_set(
        "connect",
        count(&[ErrorKind::Connect, ErrorKind::ConnectTimeout, ErrorKind::Tls, ErrorKind::Local]),
    )?;
    errors.raw_set("status", count(&[ErrorKind::Status4xx, ErrorKind::Status5xx]))?;
    errors.raw_set("timeout", count(&[ErrorKind::HeadTimeout, ErrorKind::ContentTimeout]))?;
    // A failed send means a closed connection, which counts as a read error.
    errors.raw_set("write", 0)?;
    errors.raw_set("read", count(&[ErrorKind::NoHead, ErrorKind::Cut, ErrorKind::Malformed]))?;
    let summary = lua.create_table()?;
    summary.raw_set("duration", figures.period.map_or(0, |period| period.end_us - period.begin_us))?;
    summary.raw_set("requests", figures.time(Time::Ttlb).map_or(0, Histogram::len))?;
    summary.raw_set("bytes", figures.content_bytes)?;
    summary.raw_set("errors", errors)?;
    Ok(summary)
}

/// wrk's `latency` and `requests`: a distribution of whole numbers.
#[derive(Debug)]
pub(super) struct Distribution(pub(super) Histogram<u64>);

impl Distribution {
    /// Returns value `index`, counted from 1 in ascending order, and its count. Returns (0, 0) if
    /// the index is out of range, as in wrk.
    fn nth(&self, index: usize) -> (u64, u64) {
        let found = index.checked_sub(1).and_then(|index| self.0.iter_recorded().nth(index));
        found.map_or((0, 0), |value| (value.value_iterated_to(), value.count_since_last_iteration()))
    }
}

impl UserData for Distribution {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        fields.add_field_method_get("min", |_, values| Ok(values.0.min()));
        fields.add_field_method_get("max", |_, values| Ok(values.0.max()));
        fields.add_field_method_get("mean", |_, values| Ok(values.0.mean()));
        fields.add_field_method_get("stdev", |_, values| Ok(values.0.stdev()));
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("percentile", |_, values, percent: f64| {
            Ok(values.0.value_at_quantile(percent / 100.0))
        });
        methods.add_meta_method(MetaMethod::Call, |_, values, index: usize| Ok(values.nth(index)));
        methods.add_meta_method(MetaMethod::Len, |_, values, ()| Ok(values.0.iter_recorded().count()));
    }
}
