//! File header tests: round trips, damage at every byte, and the layout on disk.

use std::fmt::Write as _;

use expect_test::expect;
use proptest::prelude::*;
use thalweg_http::status::unusual_reason;

use super::*;

fn record() -> Record {
    let mut fields = Fields::new();
    fields.push("ETag", "\"a\"");
    fields.push("Vary", "accept");
    let freshness = Freshness {
        lifetime_ms: 60_000,
        born_ms: 1_700_000_000_000,
        while_revalidate_ms: 5_000,
        if_error_ms: 6_000,
        must_revalidate: false,
        immutable: true,
    };
    let selection = Selection::from_lines(vec![("accept".into(), Some(b"a/b".to_vec()))]);
    Record {
        number: 7,
        key: "media.example/a?b".into(),
        head: Arc::new(Head {
            status: 200,
            reason: None,
            fields,
            withheld: Fields::new(),
            surrogate: Fields::new(),
            length: Some(300_000),
            freshness,
            selection,
            private: None,
            sliced: false,
            made: None,
        }),
        position: Position::default(),
        content_bytes: 300_000,
        sums: vec![1, u64::MAX],
    }
}

/// Creates a soft-purged record with tags and a custom reason phrase.
fn purged() -> Record {
    let surrogate = [("Surrogate-Key", "a b")].into_iter().collect();
    let reason = Some("Fine".into());
    let head = Arc::new(Head { surrogate, reason, ..Head::clone(&record().head) });
    Record { head, position: Position { number: 9, stale_ms: Some(u64::MAX - 1) }, ..record() }
}

/// Returns a record's contents in a comparable form, because heads do not implement equality.
fn comparable(record: &Record) -> impl PartialEq + std::fmt::Debug + use<> {
    let Head { status, reason, fields, surrogate, length, freshness, selection, sliced, .. } =
        (*record.head).clone();
    let rest = (record.number, record.key.clone(), record.content_bytes, record.sums.clone());
    ((status, reason), fields, surrogate, (length, sliced), freshness, selection, record.position, rest)
}

