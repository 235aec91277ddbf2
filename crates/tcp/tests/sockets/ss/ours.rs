//! What a dump says of a socket, in the words of `ss` (`tcp_stats_print` of its `misc/ss.c`), which leaves out most zeros.

use std::collections::HashMap;
use std::net::SocketAddr;

use thalweg_tcp::TcpInfo;
use thalweg_tcp::diag::{Bbr, Diag, Extensions, Filter, Memory, Socket, State, TimerKind};

use super::said::Said;

/// What a dump says of those that have one of the ports, by cookie.
pub(super) fn said(ports: &[u16]) -> HashMap<u64, Said> {
    let mut found = HashMap::new();
    let all = Filter::parse("state all").unwrap();
    let each = |socket: &Socket| {
        if ports.contains(&socket.local.port()) || ports.contains(&socket.remote.port()) {
            found.insert(socket.cookie, said_of(socket));
        }
    };
    Diag::open().unwrap().dump(&all, Extensions::ALL, each).unwrap();
    found
}

fn said_of(socket: &Socket) -> Said {
    let mut said = Said::default();
    said.fact("state", socket.state);
    said.fact("rqueue", socket.rqueue_bytes);
    said.fact("wqueue", socket.wqueue_bytes);
    said.fact("local", shown(socket.local, socket));
    said.fact("remote", shown(socket.remote, socket));
    let timer = match socket.timer.kind {
        TimerKind::Off => None,
        TimerKind::Retransmit => Some("on"),
        TimerKind::Keepalive => Some("keepalive"),
        TimerKind::TimeWait => Some("timewait"),
        TimerKind::Probe => Some("persist"),
        TimerKind::Other(_) => Some("unknown"),
    };
    if let Some(kind) = timer {
        said.fact("timer", format!("{kind},{}", socket.retransmits));
        said.clock("timer", socket.timer.expires_ms.into());
    }
    numbers(&mut said, &[("uid", socket.uid.into())]);
    said.fact("ino", socket.inode);
    if let Some(mark) = socket.mark.filter(|&mark| mark != 0) {
        said.fact("fwmark", format!("{mark:#x}"));
    }
    if let Some(is_v6_only) = socket.is_v6_only {
        said.fact("v6only", u8::from(is_v6_only));
    }
    if let Some(shutdown) = socket.shutdown {
        said.fact("shutdown", ["<->", "-->", "<--", "---"][usize::from(shutdown)]);
    }
    let classes = [("tos", socket.tos.map(u32::from)), ("tclass", socket.tclass.map(u32::from))];
    for (name, class) in classes.into_iter().chain([("class_id", socket.class_id)]) {
        if let Some(class) = class {
            said.fact(name, if class == 0 { "0".to_owned() } else { format!("{class:#x}") });
        }
    }
    if let Some(name) = socket.congestion_control {
        said.fact("cc", name);
    }
    if let Some(memory) = &socket.memory {
        said.fact("skmem", skmem(memory));
    }
    if let Some(bbr) = &socket.bbr {
        said.fact("bbr", model(bbr));
    }
    if let Some(info) = &socket.tcp_info {
        tell_counts(info, socket.state, &mut said);
        tell_times(info, &mut said);
        tell_rates(info, &mut said);
    }
    said
}

/// Those that are not 0.
fn numbers(said: &mut Said, numbers: &[(&str, u64)]) {
    numbers.iter().filter(|(_, number)| *number != 0).for_each(|(name, number)| said.fact(name, number));
}

fn tell_counts(info: &TcpInfo, state: State, said: &mut Said) {
    let sum = |count: Option<u64>| count.unwrap_or(0);
    let count = |count: Option<u32>| count.unwrap_or(0).into();
    // Above that it is infinite, for `ss`; three is the kernel's default; a listener's is how many may wait for it.
    let ssthresh = if info.snd_ssthresh < 0xffff { info.snd_ssthresh } else { 0 };
    let reordering = if info.reordering == 3 { 0 } else { info.reordering };
    let sacked = if state == State::Listen { 0 } else { info.sacked };
    let always = [
        ("mss", info.snd_mss_bytes),
        ("pmtu", info.pmtu_bytes),
        ("rcvmss", info.rcv_mss_bytes),
        ("advmss", info.advmss_bytes),
        ("cwnd", info.snd_cwnd),
        ("ssthresh", ssthresh),
        ("unacked", info.unacked),
        ("lost", info.lost),
        ("sacked", sacked),
        ("reordering", reordering),
        ("rcv_space", info.rcv_space_bytes),
        ("rcv_ssthresh", info.rcv_ssthresh_bytes),
    ];
    numbers(said, &always.map(|(name, number)| (name, number.into())));
    let since = [
        ("bytes_sent", sum(info.bytes_sent)),
        ("bytes_retrans", sum(info.bytes_retrans)),
        ("bytes_acked", sum(info.bytes_acked)),
        ("bytes_received", sum(info.bytes_received)),
        ("segs_out", count(info.segs_out)),
        ("segs_in", count(info.segs_in)),
        ("data_segs_out", count(info.data_segs_out)),
        ("data_segs_in", count(info.data_segs_in)),
        ("delivered", count(info.delivered)),
        ("delivered_ce", count(info.delivered_ce)),
        ("dsack_dups", count(info.dsack_dups)),
        ("reord_seen", count(info.reord_seen)),
        ("notsent", count(info.notsent_bytes)),
        ("rcv_ooopack", count(info.rcv_ooopack)),
        ("snd_wnd", count(info.snd_wnd_bytes)),
        ("rcv_wnd", count(info.rcv_wnd_bytes)),
        ("rehash", count(info.rehash)),
    ];
    numbers(said, &since);
    if info.retrans > 0 || info.total_retrans > 0 {
        said.fact("retrans", format!("{}/{}", info.retrans, info.total_retrans));
    }
}

