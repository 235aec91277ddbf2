//! Fault tests: regardless of what a backend does, no client receives a wrong byte or takes a
//! partial response for a complete one, and nothing wrong or truncated is stored. Content is
//! derived from path and offset, so that every byte can be checked.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::support::{TestEdge, field};
use thalweg_edge::{BackendUrl, Config, Timeouts};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Returns the bytes of `path` in `range`.
fn content(path: &str, range: Range<usize>) -> Vec<u8> {
    let seed = path.bytes().fold(0u32, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    range.map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8 ^ seed as u8).collect()
}

/// Pseudo-random numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framed {
    /// `Content-Length` with an entity tag: an interrupted transfer can be resumed.
    Length,
    /// `Content-Length` without an entity tag.
    Plain,
    Chunked,
    /// Delimited by the end of the connection.
    Close,
}

/// How a backend ends the connection in the middle of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Close,
    Reset,
}

/// Formats a response with content of `length` bytes, or with the requested `range` of it.
fn response(path: &str, length: usize, framed: Framed, range: Option<Range<usize>>) -> Vec<u8> {
    let tag = if framed == Framed::Length { "ETag: \"a\"\r\nAccept-Ranges: bytes\r\n" } else { "" };
    let fields = format!("Cache-Control: max-age=60\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n{tag}");
    let range = range.filter(|_| framed == Framed::Length).map(|range| range.start..range.end.min(length));
    let body = content(path, range.clone().unwrap_or(0..length));
    let mut out = match (&range, framed) {
        (Some(range), _) => format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {}-{}/{length}\r\nContent-Length: {}\r\n{fields}\r\n",
            range.start,
            range.end - 1,
            range.len()
        ),
        (None, Framed::Length | Framed::Plain) => {
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{fields}\r\n")
        }
        (None, Framed::Chunked) => format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{fields}\r\n"),
        (None, Framed::Close) => format!("HTTP/1.1 200 OK\r\nConnection: close\r\n{fields}\r\n"),
    }
    .into_bytes();
    if framed == Framed::Chunked {
        for piece in body.chunks(length / 3 + 1) {
            out.extend(format!("{:x}\r\n", piece.len()).bytes());
            out.extend_from_slice(piece);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"0\r\nX-Trailer: a\r\n\r\n");
    } else {
        out.extend(body);
    }
    out
}

fn requested_range(head: &str) -> Option<Range<usize>> {
    let (first, last) = field(head, "range")?.strip_prefix("bytes=")?.split_once('-')?;
    let last = if last.is_empty() { usize::MAX } else { last.parse::<usize>().unwrap() + 1 };
    Some(first.parse().unwrap()..last)
}

/// Reads the head of the next request; `None` once the edge has closed the connection.
async fn head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

