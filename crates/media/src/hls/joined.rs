//! HLS playlists of joined presentations: a discontinuity between entries (RFC 8216bis §4.4.4.3).

use std::fmt::Write as _;

use super::media::{head, length_us, write_segment};
use crate::presentation::joined::{Joined, Rung};

/// Writes the media playlist of one rendition. Its URIs are relative to the playlist,
/// `../../NAME/TRACK/VERSION/…`, so its segment URLs are those of the entry's own playlists.
pub fn media(joined: &Joined<'_>, rung: &Rung) -> String {
    let mut body = String::new();
    let mut target = 1;
    for (position, (entry, &track)) in joined.entries.iter().zip(&rung.tracks).enumerate() {
        let Some(track) = entry.media().tracks().get(track) else { continue };
        if position > 0 {
            body.push_str("#EXT-X-DISCONTINUITY\n");
        }
        let base = format!("../../{}/{}/{}", entry.path, track.name, track.version);
        let _ = writeln!(body, "#EXT-X-MAP:URI=\"{base}/init.mp4\"");
        let timescale = track.index.info.timescale;
        for placed in entry.segments(track) {
            let length = length_us(placed.time, placed.duration, timescale);
            target = target.max((length + 500_000) / 1_000_000);
            write_segment(&mut body, length, format_args!("{base}/{}", placed.time));
        }
    }
    let head = head(target);
    format!("{head}#EXT-X-MEDIA-SEQUENCE:0\n#EXT-X-PLAYLIST-TYPE:VOD\n{body}#EXT-X-ENDLIST\n")
}
