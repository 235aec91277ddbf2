//! Conversion of the kernel's description of a socket into record fields. Does no I/O.

use thalweg_record::{Bbr, Gauges, SocketAttributes, SocketFamily, SocketMemory, SocketTimer};
use thalweg_tcp::TcpInfo;
use thalweg_tcp::diag::{self, Family, Queues, Socket, TimerKind};
use thalweg_tcp::info::SSTHRESH_INFINITE;

use super::rates::DeliveryRate;

/// Returns the socket's owner, queues, timer and options.
pub(super) fn attributes(socket: &Socket) -> SocketAttributes {
    let timer = match socket.timer.kind {
        TimerKind::Off => None,
        TimerKind::Retransmit => Some(SocketTimer::Retransmit),
        TimerKind::Keepalive => Some(SocketTimer::Keepalive),
        TimerKind::TimeWait => Some(SocketTimer::TimeWait),
        TimerKind::Probe => Some(SocketTimer::Probe),
        TimerKind::Other(_) => Some(SocketTimer::Other),
    };
    let mut attributes = SocketAttributes {
        family: Some(match socket.family {
            Family::Ipv4 => SocketFamily::Ipv4,
            Family::Ipv6 => SocketFamily::Ipv6,
        }),
        timer,
        timer_expires_ms: timer.map(|_| socket.timer.expires_ms),
        timer_retransmits: timer.map(|_| socket.retransmits),
        uid: Some(socket.uid),
        inode: Some(socket.inode),
        interface: Some(socket.interface).filter(|&interface| interface != 0),
        mark: socket.mark,
        cgroup_id: socket.cgroup_id,
        class_id: socket.class_id,
        tos: socket.tos,
        tclass: socket.tclass,
        shutdown: socket.shutdown,
        ..SocketAttributes::default()
    };
    match socket.queues() {
        Queues::Bytes { received, sent } => {
            (attributes.rqueue_bytes, attributes.wqueue_bytes) = (Some(received), Some(sent));
        }
        Queues::Connections { waiting, max } => {
            (attributes.accept_queue, attributes.accept_queue_max) = (Some(waiting), Some(max));
        }
    }
    attributes
}

pub(super) fn bbr(bbr: diag::Bbr) -> Bbr {
    Bbr {
        bw_bytes_per_s: bbr.bw_bytes_per_s,
        min_rtt_us: bbr.min_rtt_us,
        pacing_gain_256th: bbr.pacing_gain_per_256,
        cwnd_gain_256th: bbr.cwnd_gain_per_256,
    }
}

pub(super) fn memory(memory: diag::Memory) -> SocketMemory {
    SocketMemory {
        rmem_alloc_bytes: memory.rmem_alloc_bytes,
        rcvbuf_bytes: memory.rcvbuf_bytes,
        wmem_alloc_bytes: memory.wmem_alloc_bytes,
        sndbuf_bytes: memory.sndbuf_bytes,
        fwd_alloc_bytes: memory.fwd_alloc_bytes,
        wmem_queued_bytes: memory.wmem_queued_bytes,
        optmem_bytes: memory.optmem_bytes,
        backlog_bytes: memory.backlog_bytes,
        drops: memory.drops,
    }
}

/// Returns the connection's state. The delivery rate is passed separately, because the rate in
/// `info` may be that of a FIN.
pub(super) fn gauges(info: &TcpInfo, delivery_rate: Option<DeliveryRate>) -> Gauges {
    Gauges {
        rtt_us: info.rtt_us,
        rttvar_us: info.rttvar_us,
        min_rtt_us: info.min_rtt_us,
        rto_us: info.rto_us,
        snd_cwnd: info.snd_cwnd,
        snd_ssthresh: (info.snd_ssthresh != SSTHRESH_INFINITE).then_some(info.snd_ssthresh),
        snd_mss_bytes: info.snd_mss_bytes,
        pmtu_bytes: info.pmtu_bytes,
        unacked: info.unacked,
        lost: info.lost,
        reordering: info.reordering,
        ca_state: info.ca_state,
        delivery_rate_bytes_per_s: delivery_rate.map(|rate| rate.bytes_per_s),
        delivery_rate_app_limited: delivery_rate
            .map_or(info.delivery_rate_app_limited, |rate| rate.is_app_limited),
        pacing_rate_bytes_per_s: info.pacing_rate_bytes_per_s,
        notsent_bytes: info.notsent_bytes,
        snd_wnd_bytes: info.snd_wnd_bytes,
        tcp_state: info.state,
        timeouts_in_a_row: info.retransmits,
        rcv_mss_bytes: info.rcv_mss_bytes,
        sacked: info.sacked,
        retrans: info.retrans,
        last_data_sent_ms: info.last_data_sent_ms,
        last_data_recv_ms: info.last_data_recv_ms,
        last_ack_recv_ms: info.last_ack_recv_ms,
        rcv_ssthresh_bytes: info.rcv_ssthresh_bytes,
        advmss_bytes: info.advmss_bytes,
        rcv_rtt_us: info.rcv_rtt_us,
        rcv_space_bytes: info.rcv_space_bytes,
        max_pacing_rate_bytes_per_s: info.max_pacing_rate_bytes_per_s,
        rcv_wnd_bytes: info.rcv_wnd_bytes,
    }
}
