//! Property tests with arbitrary bytes: no parser panics, and parsed heads keep their invariants.

use proptest::prelude::*;
use thalweg_http::cache_control::{CacheControl, RequestCacheControl};
use thalweg_http::chunked::{Decoder, Step};
use thalweg_http::framing::{keep_alive, request_framing, response_framing};
use thalweg_http::head::{parse_request, parse_response};
use thalweg_http::validators::{Preconditions, entity_tags, range_applies};
use thalweg_http::write::{write_request_head, write_response_head};
use thalweg_http::{
    Authority, Fields, Limits, Method, RequestHead, ResponseHead, Target, date, fields, number, range, target,
};

use crate::cases;

/// Generates nearly valid input: message parts concatenated at random, mixed with random bytes.
fn near_http() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: [&[u8]; 40] = [
        b"GET ",
        b"HEAD /a?b ",
        b"CONNECT ",
        b"http://",
        b"/..",
        b"%2e",
        b"%",
        b" HTTP/1.1\r\n",
        b" HTTP/1.0\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 304\r\n",
        b"Host: a\r\n",
        b"Host: [::1]:8\r\n",
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close, x\r\n",
        b"X: y\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b":",
        b" ",
        b"\t",
        b",",
        b"\"",
        b"\\",
        b"=",
        b"-",
        b";",
        b"W/\"a\"",
        b"*",
        b"bytes=",
        b"bytes ",
        b"0",
        b"99999999999999999999",
        b"max-age",
        b"no-cache=\"a\"",
        b"Sun, 06 Nov 1994 08:49:37 GMT",
        b"f\r\n",
        b"[",
    ];
    let piece = prop_oneof![
        8 => prop::sample::select(PIECES.to_vec()).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 1..4),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn some_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![4 => near_http(), 1 => prop::collection::vec(any::<u8>(), 0..64)]
}

/// Checks that a section is unchanged after being written and parsed again.
fn reads_back(fields: &Fields) -> Result<(), TestCaseError> {
    let mut out = Vec::new();
    write_response_head(&mut out, 200, fields);
    let mut head = ResponseHead::default();
    prop_assert_eq!(parse_response(&out, &mut head, &Limits::default()), Ok(Some(out.len())));
    prop_assert_eq!(&head.fields, fields);
    Ok(())
}

proptest! {
    #![proptest_config(cases(4096))]

    #[test]
    fn any_parsed_request_head_keeps_its_invariants(bytes in some_bytes()) {
        let mut head = RequestHead::default();
        if let Ok(Some(taken)) = parse_request(&bytes, &mut head, &Limits::default()) {
            prop_assert!(taken <= bytes.len());
            let mut out = Vec::new();
            write_request_head(&mut out, head.method_str(), head.target.as_str(), &head.fields);
            let mut again = RequestHead::default();
            if !head.authority.is_empty() {
                prop_assert_eq!(parse_request(&out, &mut again, &Limits::default()), Ok(Some(out.len())));
                prop_assert_eq!((&again.target, &again.fields), (&head.target, &head.fields));
                prop_assert_eq!(&again.authority, &head.authority);
            }
            let _ = (request_framing(&head), keep_alive(head.version, &head.fields));
            head.fields.remove_hop_by_hop();
            prop_assert!(!head.fields.contains("connection"));
            reads_back(&head.fields)?;
        }
    }

    #[test]
    fn any_parsed_response_head_keeps_its_invariants(bytes in some_bytes()) {
        let mut head = ResponseHead::default();
        if let Ok(Some(taken)) = parse_response(&bytes, &mut head, &Limits::default()) {
            prop_assert!(taken <= bytes.len());
            let _ = response_framing(Method::Get, &head);
            reads_back(&head.fields)?;
        }
    }

    #[test]
    fn chunked_decoder_never_panics(bytes in some_bytes()) {
        let mut decoder = Decoder::new();
        let mut rest = &bytes[..];
        while let Ok(Step::Data { data, consumed }) = decoder.decode(rest) {
            prop_assert!(!data.is_empty() && data.end <= consumed);
            rest = &rest[consumed..];
        }
    }

    #[test]
    fn field_value_parsers_never_panic(bytes in some_bytes()) {
        let mut section = Fields::new();
        section.push("X", &bytes);
        section.append("X", &bytes);
        reads_back(&section)?;
        let members = fields::members(&bytes).map(<[u8]>::len).sum::<usize>();
        prop_assert!(members <= bytes.len());
        let _ = (CacheControl::from_values([&bytes[..]]), RequestCacheControl::from_values([&bytes[..]]));
        let _ = (range::parse(&bytes), range::parse_content_range(&bytes), date::parse(&bytes), number::parse(&bytes));
        let _ = (entity_tags(&bytes).count(), range_applies(Some(&bytes), Some(&bytes), None, None));
        let value = Some(&bytes[..]);
        let _ = Preconditions::from_values(value, value, value, value).evaluate(value, Some(0), Method::Get);
        if let Ok(authority) = Authority::parse(&bytes) {
            prop_assert_eq!(Authority::parse(authority.as_str().as_bytes()), Ok(authority));
        }
    }

    #[test]
    fn accepted_target_has_no_dot_segment_or_backslash(text in "[/.%?;#25ceEf\\\\é]{0,12}") {
        if let Ok(target) = Target::new(&text) {
            let decoded = target::decode(target.path()).unwrap();
            let climbs = decoded.split(|byte| *byte == b'/').any(|segment| segment == b".." || segment == b".");
            prop_assert!(!climbs && !decoded.contains(&b'\\'));
        }
        let _ = target::normalise(&text);
    }
}
