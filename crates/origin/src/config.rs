//! Origin configuration, with all values resolved and checked by the caller.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::live::ingest::permit::Ingest;
use crate::storage::{MediaLocation, StorageOptions};

/// Configuration of an origin.
#[derive(Debug, Clone)]
pub struct Config {
    /// Address for edges and clients.
    pub listen: SocketAddr,
    /// Address for ingest sources; `None` disables live channels.
    pub ingest: Option<Ingest>,
    /// Address of the admin interface: metrics and health.
    pub admin: Option<SocketAddr>,
    /// Libraries of presentations, each of which is served as `/vod/NAME/`. If several libraries
    /// have a presentation of the same name, the first one serves it. If empty, only live channels
    /// are served.
    pub media: Vec<MediaLocation>,
    /// Access to libraries that are not directories.
    pub storage: StorageOptions,
    /// DVR window of each live channel.
    pub window: Duration,
    /// Minimum duration of a live segment, and of an on-demand segment if the file has no sidx.
    pub segment_target: Duration,
    /// Maximum age of a presentation's file listing before its directory is checked for changes.
    pub listing_max_age: Duration,
    /// The same for libraries that are not directories.
    pub remote_listing_max_age: Duration,
    /// Memory for the DVR windows of all live channels, in bytes.
    pub live_memory_bytes: u64,
    /// Maximum live channels; an upload that would create another is refused.
    pub channels_max: usize,
    /// Maximum open connections per listener; further connections wait to be accepted.
    pub connections_max: usize,
    /// Maximum size of a request's header section, in bytes.
    pub head_bytes_max: usize,
    /// Limits on uploads.
    pub uploads: UploadLimits,
}

/// Time and memory limits for uploads to live channels.
#[derive(Debug, Clone)]
pub struct UploadLimits {
    /// Maximum time an upload may send nothing before it is aborted and its track is released.
    pub idle_max: Duration,
    /// Maximum time that media waits for its track's header if the header arrives later.
    pub header_wait: Duration,
    /// Memory limit for the incomplete chunks of all uploads, in bytes. No upload may use more
    /// memory than it leaves free for the others. Must be several times the maximum chunk size
    /// ([`CHUNK_BYTES_MAX`](thalweg_media::chunk::CHUNK_BYTES_MAX)).
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
            ingest: Ingest::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 8084)), None).ok(),
            admin: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 8085))),
            media: Vec::new(),
            storage: StorageOptions::default(),
            window: Duration::from_secs(60),
            segment_target: Duration::from_secs(2),
            listing_max_age: Duration::from_secs(1),
            remote_listing_max_age: Duration::from_secs(10),
            live_memory_bytes: 512 << 20,
            channels_max: 64,
            connections_max: 4096,
            head_bytes_max: 16 << 10,
            uploads: UploadLimits::default(),
        }
    }
}
