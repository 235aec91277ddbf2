//! The messages of `proto/telemetry.proto`, field by field.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Batch {
    #[prost(string, tag = "1")]
    pub(super) host: String,
    #[prost(string, tag = "2")]
    pub(super) pop: String,
    #[prost(uint64, tag = "3")]
    pub(super) epoch: u64,
    #[prost(message, repeated, tag = "4")]
    pub(super) entries: Vec<Entry>,
    #[prost(message, repeated, tag = "5")]
    pub(super) heard: Vec<Heard>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Heard {
    #[prost(string, tag = "1")]
    pub(super) edge: String,
    #[prost(uint64, tag = "2")]
    pub(super) epoch: u64,
    #[prost(uint64, tag = "3")]
    pub(super) next: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Entry {
    #[prost(uint64, tag = "1")]
    pub(super) number: u64,
    #[prost(uint32, optional, tag = "2")]
    pub(super) asn: Option<u32>,
    #[prost(string, optional, tag = "3")]
    pub(super) region: Option<String>,
    #[prost(message, optional, tag = "4")]
    pub(super) socket: Option<Socket>,
    #[prost(message, optional, tag = "5")]
    pub(super) response: Option<Response>,
    #[prost(message, optional, tag = "6")]
    pub(super) loss: Option<Loss>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Loss {
    #[prost(uint32, tag = "1")]
    pub(super) version: u32,
    #[prost(uint64, tag = "2")]
    pub(super) time_unix_us: u64,
    #[prost(string, tag = "3")]
    pub(super) stage: String,
    #[prost(uint64, tag = "4")]
    pub(super) records: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Socket {
    #[prost(uint32, tag = "1")]
    pub(super) version: u32,
    #[prost(uint64, tag = "2")]
    pub(super) time_unix_us: u64,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) client_ip: Vec<u8>,
    #[prost(uint32, tag = "4")]
    pub(super) client_port: u32,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) local_ip: Vec<u8>,
    #[prost(uint32, tag = "6")]
    pub(super) local_port: u32,
    #[prost(uint64, tag = "7")]
    pub(super) cookie: u64,
    #[prost(string, optional, tag = "8")]
    pub(super) namespace: Option<String>,
    #[prost(string, tag = "9")]
    pub(super) state: String,
    #[prost(string, tag = "10")]
    pub(super) cause: String,
    #[prost(uint64, optional, tag = "11")]
    pub(super) interval_us: Option<u64>,
    #[prost(string, optional, tag = "12")]
    pub(super) congestion_control: Option<String>,
    #[prost(message, optional, tag = "13")]
    pub(super) gauges: Option<Gauges>,
    #[prost(message, optional, tag = "14")]
    pub(super) counters: Option<Counters>,
    #[prost(message, optional, tag = "15")]
    pub(super) bbr: Option<Bbr>,
    #[prost(uint32, optional, tag = "16")]
    pub(super) sample_one_in: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Gauges {
    #[prost(uint32, tag = "1")]
    pub(super) rtt_us: u32,
    #[prost(uint32, tag = "2")]
    pub(super) rttvar_us: u32,
    #[prost(uint32, optional, tag = "3")]
    pub(super) min_rtt_us: Option<u32>,
    #[prost(uint32, tag = "4")]
    pub(super) rto_us: u32,
    #[prost(uint32, tag = "5")]
    pub(super) snd_cwnd: u32,
    #[prost(uint32, optional, tag = "6")]
    pub(super) snd_ssthresh: Option<u32>,
    #[prost(uint32, tag = "7")]
    pub(super) snd_mss_bytes: u32,
    #[prost(uint32, tag = "8")]
    pub(super) pmtu_bytes: u32,
    #[prost(uint32, tag = "9")]
    pub(super) unacked: u32,
    #[prost(uint32, tag = "10")]
    pub(super) lost: u32,
    #[prost(uint32, tag = "11")]
    pub(super) reordering: u32,
    #[prost(uint32, tag = "12")]
    pub(super) ca_state: u32,
    #[prost(uint64, optional, tag = "13")]
    pub(super) delivery_rate_bytes_per_s: Option<u64>,
    #[prost(bool, tag = "14")]
    pub(super) delivery_rate_app_limited: bool,
    #[prost(uint64, optional, tag = "15")]
    pub(super) pacing_rate_bytes_per_s: Option<u64>,
    #[prost(uint32, optional, tag = "16")]
    pub(super) notsent_bytes: Option<u32>,
    #[prost(uint32, optional, tag = "17")]
    pub(super) snd_wnd_bytes: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Counters {
    #[prost(uint64, tag = "1")]
    pub(super) bytes_acked: u64,
    #[prost(uint64, tag = "2")]
    pub(super) bytes_received: u64,
    #[prost(uint64, tag = "3")]
    pub(super) bytes_sent: u64,
    #[prost(uint64, tag = "4")]
    pub(super) bytes_retrans: u64,
    #[prost(uint32, tag = "5")]
    pub(super) segs_out: u32,
    #[prost(uint32, tag = "6")]
    pub(super) segs_in: u32,
    #[prost(uint32, tag = "7")]
    pub(super) data_segs_out: u32,
    #[prost(uint32, tag = "8")]
    pub(super) retransmits: u32,
    #[prost(uint32, tag = "9")]
    pub(super) delivered: u32,
    #[prost(uint32, tag = "10")]
    pub(super) delivered_ce: u32,
    #[prost(uint32, tag = "11")]
    pub(super) dsack_dups: u32,
    #[prost(uint32, tag = "12")]
    pub(super) reord_seen: u32,
    #[prost(uint32, tag = "13")]
    pub(super) timeouts: u32,
    #[prost(uint64, tag = "14")]
    pub(super) busy_us: u64,
    #[prost(uint64, tag = "15")]
    pub(super) rwnd_limited_us: u64,
    #[prost(uint64, tag = "16")]
    pub(super) sndbuf_limited_us: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Bbr {
    #[prost(uint64, tag = "1")]
    pub(super) bw_bytes_per_s: u64,
    #[prost(uint32, tag = "2")]
    pub(super) min_rtt_us: u32,
    #[prost(uint32, tag = "3")]
    pub(super) pacing_gain_256th: u32,
    #[prost(uint32, tag = "4")]
    pub(super) cwnd_gain_256th: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Response {
    #[prost(uint32, tag = "1")]
    pub(super) version: u32,
    #[prost(uint64, tag = "2")]
    pub(super) time_unix_us: u64,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) client_ip: Vec<u8>,
    #[prost(uint32, tag = "4")]
    pub(super) client_port: u32,
    #[prost(string, tag = "5")]
    pub(super) method: String,
    #[prost(string, tag = "6")]
    pub(super) host: String,
    #[prost(string, tag = "7")]
    pub(super) path: String,
    #[prost(uint32, tag = "8")]
    pub(super) status: u32,
    #[prost(uint64, tag = "9")]
    pub(super) bytes: u64,
    #[prost(uint64, optional, tag = "10")]
    pub(super) ttfb_us: Option<u64>,
    #[prost(uint64, tag = "11")]
    pub(super) duration_us: u64,
    #[prost(string, tag = "12")]
    pub(super) cache: String,
    #[prost(string, optional, tag = "13")]
    pub(super) detail: Option<String>,
    #[prost(string, optional, tag = "14")]
    pub(super) backend: Option<String>,
    #[prost(string, tag = "15")]
    pub(super) protocol: String,
    #[prost(string, optional, tag = "16")]
    pub(super) cut: Option<String>,
    #[prost(message, optional, tag = "17")]
    pub(super) tcp: Option<Tcp>,
    #[prost(message, optional, tag = "18")]
    pub(super) steered: Option<Steered>,
    #[prost(message, optional, tag = "19")]
    pub(super) cmcd: Option<Cmcd>,
    #[prost(uint64, optional, tag = "20")]
    pub(super) xid: Option<u64>,
    #[prost(uint32, tag = "21")]
    pub(super) restarts: u32,
    #[prost(message, repeated, tag = "22")]
    pub(super) lines: Vec<Line>,
    #[prost(uint32, tag = "23")]
    pub(super) lines_lost: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Tcp {
    #[prost(string, tag = "1")]
    pub(super) congestion_control: String,
    #[prost(string, optional, tag = "2")]
    pub(super) congestion_control_start: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(super) decider: Option<String>,
    #[prost(uint32, tag = "4")]
    pub(super) rtt_us: u32,
    #[prost(uint32, optional, tag = "5")]
    pub(super) min_rtt_us: Option<u32>,
    #[prost(uint32, tag = "6")]
    pub(super) snd_cwnd: u32,
    #[prost(uint64, optional, tag = "7")]
    pub(super) delivery_rate_bytes_per_s: Option<u64>,
    #[prost(uint32, tag = "8")]
    pub(super) retransmits: u32,
    #[prost(uint32, tag = "9")]
    pub(super) lost: u32,
    #[prost(uint64, optional, tag = "10")]
    pub(super) pacing_rate_bytes_per_s: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Steered {
    #[prost(uint64, tag = "1")]
    pub(super) bundle: u64,
    #[prost(string, optional, tag = "2")]
    pub(super) rule: Option<String>,
    #[prost(bool, tag = "3")]
    pub(super) is_holdout: bool,
    #[prost(string, optional, tag = "4")]
    pub(super) experiment: Option<String>,
    #[prost(string, optional, tag = "5")]
    pub(super) arm: Option<String>,
    #[prost(string, optional, tag = "6")]
    pub(super) refused: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Cmcd {
    #[prost(string, optional, tag = "1")]
    pub(super) sid: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(super) st: Option<String>,
    #[prost(uint64, optional, tag = "3")]
    pub(super) br_kbps: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub(super) bl_ms: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub(super) mtp_kbps: Option<u64>,
    #[prost(bool, tag = "6")]
    pub(super) bs: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Line {
    #[prost(string, tag = "1")]
    pub(super) tag: String,
    #[prost(string, tag = "2")]
    pub(super) text: String,
}
