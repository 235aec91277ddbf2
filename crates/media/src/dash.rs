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

use crate::presentation::sets::choice_purposes;
use crate::presentation::{Kind, Rendition, SwitchingSet, language};
use crate::properties::{Colour, DynamicRange};
use crate::purpose::{Purpose, ROLE_SCHEME};
use crate::track::Media;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
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

/// Namespace of the pssh element and the default_KID attribute (ISO/IEC 23001-7 §11.2).
const NAMESPACE_CENC: &str = "urn:mpeg:cenc:2013";

/// Opens the MPD element, and declares the namespaces in use.
fn begin_mpd<'a>(xml: &mut Xml, renditions: impl IntoIterator<Item = Rendition<'a>>) {
    xml.begin("MPD").attr("xmlns", NAMESPACE);
    if renditions.into_iter().any(|r| r.info.properties.protection.is_some()) {
        xml.attr("xmlns:cenc", NAMESPACE_CENC);
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
    xml.attr("contentType", kind);
    if is_file(set, renditions) {
        xml.attr("mimeType", "text/vtt");
        return;
    }
    xml.attr("segmentAlignment", "true").attr("mimeType", mime);
    if independent {
        xml.attr("startWithSAP", sap);
    }
}

/// Returns whether the members are WebVTT files, which DASH players load as a whole.
fn is_file(set: &SwitchingSet, renditions: &[Rendition<'_>]) -> bool {
    renditions[set.members[0]].info.media == Media::WebVtt
}

/// Writes the descriptors that come first in an AdaptationSet. `main_id` is the AdaptationSet for
/// which the set is trick play (DASH-IF IOP §3.2.9).
fn write_descriptors(
    xml: &mut Xml,
    set: &SwitchingSet,
    renditions: &[Rendition<'_>],
    main_id: Option<usize>,
) {
    write_channels(xml, set, renditions);
    if shares_protection(set, renditions) {
        write_protection(xml, &renditions[set.members[0]]);
    }
    if let Some(main_id) = main_id {
        let scheme = "http://dashif.org/guidelines/trickmode";
        xml.begin("EssentialProperty").attr("schemeIdUri", scheme).attr("value", main_id).end();
    }
    write_colour(xml, set, renditions);
    write_audio_objects(xml, set, renditions);
}

/// Returns whether all members have the same key and systems. Otherwise, each Representation has
/// its own, because a ladder may have a key for each resolution.
fn shares_protection(set: &SwitchingSet, renditions: &[Rendition<'_>]) -> bool {
    let of = |member: usize| &renditions[member].info.properties.protection;
    set.members.iter().all(|&member| of(member) == of(set.members[0]))
}

/// Writes the encryption (ISO/IEC 23009-1 §5.8.4.1): the scheme with the key's identifier, then
/// each system with its pssh box.
fn write_protection(xml: &mut Xml, rendition: &Rendition<'_>) {
    let Some(protection) = &rendition.info.properties.protection else { return };
    xml.begin("ContentProtection")
        .attr("schemeIdUri", "urn:mpeg:dash:mp4protection:2011")
        .attr("value", protection.scheme.name())
        .attr("cenc:default_KID", protection.key_id)
        .end();
    for system in &protection.systems {
        xml.begin("ContentProtection").attr("schemeIdUri", format_args!("urn:uuid:{}", system.id));
        xml.leaf("cenc:pssh", BASE64.encode(&system.pssh)).end();
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

/// Writes the colour of a video set, as far as it differs from BT.709, which players assume. With
/// PQ, the descriptors are essential: players that do not know them must choose another set.
/// Players that ignore HLG still show an acceptable picture.
fn write_colour(xml: &mut Xml, set: &SwitchingSet, renditions: &[Rendition<'_>]) {
    let properties = &renditions[set.members[0]].info.properties;
    let Some(colour) = properties.colour else { return };
    let is_essential = properties.dynamic_range() == DynamicRange::Pq;
    let values = [
        ("urn:mpeg:mpegB:cicp:ColourPrimaries", colour.primaries),
        ("urn:mpeg:mpegB:cicp:TransferCharacteristics", colour.transfer),
        ("urn:mpeg:mpegB:cicp:MatrixCoefficients", colour.matrix),
    ];
    for (scheme, value) in values {
        if !matches!(value, BT_709 | Colour::UNSPECIFIED) {
            let element = if is_essential { "EssentialProperty" } else { "SupplementalProperty" };
            xml.begin(element).attr("schemeIdUri", scheme).attr("value", value).end();
        }
    }
}

/// Code point of BT.709, in all tables of ISO/IEC 23091-2.
const BT_709: u16 = 1;

/// Writes the properties of audio objects in E-AC-3 (ETSI TS 103 420 §D.2).
fn write_audio_objects(xml: &mut Xml, set: &SwitchingSet, renditions: &[Rendition<'_>]) {
    let Some(index) = renditions[set.members[0]].info.properties.audio_objects else { return };
    let mut property = |scheme: &str, value: &dyn fmt::Display| {
        xml.begin("SupplementalProperty").attr("schemeIdUri", scheme).attr("value", value).end();
    };
    property("tag:dolby.com,2018:dash:EC3_ExtensionType:2018", &"JOC");
    property("tag:dolby.com,2018:dash:EC3_ExtensionComplexityIndex:2018", &index);
}

/// Writes the roles, and the accessibility descriptors that DASH-IF defines for them.
fn write_role(xml: &mut Xml, set: &SwitchingSet, renditions: &[Rendition<'_>]) {
    let info = renditions[set.members[0]].info;
    let purposes = choice_purposes(info);
    let mut roles: Vec<&str> = purposes.iter().map(|purpose| purpose.role()).collect();
    if set.is_default {
        roles.insert(0, "main");
    } else if purposes.is_empty() && set.kind != Kind::Text {
        roles.push("alternate");
    }
    if set.kind == Kind::Text && !purposes.contains(&Purpose::Caption) {
        roles.push("subtitle");
    }
    let audience = purposes.iter().find_map(|purpose| match purpose {
        Purpose::Description => Some(1),
        Purpose::Caption => Some(2),
        _ => None,
    });
    if let Some(audience) = audience {
        let scheme = "urn:tva:metadata:cs:AudioPurposeCS:2007";
        xml.begin("Accessibility").attr("schemeIdUri", scheme).attr("value", audience).end();
    }
    if set.kind == Kind::Video && info.properties.purposes.has(Purpose::Caption) {
        let scheme = "urn:scte:dash:cc:cea-608:2015";
        xml.begin("Accessibility").attr("schemeIdUri", scheme).end();
    }
    for role in roles {
        xml.begin("Role").attr("schemeIdUri", ROLE_SCHEME).attr("value", role).end();
    }
}

/// Opens the Representation of a member, and writes its attributes and descriptors.
fn begin_representation(xml: &mut Xml, set: &SwitchingSet, renditions: &[Rendition<'_>], member: usize) {
    let rendition = &renditions[member];
    xml.begin("Representation").attr("id", rendition.name).attr("bandwidth", rendition.bitrate.peak.max(1));
    match rendition.info.media {
        Media::Video { width, height } => {
            xml.attr("width", width).attr("height", height).attr("sar", "1:1");
        }
        Media::Audio { sample_rate, .. } => {
            xml.attr("audioSamplingRate", sample_rate);
        }
        Media::Text | Media::WebVtt => {}
    }
    match rendition.frame_rate {
        Some((num, 1)) => drop(xml.attr("frameRate", num)),
        Some((num, den)) => drop(xml.attr("frameRate", format_args!("{num}/{den}"))),
        None => {}
    }
    if !rendition.info.codec.is_empty() {
        xml.attr("codecs", &rendition.info.codec);
    }
    if !shares_protection(set, renditions) {
        write_protection(xml, rendition);
    }
}

#[cfg(test)]
pub(crate) mod tests;
