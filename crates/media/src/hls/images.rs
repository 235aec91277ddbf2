//! Image playlists for seek previews (the Image Media Playlist specification, version 0.4, which
//! Roku and others support; rfc8216bis has none).

use super::Attributes;
use super::media::head;
use crate::presentation::OnDemand;
use crate::tiles::{Format, Tiles};
use std::fmt::Write;

/// Appends an EXT-X-IMAGE-STREAM-INF for each set of images to a multivariant playlist.
pub fn announce(out: &mut String, tiles: &[Tiles]) {
    for set in tiles {
        let (width, height) = set.thumbnail();
        let codec = match set.format {
            Format::Jpeg => "jpeg",
            Format::Png => "png",
        };
        let mut attributes = Attributes::new(out, "#EXT-X-IMAGE-STREAM-INF");
        attributes.plain("BANDWIDTH", set.bandwidth());
        attributes.plain("RESOLUTION", format_args!("{width}x{height}")).quoted("CODECS", codec);
        attributes.quoted("URI", &format!("{}/images.m3u8", set.name));
        attributes.end();
    }
}

/// Writes the image playlist of a set. Its URIs are `VERSION/NUMBER.jpg`.
pub fn on_demand(presentation: &OnDemand, tiles: &Tiles) -> String {
    let durations: Vec<u64> = tiles.durations_us(presentation.duration_us()).collect();
    let mut out = head(durations.iter().copied().max().unwrap_or(0));
    out.push_str("#EXT-X-MEDIA-SEQUENCE:1\n#EXT-X-PLAYLIST-TYPE:VOD\n#EXT-X-IMAGES-ONLY\n");
    let ((width, height), layout) = (tiles.thumbnail(), tiles.layout);
    for (i, us) in durations.into_iter().enumerate() {
        let (seconds, us) = (us / 1_000_000, us % 1_000_000);
        let _ = writeln!(out, "#EXTINF:{seconds}.{us:06},");
        let mut attributes = Attributes::new(&mut out, "#EXT-X-TILES");
        attributes.plain("RESOLUTION", format_args!("{width}x{height}"));
        attributes.plain("LAYOUT", format_args!("{}x{}", layout.columns, layout.rows));
        attributes.plain("DURATION", format_args!("{}.000", layout.seconds));
        attributes.end();
        let _ = writeln!(out, "{}/{}.{}", tiles.version, i + 1, tiles.format.extension());
    }
    out.push_str("#EXT-X-ENDLIST\n");
    out
}
