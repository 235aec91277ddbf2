//! Disk tier targets: the header of a stored response, and the journal of purges.

use thalweg_cache::disk::journal::{Entry, read};
use thalweg_cache::disk::record::{HEADER_ALIGN, Record, VERSION, header_bytes, sum};

/// Decodes `input` as a header, then as the sections of a header with a valid checksum.
pub(crate) fn record(input: &[u8]) {
    decode(input);
    decode(&header_of(input));
}

/// Returns a header with these sections and a valid checksum.
fn header_of(sections: &[u8]) -> Vec<u8> {
    let mut header = [b"thalweg\0", &VERSION.to_le_bytes()[..], &[0; 14], sections].concat();
    header.resize(header.len().next_multiple_of(HEADER_ALIGN), 0);
    let bytes = u32::try_from(header.len()).expect("inputs are below 4 GiB");
    header[12..16].copy_from_slice(&bytes.to_le_bytes());
    let sum = sum(&header);
    header[16..24].copy_from_slice(&sum.to_le_bytes());
    header
}

fn decode(header: &[u8]) {
    let bytes = header_bytes(header);
    if let Ok(record) = Record::decode(header) {
        assert_eq!(bytes, Ok(header.len()));
        assert_eq!(record.encode().as_deref(), Ok(header));
    }
}

/// Decodes `input` as a journal, then its lines as the payloads of entries in a valid journal.
pub(crate) fn journal(input: &[u8]) {
    check(input);
    let mut journal = Vec::new();
    for payload in input.split(|byte| *byte == b'\n') {
        Entry::Unknown(0, payload.into()).encode(&mut journal);
    }
    check(&journal);
    // Truncate the last entry, as a crash may.
    journal.pop();
    check(&journal);
}

fn check(journal: &[u8]) {
    let (entries, end) = read(journal);
    let mut again = Vec::new();
    entries.iter().for_each(|entry| entry.encode(&mut again));
    assert_eq!(again, journal[..end]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corpus_has_headers_of_this_version() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/disk-record");
        let inputs = std::fs::read_dir(corpus).expect("corpus directory must exist").flatten();
        let right = inputs.filter(|input| {
            Record::decode(&header_of(&std::fs::read(input.path()).expect("corpus file must be readable")))
                .is_ok()
        });
        assert!(right.count() > 0, "the corpus must have a header of this version");
    }
}
