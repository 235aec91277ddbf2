//! Interfaces to the client's connection and to the process.

use std::net::{IpAddr, SocketAddr};

/// Kernel statistics of a connection, named as in `struct tcp_info`. Times are in µs unless the
/// name states another unit. Rates are in bytes per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of linux/tcp.h; see tcp(7)")]
pub struct TcpInfo {
    pub advmss: u64,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub data_segs_in: u64,
    pub data_segs_out: u64,
    pub delivery_rate: u64,
    pub last_data_sent_ms: u64,
    pub lost: u64,
    pub max_pacing_rate: u64,
    pub min_rtt_us: u64,
    pub notsent_bytes: u64,
    pub pacing_rate: u64,
    pub pmtu: u64,
    pub rcv_mss: u64,
    pub rcv_rtt_us: u64,
    pub rcv_space: u64,
    pub rcv_ssthresh: u64,
    pub reordering: u64,
    pub retrans: u64,
    pub rtt_us: u64,
    pub rttvar_us: u64,
    pub segs_in: u64,
    pub segs_out: u64,
    pub snd_cwnd: u64,
    pub snd_mss: u64,
    pub snd_ssthresh: u64,
    pub total_retrans: u64,
    /// Retransmissions since the policy last read this value.
    pub delta_retrans: u64,
}

/// Rates at which the client's kernel acknowledged a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// Content bytes acknowledged per second of busy time.
    pub goodput_bytes_per_s: u64,
    /// The highest rate that the response could have shown, given its size, the congestion window
    /// and the minimum round-trip time; 0 if any of these is unknown.
    pub testable_bytes_per_s: u64,
}

/// The client's connection. Each call reads or sets the socket directly.
pub trait Connection {
    /// Returns the congestion control algorithm in use, as reported by the kernel.
    fn congestion_algorithm(&self) -> Option<String>;
    /// Selects an algorithm. The caller logs the error, if any, and the request continues with the
    /// current algorithm.
    fn set_congestion_algorithm(&mut self, name: &str) -> Result<(), String>;
    /// Returns the pacing limit in bytes per second; `None` if unlimited.
    fn pace_bytes_per_s(&self) -> Option<u64>;
    /// Sets the pacing limit in bytes per second; 0 removes it.
    fn set_pace_bytes_per_s(&mut self, pace: u64) -> Result<(), String>;
    /// Sets the congestion window in packets, if the system allows it.
    fn set_cwnd(&mut self, packets: u64) -> Result<(), String>;
    /// Returns the current kernel statistics.
    fn tcp_info(&self) -> Option<TcpInfo>;
    /// Returns the rates of the newest response on this connection whose delivery was measured.
    fn delivered(&self) -> Option<Delivered>;
    /// Returns the number of requests on this connection so far, including the current one.
    fn requests(&self) -> u64;
    /// Sets the IP type of service for outgoing packets.
    fn set_type_of_service(&mut self, value: u8) -> Result<(), String>;
}

/// A client's location and network; fields missing from the database are `None`.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs, reason = "the names are self-explanatory; see the variables reference")]
pub struct Geo {
    pub as_name: Option<String>,
    pub as_number: Option<u32>,
    pub city: Option<String>,
    pub continent_code: Option<String>,
    pub country_code: Option<String>,
    pub country_name: Option<String>,
    pub latitude: Option<f64>,
    pub longitude: Option<f64>,
    pub metro_code: Option<u16>,
    pub postal_code: Option<String>,
    pub region: Option<String>,
}

/// Usage of one storage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Storage {
    /// Bytes free.
    pub free_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Whether the storage is operational.
    pub is_happy: bool,
}

/// Services that the process provides to policies. By default, each method returns an unknown value
/// or denies the operation.
pub trait Host {
    /// Returns the current Unix time in seconds, if the host has a more recent value than
    /// [`Task::now_s`](super::Task::now_s).
    fn now_s(&self) -> Option<f64> {
        None
    }
    /// Returns whether the backend with this index is healthy.
    fn is_healthy(&self, _backend: u32) -> bool {
        true
    }
    /// Returns when a backend's health last changed, in Unix seconds.
    fn changed_s(&self, _backend: u32) -> f64 {
        0.0
    }
    /// Returns the usage of the storage with this name.
    fn storage(&self, _name: &str) -> Storage {
        Storage::default()
    }
    /// Returns the location of an address. Called at most once per
    /// [`RequestState`](super::RequestState), and only if the policy needs it.
    fn geo(&self, _address: IpAddr) -> Option<Geo> {
        None
    }
    /// Returns an environment variable.
    fn environment(&self, _name: &str) -> Option<String> {
        None
    }
    /// Returns a file's content. The host decides which files a policy may read, and the program
    /// caches the result.
    fn read_file(&self, path: &str) -> Result<Vec<u8>, String> {
        Err(format!("{path}: a policy cannot read files here"))
    }
    /// Returns whether a file of any kind exists at this path.
    fn file_exists(&self, _path: &str) -> bool {
        false
    }
    /// Adds a ban.
    fn ban(&self, _expression: &str) -> Result<(), String> {
        Err("a policy cannot ban here".to_owned())
    }
    /// Purges the stored responses that have any of the `tags`. Returns the number reported to the
    /// policy; the edge reports the number of tags.
    ///
    /// # Errors
    ///
    /// Returns an error if the purge did not complete.
    fn purge_tags(&self, _tags: &str, _soft: bool) -> Result<u64, String> {
        Err("a policy cannot purge here".to_owned())
    }
    /// Returns the current bundle number.
    fn bundle_number(&self) -> Option<u64> {
        None
    }
    /// Returns the congestion control algorithm that the bundle's steering rule assigns to requests
    /// for this host from this client address.
    fn rule_algorithm(&self, _address: IpAddr, _host: &str) -> Option<String> {
        None
    }
    /// Returns whether the client's connection is in the holdout of the bundle's steering rule for
    /// this host.
    fn is_holdout(&self, _client: SocketAddr, _host: &str) -> bool {
        false
    }
    /// Returns the arm assigned by the bundle's experiment to the client's connection, given the
    /// requested host.
    fn arm(&self, _experiment: &str, _host: &str, _client: SocketAddr) -> Option<String> {
        None
    }
}

/// A host that uses the default of every method.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHost;

impl Host for NoHost {}
