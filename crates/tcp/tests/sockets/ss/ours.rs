//! Conversion of our dumps to the names and format of `ss`, which omits most zeros
//! (`tcp_stats_print` in its `misc/ss.c`).

use std::collections::HashMap;
use std::net::SocketAddr;

use thalweg_tcp::TcpInfo;
use thalweg_tcp::diag::{Bbr, Diag, Extensions, Filter, Memory, Socket, State, TimerKind};

use super::reported::Reported;

/// Dumps the sockets on these ports and returns their values by cookie.
pub(super) fn reported(ports: &[u16]) -> HashMap<u64, Reported> {
    let mut found = HashMap::new();
    let all = Filter::parse("state all").unwrap();
    let each = |socket: &Socket| {
        if ports.contains(&socket.local.port()) || ports.contains(&socket.remote.port()) {
            found.insert(socket.cookie, report_of(socket));
        }
    };
    Diag::open().unwrap().dump(&all, Extensions::ALL, each).unwrap();
    found
}

fn report_of(socket: &Socket) -> Reported {
    let mut reported = Reported::default();
    reported.fact("state", socket.state);
    reported.fact("rqueue", socket.rqueue);
    reported.fact("wqueue", socket.wqueue);
    reported.fact("local", shown(socket.local, socket));
    reported.fact("remote", shown(socket.remote, socket));
    let timer = match socket.timer.kind {
        TimerKind::Off => None,
        TimerKind::Retransmit => Some("on"),
        TimerKind::Keepalive => Some("keepalive"),
        TimerKind::TimeWait => Some("timewait"),
        TimerKind::Probe => Some("persist"),
        TimerKind::Other(_) => Some("unknown"),
    };
    if let Some(kind) = timer {
        reported.fact("timer", format!("{kind},{}", socket.retransmits));
        reported.clock("timer", socket.timer.expires_ms.into());
    }
    numbers(&mut reported, &[("uid", socket.uid.into())]);
    reported.fact("ino", socket.inode);
    if let Some(mark) = socket.mark.filter(|&mark| mark != 0) {
        reported.fact("fwmark", format!("{mark:#x}"));
    }
    if let Some(is_v6_only) = socket.is_v6_only {
        reported.fact("v6only", u8::from(is_v6_only));
    }
    if let Some(shutdown) = socket.shutdown {
        reported.fact("shutdown", ["<->", "-->", "<--", "---"][usize::from(shutdown)]);
    }
    let classes = [("tos", socket.tos.map(u32::from)), ("tclass", socket.tclass.map(u32::from))];
    for (name, class) in classes.into_iter().chain([("class_id", socket.class_id)]) {
        if let Some(class) = class {
            reported.fact(name, if class == 0 { "0".to_owned() } else { format!("{class:#x}") });
        }
    }
    if let Some(name) = socket.congestion_control {
        reported.fact("cc", name);
    }
    if let Some(memory) = &socket.memory {
        reported.fact("skmem", skmem(memory));
    }
    if let Some(bbr) = &socket.bbr {
        reported.fact("bbr", model(bbr));
    }
    if let Some(info) = &socket.tcp_info {
        add_counts(info, socket.state, &mut reported);
        add_times(info, &mut reported);
        add_rates(info, &mut reported);
    }
    reported
}

/// Adds all nonzero numbers.
fn numbers(reported: &mut Reported, numbers: &[(&str, u64)]) {
    numbers.iter().filter(|(_, number)| *number != 0).for_each(|(name, number)| reported.fact(name, number));
}

fn add_counts(info: &TcpInfo, state: State, reported: &mut Reported) {
    let sum = |count: Option<u64>| count.unwrap_or(0);
    let count = |count: Option<u32>| count.unwrap_or(0).into();
    // `ss` omits a threshold of 0xffff or more, which it treats as infinite, and the default
    // reordering of 3. A listener's `sacked` is its backlog.
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
    numbers(reported, &always.map(|(name, number)| (name, number.into())));
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
    numbers(reported, &since);
    if info.retrans > 0 || info.total_retrans > 0 {
        reported.fact("retrans", format!("{}/{}", info.retrans, info.total_retrans));
    }
}

fn add_times(info: &TcpInfo, reported: &mut Reported) {
    // `ss` omits the kernel's initial timeout of 3 s.
    let rto_us = if info.rto_us == 3_000_000 { 0 } else { info.rto_us };
    let min_rtt_us = info.min_rtt_us.unwrap_or(0);
    for (name, us) in [("rto", rto_us), ("minrtt", min_rtt_us), ("rcv_rtt", info.rcv_rtt_us)] {
        if us != 0 {
            reported.fact(name, ms(us));
        }
    }
    if info.rtt_us != 0 {
        reported.fact("rtt", format!("{}/{}", ms(info.rtt_us), ms(info.rttvar_us)));
    }
    reported.clock("lastsnd", info.last_data_sent_ms.into());
    reported.clock("lastrcv", info.last_data_recv_ms.into());
    reported.clock("lastack", info.last_ack_recv_ms.into());
    reported.clock("busy", info.busy_time_us.unwrap_or(0) / 1000);
    reported.clock("rwnd_limited", info.rwnd_limited_us.unwrap_or(0) / 1000);
    reported.clock("sndbuf_limited", info.sndbuf_limited_us.unwrap_or(0) / 1000);
}

fn add_rates(info: &TcpInfo, reported: &mut Reported) {
    let bps = |bytes_per_s: u64| format!("{:.0}bps", bytes_per_s as f64 * 8.0);
    if info.rtt_us > 0 && info.snd_mss_bytes > 0 && info.snd_cwnd > 0 {
        let (cwnd, mss) = (f64::from(info.snd_cwnd), f64::from(info.snd_mss_bytes));
        reported.fact("send", format!("{:.0}bps", cwnd * mss * 8_000_000.0 / f64::from(info.rtt_us)));
    }
    if let Some(rate) = info.pacing_rate_bytes_per_s.filter(|&rate| rate > 0) {
        let limit = info.max_pacing_rate_bytes_per_s.map(|limit| format!("/{}", bps(limit)));
        reported.fact("pacing_rate", bps(rate) + &limit.unwrap_or_default());
    }
    if let Some(rate) = info.delivery_rate_bytes_per_s.filter(|&rate| rate > 0) {
        reported.fact("delivery_rate", bps(rate));
    }
    if info.delivery_rate_app_limited {
        reported.fact("app_limited", "");
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

/// Formats an address as `ss` does, with an asterisk if it is unspecified.
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

/// Formats microseconds as milliseconds.
fn ms(us: u32) -> String {
    general(f64::from(us) / 1000.0)
}

/// Formats a number from 0.001 to a million like C's `%g`: six significant digits, no trailing
/// zeros.
fn general(value: f64) -> String {
    let whole_digits = if value >= 1.0 { value.log10().floor() as usize + 1 } else { 0 };
    // In a number below 0.1, zeros after the decimal point are not significant digits.
    let zeros = if value > 0.0 && value < 0.1 { (-value.log10()).ceil() as usize - 1 } else { 0 };
    let text = format!("{value:.*}", (6 + zeros).saturating_sub(whole_digits));
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
