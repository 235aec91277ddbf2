//! Segments of the sample's best video track: their targets, from the HLS playlists, and content.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::support::Server;

/// Time limit for a response.
const PATIENCE: Duration = Duration::from_secs(20);

/// A segment.
pub(crate) struct Segment {
    /// Path at the server.
    pub(crate) target: String,
    pub(crate) content: Vec<u8>,
    /// Length of the content.
    pub(crate) bytes: u64,
}

/// Fetches all segments of the video track with the highest bandwidth.
pub(crate) fn of(server: &Server, presentation: &str) -> Result<Vec<Segment>> {
    let root = format!("/vod/{presentation}/");
    let playlist = text(server, &format!("{root}master.m3u8"))?;
    let mut lines = playlist.lines();
    let mut best: Option<(u64, String)> = None;
    while let Some(line) = lines.next() {
        let Some(attributes) = line.strip_prefix("#EXT-X-STREAM-INF:") else { continue };
        let bandwidth = attributes.split(',').find_map(|one| one.strip_prefix("BANDWIDTH="));
        let bandwidth = bandwidth.context("a variant without BANDWIDTH")?.parse()?;
        let target = lines.next().context("a variant without a playlist")?.to_owned();
        if best.as_ref().is_none_or(|(before, _)| bandwidth > *before) {
            best = Some((bandwidth, target));
        }
    }
    let media = format!("{root}{}", best.context("a presentation without variants")?.1);
    let directory = media.rsplit_once('/').context("a playlist without a directory")?.0;
    let playlist = text(server, &media)?;
    let names = playlist.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let segments: Vec<Segment> = names
        .map(|name| {
            let target = format!("{directory}/{name}");
            let content = get(server, &target)?;
            Ok(Segment { bytes: content.len() as u64, target, content })
        })
        .collect::<Result<_>>()?;
    ensure!(!segments.is_empty(), "{media}: no segments");
    Ok(segments)
}

fn text(server: &Server, target: &str) -> Result<String> {
    Ok(String::from_utf8(get(server, target)?)?)
}

/// Fetches a target over a connection of its own, without chunked coding.
pub(crate) fn get(server: &Server, target: &str) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server.address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {target} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response)?;
    let end = response.windows(4).position(|four| four == b"\r\n\r\n").context("no complete head")? + 4;
    let head = String::from_utf8_lossy(&response[..end]).to_ascii_lowercase();
    ensure!(head.starts_with("http/1.1 200") && !head.contains("chunked"), "{target}: {head}");
    Ok(response.split_off(end))
}
