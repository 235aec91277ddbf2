//! Common Media Client Data (CMCD): metrics that a player sends with a request (CTA-5004, version
//! 1).
//!
//! The data arrives percent-encoded in the query argument `CMCD`, or in the fields [`FIELDS`]. The
//! standard distributes keys over the fields only by how often their values change, so any key is
//! accepted in any field. Members are separated by commas. A member is `key=value`, or a bare key
//! that means true. String values are in double quotes, with the escapes `\"` and `\\`. Keys are
//! case-sensitive.
//!
//! Unknown members and values of the wrong type are skipped. If a key is repeated, the last value
//! wins. Data of a newer version is read as far as it is compatible with version 1. A numeric value
//! of 0 is passed on for the policy to interpret.

use std::borrow::Cow;

use thalweg_http::Fields;

use super::blob::percent_decode;
use crate::words::words;

/// The fields that carry CMCD.
pub const FIELDS: [&str; 4] = ["CMCD-Request", "CMCD-Object", "CMCD-Status", "CMCD-Session"];
/// The query argument that carries CMCD.
pub const ARGUMENT: &[u8] = b"CMCD";

/// Maximum length of an argument or a field in bytes, both before and after decoding.
pub const TEXT_BYTES_MAX: usize = 4096;
/// Maximum number of members read from one argument or field; version 1 has 18 keys.
pub const MEMBERS_MAX: usize = 64;
/// Maximum length of `cid` and `sid`, in characters (CTA-5004).
pub const ID_CHARACTERS_MAX: usize = 64;
/// Maximum number of digits of an integer (RFC 8941 §3.3.1).
const INTEGER_DIGITS_MAX: usize = 15;

/// A request's CMCD, without the unused keys `nrr` and `v`. An absent key is `None` or `false`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cmcd {
    /// Encoded bitrate of the object.
    pub br_kbps: Option<u64>,
    /// Buffer length.
    pub bl_ms: Option<u64>,
    /// Whether the buffer ran dry since the previous request.
    pub bs: bool,
    /// Content ID.
    pub cid: Option<String>,
    /// Duration of the object.
    pub d_ms: Option<u64>,
    /// Time until the object is needed.
    pub dl_ms: Option<u64>,
    /// Throughput measured by the player.
    pub mtp_kbps: Option<u64>,
    /// Path of the next object to be requested, relative to this object, percent-decoded.
    pub nor: Option<String>,
    /// Type of the object.
    pub ot: Option<ObjectType>,
    /// Playback rate; 0 if the player is paused.
    pub pr: Option<f64>,
    /// Maximum throughput that the player requests.
    pub rtp_kbps: Option<u64>,
    /// Streaming format.
    pub sf: Option<StreamingFormat>,
    /// Session ID.
    pub sid: Option<String>,
    /// Stream type.
    pub st: Option<StreamType>,
    /// Whether the object is needed urgently: at startup, after a seek or after the buffer ran dry.
    pub su: bool,
    /// The highest bitrate available to the player.
    pub tb_kbps: Option<u64>,
}

words! {
    /// `ot`: object type.
    pub enum ObjectType {
        /// A manifest or playlist.
        Manifest = "m",
        /// Audio only.
        Audio = "a",
        /// Video only.
        Video = "v",
        /// Audio and video.
        Muxed = "av",
        /// An initialization segment.
        Init = "i",
        /// Captions or subtitles.
        Caption = "c",
        /// A timed text track in ISO BMFF.
        TimedText = "tt",
        /// A key, licence or certificate.
        Key = "k",
        /// Anything else.
        Other = "o",
    }
}

words! {
    /// `sf`: streaming format.
    pub enum StreamingFormat {
        /// MPEG DASH.
        Dash = "d",
        /// HTTP Live Streaming.
        Hls = "h",
        /// Smooth Streaming.
        Smooth = "s",
        /// Anything else.
        Other = "o",
    }
}

words! {
    /// `st`: stream type.
    pub enum StreamType {
        /// All segments are available.
        OnDemand = "v",
        /// Segments become available over time.
        Live = "l",
    }
}

