//! ISO BMFF and CMAF boxes, DASH MPDs and HLS playlists, without I/O.

pub mod track;
