//! The packager: HLS and DASH just in time, from CMAF tracks on disk and from live ingest.
//!
//! One HTTP/1.1 server faces edges and clients, another faces ingest sources. On demand ([`vod`]),
//! the origin indexes a presentation by ranged reads on first request, writes manifests from the
//! index, and serves headers and segments as byte ranges of the files. Live ([`live`]), it accepts
//! CMAF chunks by PUT and POST and forwards each as soon as it is complete. `thalweg_media` writes
//! all manifests from one model, so HLS and DASH name the same segments. [`source`] pushes a
//! presentation to an origin as a live channel, for demonstrations and tests.
//!
//! **Invariant:** a faulty presentation or channel fails alone; the others are unaffected.
//! **Invariant:** no part of a file system path comes from a request: names are looked up in
//! listings.
//! **Invariant:** only the ingest listener publishes channels, and only for sources that connect to
//! it without a proxy.
//! **Invariant:** an upload from such a source is never reset; it is read to its end and then
//! answered.

mod admin;
mod body;
mod catalog;
mod clock;
mod config;
mod error;
mod live;
mod metrics;
mod response;
mod route;
mod server;
mod source;
mod stall;
mod storage;
mod vod;

pub use config::{Config, UploadLimits};
pub use error::BindError;
pub use live::ingest::permit::{Ingest, IngestToken, UnprotectedIngest};
pub use server::Origin;
pub use source::{PublishingPoint, Source, SourceError};
