//! HLS playlists of joined presentations: a discontinuity between entries (RFC 8216bis §4.4.4.3).

use std::fmt::Write as _;

use super::media::{head, length_us, write_keys, write_segment};
use crate::presentation::joined::{Joined, Rung};
use crate::track::Media;

/// Writes the media playlist of one rendition. Its URIs are relative to the playlist,
/// `../../NAME/TRACK/VERSION/…`, so its segment URLs are those of the entry's own playlists.
pub fn media(joined: &Joined<'_>, rung: &Rung) -> String {
    let mut body = String::new();
    let (mut longest, mut protection_before) = (0, None);
    for (position, (entry, &track)) in joined.entries.iter().zip(&rung.tracks).enumerate() {
        let Some(track) = entry.media().tracks().get(track) else { continue };
        if position > 0 {
            body.push_str("#EXT-X-DISCONTINUITY\n");
        }
        // A key applies until the next one with the same KEYFORMAT (§4.4.4.4).
        let protection = track.index.info.properties.protection.as_ref();
        if protection_before.is_some() && protection_before != protection {
            body.push_str("#EXT-X-KEY:METHOD=NONE\n");
        }
        protection_before = protection;
        let base = format!("../../{}/{}/{}", entry.path, track.name, track.version);
        let is_file = track.index.info.media == Media::WebVtt;
        if !is_file {
            let _ = writeln!(body, "#EXT-X-MAP:URI=\"{base}/init.mp4\"");
        }
        write_keys(&mut body, track);
        let extension = if is_file { "vtt" } else { "m4s" };
        let timescale = track.index.info.timescale;
        for placed in entry.segments(track) {
            let length = length_us(placed.time, placed.duration, timescale);
            longest = longest.max(length);
            write_segment(&mut body, length, format_args!("{base}/{}.{extension}", placed.time));
        }
    }
    let head = head(longest);
    format!("{head}#EXT-X-MEDIA-SEQUENCE:0\n#EXT-X-PLAYLIST-TYPE:VOD\n{body}#EXT-X-ENDLIST\n")
}
