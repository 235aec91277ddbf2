//! What a player says of itself with a request: Common Media Client Data, CTA-5004, version 1.
//!
//! It comes as the query argument `CMCD`, percent-encoded, or in the fields [`FIELDS`]; which key is in which field says
//! only how often it changes, so each is read wherever it is. Members are separated by commas: `key=value`, a string in
//! double quotes with `\"` and `\\`, or a key alone for what is true. Case counts.
//!
//! A member that is unknown or whose value is not of its key's type is skipped, the others count; of two with one key the
//! later one does. So does of a newer version what is the same in this one. A value of 0 of a number that says how much is
//! kept: what to make of it is for the policy.

use std::borrow::Cow;

use thalweg_http::Fields;

use super::blob::percent_decode;

/// The fields that carry CMCD.
pub const FIELDS: [&str; 4] = ["CMCD-Request", "CMCD-Object", "CMCD-Status", "CMCD-Session"];
/// The query argument that carries CMCD.
pub const ARGUMENT: &[u8] = b"CMCD";

/// The longest text that is read, before and after decoding.
pub const TEXT_BYTES_MAX: usize = 4096;
/// The most members of a text that are looked at; version 1 has 18 keys.
pub const MEMBERS_MAX: usize = 64;
/// The longest `cid` and `sid`, in characters (CTA-5004).
pub const ID_CHARACTERS_MAX: usize = 64;
/// The digits of an integer (RFC 8941 §3.3.1).
const INTEGER_DIGITS_MAX: usize = 15;

/// The data of a request. What did not come is `None` or `false`.
#[derive(Clone, Debug, PartialEq)]
pub struct Cmcd {
    /// Encoded bitrate of the object.
    pub br_kbps: Option<u64>,
    /// Length of the buffer.
    pub bl_ms: Option<u64>,
    /// Whether the buffer ran dry since the request before.
    pub bs: bool,
    /// Content ID.
    pub cid: Option<String>,
    /// Duration of the object.
    pub d_ms: Option<u64>,
    /// Time until the object is needed.
    pub dl_ms: Option<u64>,
    /// Throughput as the player measured it.
    pub mtp_kbps: Option<u64>,
    /// Path of the object that it will ask for next, relative to this one, percent-decoded.
    pub nor: Option<String>,
    /// The range that it will ask for next.
    pub nrr: Option<NextRange>,
    /// Type of the object.
    pub ot: Option<ObjectType>,
    /// Speed of playback; 0 for a player that stands.
    pub pr: Option<f64>,
    /// The throughput that the player takes to be enough.
    pub rtp_kbps: Option<u64>,
    /// Streaming format.
    pub sf: Option<StreamingFormat>,
    /// Session ID.
    pub sid: Option<String>,
    /// Stream type.
    pub st: Option<StreamType>,
    /// Whether the object is needed urgently: at the start, after a seek or a dry buffer.
    pub su: bool,
    /// The highest bitrate that the player can choose.
    pub tb_kbps: Option<u64>,
    /// Version of CMCD.
    pub v: u64,
}

impl Default for Cmcd {
    /// No data, in version 1.
    fn default() -> Cmcd {
        Cmcd {
            br_kbps: None,
            bl_ms: None,
            bs: false,
            cid: None,
            d_ms: None,
            dl_ms: None,
            mtp_kbps: None,
            nor: None,
            nrr: None,
            ot: None,
            pr: None,
            rtp_kbps: None,
            sf: None,
            sid: None,
            st: None,
            su: false,
            tb_kbps: None,
            v: 1,
        }
    }
}

/// `nrr`: `first-last`, `first-` or `-suffix`, as in a Range field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextRange {
    /// The first byte; `None` for the last `last` bytes.
    pub first: Option<u64>,
    /// The last byte; `None` to the end.
    pub last: Option<u64>,
}

