//! Client connection as visible to a policy: its socket and its steering. The kernel is queried
//! only on demand.

use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::Relaxed;

use thalweg_policy::Connection;
use thalweg_policy::task::{Delivered, TcpInfo};
use thalweg_record::Decider;
use thalweg_tcp::{congestion, info, sending};

use super::{SharedSteering, Steering, SteeringRequest, chain};

/// The client connection of a policy's current request.
#[derive(Debug)]
pub(crate) struct Socket<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    pub(crate) steering: &'a mut Steering,
    pub(crate) common: &'a SharedSteering,
    pub(crate) delivered: Option<Delivered>,
}

impl Connection for Socket<'_> {
    fn congestion_algorithm(&self) -> Option<String> {
        congestion::get(self.fd).ok().map(|name| name.to_string())
    }

    fn set_congestion_algorithm(&mut self, name: &str) -> Result<(), String> {
        let algorithm = name.parse().map_err(|error| {
            self.common.refuse(name, &error);
            chain(&error)
        })?;
        match self.steering.apply(
            self.fd,
            SteeringRequest::immediate(Decider::Policy, algorithm),
            self.common,
        ) {
            Ok(_) => Ok(()),
            Err(error) => Err(chain(&error)),
        }
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        sending::max_pacing_rate(self.fd).ok().flatten()
    }

    fn set_pace_bytes_per_s(&mut self, pace: u64) -> Result<(), String> {
        sending::set_max_pacing_rate(self.fd, NonZeroU64::new(pace))
            .map_err(|error| format!("pace not set: {error}"))
    }

    fn set_cwnd(&mut self, _packets: u64) -> Result<(), String> {
        Err(thalweg_tcp::Error::NoCongestionWindow.to_string())
    }

    fn tcp_info(&self) -> Option<TcpInfo> {
        let info = info::TcpInfo::read(self.fd).ok()?;
        self.steering.retrans_seen.store(info.total_retrans, Relaxed);
        let delta_retrans = info.total_retrans.wrapping_sub(self.steering.retrans_before);
        Some(policy_tcp_info(&info, delta_retrans))
    }

    fn delivered(&self) -> Option<Delivered> {
        self.delivered
    }

    fn requests(&self) -> u64 {
        self.steering.requests.into()
    }

    fn set_type_of_service(&mut self, value: u8) -> Result<(), String> {
        sending::set_type_of_service(self.fd, value)
            .map_err(|error| format!("type of service not set: {error}"))
    }
}

/// Converts the kernel's values to the policy's. An unlimited rate becomes the maximum value, as in
/// the kernel. A value missing from an older kernel becomes 0.
fn policy_tcp_info(info: &info::TcpInfo, delta_retrans: u32) -> TcpInfo {
    let wide = |value: Option<u32>| value.unwrap_or_default().into();
    TcpInfo {
        advmss: info.advmss_bytes.into(),
        bytes_acked: info.bytes_acked.unwrap_or_default(),
        bytes_received: info.bytes_received.unwrap_or_default(),
        data_segs_in: wide(info.data_segs_in),
        data_segs_out: wide(info.data_segs_out),
        delivery_rate: info.delivery_rate_bytes_per_s.unwrap_or_default(),
        last_data_sent_ms: info.last_data_sent_ms.into(),
        lost: info.lost.into(),
        max_pacing_rate: info.max_pacing_rate_bytes_per_s.unwrap_or(u64::MAX),
        min_rtt_us: wide(info.min_rtt_us),
        notsent_bytes: wide(info.notsent_bytes),
        pacing_rate: info.pacing_rate_bytes_per_s.unwrap_or(u64::MAX),
        pmtu: info.pmtu_bytes.into(),
        rcv_mss: info.rcv_mss_bytes.into(),
        rcv_rtt_us: info.rcv_rtt_us.into(),
        rcv_space: info.rcv_space_bytes.into(),
        rcv_ssthresh: info.rcv_ssthresh_bytes.into(),
        reordering: info.reordering.into(),
        retrans: info.retrans.into(),
        rtt_us: info.rtt_us.into(),
        rttvar_us: info.rttvar_us.into(),
        segs_in: wide(info.segs_in),
        segs_out: wide(info.segs_out),
        snd_cwnd: info.snd_cwnd.into(),
        snd_mss: info.snd_mss_bytes.into(),
        snd_ssthresh: info.snd_ssthresh.into(),
        total_retrans: info.total_retrans.into(),
        delta_retrans: delta_retrans.into(),
    }
}
