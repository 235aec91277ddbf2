//! Batch target: a decoded batch must survive encoding and decoding, and fill every column of its
//! tables.

use thalweg_record::rows::{self, Table};
use thalweg_record::{Batch, DecodeError};

/// Decodes `input` as a batch.
pub(crate) fn run(input: &[u8]) {
    let batch = match Batch::decode(input) {
        Ok(batch) => batch,
        Err(DecodeError::Version { found, known, .. }) => return assert!(found > known),
        Err(DecodeError::Wire(_) | DecodeError::Value { .. }) => return,
    };
    let mut again = Vec::new();
    batch.encode(&mut again);
    assert_eq!(Batch::decode(&again).expect("an encoded batch must decode"), batch);
    for entry in &batch.entries {
        let mut values = 0;
        rows::row(&batch.source, entry, &mut |_| values += 1);
        assert_eq!(values, Table::of(&entry.record).columns().len());
        assert_eq!(entry.prefix().is_some(), entry.client().is_some());
    }
}
