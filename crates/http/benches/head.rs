//! CPU time of the operations performed for every request, in nanoseconds per operation. Run with
//! `cargo bench -p thalweg-http`.
//!
//! Prints the minimum of several rounds: on a shared machine, slower rounds measure other
//! processes.

use std::hint::black_box;
use std::time::Instant;

use thalweg_http::cache_control::CacheControl;
use thalweg_http::cache_status::CacheStatus;
use thalweg_http::framing::{keep_alive, request_framing};
use thalweg_http::head::{parse_request, parse_response};
use thalweg_http::write::{write_request_head, write_response_head};
use thalweg_http::{Fields, Limits, RequestHead, ResponseHead, date, range, target};

const ROUNDS: u32 = 20;
const OPERATIONS: u32 = 10_000;

const REQUEST: &[u8] = b"GET /vod/sample/video-720p/segment-000042.m4s?session=4f1c HTTP/1.1\r\n\
    Host: edge.example.com:8080\r\n\
    Connection: keep-alive\r\n\
    sec-ch-ua-platform: \"Linux\"\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36\r\n\
    Accept: */*\r\n\
    Origin: http://console.example.com\r\n\
    Sec-Fetch-Site: cross-site\r\n\
    Sec-Fetch-Mode: cors\r\n\
    Referer: http://console.example.com/\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Accept-Language: en-US,en;q=0.9\r\n\
    Range: bytes=0-524287\r\n\r\n";

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
    Content-Type: video/iso.segment\r\n\
    Content-Length: 1234567\r\n\
    ETag: \"5e1f-17a2b3\"\r\n\
    Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
    Cache-Control: public, max-age=31536000, immutable\r\n\
    Access-Control-Allow-Origin: *\r\n\
    Accept-Ranges: bytes\r\n\r\n";

fn measure<T>(what: &str, mut operation: impl FnMut() -> T) {
    let mut least_ns = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..OPERATIONS {
            black_box(operation());
        }
        least_ns = least_ns.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(OPERATIONS));
    }
    println!("{what:<40} {least_ns:7.0} ns");
}

fn main() {
    let limits = Limits::default();
    let mut request = RequestHead::default();
    let mut response = ResponseHead::default();
    let mut spans = [httparse::EMPTY_HEADER; 100];
    measure("httparse alone, 12 fields", || {
        httparse::Request::new(&mut spans).parse(black_box(REQUEST)).is_ok()
    });
    measure("parse a request, 12 fields", || {
        parse_request(black_box(REQUEST), &mut request, &limits).is_ok()
    });
    measure("parse a response, 8 fields", || {
        parse_response(black_box(RESPONSE), &mut response, &limits).is_ok()
    });

    measure("request framing and keep-alive", || {
        (request_framing(black_box(&request)).is_ok(), keep_alive(request.version, &request.fields))
    });
    measure("get the last of 12 fields", || black_box(&request.fields).get("range").map(<[u8]>::len));
    measure("look for an absent field", || black_box(&request.fields).get("if-none-match").is_some());
    measure("normalise a target", || target::normalise(black_box(request.target.as_str())).len());
    measure("parse and resolve a range", || {
        range::parse(black_box(b"bytes=0-524287"))?
            .single()
            .and_then(|range| range::resolve(range, 1_234_567))
    });
    measure("read Cache-Control", || CacheControl::from_fields(black_box(&response.fields)));
    measure("parse a date", || date::parse(black_box(b"Sun, 06 Nov 1994 08:49:37 GMT")));
    measure("format a date", || date::format(black_box(784_111_777)));

    let mut copy = Fields::new();
    measure("clone 8 fields into an old section", || copy.clone_from(black_box(&response.fields)));
    measure("clone 8 fields", || black_box(&response.fields).clone());
    measure("clone 12 fields, remove hop-by-hop", || {
        copy.clone_from(black_box(&request.fields));
        copy.remove_hop_by_hop();
    });
    let mut out = Vec::new();
    measure("complete and write a response head", || {
        out.clear();
        copy.clone_from(black_box(&response.fields));
        copy.push_number("Age", 12);
        copy.push("Via", "1.1 thalweg");
        CacheStatus { hit: true, ttl_s: Some(545), ..CacheStatus::default() }.append_to("thalweg", &mut copy);
        write_response_head(&mut out, 200, &copy);
    });
    measure("write a request head", || {
        out.clear();
        write_request_head(
            &mut out,
            request.method_str(),
            request.target.as_str(),
            black_box(&request.fields),
        );
    });
}
