//! Head targets: request and response heads (RFC 9112 §3, §4), complete and arriving in pieces.

use std::fmt::Debug;

use thalweg_http::framing::{request_framing, response_framing};
use thalweg_http::head::{HeadError, is_worth_parsing, parse_request, parse_response};
use thalweg_http::status::REASON_BYTES_MAX;
use thalweg_http::write::{write_request_head, write_response_head};
use thalweg_http::{Limits, Method, RequestHead, ResponseHead, target};

/// Limits small enough for mutations to reach them.
const LIMITS: Limits = Limits { head_bytes_max: 512, target_bytes_max: 128, fields_max: 8 };

/// Parses `input` as a request head followed by any bytes.
pub(crate) fn request(input: &[u8]) {
    let Some((head, taken)) = arriving::<RequestHead>(input, parse_request) else { return };
    let path = target::decode(head.target.path()).expect("a parsed target's path must decode");
    assert!(path.split(|byte| *byte == b'/').all(|segment| segment != b".." && segment != b"."));
    if request_framing(&head).is_ok() {
        let lengths = head.fields.get_all("content-length").count();
        assert!(
            lengths == 0 || !head.fields.contains("transfer-encoding"),
            "a request must not have two framings"
        );
    }
    assert!(taken <= input.len());
    let mut out = Vec::new();
    write_request_head(&mut out, head.method_str(), head.target.as_str(), &head.fields);
    let mut again = RequestHead::default();
    // Heads are written as HTTP/1.1, which requires `Host`; an HTTP/1.0 request may lack it.
    if head.fields.contains("host") {
        assert_eq!(parse_request(&out, &mut again, &Limits::default()), Ok(Some(out.len())));
        assert_eq!((&again.method, &again.target), (&head.method, &head.target));
        assert_eq!((&again.authority, &again.fields), (&head.authority, &head.fields));
    }
}

/// Parses `input` as a response head followed by any bytes.
pub(crate) fn response(input: &[u8]) {
    let Some((head, _)) = arriving::<ResponseHead>(input, parse_response) else { return };
    assert!((100..600).contains(&head.status));
    let kept = head.reason.as_deref().unwrap_or_default();
    assert!(kept.len() <= REASON_BYTES_MAX && !kept.contains(|c: char| c.is_ascii_control()));
    let _ = response_framing(Method::Get, &head);
    let mut out = Vec::new();
    write_response_head(&mut out, head.status, &head.fields);
    let mut again = ResponseHead::default();
    assert_eq!(parse_response(&out, &mut again, &Limits::default()), Ok(Some(out.len())));
    assert_eq!((again.status, &again.fields), (head.status, &head.fields));
}

type Parse<H> = fn(&[u8], &mut H, &Limits) -> Result<Option<usize>, HeadError>;

/// Parses the head in `input`, and checks that the result does not depend on how the input arrives.
/// Any part of the input that parses to a head or an error must give the result of the complete
/// input.
fn arriving<H: Default + Debug + PartialEq>(input: &[u8], parse: Parse<H>) -> Option<(H, usize)> {
    let mut head = H::default();
    let whole = parse(input, &mut head, &LIMITS);
    // Like a connection, parse only when more bytes may change the result.
    let mut seen = 0;
    for arrived in 1..=input.len() {
        if !is_worth_parsing(&input[..arrived], seen, &LIMITS) {
            continue;
        }
        seen = arrived;
        let mut early = H::default();
        match parse(&input[..arrived], &mut early, &LIMITS) {
            Ok(None) => {}
            Ok(Some(taken)) => {
                assert_eq!(Ok(Some(taken)), whole, "a part of the input must not be a head");
                assert_eq!(early, head);
                return Some((head, taken));
            }
            Err(_) => {
                assert!(whole.is_err(), "only an invalid head may fail early: {whole:?}");
                return None;
            }
        }
    }
    assert!(!matches!(whole, Ok(Some(_))), "is_worth_parsing must not miss a head");
    assert!(input.len() < LIMITS.head_bytes_max, "an overlong head must fail");
    None
}
