//! Selection of tracks by the query of a manifest's URL, as in
//! `master.m3u8?max_height=720&lang=de`.
//!
//! Only manifests depend on it. The playlists, headers and segments that they name have no query,
//! so a cache stores each of them once.

use thalweg_http::target;
use thalweg_media::presentation::select::{BadParameter, Selection};

/// Maximum parameters of a query; further ones are ignored. A target has at most
/// [`TARGET_BYTES_MAX`](crate::route::TARGET_BYTES_MAX) bytes.
const PARAMETERS_MAX: usize = 256;

/// Parses the query of a manifest's URL. Parameters that cannot be decoded are treated as written.
///
/// # Errors
///
/// Returns the first known parameter whose value is malformed.
pub(crate) fn parse(query: Option<&str>) -> Result<Selection, BadParameter> {
    let pairs = query.unwrap_or_default().split('&').take(PARAMETERS_MAX);
    let decoded: Vec<(String, String)> = pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        })
        .collect();
    Selection::from_parameters(decoded.iter().map(|(key, value)| (key.as_str(), value.as_str())))
}

fn decode(text: &str) -> String {
    let decoded = target::decode(text).and_then(|bytes| String::from_utf8(bytes).ok());
    decoded.unwrap_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn queries_are_decoded() {
        let canonical = |query| parse(Some(query)).unwrap().to_string();
        assert_eq!(
            canonical("lang=de%2Cpt%2DBR&CMCD=br%3D1%2Cbl%ZZ&max%5Fheight=720"),
            "lang=de,pt-br&max_height=720"
        );
        assert!(parse(None).unwrap().is_everything());
        assert!(parse(Some("&&=&max_heights=x&token=%FF")).unwrap().is_everything());
        let bad = parse(Some("max_height=7%2020")).unwrap_err();
        assert_eq!(bad.to_string(), "max_height=7 20: expected a whole number of lines, as in 720");
    }
}
