//! What an origin is told: resolved values, checked by whoever made them.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Configuration of an origin.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where edges, clients and ingest sources connect.
    pub listen: SocketAddr,
    /// The directory of presentations: each directory in it is served as `/vod/NAME/`. `None`: live channels only.
    pub media: Option<PathBuf>,
    /// How much of a live channel can be played back.
    pub window: Duration,
    /// Least duration of a live segment, and of a segment on demand where the file has no sidx.
    pub segment_target: Duration,
    /// How long a listing of a presentation's files is believed, before storage is asked whether they changed.
    pub listing_max_age: Duration,
    /// Memory for the windows of all live channels, in bytes.
    pub live_memory_bytes: u64,
    /// Live channels; a source of one more is refused.
    pub channels_max: usize,
    /// Connections at a time; more wait to be accepted.
    pub connections_max: usize,
    /// Bytes of a request's header section.
    pub head_bytes_max: usize,
    /// What uploads may take.
    pub uploads: UploadLimits,
}

/// What uploads to live channels may take of time and memory.
#[derive(Debug, Clone)]
pub struct UploadLimits {
    /// An upload that brings no byte for so long has lost its source: its track is free for another.
    pub idle_max: Duration,
    /// How long media wait for a header of their track that comes after them.
    pub header_wait: Duration,
    /// Bytes that all uploads together hold of chunks that have not come whole, each no more than it leaves for the
    /// others. It is several times the longest chunk ([`CHUNK_BYTES_MAX`](thalweg_media::chunk::CHUNK_BYTES_MAX)).
    pub held_back_bytes_max: u64,
}

impl Default for UploadLimits {
    fn default() -> Self {
        UploadLimits {
            idle_max: Duration::from_secs(60),
            header_wait: Duration::from_secs(3),
            held_back_bytes_max: 256 << 20,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8081)),
            media: None,
            window: Duration::from_secs(60),
            segment_target: Duration::from_secs(2),
            listing_max_age: Duration::from_secs(1),
            live_memory_bytes: 512 << 20,
            channels_max: 64,
            connections_max: 4096,
            head_bytes_max: 16 << 10,
            uploads: UploadLimits::default(),
        }
    }
}
