//! `blob`: binary-to-text encodings (vmod_blob(3); RFC 4648; RFC 3986 §2.1).
//!
//! Base64 decoding is lenient, as in varnishd: padding is optional (except in BASE64URLNOPAD, where
//! it is an error), and trailing bits are ignored. There are two differences from varnishd.
//! Characters after padding are an error, whereas varnishd decodes them to zeros. IDENTITY returns
//! all bytes of a blob, whereas varnishd's result ends at the first zero byte.

use std::fmt;

use base64::alphabet::{self, Alphabet};
use base64::engine::{DecodePaddingMode, Engine as _, GeneralPurpose, GeneralPurposeConfig};

use crate::words::words;

words! {
    /// A text encoding of bytes.
    pub enum Encoding {
        /// The bytes unchanged.
        Identity = "IDENTITY",
        /// RFC 4648 §4.
        Base64 = "BASE64",
        /// RFC 4648 §5, padded.
        Base64Url = "BASE64URL",
        /// RFC 4648 §5, not padded.
        Base64UrlNoPad = "BASE64URLNOPAD",
        /// CloudFront's URL-safe alphabet: `-` for `+`, `~` for `/`, `_` for padding.
        Base64Cf = "BASE64CF",
        /// Two hexadecimal digits for each byte.
        Hex = "HEX",
        /// Percent-encoding.
        Url = "URL",
    }
}

/// The case of hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Case {
    /// Lower case. Encodings without hexadecimal digits accept only this choice.
    #[default]
    Default,
    /// `a` to `f`.
    Lower,
    /// `A` to `F`.
    Upper,
}

/// Reason why encoding or decoding failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The string is not valid in this encoding.
    Illegal(Encoding),
    /// A case was requested for an encoding without hexadecimal digits.
    Case(Encoding),
    /// The requested range extends beyond the blob, or the blob is empty.
    Bounds,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Illegal(encoding) => write!(f, "cannot decode: not valid {}", encoding.as_str()),
            Error::Case(encoding) => write!(f, "{} supports only the case DEFAULT", encoding.as_str()),
            Error::Bounds => f.write_str("length and offset must not exceed the blob"),
        }
    }
}

impl std::error::Error for Error {}

const PADDED: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_allow_trailing_bits(true)
    .with_decode_padding_mode(DecodePaddingMode::Indifferent);
const NOT_PADDED: GeneralPurposeConfig =
    PADDED.with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::RequireNone);

const BASE64: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, PADDED);
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, PADDED);
const BASE64_URL_NO_PAD: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, NOT_PADDED);
const BASE64_CF: GeneralPurpose = GeneralPurpose::new(&CF_ALPHABET, PADDED);
const CF_ALPHABET: Alphabet =
    match Alphabet::new("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-~") {
        Ok(alphabet) => alphabet,
        Err(_) => panic!("64 distinct characters form an alphabet"),
    };

/// `blob.decode`: decodes `text`, or its first `length` bytes if `length` is positive.
pub fn decode(encoding: Encoding, length: i64, text: &[u8]) -> Result<Vec<u8>, Error> {
    let length = usize::try_from(length).ok().filter(|length| *length > 0);
    let text = &text[..length.map_or(text.len(), |length| length.min(text.len()))];
    match encoding {
        Encoding::Identity => Some(text.to_vec()),
        Encoding::Base64 => BASE64.decode(text).ok(),
        Encoding::Base64Url => BASE64_URL.decode(text).ok(),
        Encoding::Base64UrlNoPad => BASE64_URL_NO_PAD.decode(text).ok(),
        Encoding::Base64Cf => BASE64_CF.decode(exchange(text, b'_', b'=')).ok(),
        Encoding::Hex => decode_hex(text),
        Encoding::Url => percent_decode(text),
    }
    .ok_or(Error::Illegal(encoding))
}

/// `blob.encode`: encodes `blob` as a string.
pub fn encode(encoding: Encoding, case: Case, blob: &[u8]) -> Result<Vec<u8>, Error> {
    if case != Case::Default && !matches!(encoding, Encoding::Hex | Encoding::Url) {
        return Err(Error::Case(encoding));
    }
    Ok(match encoding {
        Encoding::Identity => blob.to_vec(),
        Encoding::Base64 => BASE64.encode(blob).into_bytes(),
        Encoding::Base64Url => BASE64_URL.encode(blob).into_bytes(),
        Encoding::Base64UrlNoPad => BASE64_URL_NO_PAD.encode(blob).into_bytes(),
        Encoding::Base64Cf => exchange(BASE64_CF.encode(blob).as_bytes(), b'=', b'_'),
        Encoding::Hex => blob.iter().flat_map(|byte| hex_digits(*byte, case)).collect(),
        Encoding::Url => encode_url(blob, case),
    })
}

