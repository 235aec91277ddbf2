//! Multipart responses: several ranges as `multipart/byteranges` (RFC 9110 §14.6, RFC 2046 §5.1).

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;

use thalweg_http::{Fields, range};

/// The parts of a multipart response, in the requested order.
#[derive(Debug)]
pub(crate) struct Multipart {
    boundary: String,
    /// The head and the content range of each part.
    pub(crate) parts: Vec<(Vec<u8>, Range<u64>)>,
}

impl Multipart {
    /// Prepares a response with these content ranges; `length` is the length of all content in
    /// bytes, if known.
    pub(crate) fn new(ranges: &[Range<u64>], length: Option<u64>, fields: &Fields) -> Self {
        // Make the boundary unpredictable, so that no content can be crafted to contain it.
        let random = || RandomState::new().build_hasher().finish();
        let boundary = format!("{:016x}{:016x}", random(), random());
        let part = |(at, range): (usize, &Range<u64>)| {
            let mut head = format!("{}--{boundary}\r\n", if at == 0 { "" } else { "\r\n" }).into_bytes();
            if let Some(content_type) = fields.get("content-type") {
                head.extend_from_slice(b"Content-Type: ");
                head.extend_from_slice(content_type);
                head.extend_from_slice(b"\r\n");
            }
            let content_range = range::content_range(range, length);
            head.extend_from_slice(format!("Content-Range: {content_range}\r\n\r\n").as_bytes());
            (head, range.clone())
        };
        let parts = ranges.iter().enumerate().map(part).collect();
        Self { boundary, parts }
    }

    /// Returns the closing delimiter.
    pub(crate) fn end(&self) -> Vec<u8> {
        format!("\r\n--{}--\r\n", self.boundary).into_bytes()
    }

    /// Returns the length of the multipart content in bytes.
    pub(crate) fn length(&self) -> u64 {
        let parts = self.parts.iter().map(|(head, range)| head.len() as u64 + range.end - range.start);
        parts.sum::<u64>() + self.end().len() as u64
    }

    /// Returns `fields` with the content type replaced by `multipart/byteranges`.
    pub(crate) fn fields(&self, fields: &Fields) -> Fields {
        let mut fields = fields.clone();
        fields.remove("content-type");
        fields.push("Content-Type", format!("multipart/byteranges; boundary={}", self.boundary));
        fields
    }
}