async fn end(stream: TcpStream, how: End) {
    if how == End::Reset {
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

/// Outcome of a client's request.
#[derive(Debug, PartialEq, Eq)]
enum Got {
    /// An error from the edge, or no head at all.
    Nothing,
    /// A part of the requested content, recognisably incomplete.
    Part,
    /// All the requested content.
    Whole,
}

/// Requests `path`, whose content has `length` bytes, and checks each byte received.
async fn check(edge: SocketAddr, path: &str, length: usize, range: Option<Range<usize>>, slow: bool) -> Got {
    let mut stream = TcpStream::connect(edge).await.unwrap();
    let asked = match &range {
        Some(range) => format!("Range: bytes={}-{}\r\n", range.start, range.end - 1),
        None => String::new(),
    };
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{asked}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut input = Vec::new();
    let mut piece = vec![0; if slow { 1000 } else { 1 << 16 }];
    // Content delimited by the end of the connection is complete only after an orderly close.
    let is_orderly = loop {
        match stream.read(&mut piece).await {
            Ok(0) => break true,
            Ok(read) => input.extend_from_slice(&piece[..read]),
            Err(_) => break false,
        }
        if slow {
            tokio::task::yield_now().await;
        }
    };
    let Some(end) = input.windows(4).position(|four| four == b"\r\n\r\n") else { return Got::Nothing };
    let content_bytes = input.split_off(end + 4);
    let head = String::from_utf8(input).unwrap();
    let wanted = match &head[9..12] {
        "200" => 0..length,
        "206" => {
            let text = field(&head, "content-range").unwrap().strip_prefix("bytes ").unwrap();
            let (first, rest) = text.split_once('-').unwrap();
            let (last, total) = rest.split_once('/').unwrap();
            assert!(total == "*" || total == length.to_string(), "{path}: {text}");
            first.parse().unwrap()..last.parse::<usize>().unwrap() + 1
        }
        _ => return Got::Nothing,
    };
    let (content_bytes, is_whole) = match field(&head, "transfer-encoding") {
        Some(_) => unchunked(&content_bytes),
        None => {
            let text = field(&head, "content-length").map(|text| text.parse::<usize>().unwrap());
            assert!(text.is_none_or(|text| text == wanted.len()), "{path}: text of {text:?} bytes");
            let is_whole = text.map_or(is_orderly, |text| text == content_bytes.len());
            (content_bytes, is_whole)
        }
    };
    assert!(content_bytes.len() <= wanted.len(), "{path}: {} bytes of {wanted:?}", content_bytes.len());
    let expected = content(path, wanted.start..wanted.start + content_bytes.len());
    assert!(content_bytes == expected, "{path}: wrong bytes in {wanted:?}");
    if is_whole {
        assert_eq!(content_bytes.len(), wanted.len(), "{path}: a partial response looks complete");
        return Got::Whole;
    }
    Got::Part
}

/// Decodes a chunked body. Returns the content, and whether the last chunk arrived.
fn unchunked(mut input: &[u8]) -> (Vec<u8>, bool) {
    let mut content = Vec::new();
    while let Some(line) = input.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(str::from_utf8(&input[..line]).unwrap(), 16).unwrap();
        if size == 0 {
            return (content, true);
        }
        let rest = &input[line + 2..];
        content.extend_from_slice(&rest[..size.min(rest.len())]);
        if rest.len() < size + 2 {
            break;
        }
        input = &rest[size + 2..];
    }
    (content, false)
}

/// Runs a backend that truncates the first response to each path after the number of bytes given in
/// the query, and later responds correctly. Handles one request per connection.
async fn breaks_once(listener: TcpListener, length: usize, framed: Framed, how: End) {
    let mut broken = std::collections::HashSet::new();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.set_nodelay(true);
        let Some(head) = head(&mut stream).await else { continue };
        let path = head.split(' ').nth(1).unwrap().to_owned();
        let mut bytes = response(&path, length, framed, requested_range(&head));
        let cut: usize = path.split_once('?').unwrap().1.parse().unwrap();
        if broken.insert(path) {
            bytes.truncate(cut);
            let _ = stream.write_all(&bytes).await;
            end(stream, how).await;
        } else {
            let _ = stream.write_all(&bytes).await;
        }
    }
}

#[tokio::test]
async fn backend_failing_at_any_byte_never_corrupts_stored_content() {
    const LENGTH: usize = 64;
    for framed in [Framed::Length, Framed::Plain, Framed::Chunked, Framed::Close] {
        for how in [End::Close, End::Reset] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let edge = TestEdge::start(crate::support::config(listener.local_addr().unwrap()));
            let address = edge.address;
            let backend = tokio::spawn(breaks_once(listener, LENGTH, framed, how));
            let whole = response("/a", LENGTH, framed, None).len();
            // A close within close-delimited content cannot be told apart from its normal end, so
            // cut only the head.
            let cuts = if framed == Framed::Close && how == End::Close { whole - LENGTH } else { whole };
            for cut in 0..cuts {
                let path = format!("/a?{cut}");
                let (first, second) = tokio::join!(
                    check(address, &path, LENGTH, None, false),
                    check(address, &path, LENGTH, None, false)
                );
                // All content may have arrived before the cut.
                let all = framed != Framed::Chunked && framed != Framed::Close && cut == whole;
                let resumed = framed == Framed::Length && cut >= whole - LENGTH;
                // No response byte arrived, so the fetch is retried.
                let retried = cut == 0;
                let states = [first, second];
                if !(all || resumed || retried) {
                    assert!(
                        states.contains(&Got::Nothing) || states.contains(&Got::Part),
                        "{framed:?} {how:?} {cut}"
                    );
                }
                assert_eq!(
                    check(address, &path, LENGTH, None, false).await,
                    Got::Whole,
                    "{framed:?} {how:?} {cut}"
                );
                assert_eq!(check(address, &path, LENGTH, Some(3..9), false).await, Got::Whole);
            }
            backend.abort();
            edge.stop().await;
        }
    }
}