/// `blob.transcode`: converts a string from one encoding to another.
pub fn transcode(
    decoding: Encoding,
    encoding: Encoding,
    case: Case,
    length: i64,
    text: &[u8],
) -> Result<Vec<u8>, Error> {
    encode(encoding, case, &decode(decoding, length, text)?)
}

/// `blob.sub`: returns `length_bytes` bytes of `blob`, starting at `offset_bytes`.
pub fn sub(blob: &[u8], length_bytes: u64, offset_bytes: u64) -> Result<&[u8], Error> {
    let start = usize::try_from(offset_bytes).map_err(|_| Error::Bounds)?;
    let end = usize::try_from(length_bytes).ok().and_then(|length| start.checked_add(length));
    end.filter(|_| !blob.is_empty()).and_then(|end| blob.get(start..end)).ok_or(Error::Bounds)
}

/// Decodes percent-encoded `text`; `None` if a `%` is not followed by two hexadecimal digits.
/// Leaves `+` unchanged.
pub(super) fn percent_decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let (byte, after) = match (first, after) {
            (b'%', [high, low, after @ ..]) => (digit(*high)? << 4 | digit(*low)?, after),
            (b'%', _) => return None,
            (byte, after) => (*byte, after),
        };
        decoded.push(byte);
        rest = after;
    }
    Some(decoded)
}

/// Percent-encodes all but the unreserved characters of RFC 3986 §2.3.
fn encode_url(blob: &[u8], case: Case) -> Vec<u8> {
    let mut text = Vec::with_capacity(blob.len());
    for &byte in blob {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            text.push(byte);
        } else {
            text.push(b'%');
            text.extend_from_slice(&hex_digits(byte, case));
        }
    }
    text
}

/// Decodes hexadecimal `text`. An odd number of digits is decoded as if preceded by a 0.
fn decode_hex(text: &[u8]) -> Option<Vec<u8>> {
    let (first, pairs) = text.split_at(text.len() % 2);
    let first = first.iter().map(|low| digit(*low));
    first.chain(pairs.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))).collect()
}

fn digit(sign: u8) -> Option<u8> {
    Some(match sign {
        b'0'..=b'9' => sign - b'0',
        b'a'..=b'f' => sign - b'a' + 10,
        b'A'..=b'F' => sign - b'A' + 10,
        _ => return None,
    })
}

