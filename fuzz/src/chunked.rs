//! Chunked coding target (RFC 9112 §7.1): decoding must not depend on how the input is split.

use thalweg_http::chunked::{
    CHUNK_END, ChunkedError, Decoder, LAST_CHUNK, SIZE_LINE_BYTES, Step, encode_size,
};

/// Result of decoding.
#[derive(Debug, PartialEq)]
struct Decoded {
    content: Vec<u8>,
    trailer: Vec<u8>,
    /// Bytes consumed, if the input contains the end of the coded content.
    bytes: Option<usize>,
}

/// Decodes `input` as coded content followed by any bytes.
pub(crate) fn run(input: &[u8]) {
    let whole = decode(input, input.len().max(1));
    for piece_bytes in [1, 2, 3, 7] {
        assert_eq!(decode(input, piece_bytes), whole, "decoded in pieces of {piece_bytes} bytes");
    }
    let Ok(decoded) = whole else { return };
    assert!(decoded.content.len() <= input.len());
    if let Some(bytes) = decoded.bytes {
        assert!(
            decode(&input[..bytes - 1], input.len()).is_ok_and(|early| early.bytes.is_none()),
            "content must not end early"
        );
    }
    for (end, trailer) in [(LAST_CHUNK, &b""[..]), (b"0\r\nA: b\r\n\r\n", b"A: b\r\n")] {
        let coded = encode(&decoded.content, end);
        let again = decode(&coded, usize::MAX).expect("encoded content must decode");
        assert_eq!(again.content, decoded.content);
        assert_eq!((&again.trailer[..], again.bytes), (trailer, Some(coded.len())));
    }
}

fn decode(input: &[u8], piece_bytes: usize) -> Result<Decoded, ChunkedError> {
    let mut decoder = Decoder::new();
    let (mut content, mut before) = (Vec::new(), 0);
    for piece in input.chunks(piece_bytes) {
        let mut rest = piece;
        loop {
            match decoder.decode(rest)? {
                Step::Data { data, consumed } => {
                    assert!(!data.is_empty() && data.end <= consumed);
                    content.extend_from_slice(&rest[data]);
                    rest = &rest[consumed..];
                }
                Step::More => break,
                Step::Done { consumed } => {
                    assert!(decoder.is_done());
                    let bytes = Some(before + piece.len() - rest.len() + consumed);
                    return Ok(Decoded { content, trailer: decoder.trailer().text().to_vec(), bytes });
                }
            }
        }
        before += piece.len();
    }
    Ok(Decoded { content, trailer: Vec::new(), bytes: None })
}

/// Encodes `content` in chunks of ten bytes, followed by `end`.
fn encode(content: &[u8], end: &[u8]) -> Vec<u8> {
    let mut coded = Vec::new();
    for chunk in content.chunks(10) {
        coded.extend_from_slice(encode_size(chunk.len() as u64, &mut [0; SIZE_LINE_BYTES]));
        coded.extend_from_slice(chunk);
        coded.extend_from_slice(CHUNK_END);
    }
    coded.extend_from_slice(end);
    coded
}