/// Runs a backend whose behaviour for each request is derived from `seed`: it responds, breaks off,
/// sends slowly, stalls, or sends a 503.
async fn unreliable(listener: TcpListener, seed: u64, asked_for: Arc<AtomicUsize>) {
    for number in 0.. {
        let (mut stream, _) = listener.accept().await.unwrap();
        let asked_for = asked_for.clone();
        tokio::spawn(async move {
            let mut random = Random(seed.wrapping_add(number));
            let _ = stream.set_nodelay(true);
            while let Some(head) = head(&mut stream).await {
                asked_for.fetch_add(1, Relaxed);
                let path = head.split(' ').nth(1).unwrap();
                let bytes = response(path, length_of(path), framed_of(path), requested_range(&head));
                let cut = random.below(bytes.len());
                match random.below(8) {
                    0 => {
                        let _ = stream.write_all(&bytes[..cut]).await;
                        return end(stream, End::Reset).await;
                    }
                    // Do not truncate content delimited by the end of the connection, because the
                    // result would be a valid response.
                    1 if framed_of(path) != Framed::Close => {
                        let _ = stream.write_all(&bytes[..cut]).await;
                        return;
                    }
                    2 => {
                        let _ = stream.write_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n").await;
                        continue;
                    }
                    3 => {
                        let _ = stream.write_all(&bytes[..cut]).await;
                        // Wait until the edge gives up.
                        let _ = stream.read_u8().await;
                        return end(stream, End::Reset).await;
                    }
                    4 => {
                        let mut rest = &bytes[..];
                        while !rest.is_empty() {
                            let (piece, after) =
                                rest.split_at(rest.len().min(1 + random.below(bytes.len() / 8)));
                            if stream.write_all(piece).await.is_err() {
                                return;
                            }
                            tokio::task::yield_now().await;
                            rest = after;
                        }
                    }
                    _ => {
                        if stream.write_all(&bytes).await.is_err() {
                            return;
                        }
                    }
                }
                if framed_of(path) == Framed::Close {
                    return;
                }
            }
        });
    }
}

fn number_of(path: &str) -> usize {
    path[1..].parse().unwrap()
}

/// Returns a length between a few bytes and more than fits into one fill.
fn length_of(path: &str) -> usize {
    match number_of(path) % 7 {
        0 => 6_000_000,
        1 => 1 + number_of(path) * 7,
        rest => 1000 + rest * 200_000,
    }
}

fn framed_of(path: &str) -> Framed {
    [Framed::Length, Framed::Plain, Framed::Chunked, Framed::Close, Framed::Length][number_of(path) % 5]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_byte_is_correct_despite_faulty_backend_and_tiny_memory() {
    const SEED: u64 = 20;
    const CLIENTS: u64 = 12;
    const REQUESTS: usize = 60;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let edge = TestEdge::start(Config {
        backends: vec![BackendUrl::at(listener.local_addr().unwrap())],
        memory_bytes: 16 << 20,
        slice_bytes: 1 << 20,
        timeouts: Timeouts {
            first_byte: Duration::from_millis(300),
            between_bytes: Duration::from_millis(100),
            ..Timeouts::default()
        },
        ..crate::support::config(listener.local_addr().unwrap())
    });
    let asked_for = Arc::new(AtomicUsize::new(0));
    let backend = tokio::spawn(unreliable(listener, SEED, asked_for.clone()));
    let address = edge.address;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            tokio::spawn(async move {
                let mut random = Random(SEED << 32 | client);
                let mut whole = 0;
                for _ in 0..REQUESTS {
                    let path = format!("/{}", random.below(40));
                    let length = length_of(&path);
                    let range = (random.below(3) == 0).then(|| {
                        let start = random.below(length);
                        start..start + 1 + random.below(length - start)
                    });
                    let slow = random.below(6) == 0;
                    whole += usize::from(check(address, &path, length, range, slow).await == Got::Whole);
                }
                whole
            })
        })
        .collect();
    let mut whole = 0;
    for client in clients {
        whole += client.await.unwrap();
    }
    let requests = usize::try_from(CLIENTS).unwrap() * REQUESTS;
    let asked_for = asked_for.load(Relaxed);
    assert!(
        whole > requests / 3 && asked_for > 40,
        "seed {SEED}: {whole} of {requests} whole, {asked_for} fetches"
    );
    backend.abort();
    edge.stop().await;
}
