//! The packager: HLS and DASH just in time, from CMAF tracks on disk and from live ingest.
//!
//! One HTTP/1.1 server. On demand ([`vod`]) it indexes a presentation by ranged reads when it is first asked for,
//! writes manifests from the index and cuts headers and segments out of the files by byte range. Live ([`live`]) it
//! takes CMAF chunks by PUT and POST and hands each on the moment it is complete. Manifests are written by
//! `thalweg_media` from one model, so HLS and DASH name the same segments.
//!
//! **Invariant:** a fault of one presentation or channel is told for that one alone; the others go on.
//! **Invariant:** no part of a path in the file system comes from a request: names are looked up in listings.
//! **Invariant:** an upload is never reset; it is read to its end and then answered.

mod answer;
mod body;
mod catalog;
mod clock;
mod config;
mod error;
mod live;
mod route;
mod server;
mod stall;
mod storage;
mod vod;

pub use config::{Config, UploadLimits};
pub use error::BindError;
pub use server::Origin;
