//! Keys of encrypted tracks: EXT-X-KEY in media playlists (§4.4.4.4) and EXT-X-SESSION-KEY in the
//! multivariant playlist (§4.4.6.5).
//!
//! Each protection system has its own KEYFORMAT and form of URI, defined by its owner. A system
//! without one gets its pssh box in a data URI, like Widevine. KEYID is an attribute of Widevine that
//! other systems ignore.

use super::Attributes;
use crate::protection::{Protection, Scheme, System, Uuid};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

/// SystemIDs of systems with a KEYFORMAT of their own (DASH-IF registry of content protection).
const PLAYREADY: Uuid =
    Uuid([0x9a, 4, 0xf0, 0x79, 0x98, 0x40, 0x42, 0x86, 0xab, 0x92, 0xe6, 0x5b, 0xe0, 0x88, 0x5f, 0x95]);
const FAIRPLAY: Uuid =
    Uuid([0x94, 0xce, 0x86, 0xfb, 7, 0xff, 0x4f, 0x43, 0xad, 0xb8, 0x93, 0xd2, 0xfa, 0x96, 0x8c, 0xa2]);

/// Tag that applies to the segments after it.
pub(super) const KEY: &str = "#EXT-X-KEY";
/// Tag that announces a key to players before they read a media playlist.
pub(super) const SESSION_KEY: &str = "#EXT-X-SESSION-KEY";

/// Writes one tag for each protection system or, without any, one with the key's identifier, for
/// players that receive the key from their application.
pub(super) fn write(out: &mut String, tag: &str, protection: &Protection) {
    let Protection { scheme, key_id, systems } = protection;
    let method = match scheme {
        Scheme::Cenc => "SAMPLE-AES-CTR",
        Scheme::Cbcs => "SAMPLE-AES",
    };
    let mut key = |uri: &str, format: &str| {
        let mut attributes = Attributes::new(out, tag);
        attributes.plain("METHOD", method).quoted("URI", uri).plain("KEYID", format_args!("0x{key_id:x}"));
        attributes.quoted("KEYFORMAT", format).quoted("KEYFORMATVERSIONS", "1");
        attributes.end();
    };
    for system in systems {
        let (uri, format) = uri_and_format(system, *key_id);
        key(&uri, &format);
    }
    if systems.is_empty() {
        key(&format!("data:text/plain;base64,{}", BASE64.encode(key_id.0)), "identity");
    }
}

fn uri_and_format(system: &System, key_id: Uuid) -> (String, String) {
    match system.id {
        PLAYREADY => {
            let data = BASE64.encode(system.data());
            let uri = format!("data:text/plain;charset=UTF-16;base64,{data}");
            (uri, String::from("com.microsoft.playready"))
        }
        FAIRPLAY => (format!("skd://{key_id:x}"), String::from("com.apple.streamingkeydelivery")),
        id => {
            let pssh = BASE64.encode(&system.pssh);
            (format!("data:text/plain;base64,{pssh}"), format!("urn:uuid:{id}"))
        }
    }
}
