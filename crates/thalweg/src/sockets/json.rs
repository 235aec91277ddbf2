//! A socket as a JSON object on one line. Names are the kernel's with their unit; what the kernel did not tell is absent.

use std::fmt::Display;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use thalweg_tcp::TcpInfo;
use thalweg_tcp::diag::{Bbr, Family, Memory, Prefix, Socket, TimerKind};

/// How much of a client's address says which network it is in: /24 of IPv4, /56 of IPv6.
const PREFIX_BITS_V4: u8 = 24;
const PREFIX_BITS_V6: u8 = 56;

/// Appends the object and a newline.
pub(super) fn append_line(socket: &Socket, namespace: Option<&str>, out: &mut Vec<u8>) {
    let mut object = Object::begin(out);
    if let Some(namespace) = namespace {
        object.text("namespace", namespace);
    }
    ends(&mut object, socket);
    object.number("cookie", socket.cookie);
    object.plain("family", if socket.family == Family::Ipv4 { "ipv4" } else { "ipv6" });
    object.plain("state", socket.state);
    object.number("rqueue_bytes", socket.rqueue_bytes);
    object.number("wqueue_bytes", socket.wqueue_bytes);
    if let Some(timer) = timer_name(socket.timer.kind) {
        object.plain("timer", timer);
        object.number("timer_expires_ms", socket.timer.expires_ms);
        object.number("timer_retransmits", socket.retransmits);
    }
    object.number("uid", socket.uid);
    object.number("inode", socket.inode);
    object.optional("interface", Some(socket.interface).filter(|interface| *interface != 0));
    object.optional("mark", socket.mark);
    object.optional("cgroup_id", socket.cgroup_id);
    object.optional("class_id", socket.class_id);
    object.optional("tos", socket.tos);
    object.optional("tclass", socket.tclass);
    object.optional("shutdown", socket.shutdown);
    if let Some(name) = &socket.congestion_control {
        object.text("congestion_control", name.as_str());
    }
    if let Some(info) = &socket.tcp_info {
        object.nested("tcp", |object| tcp(object, info));
    }
    if let Some(model) = &socket.bbr {
        object.nested("bbr", |object| bbr(object, model));
    }
    if let Some(usage) = &socket.memory {
        object.nested("memory", |object| memory(object, usage));
    }
    object.end();
    out.push(b'\n');
}

fn ends(object: &mut Object<'_>, socket: &Socket) {
    let (local, client): (SocketAddr, SocketAddr) = (socket.local_unmapped(), socket.remote_unmapped());
    object.plain("client", client.ip());
    object.number("client_port", client.port());
    object.plain("client_prefix", prefix(client.ip()));
    object.plain("local", local.ip());
    object.number("local_port", local.port());
}

/// The network of a client.
fn prefix(client: IpAddr) -> Prefix {
    Prefix::of(client, if client.is_ipv4() { PREFIX_BITS_V4 } else { PREFIX_BITS_V6 })
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

fn tcp(object: &mut Object<'_>, info: &TcpInfo) {
    info.for_each_number(|name, value| object.number(name, value));
    object.truth("delivery_rate_app_limited", info.delivery_rate_app_limited);
}

fn bbr(object: &mut Object<'_>, model: &Bbr) {
    object.number("bw_bytes_per_s", model.bw_bytes_per_s);
    object.number("min_rtt_us", model.min_rtt_us);
    object.number("pacing_gain_per_256", model.pacing_gain_per_256);
    object.number("cwnd_gain_per_256", model.cwnd_gain_per_256);
}

fn memory(object: &mut Object<'_>, usage: &Memory) {
    object.number("rmem_alloc_bytes", usage.rmem_alloc_bytes);
    object.number("rcvbuf_bytes", usage.rcvbuf_bytes);
    object.number("wmem_alloc_bytes", usage.wmem_alloc_bytes);
    object.number("sndbuf_bytes", usage.sndbuf_bytes);
    object.number("fwd_alloc_bytes", usage.fwd_alloc_bytes);
    object.number("wmem_queued_bytes", usage.wmem_queued_bytes);
    object.number("optmem_bytes", usage.optmem_bytes);
    object.number("backlog_bytes", usage.backlog_bytes);
    object.optional("drops", usage.drops);
}

/// An object as it grows. Names are written as they are.
struct Object<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

impl<'a> Object<'a> {
    fn begin(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, is_empty: true }
    }

    fn name(&mut self, name: &str) {
        if !std::mem::take(&mut self.is_empty) {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend(name.as_bytes());
        self.out.extend(b"\":");
    }

    fn number(&mut self, name: &str, value: impl Into<u64>) {
        self.name(name);
        // A socket has 60 numbers: this writes them several times faster than `write!`.
        serde_json::to_writer(&mut *self.out, &value.into()).expect("a Vec takes every write");
    }

    fn truth(&mut self, name: &str, value: bool) {
        self.name(name);
        self.out.extend(if value { &b"true"[..] } else { b"false" });
    }

    fn optional(&mut self, name: &str, value: Option<impl Into<u64>>) {
        if let Some(value) = value {
            self.number(name, value);
        }
    }

    /// A text that has nothing to escape: an address, a name of ours.
    fn plain(&mut self, name: &str, value: impl Display) {
        self.name(name);
        write!(self.out, "\"{value}\"").expect("a Vec takes every write");
    }

    /// Any text.
    fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        serde_json::to_writer(&mut *self.out, value).expect("a Vec takes every write");
    }

    fn nested(&mut self, name: &str, write: impl FnOnce(&mut Object<'_>)) {
        self.name(name);
        let mut object = Object::begin(self.out);
        write(&mut object);
        object.end();
    }

    fn end(self) {
        self.out.push(b'}');
    }
}
