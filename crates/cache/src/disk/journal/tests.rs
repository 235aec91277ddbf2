//! Journal entry tests: round trips, and truncation and damage at every byte.

use proptest::prelude::*;

use super::*;

fn entries() -> Vec<Entry> {
    let ban = Ban::read("req.url ~ \"^/a\"", 7);
    let purge = |number, what, soft_ms| Entry::Purge(Purge { number, what, soft_ms });
    vec![
        Entry::Sequence(3),
        purge(4, PurgeScope::Url("a.example/b?c".into()), None),
        purge(5, PurgeScope::Tag(b"tag\xff".as_slice().into()), Some(1_700_000_000_000)),
        purge(6, PurgeScope::Ban(Arc::new(ban)), None),
        Entry::Unlisted(7),
        Entry::Unknown(8, [&[200][..], &8_u64.to_le_bytes(), b"later"].concat().into()),
    ]
}

fn encoded(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    entries.iter().for_each(|entry| entry.encode(&mut bytes));
    bytes
}

#[test]
fn entries_round_trip() {
    let bytes = encoded(&entries());
    let (read, end) = read(&bytes);
    assert_eq!(end, bytes.len());
    assert_eq!(format!("{read:?}"), format!("{:?}", entries()));
}

#[test]
fn entry_has_the_documented_layout() {
    let bytes = encoded(&entries()[1..2]);
    assert_eq!(bytes[..4], [30, 0, 0, 0]);
    assert_eq!(bytes[4..12], sum(&bytes[12..]).to_le_bytes());
    let payload = [&[2, 4, 0, 0, 0, 0, 0, 0, 0][..], &[0xff; 8], b"a.example/b?c"].concat();
    assert_eq!(bytes[12..], payload);
}

#[test]
fn damage_at_any_byte_leaves_the_entries_before_it() {
    let (whole, bytes) = (entries(), encoded(&entries()));
    for at in 0..bytes.len() {
        let (before, end) = read(&bytes[..at]);
        assert!(end <= at && encoded(&before) == bytes[..end]);
        for rest in [0x00, 0xff] {
            let mut torn = bytes.clone();
            torn[at..].fill(rest);
            let (read, end) = read(&torn);
            assert!(read.len() <= whole.len() && encoded(&read) == bytes[..end], "{at}");
            assert!(before.len() <= read.len());
        }
    }
}

proptest! {
    /// A payload with a valid checksum must be refused or encode to the same bytes.
    #[test]
    fn any_payload_is_refused_or_round_trips(payload in prop::collection::vec(any::<u8>(), 0..40)) {
        let bytes = encoded(&[Entry::Unknown(0, payload.into())]);
        let (read, end) = read(&bytes);
        prop_assert_eq!(encoded(&read), &bytes[..end]);
    }
}
