//! The chunked coding (RFC 9112 §7.1).

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use thalweg_http::chunked::{
    CHUNK_END, ChunkedError, Decoder, EXTENSION_BYTES_MAX, LAST_CHUNK, SIZE_LINE_BYTES, Step,
    TRAILER_BYTES_MAX, encode_size,
};

use crate::{cases, shown};

/// A decoded message: its content, its trailer section, and the number of bytes consumed.
#[derive(Debug, PartialEq)]
struct Decoded {
    content: Vec<u8>,
    trailer: Vec<u8>,
    bytes: Option<usize>,
}

/// Decodes `pieces` as if each had arrived separately. `bytes` is `None` if the end is missing.
fn decode_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Decoded, ChunkedError> {
    let mut decoder = Decoder::new();
    let (mut content, mut before) = (Vec::new(), 0);
    for piece in pieces {
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
                    let bytes = Some(before + piece.len() - rest.len() + consumed);
                    return Ok(Decoded { content, trailer: decoder.trailer().text().to_vec(), bytes });
                }
            }
        }
        before += piece.len();
    }
    assert!(!decoder.is_done());
    Ok(Decoded { content, trailer: Vec::new(), bytes: None })
}

fn check(input: &str, expect: Expect) {
    expect.assert_eq(&match decode_pieces([input.as_bytes()]) {
        Ok(Decoded { content, trailer, bytes }) => {
            format!("{:?} of {}: {} {}", bytes, input.len(), shown(&content), shown(&trailer))
        }
        Err(error) => format!("{} {error}", error.status()),
    });
}

#[test]
fn rfc9112_7_1_chunks_are_decoded() {
    check("3\r\nabc\r\n00A\r\n0123456789\r\n0\r\n\r\nGET", expect!["Some(30) of 33: abc0123456789 "]);
    check("0\r\n\r\n", expect!["Some(5) of 5:  "]);
    check("3\r\nabc\r\n0\r\n", expect!["None of 11: abc "]);
    check("3\r\nab", expect!["None of 5: ab "]);
}

#[test]
fn rfc9112_7_1_invalid_sizes_are_refused() {
    check("g\r\n", expect!["400 chunk size is not hexadecimal"]);
    check("\r\n", expect!["400 chunk size is not hexadecimal"]);
    check("-1\r\n", expect!["400 chunk size is not hexadecimal"]);
    check("0x1\r\n", expect!["400 chunk size is not hexadecimal"]);
    check(" 1\r\n", expect!["400 chunk size is not hexadecimal"]);
    check("5\r\r\nabcde", expect!["400 chunk does not end in CRLF"]);
    check("5 \r\r\nabcde", expect!["400 chunk does not end in CRLF"]);
    check("5;a\r\r\nabcde", expect!["400 chunk does not end in CRLF"]);
    check("1 1\r\n", expect!["400 chunk size is not hexadecimal"]);
    check("ffffffffffffffff\r\na", expect!["None of 19: a "]);
    check("10000000000000000\r\n", expect!["400 chunk size has too many digits"]);
    check("00000000000000001\r\n", expect!["400 chunk size has too many digits"]);
}

#[test]
fn rfc9112_7_1_1_extensions_are_skipped() {
    check("1;a=b;c=\"d;\"\r\nx\r\n0 ; e\r\n\r\n", expect!["Some(26) of 26: x "]);
    check("1 \t\r\nx\r\n0\r\n\r\n", expect!["Some(13) of 13: x "]);
    check("1;a\0\r\n", expect!["400 chunk extension contains a control character"]);
    check("1;a\nx", expect!["400 chunk extension contains a control character"]);
    let long = "a".repeat(EXTENSION_BYTES_MAX - 1);
    check(&format!("0;{long}\r\n\r\n"), expect!["Some(261) of 261:  "]);
    check(&format!("0;{long}a\r\n\r\n"), expect!["400 chunk extension is too long"]);
    check(&format!("0{}", " ".repeat(EXTENSION_BYTES_MAX + 1)), expect!["400 chunk extension is too long"]);
}

#[test]
fn rfc9112_7_1_lines_end_in_both_characters() {
    for input in ["1\n", "1\rx", "1\r\nx\n", "1\r\nxy\r\n", "1\r\nx\rx", "0\r\n\n", "0\r\nA: b\n"] {
        check(input, expect!["400 chunk does not end in CRLF"]);
    }
}

