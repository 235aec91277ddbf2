//! Variables of the connection, the process and the clock.

use super::{Variable, count, plain, string, xid};
use crate::modules::pace;
use crate::parse::Version;
use crate::step::Subs;
use crate::task::{Geo, Task, TcpInfo};
use crate::types::Type;
use crate::value::{Failure, Value};

/// Declares a variable for a field of `tcp_info`. The variable is 0 if the kernel does not report
/// the field.
macro_rules! tcpi {
    ($name:literal, $field:ident) => {
        Variable::new($name, Type::Int, Subs::CLIENT, |task| Ok(count(tcp_info(task).$field))).ours()
    };
}

/// Declares a variable for a string from the geolocation database. The variable is unset if the
/// string is unknown.
macro_rules! geo {
    ($name:literal, $field:ident) => {
        Variable::new($name, Type::String, Subs::CLIENT, |task| Ok(Value::maybe(geo(task).$field.as_deref())))
            .ours()
    };
}

pub(super) static TABLE: [Variable; 62] = [
    Variable::new("client.identity", Type::String, Subs::REQUEST, |task| {
        Ok(match &task.client.identity {
            Some(identity) => Value::text(identity),
            None => Value::owned(task.session.client.ip().to_canonical().to_string()),
        })
    })
    .set(Subs::CLIENT, |task, value| {
        task.client.identity = Some(string(value));
        Ok(())
    }),
    plain!("client.ip", Ip, Subs::REQUEST, session.client),
    Variable::new("server.hostname", Type::String, Subs::ALL, |task| Ok(Value::text(&task.session.hostname))),
    Variable::new("server.identity", Type::String, Subs::ALL, |task| Ok(Value::text(&task.session.identity))),
    plain!("server.ip", Ip, Subs::REQUEST, session.server),
    plain!("remote.ip", Ip, Subs::REQUEST, session.remote),
    Variable::new("local.endpoint", Type::String, Subs::REQUEST, |task| {
        Ok(Value::text(&task.session.endpoint))
    })
    .only(Version::V41),
    plain!("local.ip", Ip, Subs::REQUEST, session.local),
    Variable::new("local.socket", Type::String, Subs::REQUEST, |task| Ok(Value::text(&task.session.socket)))
        .only(Version::V41),
    plain!("now", Time, Subs::ALL, now_s),
    plain!("sess.idle_send_timeout", Duration, Subs::CLIENT, Subs::CLIENT, session.idle_send_timeout_s),
    plain!("sess.send_timeout", Duration, Subs::CLIENT, Subs::CLIENT, session.send_timeout_s),
    plain!("sess.timeout_idle", Duration, Subs::CLIENT, Subs::CLIENT, session.timeout_idle_s),
    plain!("sess.timeout_linger", Duration, Subs::CLIENT, Subs::CLIENT, session.timeout_linger_s),
    Variable::new("sess.xid", Type::String, Subs::REQUEST, |task| Ok(xid(task.session.xid)))
        .only(Version::V41),
    // For these three variables, the checker emits an expression with the storage's name, so their
    // getters are never called.
    Variable::new("storage.*.free_space", Type::Bytes, Subs::REQUEST, |_| Ok(Value::Void)),
    Variable::new("storage.*.happy", Type::Bool, Subs::REQUEST, |_| Ok(Value::Void)),
    Variable::new("storage.*.used_space", Type::Bytes, Subs::REQUEST, |_| Ok(Value::Void)),
    Variable::new("client.requests", Type::Int, Subs::CLIENT, |task| Ok(count(task.connection.requests())))
        .ours(),
    Variable::new("client.socket.congestion_algorithm", Type::String, Subs::CLIENT, |task| {
        Ok(Value::Text(task.connection.congestion_algorithm().map(|name| name.into_bytes().into())))
    })
    .set(Subs::CLIENT, |task, value| {
        let name = string(value);
        set_or_log(task, |task| task.connection.set_congestion_algorithm(&name))
    })
    .ours(),
    Variable::new("client.socket.cwnd", Type::Int, Subs::CLIENT, |task| Ok(count(tcp_info(task).snd_cwnd)))
        .set(Subs::CLIENT, |task, value| {
            let Value::Int(packets) = value else { return Ok(()) };
            set_or_log(task, |task| task.connection.set_cwnd(u64::try_from(packets).unwrap_or(0)))
        })
        .ours(),
    // The unit is bytes per second, as for `tcpi_delivery_rate`; 0 before the first measured
    // response.
    Variable::new("client.socket.goodput", Type::Int, Subs::CLIENT, |task| {
        Ok(count(task.connection.delivered().map_or(0, |delivered| delivered.goodput_bytes_per_s)))
    })
    .ours(),
    // The unit is KiB per second; 0 means unlimited. Positive values below Fastly's minimum are
    // raised.
    Variable::new("client.socket.pace", Type::Int, Subs::CLIENT, |task| {
        Ok(Value::Int(task.connection.pace_bytes_per_s().map_or(0, pace::to_kb_per_s)))
    })
    .set(Subs::CLIENT, |task, value| {
        let Value::Int(kb_per_s) = value else { return Ok(()) };
        if kb_per_s < 0 {
            task.push_log(
                crate::task::LogSource::Error,
                format!("client.socket.pace unchanged: {kb_per_s} is negative"),
            );
            return Ok(());
        }
        let bytes_per_s = pace::from_fastly(kb_per_s).unwrap_or(0);
        set_or_log(task, |task| task.connection.set_pace_bytes_per_s(bytes_per_s))
    })
    .ours(),
    Variable::new("client.socket.tcp_info", Type::String, Subs::CLIENT, |task| {
        let info = tcp_info(task);
        Ok(Value::owned(format!(
            "rtt={} rttvar={} min_rtt={} snd_cwnd={} snd_mss={} pmtu={} delivery_rate={} pacing_rate={} \
             total_retrans={} lost={} notsent_bytes={}",
            info.rtt_us,
            info.rttvar_us,
            info.min_rtt_us,
            info.snd_cwnd,
            info.snd_mss,
            info.pmtu,
            info.delivery_rate,
            info.pacing_rate,
            info.total_retrans,
            info.lost,
            info.notsent_bytes
        )))
    })
    .ours(),
    tcpi!("client.socket.tcpi_advmss", advmss),
    tcpi!("client.socket.tcpi_bytes_acked", bytes_acked),
    tcpi!("client.socket.tcpi_bytes_received", bytes_received),
    tcpi!("client.socket.tcpi_data_segs_in", data_segs_in),
    tcpi!("client.socket.tcpi_data_segs_out", data_segs_out),
    tcpi!("client.socket.tcpi_delivery_rate", delivery_rate),
    tcpi!("client.socket.tcpi_delta_retrans", delta_retrans),
    tcpi!("client.socket.tcpi_last_data_sent", last_data_sent_ms),
    tcpi!("client.socket.tcpi_max_pacing_rate", max_pacing_rate),
    tcpi!("client.socket.tcpi_min_rtt", min_rtt_us),
    tcpi!("client.socket.tcpi_notsent_bytes", notsent_bytes),
    tcpi!("client.socket.tcpi_pacing_rate", pacing_rate),
    tcpi!("client.socket.tcpi_pmtu", pmtu),
    tcpi!("client.socket.tcpi_rcv_mss", rcv_mss),
    tcpi!("client.socket.tcpi_rcv_rtt", rcv_rtt_us),
    tcpi!("client.socket.tcpi_rcv_space", rcv_space),
    tcpi!("client.socket.tcpi_rcv_ssthresh", rcv_ssthresh),
    tcpi!("client.socket.tcpi_reordering", reordering),
    tcpi!("client.socket.tcpi_rtt", rtt_us),
    tcpi!("client.socket.tcpi_rttvar", rttvar_us),
    tcpi!("client.socket.tcpi_segs_in", segs_in),
    tcpi!("client.socket.tcpi_segs_out", segs_out),
    tcpi!("client.socket.tcpi_snd_cwnd", snd_cwnd),
    tcpi!("client.socket.tcpi_snd_mss", snd_mss),
    tcpi!("client.socket.tcpi_snd_ssthresh", snd_ssthresh),
    tcpi!("client.socket.tcpi_total_retrans", total_retrans),
    Variable::new("client.socket.testable_rate", Type::Int, Subs::CLIENT, |task| {
        Ok(count(task.connection.delivered().map_or(0, |delivered| delivered.testable_bytes_per_s)))
    })
    .ours(),
    geo!("client.as.name", as_name),
    Variable::new("client.as.number", Type::Int, Subs::CLIENT, |task| {
        Ok(count(geo(task).as_number.unwrap_or(0)))
    })
    .ours(),
    geo!("client.geo.city", city),
    geo!("client.geo.continent_code", continent_code),
    geo!("client.geo.country_code", country_code),
    geo!("client.geo.country_name", country_name),
    Variable::new("client.geo.latitude", Type::Real, Subs::CLIENT, |task| {
        Ok(Value::Real(geo(task).latitude.unwrap_or(0.0)))
    })
    .ours(),
    Variable::new("client.geo.longitude", Type::Real, Subs::CLIENT, |task| {
        Ok(Value::Real(geo(task).longitude.unwrap_or(0.0)))
    })
    .ours(),
    Variable::new("client.geo.metro_code", Type::Int, Subs::CLIENT, |task| {
        Ok(count(geo(task).metro_code.unwrap_or(0)))
    })
    .ours(),
    geo!("client.geo.postal_code", postal_code),
    geo!("client.geo.region", region),
];

/// Returns the current kernel statistics, or zeros if unavailable.
fn tcp_info(task: &Task<'_>) -> TcpInfo {
    task.connection.tcp_info().unwrap_or_default()
}

fn geo<'t>(task: &'t Task<'_>) -> &'t Geo {
    let address = task.session.client.ip().to_canonical();
    task.kept.geo.get_or_init(|| Box::new(task.host.geo(address).unwrap_or_default()))
}

/// Changes a socket setting. On error, logs the error and continues with the current setting.
fn set_or_log(
    task: &mut Task<'_>,
    set: impl FnOnce(&mut Task<'_>) -> Result<(), String>,
) -> Result<(), Failure> {
    if let Err(error) = set(task) {
        task.push_log(crate::task::LogSource::Error, error);
    }
    Ok(())
}
