//! DASH MPDs (ISO/IEC 23009-1), written from the same model as the HLS playlists.
//!
//! [`on_demand`] and [`joined`] write static MPDs, and [`live`] writes low-latency live MPDs. This
//! module writes
//! the parts of AdaptationSet and Representation common to all. Elements are written in the order
//! that the MPEG schema requires.
//!
//! **Invariant:** segment templates name the same segments as the media playlists.

mod joined;
mod live;
mod on_demand;
mod xml;

pub use joined::joined;
pub use live::live;
pub use on_demand::on_demand;

use crate::presentation::{Kind, Rendition, SwitchingSet, language};
use crate::track::Media;
use std::fmt;
use xml::Xml;

const NAMESPACE: &str = "urn:mpeg:dash:schema:mpd:2011";
/// Profile for segment templates with a timeline or numbers, in which each segment has a stream
/// access point (ISO/IEC 23009-1 §8.4).
const PROFILE_LIVE: &str = "urn:mpeg:dash:profile:isoff-live:2011";
const PROFILE_CMAF: &str = "urn:mpeg:dash:profile:cmaf:2019";

/// Microseconds formatted as `xs:duration`, in seconds.
struct Duration(u64);

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PT{}S", Seconds(self.0))
    }
}

/// Microseconds formatted as decimal seconds without trailing zeros.
struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, us) = (self.0 / 1_000_000, self.0 % 1_000_000);
        if us == 0 {
            return write!(f, "{seconds}");
        }
        let fraction = format!("{us:06}");
        write!(f, "{seconds}.{}", fraction.trim_end_matches('0'))
    }
}

/// Opens an AdaptationSet and writes its attributes. The segments of all members start at the same
/// times, each with a sync sample: SAP type 1, or type 2 if the first decoded frame may not be the
/// first one shown.
fn begin_set(xml: &mut Xml, id: usize, set: &SwitchingSet, renditions: &[Rendition<'_>], independent: bool) {
    let (kind, mime, sap) = match set.kind {
        Kind::Video => ("video", "video/mp4", 2),
        Kind::Audio => ("audio", "audio/mp4", 1),
        Kind::Text => ("text", "application/mp4", 1),
    };
    xml.begin("AdaptationSet").attr("id", id);
    if let Some(language) = language(renditions[set.members[0]].info) {
        xml.attr("lang", language);
    }
    xml.attr("contentType", kind).attr("segmentAlignment", "true").attr("mimeType", mime);
    if independent {
        xml.attr("startWithSAP", sap);
    }
}

/// Writes the channel configuration (ISO/IEC 23091-3), which all members share.
fn write_channels(xml: &mut Xml, set: &SwitchingSet, renditions: &[Rendition<'_>]) {
    let Media::Audio { channels, .. } = renditions[set.members[0]].info.media else { return };
    let configuration = match channels {
        1..=6 => channels,
        7 => 11,
        8 => 12,
        _ => return,
    };
    xml.begin("AudioChannelConfiguration")
        .attr("schemeIdUri", "urn:mpeg:mpegB:cicp:ChannelConfiguration")
        .attr("value", configuration)
        .end();
}

fn write_role(xml: &mut Xml, set: &SwitchingSet, first_of_kind: bool) {
    let role = match (set.kind, first_of_kind) {
        (Kind::Text, _) => "subtitle",
        (_, true) => "main",
        (_, false) => "alternate",
    };
    xml.begin("Role").attr("schemeIdUri", "urn:mpeg:dash:role:2011").attr("value", role).end();
}

/// Opens a Representation and writes its attributes.
fn begin_representation(xml: &mut Xml, rendition: &Rendition<'_>) {
    xml.begin("Representation").attr("id", rendition.name).attr("bandwidth", rendition.bitrate.peak.max(1));
    match rendition.info.media {
        Media::Video { width, height } => {
            xml.attr("width", width).attr("height", height).attr("sar", "1:1");
        }
        Media::Audio { sample_rate, .. } => {
            xml.attr("audioSamplingRate", sample_rate);
        }
        Media::Text => {}
    }
    match rendition.frame_rate {
        Some((num, 1)) => drop(xml.attr("frameRate", num)),
        Some((num, den)) => drop(xml.attr("frameRate", format_args!("{num}/{den}"))),
        None => {}
    }
    xml.attr("codecs", &rendition.info.codec);
}

#[cfg(test)]
pub(crate) mod tests;
