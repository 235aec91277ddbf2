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
mod language;
pub mod presentation;
pub mod prft;
pub mod progressive;
pub mod reader;
pub mod retime;
mod samples;
pub mod sidx;
pub mod track;
pub mod write;
