//! Trailer section of a complete fill. Its size counts towards the index's memory as long as the
//! section exists.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use thalweg_http::Fields;

/// A trailer section. **Invariant:** `counter` includes the section's size as long as the section
/// exists.
#[derive(Debug)]
pub struct Trailer {
    fields: Fields,
    counter: Arc<AtomicUsize>,
}

impl Trailer {
    #[cfg(not(loom))]
    pub(crate) fn new(fields: Fields, counter: &Arc<AtomicUsize>) -> Self {
        counter.fetch_add(fields.text_len(), Ordering::Relaxed);
        Self { fields, counter: counter.clone() }
    }

    /// Returns the fields.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }
}

impl Drop for Trailer {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.fields.text_len(), Ordering::Relaxed);
    }
}
