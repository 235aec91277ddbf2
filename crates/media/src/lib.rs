//! ISO BMFF and CMAF boxes, DASH MPDs and HLS playlists, without I/O.

pub mod boxes;
pub mod chunk;
pub mod error;
pub mod fourcc;
pub mod fragment;
pub mod index;
pub mod reader;
pub mod track;
