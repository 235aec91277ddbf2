//! The trailer section of a complete fill, counted for as long as anybody has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use thalweg_http::Fields;

/// Fields that came after the content. **Invariant:** its bytes are in the counter while it lives.
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

    /// The fields.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }
}

impl Drop for Trailer {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.fields.text_len(), Ordering::Relaxed);
    }
}
