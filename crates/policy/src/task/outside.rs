//! What lies outside of a policy: the client's connection and the process, as far as it may ask them.

use std::net::{IpAddr, SocketAddr};

/// The kernel's numbers of a connection, as `struct tcp_info` has them; times in µs, rates in bytes per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of linux/tcp.h, whose page tcp(7) explains them")]
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
    /// Since the last time that a policy looked.
    pub delta_retrans: u64,
}

/// The client's connection. Each reads or sets the socket itself.
pub trait Connection {
    /// The algorithm that the kernel says is in use.
    fn congestion_algorithm(&self) -> Option<String>;
    /// Asks for an algorithm; the error is told in the log, and the request goes on with what there is.
    fn set_congestion_algorithm(&mut self, name: &str) -> Result<(), String>;
    /// The most bytes a second that go out; `None` without a limit.
    fn pace_bytes_per_s(&self) -> Option<u64>;
    /// Sets that limit.
    fn set_pace_bytes_per_s(&mut self, pace: u64) -> Result<(), String>;
    /// Asks for a congestion window in packets, where the system lets one be set.
    fn set_cwnd(&mut self, packets: u64) -> Result<(), String>;
    /// What the kernel says now.
    fn tcp_info(&self) -> Option<TcpInfo>;
    /// Requests on this connection, this one among them.
    fn requests(&self) -> u64;
    /// Sets the type of service of what goes out.
    fn set_type_of_service(&mut self, value: u8) -> Result<(), String>;
}

/// Where a client is and whose network it is in, as far as a database knows.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs, reason = "the names say it; the variables' table has the rest")]
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

/// What is known of a storage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Storage {
    /// Bytes free.
    pub free_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Whether it works.
    pub is_happy: bool,
}

/// What the process knows and a policy may ask. A host that does not know says so by default.
pub trait Host {
    /// The time at this very moment, unix seconds, where it is known better than by [`Task::now_s`](super::Task::now_s).
    fn now_s(&self) -> Option<f64> {
        None
    }
    /// Whether a backend, by its index, may be asked now.
    fn is_healthy(&self, _backend: u32) -> bool {
        true
    }
    /// Since when it has been so, unix seconds.
    fn changed_s(&self, _backend: u32) -> f64 {
        0.0
    }
    /// A storage by its name.
    fn storage(&self, _name: &str) -> Storage {
        Storage::default()
    }
    /// Where an address is. It is asked once by each task's [`Kept`](super::Kept), and only if the policy asks.
    fn geo(&self, _address: IpAddr) -> Option<Geo> {
        None
    }
    /// A variable of the environment.
    fn environment(&self, _name: &str) -> Option<String> {
        None
    }
    /// A file's content; the host says which files a policy may read. It is not asked again while the program keeps it.
    fn read_file(&self, path: &str) -> Result<Vec<u8>, String> {
        Err(format!("{path}: a policy may read no file here"))
    }
    /// Whether there is a file, of whatever kind.
    fn file_exists(&self, _path: &str) -> bool {
        false
    }
    /// Puts a ban in force.
    fn ban(&self, _expression: &str) -> Result<(), String> {
        Err("a policy may not ban here".to_owned())
    }
    /// Purges what has one of the tags in `tags`; returns how many.
    ///
    /// # Errors
    /// When not all of it was done.
    fn purge_tags(&self, _tags: &str, _soft: bool) -> Result<u64, String> {
        Err("a policy may not purge here".to_owned())
    }
    /// The number of the bundle in force.
    fn bundle_number(&self) -> Option<u64> {
        None
    }
    /// The congestion control of the bundle's rule about an address that asks for something of this host.
    fn rule_algorithm(&self, _address: IpAddr, _host: &str) -> Option<String> {
        None
    }
    /// Whether the bundle's rule about a client that asks for something of this host is not for this connection of it.
    fn is_holdout(&self, _client: SocketAddr, _host: &str) -> bool {
        false
    }
    /// The arm of the bundle's experiment that a connection has when it asks for something of this host.
    fn arm(&self, _experiment: &str, _host: &str, _client: SocketAddr) -> Option<String> {
        None
    }
}

/// The host that knows nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl Host for Alone {}