#[test]
fn header_has_the_documented_layout() {
    let header = record().encode().unwrap();
    assert_eq!(header.len(), HEADER_ALIGN);
    let used = header.len() - header.iter().rev().take_while(|byte| **byte == 0).count();
    let mut dump = String::new();
    for (at, row) in header[..used].chunks(16).enumerate() {
        let hex: String = row.iter().map(|byte| format!("{byte:02x} ")).collect();
        let text: String =
            row.iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' }).collect();
        writeln!(dump, "{:04x}  {hex:<48} {text}", at * 16).unwrap();
    }
    expect![[r#"
        0000  74 68 61 6c 77 65 67 00 03 00 00 00 00 10 00 00  thalweg.........
        0010  e8 95 45 ea 88 d7 1d 59 01 00 16 00 00 00 07 00  ..E....Y........
        0020  00 00 00 00 00 00 e0 93 04 00 00 00 00 00 00 00  ................
        0030  04 00 c8 00 02 00 11 00 00 00 6d 65 64 69 61 2e  ..........media.
        0040  65 78 61 6d 70 6c 65 2f 61 3f 62 03 00 1d 00 00  example/a?b.....
        0050  00 04 00 45 54 61 67 03 00 00 00 22 61 22 04 00  ...ETag...."a"..
        0060  56 61 72 79 06 00 00 00 61 63 63 65 70 74 04 00  Vary....accept..
        0070  0f 00 00 00 06 00 61 63 63 65 70 74 03 00 00 00  ......accept....
        0080  61 2f 62 05 00 21 00 00 00 60 ea 00 00 00 00 00  a/b..!...`......
        0090  00 00 68 e5 cf 8b 01 00 00 88 13 00 00 00 00 00  ..h.............
        00a0  00 70 17 00 00 00 00 00 00 02 06 00 10 00 00 00  .p..............
        00b0  01 00 00 00 00 00 00 00 ff ff ff ff ff ff ff ff  ................
    "#]]
    .assert_eq(&dump);
    assert_eq!(comparable(&Record::decode(&header).unwrap()), comparable(&record()));
}

#[test]
fn tags_and_purge_position_are_separate_sections() {
    let header = purged().encode().unwrap();
    assert_eq!(comparable(&Record::decode(&header).unwrap()), comparable(&purged()));
    let from = record().encode().unwrap().iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let mut sections = b"\x07\0\x16\0\0\0\x0d\0Surrogate-Key\x03\0\0\0a b\x08\0\x10\0\0\0".to_vec();
    sections.extend(9_u64.to_le_bytes());
    sections.extend((u64::MAX - 1).to_le_bytes());
    assert_eq!(&header[from..from + sections.len()], sections);
}

#[test]
fn header_torn_at_any_byte_is_refused() {
    let header = record().encode().unwrap();
    for at in 0..header.len() {
        // The remaining bytes were never written, or contain old data.
        for rest in [0x00, 0xff] {
            let mut torn = header.clone();
            torn[at..].fill(rest);
            if torn != header {
                Record::decode(&torn).unwrap_err();
            }
        }
        Record::decode(&header[..at]).unwrap_err();
        for bit in [0x01, 0x80] {
            let mut flipped = header.clone();
            flipped[at] ^= bit;
            Record::decode(&flipped).unwrap_err();
        }
    }
}

/// Creates a header modified by `change`, with a valid checksum.
fn forged(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut header = purged().encode().unwrap();
    change(&mut header);
    header[SUM].fill(0);
    let sum = sum(&header);
    header[SUM].copy_from_slice(&sum.to_le_bytes());
    header
}

#[test]
fn other_version_and_unknown_section_are_refused() {
    let version = forged(|header| header[8] = 1);
    assert_eq!(Record::decode(&version).unwrap_err(), Fault::Foreign);
    let end = purged().encode().unwrap().iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let section = forged(|header| header[end..end + 2].copy_from_slice(&99_u16.to_le_bytes()));
    assert_eq!(Record::decode(&section).unwrap_err(), Fault::Malformed("unknown section"));
    let twice = forged(|header| header[end] = 1);
    assert_eq!(Record::decode(&twice).unwrap_err(), Fault::Malformed("order"));
}

/// Any phrase valid in a status line is accepted, because the usual phrases vary between program
/// versions.
#[test]
fn reason_is_refused_only_if_unsafe() {
    let decoded = |reason: &str| {
        let head = Head { reason: Some(reason.into()), ..Head::clone(&record().head) };
        let header = Record { head: Arc::new(head), ..record() }.encode().unwrap();
        Record::decode(&header).map(|record| record.head.reason.clone())
    };
    let longest = "a".repeat(REASON_BYTES_MAX);
    for reason in ["OK", "Fine", "\u{e8} ", &longest] {
        assert_eq!(decoded(reason), Ok(Some(reason.into())));
    }
    for reason in ["", "a\r\nSet-Cookie: b", "\0", "\x7f", &format!("{longest}a")] {
        assert_eq!(decoded(reason), Err(Fault::Malformed("reason")), "{reason:?}");
    }
}

#[test]
fn oversized_header_is_refused() {
    let large = Record { key: "k".repeat(HEADER_BYTES_MAX).into(), ..record() };
    assert_eq!(large.encode().unwrap_err(), Fault::TooLarge);
}

fn any_fields() -> impl Strategy<Value = Fields> {
    let line = ("[A-Za-z-]{1,12}", prop::collection::vec(0x20..=0xff_u8, 0..30));
    prop::collection::vec(line, 0..20).prop_map(|lines| lines.into_iter().collect())
}

fn any_record() -> impl Strategy<Value = Record> {
    let freshness = (any::<[u64; 4]>(), any::<bool>(), any::<bool>());
    let value = proptest::option::of(prop::collection::vec(any::<u8>(), 0..40));
    let selection = prop::collection::vec(("[a-z-]{1,12}", value), 0..5);
    let status = (200..600_u16, proptest::option::of(".{0,300}"));
    let content = (any::<u64>(), 0..8 * BLOCK_BYTES as u64, any::<[u64; 8]>());
    let purges = (any_fields(), any::<u64>(), proptest::option::of(0..u64::MAX));
    (".{0,5000}", status, any_fields(), selection, freshness, content, purges).prop_map(
        |(key, status, fields, selection, freshness, (number, content_bytes, mut sums), purges)| {
            let (status, reason) = status;
            let reason = reason.and_then(|text| unusual_reason(status, &text));
            let (surrogate, purge, stale_ms) = purges;
            let sliced = content_bytes % 4 == 0;
            let (length, content_bytes) = (content_bytes, if sliced { 0 } else { content_bytes });
            let ([lifetime_ms, born_ms, while_revalidate_ms, if_error_ms], must_revalidate, immutable) =
                freshness;
            sums[0] = u64::from(status);
            let lines = selection.into_iter().map(|(name, value)| (name.into(), value)).collect();
            let head = Head {
                status,
                reason,
                fields,
                withheld: Fields::new(),
                surrogate,
                length: Some(length),
                freshness: Freshness {
                    lifetime_ms,
                    born_ms,
                    while_revalidate_ms,
                    if_error_ms,
                    must_revalidate,
                    immutable,
                },
                selection: Selection::from_lines(lines),
                private: None,
                sliced,
                made: None,
            };
            let sums = sums[..blocks(content_bytes) as usize].to_vec();
            let position = Position { number: purge, stale_ms };
            Record { number, key: key.into(), head: Arc::new(head), position, content_bytes, sums }
        },
    )
}

proptest! {
    #[test]
    fn encoded_records_round_trip(record in any_record()) {
        let header = record.encode().unwrap();
        prop_assert!(header.len().is_multiple_of(HEADER_ALIGN));
        let decoded = Record::decode(&header).unwrap();
        prop_assert_eq!(comparable(&decoded), comparable(&record));
        prop_assert_eq!(decoded.encode().unwrap(), header);
    }

    /// A header with a valid checksum must be refused or encode to the same bytes.
    #[test]
    fn any_changed_header_is_refused_or_round_trips(changes in prop::collection::vec((SECTIONS_AT..400, any::<u8>()), 1..10)) {
        let header = forged(|header| changes.iter().for_each(|(at, byte)| header[*at] = *byte));
        if let Ok(decoded) = Record::decode(&header) {
            prop_assert_eq!(decoded.encode().unwrap(), header);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = (Record::decode(&bytes), header_bytes(&bytes));
    }
}
