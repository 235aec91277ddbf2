//! Just-in-time packager: serves HLS and DASH from CMAF tracks on disk, on object storage or on web
//! servers, and from live ingest.
//!
//! One HTTP/1.1 listener serves edges and clients, another accepts uploads from ingest sources. For
//! on-demand media ([`vod`]), the origin indexes a presentation on first request with ranged reads,
//! writes manifests from the index, and serves headers and segments as byte ranges of the files.
//! For live media ([`live`]), it accepts CMAF chunks by PUT and POST and forwards each as soon as
//! it is complete. `thalweg_media` writes all manifests from one model, so HLS and DASH name the
//! same segments. [`source`] pushes a presentation to an origin as a live channel, for
//! demonstrations and tests.
//!
//! **Invariant:** a broken presentation or channel does not affect any other.
//! **Invariant:** request data never becomes part of a file system path; names are looked up in
//! listings. Remote storage receives a presentation's name only as one encoded path segment.
//! **Invariant:** channels are published only on the ingest listener, by sources that connect to
//! it without a proxy.
//! **Invariant:** an upload from such a source is never reset: the origin reads it to its end and
//! then responds.

mod admin;
mod body;
mod catalog;
mod clock;
mod config;
mod error;
pub mod inspect;
mod live;
mod metrics;
mod response;
mod route;
mod select;
mod server;
mod source;
mod stall;
mod status;
mod storage;
mod vod;

pub use config::{Config, UploadLimits};
pub use error::BindError;
pub use live::ingest::permit::{Ingest, IngestToken, UnprotectedIngest};
pub use server::Origin;
pub use source::{PublishingPoint, Source, SourceError};
pub use storage::{MediaLocation, S3Options, StorageOptions};