/// The value of a member; `True` if it has no `=`.
enum Value<'a> {
    True,
    /// The string after the opening quote.
    Quoted(&'a str),
    Token(&'a str),
}

impl Cmcd {
    /// Reads a request's data from its query (without the `?`) and its fields. Fields override the
    /// query, because a URL may be copied from elsewhere, whereas fields are set for this request.
    pub fn of_request(query: Option<&[u8]>, fields: &Fields) -> Cmcd {
        let mut cmcd = Cmcd::default();
        let arguments = query.unwrap_or_default().split(|&byte| byte == b'&');
        for argument in arguments.filter_map(|argument| argument.strip_prefix(ARGUMENT)?.strip_prefix(b"=")) {
            if argument.len() <= TEXT_BYTES_MAX
                && let Some(text) = percent_decode(argument)
            {
                cmcd.read(&text);
            }
        }
        for text in FIELDS.iter().flat_map(|name| fields.get_all(name)) {
            cmcd.read(text);
        }
        cmcd
    }

    /// Merges the comma-separated members of `text`.
    pub fn read(&mut self, text: &[u8]) {
        if text.len() > TEXT_BYTES_MAX {
            return;
        }
        let members = thalweg_http::fields::members(text).take(MEMBERS_MAX);
        for member in members.filter_map(|member| str::from_utf8(member).ok()) {
            let (key, value) = match member.split_once('=') {
                None => (member, Value::True),
                Some((key, value)) => match value.strip_prefix('"') {
                    Some(quoted) => (key, Value::Quoted(quoted)),
                    None => (key, Value::Token(value)),
                },
            };
            self.set(key, value);
        }
    }

    /// Sets the value of `key`; a value of the wrong type is ignored.
    fn set(&mut self, key: &str, value: Value<'_>) {
        match (key.as_bytes(), value) {
            (b"bs", value) => replace(&mut self.bs, boolean(&value)),
            (b"su", value) => replace(&mut self.su, boolean(&value)),
            (b"br", Value::Token(token)) => replace_some(&mut self.br_kbps, integer(token)),
            (b"bl", Value::Token(token)) => replace_some(&mut self.bl_ms, integer(token)),
            (b"d", Value::Token(token)) => replace_some(&mut self.d_ms, integer(token)),
            (b"dl", Value::Token(token)) => replace_some(&mut self.dl_ms, integer(token)),
            (b"mtp", Value::Token(token)) => replace_some(&mut self.mtp_kbps, integer(token)),
            (b"rtp", Value::Token(token)) => replace_some(&mut self.rtp_kbps, integer(token)),
            (b"tb", Value::Token(token)) => replace_some(&mut self.tb_kbps, integer(token)),
            (b"pr", Value::Token(token)) => replace_some(&mut self.pr, decimal(token)),
            (b"ot", Value::Token(token)) => replace_some(&mut self.ot, ObjectType::named(token)),
            (b"sf", Value::Token(token)) => replace_some(&mut self.sf, StreamingFormat::named(token)),
            (b"st", Value::Token(token)) => replace_some(&mut self.st, StreamType::named(token)),
            (b"cid", Value::Quoted(quoted)) => replace_some(&mut self.cid, unquote(quoted).and_then(id)),
            (b"sid", Value::Quoted(quoted)) => replace_some(&mut self.sid, unquote(quoted).and_then(id)),
            (b"nor", Value::Quoted(quoted)) => replace_some(&mut self.nor, unquote(quoted).and_then(path)),
            _ => {}
        }
    }
}

fn replace<T>(slot: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *slot = value;
    }
}

fn replace_some<T>(slot: &mut Option<T>, value: Option<T>) {
    if value.is_some() {
        *slot = value;
    }
}

/// Decodes a string, given the characters after its opening quote (RFC 8941 §3.3.3, but UTF-8 is
/// allowed).
fn unquote(quoted: &str) -> Option<Cow<'_, str>> {
    let is_plain = |byte: u8| !matches!(byte, b'"' | b'\\') && !byte.is_ascii_control();
    if let Some(plain) = quoted.strip_suffix('"').filter(|text| text.bytes().all(is_plain)) {
        return Some(Cow::Borrowed(plain));
    }
    let mut text = String::new();
    let mut rest = quoted.chars();
    loop {
        match rest.next()? {
            '"' => return rest.as_str().is_empty().then_some(Cow::Owned(text)),
            '\\' => text.push(rest.next().filter(|sign| matches!(sign, '"' | '\\'))?),
            sign if sign.is_ascii_control() => return None,
            sign => text.push(sign),
        }
    }
}

