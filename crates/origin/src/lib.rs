//! The packager: HLS and DASH just in time, from CMAF tracks on disk and from live ingest.

mod live;
