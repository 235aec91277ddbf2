//! ISO BMFF and CMAF boxes, DASH MPDs and HLS playlists, without I/O.

pub mod boxes;
pub mod chunk;
mod codec;
pub mod dash;
pub mod delay;
pub mod dump;
pub mod error;
pub mod fourcc;
pub mod fragment;
pub mod header;
pub mod hls;
pub mod index;
pub mod kind;
pub mod language;
pub mod presentation;
pub mod prft;
pub mod properties;
pub mod protection;
pub mod purpose;
pub mod reader;
pub mod retime;
mod samples;
pub mod sidx;
pub mod summary;
pub mod track;
pub mod vtt;
pub mod write;
