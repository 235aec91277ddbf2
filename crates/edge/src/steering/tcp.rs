//! TCP state of a client's connection at the end of a response.

use thalweg_record::{Decider, TcpState};
use thalweg_tcp::congestion::CongestionControl;
use thalweg_tcp::info::TcpInfo;

use super::Steering;

/// TCP state of a connection at the end of a response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tcp {
    congestion_control: CongestionControl,
    congestion_control_start: Option<CongestionControl>,
    decider: Decider,
    rtt_us: u32,
    min_rtt_us: Option<u32>,
    snd_cwnd: u32,
    delivery_rate_bytes_per_s: Option<u64>,
    delivery_rate_app_limited: bool,
    retransmits: u32,
    lost: u32,
    pacing_rate_bytes_per_s: Option<u64>,
}

impl Tcp {
    /// Returns the state that the kernel reported in `info`. The congestion control is taken from
    /// `steering`, which read it from the kernel when it was set.
    pub(crate) fn of(info: &TcpInfo, steering: &Steering) -> Option<Self> {
        Some(Self {
            congestion_control: steering.congestion_control()?,
            congestion_control_start: steering.start(),
            decider: steering.decider(),
            rtt_us: info.rtt_us,
            min_rtt_us: info.min_rtt_us,
            snd_cwnd: info.snd_cwnd,
            delivery_rate_bytes_per_s: info.delivery_rate_bytes_per_s,
            delivery_rate_app_limited: info.delivery_rate_app_limited,
            retransmits: info.total_retrans,
            lost: info.lost,
            pacing_rate_bytes_per_s: info.pacing_rate_bytes_per_s,
        })
    }
}

impl From<Tcp> for TcpState {
    fn from(tcp: Tcp) -> Self {
        Self {
            congestion_control: tcp.congestion_control.to_string(),
            congestion_control_start: tcp.congestion_control_start.map(|name| name.to_string()),
            decider: Some(tcp.decider),
            rtt_us: tcp.rtt_us,
            min_rtt_us: tcp.min_rtt_us,
            snd_cwnd: tcp.snd_cwnd,
            delivery_rate_bytes_per_s: tcp.delivery_rate_bytes_per_s,
            delivery_rate_app_limited: Some(tcp.delivery_rate_app_limited),
            retransmits: tcp.retransmits,
            lost: tcp.lost,
            pacing_rate_bytes_per_s: tcp.pacing_rate_bytes_per_s,
        }
    }
}
