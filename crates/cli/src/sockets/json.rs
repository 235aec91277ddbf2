//! JSON form of a socket: one object per line. Names are the kernel's, with the unit last. Values
//! not reported by the kernel are absent.

use serde::ser::{Serialize, SerializeMap, Serializer};
use thalweg_record::Prefix;
use thalweg_tcp::diag::{Family, Queues, Socket, TimerKind};
use thalweg_tcp::{CongestionControl, TcpInfo};

/// Appends a socket as a JSON object and a newline.
pub(super) fn append_line(socket: &Socket, namespace: Option<&str>, out: &mut Vec<u8>) {
    let line = Line { socket, namespace };
    serde_json::to_writer(&mut *out, &line).expect("all keys are strings, and writing to a Vec cannot fail");
    out.push(b'\n');
}

struct Line<'a> {
    socket: &'a Socket,
    namespace: Option<&'a str>,
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { socket, namespace } = *self;
        let (local, client) = (socket.local_unmapped(), socket.remote_unmapped());
        let mut map = serializer.serialize_map(None)?;
        optional(&mut map, "namespace", namespace)?;
        map.serialize_entry("client", &client.ip())?;
        map.serialize_entry("client_port", &client.port())?;
        map.serialize_entry("client_prefix", &Prefix::of_client(client.ip()).to_string())?;
        map.serialize_entry("local", &local.ip())?;
        map.serialize_entry("local_port", &local.port())?;
        map.serialize_entry("cookie", &socket.cookie)?;
        map.serialize_entry("family", if socket.family == Family::Ipv4 { "ipv4" } else { "ipv6" })?;
        map.serialize_entry("state", socket.state.as_str())?;
        match socket.queues() {
            Queues::Bytes { received, sent } => {
                map.serialize_entry("rqueue_bytes", &received)?;
                map.serialize_entry("wqueue_bytes", &sent)?;
            }
            Queues::Connections { waiting, max } => {
                map.serialize_entry("accept_queue", &waiting)?;
                map.serialize_entry("accept_queue_max", &max)?;
            }
        }
        if let Some(timer) = timer_name(socket.timer.kind) {
            map.serialize_entry("timer", timer)?;
            map.serialize_entry("timer_expires_ms", &socket.timer.expires_ms)?;
            map.serialize_entry("timer_retransmits", &socket.retransmits)?;
        }
        map.serialize_entry("uid", &socket.uid)?;
        map.serialize_entry("inode", &socket.inode)?;
        optional(&mut map, "interface", Some(socket.interface).filter(|interface| *interface != 0))?;
        optional(&mut map, "mark", socket.mark)?;
        optional(&mut map, "cgroup_id", socket.cgroup_id)?;
        optional(&mut map, "class_id", socket.class_id)?;
        optional(&mut map, "tos", socket.tos)?;
        optional(&mut map, "tclass", socket.tclass)?;
        optional(&mut map, "shutdown", socket.shutdown)?;
        optional(
            &mut map,
            "congestion_control",
            socket.congestion_control.as_ref().map(CongestionControl::as_str),
        )?;
        optional(&mut map, "tcp", socket.tcp_info.as_ref().map(Tcp))?;
        optional(&mut map, "bbr", socket.bbr)?;
        optional(&mut map, "memory", socket.memory)?;
        map.end()
    }
}

fn optional<M: SerializeMap>(map: &mut M, name: &str, value: Option<impl Serialize>) -> Result<(), M::Error> {
    value.map_or(Ok(()), |value| map.serialize_entry(name, &value))
}

fn timer_name(kind: TimerKind) -> Option<&'static str> {
    match kind {
        TimerKind::Off => None,
        TimerKind::Retransmit => Some("retransmit"),
        TimerKind::Keepalive => Some("keepalive"),
        TimerKind::TimeWait => Some("time_wait"),
        TimerKind::Probe => Some("probe"),
        TimerKind::Other(_) => Some("other"),
    }
}

struct Tcp<'a>(&'a TcpInfo);

impl Serialize for Tcp<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let mut outcome = Ok(());
        self.0.for_each_number(|name, value| {
            if outcome.is_ok() {
                outcome = map.serialize_entry(name, &value);
            }
        });
        outcome?;
        map.serialize_entry("delivery_rate_app_limited", &self.0.delivery_rate_app_limited)?;
        map.end()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
