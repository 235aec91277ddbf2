//! Bindings of `tcp`: congestion control and pacing, with the names and log lines of
//! varnish-modules' vmod_tcp.

use crate::functions::{Call, Function, Module, function, required};
use crate::modules::pace;
use crate::step::Subs;
use crate::task::LogSource;
use crate::types::Type;
use crate::value::{Failure, Value};

pub(super) const MODULE: Module = Module { name: "tcp", functions: FUNCTIONS, classes: &[] };

const FUNCTIONS: &[Function] = &[
    function(
        "congestion_algorithm",
        &[required("algorithm", Type::String)],
        Type::Int,
        Subs::CLIENT,
        congestion_algorithm,
    ),
    function("dump_info", &[], Type::Void, Subs::CLIENT, dump_info),
    function("get_estimated_rtt", &[], Type::Real, Subs::CLIENT, |call| {
        Ok(Value::Real(call.task.connection.tcp_info().unwrap_or_default().rtt_us as f64 / 1e3))
    }),
    function("set_socket_pace", &[required("rate", Type::Int)], Type::Void, Subs::CLIENT, set_socket_pace),
];

/// Selects an algorithm. Returns -1 if the kernel rejects it. Otherwise, logs the algorithm in use
/// as reported by the kernel, and returns 0.
fn congestion_algorithm(call: &mut Call<'_, '_>) -> Result<Value<'static>, Failure> {
    let name = call.str(0).into_owned();
    if let Err(error) = call.task.connection.set_congestion_algorithm(&name) {
        call.task.push_log(LogSource::Error, error);
        return Ok(Value::Int(-1));
    }
    let now = call.task.connection.congestion_algorithm().unwrap_or_default();
    call.task.push_log(LogSource::Log, format!("getsockopt() returned: {now}"));
    Ok(Value::Int(0))
}

fn dump_info(call: &mut Call<'_, '_>) -> Result<Value<'static>, Failure> {
    let Some(info) = call.task.connection.tcp_info() else {
        call.task.push_log(LogSource::Error, "tcp_info is not available for this connection");
        return Ok(Value::Void);
    };
    let first = format!(
        "tcpi: snd_mss={} rcv_mss={} lost={} retrans={}",
        info.snd_mss, info.rcv_mss, info.lost, info.retrans
    );
    let second = format!(
        "tcpi2: pmtu={} rtt={} rttvar={} snd_cwnd={} advmss={} reordering={}",
        info.pmtu, info.rtt_us, info.rttvar_us, info.snd_cwnd, info.advmss, info.reordering
    );
    call.task.push_log(LogSource::Log, first);
    call.task.push_log(LogSource::Log, second);
    Ok(Value::Void)
}

/// Sets the pace in KiB/s, as in vmod_tcp. The pace includes packet headers.
fn set_socket_pace(call: &mut Call<'_, '_>) -> Result<Value<'static>, Failure> {
    let bytes_per_s = pace::from_kb_per_s(call.int(0)).unwrap_or(0);
    if let Err(error) = call.task.connection.set_pace_bytes_per_s(bytes_per_s) {
        call.task.push_log(LogSource::Error, error);
    }
    Ok(Value::Void)
}