fn hex_digits(byte: u8, case: Case) -> [u8; 2] {
    let digits = if case == Case::Upper { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
    [digits[usize::from(byte >> 4)], digits[usize::from(byte & 0xf)]]
}

/// Exchanges the bytes `from` and `to` in `text`. When decoding, an invalid `=` in the input thus
/// becomes `_`, which the alphabet lacks, and is rejected.
fn exchange(text: &[u8], from: u8, to: u8) -> Vec<u8> {
    let exchanged = |byte: &u8| match *byte {
        byte if byte == from => to,
        byte if byte == to => from,
        byte => byte,
    };
    text.iter().map(exchanged).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Encoding::*;
    use proptest::prelude::*;

    #[test]
    fn blobs_are_encoded() {
        for (encoding, blob, text) in [
            (Base64, "a", "YQ=="),
            (Base64, "ab", "YWI="),
            (Base64Url, "ab?>", "YWI_Pg=="),
            (Base64UrlNoPad, "a", "YQ"),
            (Base64Cf, "a", "YQ__"),
            (Base64Cf, "ab?ab>", "YWI~YWI-"),
            (Base64, "ab?ab>", "YWI/YWI+"),
            (Hex, "é/", "c3a92f"),
            (Url, "a b/?%~-_.!*'()", "a%20b%2f%3f%25~-_.%21%2a%27%28%29"),
        ] {
            assert_eq!(
                encode(encoding, Case::Default, blob.as_bytes()),
                Ok(text.into()),
                "{encoding:?} {blob}"
            );
        }
        for encoding in Encoding::ALL {
            assert_eq!(encode(encoding, Case::Default, b""), Ok(vec![]));
        }
        assert_eq!(encode(Url, Case::Upper, "é/".as_bytes()), Ok("%C3%A9%2F".into()));
        assert_eq!(encode(Hex, Case::Upper, "é/".as_bytes()), Ok("C3A92F".into()));
        assert_eq!(encode(Base64, Case::Lower, b"a"), Err(Error::Case(Base64)));
        assert_eq!(Error::Case(Base64Url).to_string(), "BASE64URL supports only the case DEFAULT");
    }

    /// Results must match varnishd 7.1.1; `None` means that varnishd fails.
    #[test]
    fn blobs_are_decoded() {
        for (encoding, text, hex) in [
            (Identity, "x", Some("78")),
            (Hex, "abc", Some("0abc")),
            (Hex, "ABCDEF0", Some("0abcdef0")),
            (Hex, "0x61", None),
            (Hex, "6g", None),
            (Hex, "g", None),
            (Base64, "YQ==", Some("61")),
            (Base64, "YQ=", Some("61")),
            (Base64, "YQ", Some("61")),
            (Base64, "Y", None),
            (Base64, "YR==", Some("61")),
            (Base64, "YWJj\n", None),
            (Base64, " YWJj", None),
            (Base64, "YW-_", None),
            (Base64, "====", None),
            (Base64, "Y===", None),
            (Base64Url, "YQ==", Some("61")),
            (Base64Url, "YQ", Some("61")),
            (Base64UrlNoPad, "YQ", Some("61")),
            (Base64UrlNoPad, "YQ==", None),
            (Base64UrlNoPad, "Y", None),
            (Base64Cf, "YQ__", Some("61")),
            (Base64Cf, "YQ", Some("61")),
            (Base64Cf, "YQ==", None),
            (Url, "a%20b", Some("612062")),
            (Url, "%e9x%C3%A9", Some("e978c3a9")),
            (Url, "a+b", Some("612b62")),
            (Url, "a%2", None),
            (Url, "a%", None),
            (Url, "a%zzb", None),
            (Url, "%%41", None),
        ] {
            let decoded = decode(encoding, 0, text.as_bytes());
            let expected = hex.map(|hex| decode_hex(hex.as_bytes()).unwrap()).ok_or(Error::Illegal(encoding));
            assert_eq!(decoded, expected, "{encoding:?} {text}");
        }
        assert_eq!(decode(Base64, 0, b"YQ==YQ=="), Err(Error::Illegal(Base64)));
    }

    #[test]
    fn decode_stops_at_the_given_length() {
        for (encoding, length, text, hex) in [
            (Identity, 2, "abcd", Some("6162")),
            (Identity, -1, "abcd", Some("61626364")),
            (Identity, 100, "abcd", Some("61626364")),
            (Hex, 3, "61626", Some("0616")),
            (Url, 1, "a%62c", Some("61")),
            (Url, 2, "a%62c", None),
            (Url, 4, "a%62c", Some("6162")),
            (Base64UrlNoPad, 2, "YWJj", Some("61")),
            (Base64UrlNoPad, 1, "YWJj", None),
        ] {
            let transcoded = transcode(encoding, Hex, Case::Default, length, text.as_bytes());
            assert_eq!(transcoded.ok(), hex.map(Into::into), "{encoding:?} {length} {text}");
        }
        assert_eq!(transcode(Url, Identity, Case::Default, 0, b"foo%20bar"), Ok("foo bar".into()));
    }

    #[test]
    fn sub_checks_its_bounds() {
        assert_eq!(sub(b"abcd", 2, 1), Ok(&b"bc"[..]));
        assert_eq!(sub(b"abcd", 0, 4), Ok(&b""[..]));
        for (blob, length_bytes, offset_bytes) in [
            (&b"abcd"[..], 4, 1),
            (b"abcd", 0, 5),
            (b"", 0, 0),
            (b"abcd", u64::MAX, 1),
            (b"abcd", 1, u64::MAX),
        ] {
            assert_eq!(sub(blob, length_bytes, offset_bytes), Err(Error::Bounds));
        }
    }

    #[test]
    fn encoding_names_match_vcl() {
        for encoding in Encoding::ALL {
            assert_eq!(Encoding::named(encoding.as_str()), Some(encoding));
        }
        assert_eq!(Encoding::named("base64"), None);
    }

    proptest! {
        #[test]
        fn formatted_output_parses_back(blob in proptest::collection::vec(any::<u8>(), 0..64), upper: bool) {
            for encoding in Encoding::ALL {
                let case = if upper && matches!(encoding, Hex | Url) { Case::Upper } else { Case::Default };
                let text = encode(encoding, case, &blob).unwrap();
                prop_assert_eq!(decode(encoding, 0, &text), Ok(blob.clone()), "{:?}", encoding);
            }
        }

        #[test]
        fn no_input_panics(text in proptest::collection::vec(any::<u8>(), 0..32), length: i64) {
            for encoding in Encoding::ALL {
                let _ = decode(encoding, length, &text);
            }
        }
    }
}