/// Parses a bare key, or a boolean in the syntax of RFC 8941 §3.3.6.
fn boolean(value: &Value<'_>) -> Option<bool> {
    match value {
        Value::True | Value::Token("?1") => Some(true),
        Value::Token("?0") => Some(false),
        _ => None,
    }
}

/// Parses an integer; CMCD integers are never negative.
fn integer(token: &str) -> Option<u64> {
    let digits_only = token.bytes().all(|byte| byte.is_ascii_digit());
    if digits_only && token.len() <= INTEGER_DIGITS_MAX { token.parse().ok() } else { None }
}

/// Parses digits with an optional fraction.
fn decimal(token: &str) -> Option<f64> {
    let (whole, fraction) = token.split_once('.').unwrap_or((token, "0"));
    (integer(whole).is_some() && integer(fraction).is_some()).then(|| token.parse().ok()).flatten()
}

fn id(text: Cow<'_, str>) -> Option<String> {
    let is_short = text.len() <= ID_CHARACTERS_MAX || text.chars().count() <= ID_CHARACTERS_MAX;
    is_short.then(|| text.into_owned())
}

fn path(text: Cow<'_, str>) -> Option<String> {
    let decoded = String::from_utf8(percent_decode(text.as_bytes())?).ok()?;
    (!decoded.bytes().any(|byte| byte.is_ascii_control())).then_some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Cmcd {
        let mut cmcd = Cmcd::default();
        cmcd.read(text.as_bytes());
        cmcd
    }

    fn all_keys() -> Cmcd {
        Cmcd {
            br_kbps: Some(3200),
            bl_ms: Some(21_300),
            bs: true,
            cid: Some("faec5fc2-ac30".into()),
            d_ms: Some(4004),
            dl_ms: Some(18_500),
            mtp_kbps: Some(25_400),
            nor: Some("../300kbps/track.m4v".into()),
            ot: Some(ObjectType::Video),
            pr: Some(1.08),
            rtp_kbps: Some(15_000),
            sf: Some(StreamingFormat::Dash),
            sid: Some("6e2fb550-c457".into()),
            st: Some(StreamType::OnDemand),
            su: true,
            tb_kbps: Some(6000),
        }
    }

    #[test]
    fn query_supports_all_keys() {
        let query = "a=1&CMCD=bl%3D21300%2Cbr%3D3200%2Cbs%2Ccid%3D%22faec5fc2-ac30%22%2Cd%3D4004%2Cdl%3D18500%2Cmtp%3D25400\
             %2Cnor%3D%22..%252F300kbps%252Ftrack.m4v%22%2Cnrr%3D%2212323-48763%22%2Cot%3Dv%2Cpr%3D1.08%2Crtp%3D15000\
             %2Csf%3Dd%2Csid%3D%226e2fb550-c457%22%2Cst%3Dv%2Csu%2Ctb%3D6000&b=2";
        assert_eq!(Cmcd::of_request(Some(query.as_bytes()), &Fields::new()), all_keys());
        assert_eq!(
            Cmcd::of_request(Some(b"cmcd=bs&XCMCD=bs&CMCD&CMCD=%zz"), &Fields::new()),
            Cmcd::default()
        );
        assert_eq!(Cmcd::of_request(None, &Fields::new()), Cmcd::default());
    }

    #[test]
    fn fields_support_all_keys() {
        let fields: Fields = [
            (
                "CMCD-Request",
                "bl=21300, dl=18500,mtp=25400,nor=\"..%2F300kbps%2Ftrack.m4v\",nrr=\"12323-48763\",su",
            ),
            ("CMCD-Object", "br=3200,d=4004,ot=v,tb=6000"),
            ("cmcd-status", "bs,rtp=15000"),
            ("CMCD-Session", "cid=\"faec5fc2-ac30\",pr=1.08,sf=d,sid=\"6e2fb550-c457\",st=v,v=1"),
        ]
        .into_iter()
        .collect();
        assert_eq!(Cmcd::of_request(None, &fields), all_keys());
        let cmcd = Cmcd::of_request(Some(b"CMCD=br%3D1%2Cd%3D1%2Ccom.example-key%3D1"), &fields);
        assert_eq!(cmcd, all_keys());
    }

    #[test]
    fn strings_can_contain_commas_and_quotes() {
        assert_eq!(
            read(r#"sid="a,b\"c\\=",br=1"#),
            Cmcd { sid: Some(r#"a,b"c\="#.into()), br_kbps: Some(1), ..Cmcd::default() }
        );
        assert_eq!(read("sid=\"é\"").sid.as_deref(), Some("é"));
    }

    #[test]
    fn bad_members_are_skipped() {
        for text in [
            "br=x",
            "br=-1",
            "br=1.5",
            "br=\"1\"",
            "br=",
            "br",
            "br=1000000000000000",
            "BR=1",
            "br=(1 2)",
            "br=1;a=b",
            "bs=1",
            "bs=true",
            "bs=\"?1\"",
            "ot=x",
            "ot=\"v\"",
            "ot=V",
            "sf",
            "st=vv",
            "pr=.5",
            "pr=1.",
            "pr=1e3",
            "pr=-1",
            "pr=nan",
            "sid=abc",
            "sid=\"abc",
            "sid=\"abc\"d",
            "sid=\"a\\bc\"",
            "cid",
            "nor=\"%zz\"",
            "nor=\"%00\"",
            "nor=\"%ff\"",
            "v=x",
            "=1",
            ",,",
            "unknown=1",
        ] {
            let cmcd = read(&format!("{text},d=7"));
            let quote_is_open = text == "sid=\"abc";
            let d_ms = if quote_is_open { None } else { Some(7) };
            assert_eq!(cmcd, Cmcd { d_ms, ..Cmcd::default() }, "{text}");
        }
        assert_eq!(read(&format!("sid=\"{}\"", "é".repeat(64))).sid.map(|sid| sid.chars().count()), Some(64));
        assert_eq!(read(&format!("sid=\"{}\"", "a".repeat(65))).sid, None);
    }

    #[test]
    fn unusual_values_are_kept() {
        assert_eq!(read("br=1,br=2,br=x").br_kbps, Some(2));
        assert_eq!(read("bs=?1,su,su=?0"), Cmcd { bs: true, ..Cmcd::default() });
        assert_eq!(read("v=2,pr=0,bl=0"), Cmcd { pr: Some(0.0), bl_ms: Some(0), ..Cmcd::default() });
        assert_eq!(read("ot=tt").ot.map(ObjectType::as_str), Some("tt"));
    }

    #[test]
    fn texts_are_bounded() {
        assert_eq!(read(&format!("br=1,{}", "x".repeat(TEXT_BYTES_MAX))), Cmcd::default());
        assert_eq!(read(&format!("{}br=1", "a,".repeat(MEMBERS_MAX))), Cmcd::default());
        assert_eq!(read(&format!("{}br=1", "a,".repeat(MEMBERS_MAX - 1))).br_kbps, Some(1));
    }

    proptest! {
        #[test]
        fn no_input_panics(
            text in r#"((b[rls]|cid|n[or]r|pr|s[fidu]|[a-z]*)(=["?0-9a-z\\.%-]*)?,?){0,6}"#,
            noise in proptest::collection::vec(any::<u8>(), 0..64)
        ) {
            Cmcd::of_request(Some(format!("CMCD={text}").as_bytes()), &Fields::new());
            Cmcd::of_request(Some(&[b"CMCD=", noise.as_slice()].concat()), &Fields::new());
            Cmcd::default().read(&noise);
        }

        #[test]
        fn ids_parse_back(id in "[ -~]{0,64}") {
            let quoted = id.replace('\\', "\\\\").replace('"', "\\\"");
            prop_assert_eq!(read(&format!("d=1,sid=\"{quoted}\",bs")), Cmcd {
                sid: Some(id), d_ms: Some(1), bs: true, ..Cmcd::default()
            });
        }
    }
}