#[test]
fn rfc9112_7_1_2_trailers_are_parsed() {
    check("0\r\nA: b\r\nC:d\r\n\r\nx", expect![[r#"Some(16) of 17:  A: b\r\nC: d\r\n"#]]);
    check("0\r\nA b\r\n\r\n", expect!["400 malformed trailer section"]);
    check("0\r\nA: b\r\n c\r\n\r\n", expect!["400 malformed trailer section"]);
    check(&format!("0\r\nA: {}", "a".repeat(TRAILER_BYTES_MAX)), expect!["431 trailer section is too large"]);
    check(&format!("0\r\n{}\r\n", "A: b\r\n".repeat(33)), expect!["431 trailer section is too large"]);
}

#[test]
fn sizes_are_written() {
    let mut table = String::new();
    for size in [1, 9, 10, 0x8000, u64::MAX] {
        let mut buffer = [0; SIZE_LINE_BYTES];
        writeln!(table, "{}", shown(encode_size(size, &mut buffer))).unwrap();
    }
    expect![[r#"
        1\r\n
        9\r\n
        A\r\n
        8000\r\n
        FFFFFFFFFFFFFFFF\r\n
    "#]]
    .assert_eq(&table);
}

fn encode(chunks: &[Vec<u8>], end: &[u8]) -> Vec<u8> {
    let mut coded = Vec::new();
    for chunk in chunks {
        coded.extend_from_slice(encode_size(chunk.len() as u64, &mut [0; SIZE_LINE_BYTES]));
        coded.extend_from_slice(chunk);
        coded.extend_from_slice(CHUNK_END);
    }
    coded.extend_from_slice(end);
    coded
}

fn split<'a>(input: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
    cuts.extend([0, input.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &input[pair[0]..pair[1]]).collect()
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn any_split_of_the_input_decodes_to_the_same_content(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
        trailer in any::<bool>(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let end = if trailer { &b"0;x\r\nA: b\r\n\r\nnext"[..] } else { &[LAST_CHUNK, b"next"].concat() };
        let coded = encode(&chunks, end);
        let decoded = decode_pieces(split(&coded, &cuts)).unwrap();
        prop_assert_eq!(&decoded.content, &chunks.concat());
        prop_assert_eq!(&decoded.trailer[..], if trailer { &b"A: b\r\n"[..] } else { b"" });
        prop_assert_eq!(decoded.bytes, Some(coded.len() - b"next".len()));
    }

    #[test]
    fn any_split_of_a_damaged_input_gives_the_same_result(
        at in any::<prop::sample::Index>(), byte in prop::sample::select(b"\r\n; 0a\0:".to_vec()),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut coded = encode(&[b"abc".to_vec(), vec![b'x'; 17]], b"0;e\r\nA: b\r\n\r\n");
        let at = at.index(coded.len());
        coded[at] = byte;
        prop_assert_eq!(decode_pieces(split(&coded, &cuts)), decode_pieces([&coded[..]]));
    }
}

proptest! {
    #[test]
    fn skipped_data_counts_as_consumed(chunks in prop::collection::vec(1usize..50, 1..5), seen in 0u64..50) {
        let mut coded = Vec::new();
        for length in &chunks {
            coded.extend(encode_size(*length as u64, &mut [0; SIZE_LINE_BYTES]));
            coded.extend(vec![b'x'; *length]);
            coded.extend(CHUNK_END);
        }
        coded.extend(LAST_CHUNK);
        let (mut decoder, mut rest, mut content) = (Decoder::new(), &coded[..], 0);
        // Decode one byte at a time, so that skipping starts in the middle of a chunk's data.
        while let Some((byte, behind)) = rest.split_first() {
            let step = decoder.decode(&[*byte]).unwrap();
            content += usize::from(matches!(step, Step::Data { .. }));
            rest = behind;
            let skipped = decoder.data_left().min(seen);
            decoder.skip_data(skipped);
            content += skipped as usize;
            rest = &rest[skipped as usize..];
        }
        prop_assert!(decoder.is_done() && decoder.data_left() == 0);
        prop_assert_eq!(content, chunks.iter().sum::<usize>());
    }
}