fn tell_times(info: &TcpInfo, said: &mut Said) {
    // The kernel's first timeout of 3 s is not worth a word to `ss`.
    let rto_us = if info.rto_us == 3_000_000 { 0 } else { info.rto_us };
    let min_rtt_us = info.min_rtt_us.unwrap_or(0);
    for (name, us) in [("rto", rto_us), ("minrtt", min_rtt_us), ("rcv_rtt", info.rcv_rtt_us)] {
        if us != 0 {
            said.fact(name, ms(us));
        }
    }
    if info.rtt_us != 0 {
        said.fact("rtt", format!("{}/{}", ms(info.rtt_us), ms(info.rttvar_us)));
    }
    said.clock("lastsnd", info.last_data_sent_ms.into());
    said.clock("lastrcv", info.last_data_recv_ms.into());
    said.clock("lastack", info.last_ack_recv_ms.into());
    said.clock("busy", info.busy_time_us.unwrap_or(0) / 1000);
    said.clock("rwnd_limited", info.rwnd_limited_us.unwrap_or(0) / 1000);
    said.clock("sndbuf_limited", info.sndbuf_limited_us.unwrap_or(0) / 1000);
}

fn tell_rates(info: &TcpInfo, said: &mut Said) {
    let bps = |bytes_per_s: u64| format!("{:.0}bps", bytes_per_s as f64 * 8.0);
    if info.rtt_us > 0 && info.snd_mss_bytes > 0 && info.snd_cwnd > 0 {
        let (cwnd, mss) = (f64::from(info.snd_cwnd), f64::from(info.snd_mss_bytes));
        said.fact("send", format!("{:.0}bps", cwnd * mss * 8_000_000.0 / f64::from(info.rtt_us)));
    }
    if let Some(rate) = info.pacing_rate_bytes_per_s.filter(|&rate| rate > 0) {
        let limit = info.max_pacing_rate_bytes_per_s.map(|limit| format!("/{}", bps(limit)));
        said.fact("pacing_rate", bps(rate) + &limit.unwrap_or_default());
    }
    if let Some(rate) = info.delivery_rate_bytes_per_s.filter(|&rate| rate > 0) {
        said.fact("delivery_rate", bps(rate));
    }
    if info.delivery_rate_app_limited {
        said.fact("app_limited", "");
    }
}

fn skmem(memory: &Memory) -> String {
    let drops = memory.drops.map(|drops| format!(",d{drops}")).unwrap_or_default();
    format!(
        "(r{},rb{},t{},tb{},f{},w{},o{},bl{}{drops})",
        memory.rmem_alloc_bytes,
        memory.rcvbuf_bytes,
        memory.wmem_alloc_bytes,
        memory.sndbuf_bytes,
        memory.fwd_alloc_bytes,
        memory.wmem_queued_bytes,
        memory.optmem_bytes,
        memory.backlog_bytes,
    )
}

fn model(bbr: &Bbr) -> String {
    let gain = |name: &str, per_256: u32| match per_256 {
        0 => String::new(),
        _ => format!(",{name}:{}", general(f64::from(per_256) / 256.0)),
    };
    let (pacing, cwnd) =
        (gain("pacing_gain", bbr.pacing_gain_per_256), gain("cwnd_gain", bbr.cwnd_gain_per_256));
    format!("(bw:{:.0}bps,mrtt:{}{pacing}{cwnd})", bbr.bw_bytes_per_s as f64 * 8.0, ms(bbr.min_rtt_us))
}

/// As `ss` has an address: any of IPv6 and of IPv4 is a star.
fn shown(address: SocketAddr, socket: &Socket) -> String {
    let port = if address.port() == 0 { "*".to_owned() } else { address.port().to_string() };
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unspecified() && socket.is_v6_only != Some(true) => {
            format!("*:{port}")
        }
        SocketAddr::V6(v6) => format!("[{}]:{port}", v6.ip()),
        SocketAddr::V4(v4) => format!("{}:{port}", v4.ip()),
    }
}

/// Microseconds as milliseconds.
fn ms(us: u32) -> String {
    general(f64::from(us) / 1000.0)
}

/// C's `%g` of what is at least 0.001 and less than a million: six digits, without zeros at the end.
fn general(value: f64) -> String {
    let whole_digits = if value >= 1.0 { value.log10().floor() as usize + 1 } else { 0 };
    // Below one the zeros behind the point are none of the six.
    let zeros = if value > 0.0 && value < 0.1 { (-value.log10()).ceil() as usize - 1 } else { 0 };
    let text = format!("{value:.*}", (6 + zeros).saturating_sub(whole_digits));
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
