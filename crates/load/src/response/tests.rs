//! Tests that a response gives the same result however it is split, whether read or discarded.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Default, PartialEq)]
struct RecordingSink {
    is_reading: bool,
    content: Vec<u8>,
    arrived: u64,
    chunks: usize,
}

impl Sink for RecordingSink {
    fn head(&mut self, _: &ResponseHead) -> Result<(), Failure> {
        Ok(())
    }

    fn is_reading(&self) -> bool {
        self.is_reading
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.content.extend_from_slice(bytes);
        Ok(())
    }

    fn arrived(&mut self, _: Instant, bytes: u64) {
        self.arrived += bytes;
    }

    fn chunk(&mut self, _: Instant) {
        self.chunks += 1;
    }
}

/// Feeds `bytes` to a response in pieces whose lengths cycle through `lengths`, then closes it.
fn run(bytes: &[u8], lengths: &[usize], is_reading: bool) -> (Result<u16, ErrorKind>, RecordingSink) {
    let mut sink = RecordingSink { is_reading, ..RecordingSink::default() };
    let mut response = Response::default();
    let (at, mut scratch) = (Instant::now(), ResponseHead::default());
    let mut lengths = lengths.iter().cycle();
    let mut rest = bytes;
    let mut feed = || -> Result<(), Failure> {
        while !rest.is_empty() {
            let length = *lengths.next().expect("lengths is not empty");
            match response.want(sink.is_reading) {
                Want::Nothing => return response.receive(rest, at, &mut scratch, &mut sink),
                Want::Bytes => {
                    let (piece, behind) = rest.split_at(length.min(rest.len()));
                    response.receive(piece, at, &mut scratch, &mut sink)?;
                    rest = behind;
                }
                Want::Discard(most) => {
                    let length = length.min(rest.len()).min(usize::try_from(most).unwrap_or(usize::MAX));
                    response.discarded(length as u64, at, &mut sink);
                    rest = &rest[length..];
                }
            }
        }
        response.closed()
    };
    let result = feed().map_err(|failure| failure.kind);
    (result.map(|()| response.status()), sink)
}

fn chunked(chunks: &[usize]) -> Vec<u8> {
    let mut bytes =
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for length in chunks {
        bytes.extend(format!("{length:x}\r\n").bytes());
        bytes.extend(std::iter::repeat_n(b'x', *length));
        bytes.extend(b"\r\n");
    }
    bytes.extend(b"0\r\n\r\n");
    bytes
}

proptest! {
    #[test]
    fn result_is_independent_of_piece_sizes(
        chunks in prop::collection::vec(1usize..40_000, 0..5),
        lengths in prop::collection::vec(1usize..30_000, 1..5),
        is_reading in any::<bool>(),
    ) {
        let (result, sink) = run(&chunked(&chunks), &lengths, is_reading);
        prop_assert_eq!(result, Ok(200));
        let total: usize = chunks.iter().sum();
        prop_assert_eq!((sink.arrived, sink.chunks), (total as u64, chunks.len()));
        prop_assert_eq!(sink.content.len(), if is_reading { total } else { 0 });
    }

    #[test]
    fn truncated_response_is_never_complete(at in 0usize..1000, lengths in prop::collection::vec(1usize..50, 1..3)) {
        let bytes = chunked(&[100, 200]);
        let (result, _) = run(&bytes[..at % bytes.len()], &lengths, false);
        prop_assert!(matches!(result, Err(ErrorKind::NoHead | ErrorKind::Cut)), "{:?}", result);
    }
}

#[test]
fn response_to_head_has_no_content() {
    let mut response = Response::to(Method::Head);
    let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n";
    response
        .receive(bytes, Instant::now(), &mut ResponseHead::default(), &mut RecordingSink::default())
        .unwrap();
    assert_eq!((response.want(false), response.is_kept_alive()), (Want::Nothing, true));
}

#[test]
fn framing_determines_the_end() {
    let end = |text: &str| run(text.as_bytes(), &[7], false).0;
    assert_eq!(end("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc"), Ok(200));
    assert_eq!(end("HTTP/1.1 304 Not Modified\r\ncontent-length: 3\r\n\r\n"), Ok(304));
    assert_eq!(end("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"), Ok(404));
    assert_eq!(end("HTTP/1.0 200 OK\r\n\r\nabc"), Ok(200));
    assert_eq!(end("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab"), Err(ErrorKind::Cut));
    assert_eq!(end("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcd"), Err(ErrorKind::Malformed));
    assert_eq!(end("HTTP/1.1 200 OK\r\ncontent-le"), Err(ErrorKind::NoHead));
    assert_eq!(end("SSH-2.0\r\n\r\n"), Err(ErrorKind::Malformed));
    assert_eq!(end(&"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(9)), Err(ErrorKind::Malformed));
}
