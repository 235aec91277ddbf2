//! `tcp`: the connection's congestion control and pace, with the names and the log lines of varnish-modules' vmod_tcp.

use crate::functions::{Call, Function, Module, needs};
use crate::modules::pace;
use crate::step::Subs;
use crate::task::Tag;
use crate::types::Type;
use crate::value::{Failure, Value};

pub(super) const MODULE: Module = Module {
    name: "tcp",
    functions: &[
        Function {
            name: "congestion_algorithm",
            arguments: &[needs("algorithm", Type::String)],
            returns: Type::Int,
            allowed: Subs::CLIENT,
            run: congestion_algorithm,
        },
        Function {
            name: "dump_info",
            arguments: &[],
            returns: Type::Void,
            allowed: Subs::CLIENT,
            run: dump_info,
        },
        Function {
            name: "get_estimated_rtt",
            arguments: &[],
            returns: Type::Real,
            allowed: Subs::CLIENT,
            run: |call| {
                Ok(Value::Real(call.task.connection.tcp_info().unwrap_or_default().rtt_us as f64 / 1e3))
            },
        },
        Function {
            name: "set_socket_pace",
            arguments: &[needs("rate", Type::Int)],
            returns: Type::Void,
            allowed: Subs::CLIENT,
            run: set_socket_pace,
        },
    ],
    classes: &[],
};

/// 0, or -1 where the kernel refuses; the log has what the kernel says afterwards.
fn congestion_algorithm(call: &mut Call<'_, '_>) -> Result<Value<'static>, Failure> {
    let name = call.str(0).into_owned();
    if let Err(error) = call.task.connection.set_congestion_algorithm(&name) {
        call.task.tell(Tag::Error, error);
        return Ok(Value::Int(-1));
    }
    let now = call.task.connection.congestion_algorithm().unwrap_or_default();
    call.task.tell(Tag::Log, format!("getsockopt() returned: {now}"));
    Ok(Value::Int(0))
}

fn dump_info(call: &mut Call<'_, '_>) -> Result<Value<'static>, Failure> {
    let Some(info) = call.task.connection.tcp_info() else {
        call.task.tell(Tag::Error, "the kernel says nothing of this connection");
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
    call.task.tell(Tag::Log, first);
    call.task.tell(Tag::Log, second);
    Ok(Value::Void)
}

/// KB a second, of 1,024 bytes as on the wire of vmod_tcp.
fn set_socket_pace(call: &mut Call<'_, '_>) -> Result<Value<'static>, Failure> {
    let bytes_per_s = call.int(0).and_then(pace::of_kb_per_s).unwrap_or(0);
    if let Err(error) = call.task.connection.set_pace_bytes_per_s(bytes_per_s) {
        call.task.tell(Tag::Error, error);
    }
    Ok(Value::Void)
}