/// A value that is one of a few tokens.
macro_rules! tokens {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $token:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// The token in the request.
            pub fn token(self) -> &'static str {
                match self {
                    $($name::$variant => $token,)+
                }
            }

            fn from_token(token: &str) -> Option<$name> {
                match token {
                    $($token => Some($name::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

tokens! {
    /// `ot`.
    ObjectType {
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

tokens! {
    /// `sf`.
    StreamingFormat {
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

tokens! {
    /// `st`.
    StreamType {
        /// All segments are there.
        OnDemand = "v",
        /// Segments come as time goes by.
        Live = "l",
    }
}

/// What stands after the `=` of a member, if anything does.
enum Value<'a> {
    True,
    /// What follows the opening quote.
    Quoted(&'a str),
    Token(&'a str),
}

impl Cmcd {
    /// The data of a request with this query, without its `?`, and these fields. A field's word counts over the query's:
    /// a URL may have been passed on, fields are made for the request.
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

    /// Takes over what `text`, members with commas between them, says.
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

    /// Sets what `key` says; a value of another type than the key's changes nothing.
    fn set(&mut self, key: &str, value: Value<'_>) {
        match (key.as_bytes(), value) {
            (b"bs", value) => replace(&mut self.bs, boolean(&value)),
            (b"su", value) => replace(&mut self.su, boolean(&value)),
            (b"v", Value::Token(token)) => replace(&mut self.v, integer(token)),
            (b"br", Value::Token(token)) => replace_some(&mut self.br_kbps, integer(token)),
            (b"bl", Value::Token(token)) => replace_some(&mut self.bl_ms, integer(token)),
            (b"d", Value::Token(token)) => replace_some(&mut self.d_ms, integer(token)),
            (b"dl", Value::Token(token)) => replace_some(&mut self.dl_ms, integer(token)),
            (b"mtp", Value::Token(token)) => replace_some(&mut self.mtp_kbps, integer(token)),
            (b"rtp", Value::Token(token)) => replace_some(&mut self.rtp_kbps, integer(token)),
            (b"tb", Value::Token(token)) => replace_some(&mut self.tb_kbps, integer(token)),
            (b"pr", Value::Token(token)) => replace_some(&mut self.pr, decimal(token)),
            (b"ot", Value::Token(token)) => replace_some(&mut self.ot, ObjectType::from_token(token)),
            (b"sf", Value::Token(token)) => replace_some(&mut self.sf, StreamingFormat::from_token(token)),
            (b"st", Value::Token(token)) => replace_some(&mut self.st, StreamType::from_token(token)),
            (b"cid", Value::Quoted(quoted)) => replace_some(&mut self.cid, unquote(quoted).and_then(id)),
            (b"sid", Value::Quoted(quoted)) => replace_some(&mut self.sid, unquote(quoted).and_then(id)),
            (b"nor", Value::Quoted(quoted)) => replace_some(&mut self.nor, unquote(quoted).and_then(path)),
            (b"nrr", Value::Quoted(quoted)) => replace_some(&mut self.nrr, unquote(quoted).and_then(range)),
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

/// A string after its opening quote (RFC 8941 §3.3.3, but for UTF-8).
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

/// A key alone, or as RFC 8941 §3.3.6 writes it.
fn boolean(value: &Value<'_>) -> Option<bool> {
    match value {
        Value::True | Value::Token("?1") => Some(true),
        Value::Token("?0") => Some(false),
        _ => None,
    }
}

/// No integer of CMCD is negative.
fn integer(token: &str) -> Option<u64> {
    let digits_only = token.bytes().all(|byte| byte.is_ascii_digit());
    if digits_only && token.len() <= INTEGER_DIGITS_MAX { token.parse().ok() } else { None }
}

/// Digits, and perhaps a point and digits after it.
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

fn range(text: Cow<'_, str>) -> Option<NextRange> {
    let (first, last) = text.split_once('-')?;
    let end = |digits: &str| if digits.is_empty() { Some(None) } else { integer(digits).map(Some) };
    let range = NextRange { first: end(first)?, last: end(last)? };
    match (range.first, range.last) {
        (None, None) => None,
        (Some(first), Some(last)) if first > last => None,
        _ => Some(range),
    }
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
            nrr: Some(NextRange { first: Some(12_323), last: Some(48_763) }),
            ot: Some(ObjectType::Video),
            pr: Some(1.08),
            rtp_kbps: Some(15_000),
            sf: Some(StreamingFormat::Dash),
            sid: Some("6e2fb550-c457".into()),
            st: Some(StreamType::OnDemand),
            su: true,
            tb_kbps: Some(6000),
            v: 1,
        }
    }

    #[test]
    fn a_query_has_all_keys() {
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
    fn fields_have_all_keys() {
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
    fn strings_may_have_commas_and_quotes() {
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
            "nrr=\"-\"",
            "nrr=\"2-1\"",
            "nrr=\"1\"",
            "nrr=\"a-b\"",
            "nrr=1-2",
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
    fn odd_values_are_kept() {
        assert_eq!(read("br=1,br=2,br=x").br_kbps, Some(2));
        assert_eq!(read("bs=?1,su,su=?0"), Cmcd { bs: true, ..Cmcd::default() });
        assert_eq!(read("v=2,pr=0,bl=0"), Cmcd { v: 2, pr: Some(0.0), bl_ms: Some(0), ..Cmcd::default() });
        assert_eq!(read("nrr=\"5-\"").nrr, Some(NextRange { first: Some(5), last: None }));
        assert_eq!(read("nrr=\"-5\"").nrr, Some(NextRange { first: None, last: Some(5) }));
        assert_eq!(read("ot=tt").ot.map(ObjectType::token), Some("tt"));
    }

    #[test]
    fn texts_are_bounded() {
        assert_eq!(read(&format!("br=1,{}", "x".repeat(TEXT_BYTES_MAX))), Cmcd::default());
        assert_eq!(read(&format!("{}br=1", "a,".repeat(MEMBERS_MAX))), Cmcd::default());
        assert_eq!(read(&format!("{}br=1", "a,".repeat(MEMBERS_MAX - 1))).br_kbps, Some(1));
    }

    proptest! {
        #[test]
        fn nothing_panics(
            text in r#"((b[rls]|cid|n[or]r|pr|s[fidu]|[a-z]*)(=["?0-9a-z\\.%-]*)?,?){0,6}"#,
            noise in proptest::collection::vec(any::<u8>(), 0..64)
        ) {
            Cmcd::of_request(Some(format!("CMCD={text}").as_bytes()), &Fields::new());
            Cmcd::of_request(Some(&[b"CMCD=", noise.as_slice()].concat()), &Fields::new());
            Cmcd::default().read(&noise);
        }

        #[test]
        fn ids_read_back(id in "[ -~]{0,64}") {
            let quoted = id.replace('\\', "\\\\").replace('"', "\\\"");
            prop_assert_eq!(read(&format!("d=1,sid=\"{quoted}\",bs")), Cmcd {
                sid: Some(id), d_ms: Some(1), bs: true, ..Cmcd::default()
            });
        }
    }
}
