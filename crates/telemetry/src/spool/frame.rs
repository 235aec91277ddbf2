//! Frame encoding: one batch and the edge positions after it, compressed, with a header that
//! reveals torn writes. Does no I/O.
//!
//! ```text
//! "TWFR" | payload bytes | content bytes | records: 4 bytes each
//!        | first number | checksum: 8 bytes each | payload (zstd)
//! ```
//!
//! All numbers are little-endian. The checksum is the XXH3 of the payload. Its seed is the XXH3 of
//! the preceding header bytes.
//!
//! **Invariant:** a payload is used only after its checksum has been verified, and no length field
//! causes an allocation above its limit.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_record::{Batch, EdgePosition};
use twox_hash::XxHash3_64;

/// Maximum number of records per frame.
pub(super) const FRAME_RECORDS_MAX: usize = 8192;
/// Maximum size of a frame before compression, in bytes.
pub(super) const FRAME_BYTES_MAX: usize = 32 << 20;
/// Size of a frame header in bytes.
pub(super) const HEADER_BYTES: usize = 32;

const MAGIC: [u8; 4] = *b"TWFR";
/// Size of the part of the header before the checksum, in bytes.
const CHECKED_BYTES: usize = 24;
/// Compression level of zstd. Higher levels made frames of socket samples 10% smaller but took
/// twice as long.
const ZSTD_LEVEL: i32 = 1;

/// Frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Number of the frame's first record.
    pub(super) first: u64,
    /// Number of records in the frame. Record numbers are consecutive.
    pub(super) records: u32,
    /// Length of the compressed payload in bytes.
    pub(super) payload_bytes: u32,
    content_bytes: u32,
    seed: u64,
    checksum: u64,
}

/// Reason why a frame cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Damaged(pub(super) &'static str);

impl Header {
    /// Returns the number after the frame's last record.
    pub(super) fn end(&self) -> u64 {
        self.first + u64::from(self.records)
    }

    /// Decodes and validates a header.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Damaged> {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let header = Self {
            payload_bytes: u32_at(4),
            content_bytes: u32_at(8),
            records: u32_at(12),
            first: u64_at(16),
            checksum: u64_at(CHECKED_BYTES),
            seed: XxHash3_64::oneshot(&bytes[..CHECKED_BYTES]),
        };
        let is_possible = bytes.starts_with(&MAGIC)
            && (1..=FRAME_RECORDS_MAX).contains(&(header.records as usize))
            && header.content_bytes as usize <= FRAME_BYTES_MAX
            && header.payload_bytes as usize <= zstd::zstd_safe::compress_bound(FRAME_BYTES_MAX)
            && header.first.checked_add(header.records.into()).is_some();
        if is_possible { Ok(header) } else { Err(Damaged("expected a frame header")) }
    }

    /// Verifies the checksum of `payload`.
    pub(super) fn check(&self, payload: &[u8]) -> Result<(), Damaged> {
        let is_right = XxHash3_64::oneshot_with_seed(self.seed, payload) == self.checksum;
        if is_right { Ok(()) } else { Err(Damaged("frame checksum mismatch")) }
    }

    /// Decodes the batch in a payload, after verifying the checksum.
    pub(super) fn batch(&self, payload: &[u8]) -> Result<Batch, Damaged> {
        let batch = Batch::decode(&self.content(payload)?).map_err(|_| NO_BATCH)?;
        let numbers = batch.entries.iter().map(|entry| entry.number);
        if !numbers.eq(self.first..self.end()) {
            return Err(Damaged("frame records have unexpected numbers"));
        }
        Ok(batch)
    }

    /// Decodes the edge positions in a payload, after verifying the checksum.
    pub(super) fn edge_positions(&self, payload: &[u8]) -> Result<Edges, Damaged> {
        let heard = EdgePosition::decode(&self.content(payload)?).map_err(|_| NO_BATCH)?;
        Ok(heard.into_iter().map(|heard| (heard.edge.clone(), heard)).collect())
    }

    fn content(&self, payload: &[u8]) -> Result<Vec<u8>, Damaged> {
        self.check(payload)?;
        zstd::bulk::decompress(payload, self.content_bytes as usize)
            .map_err(|_| Damaged("frame cannot be decompressed"))
    }
}

const NO_BATCH: Damaged = Damaged("frame content cannot be decoded");

/// Edge positions by edge name.
pub(super) type Edges = BTreeMap<Arc<str>, EdgePosition>;

/// Frame encoder. Reuses its buffers and the compressor's tables.
pub(super) struct Encoder {
    zstd: zstd::bulk::Compressor<'static>,
    content: Vec<u8>,
    frame: Vec<u8>,
}

impl Encoder {
    /// Creates an encoder with empty buffers.
    pub(super) fn new() -> std::io::Result<Self> {
        let zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL)?;
        Ok(Self { zstd, content: Vec::new(), frame: Vec::new() })
    }

    /// Encodes a batch of 1 to [`FRAME_RECORDS_MAX`] records as a frame. Returns `None` if the
    /// frame's content would exceed [`FRAME_BYTES_MAX`].
    pub(super) fn encode(&mut self, batch: &Batch, edges: &Edges) -> std::io::Result<Option<&[u8]>> {
        self.content.clear();
        batch.encode(&mut self.content);
        EdgePosition::encode(edges.values(), &mut self.content);
        if self.content.len() > FRAME_BYTES_MAX {
            self.content = Vec::new();
            return Ok(None);
        }
        let bound = zstd::zstd_safe::compress_bound(self.content.len());
        self.frame.resize(HEADER_BYTES + bound, 0);
        let payload_bytes = self.zstd.compress_to_buffer(&self.content, &mut self.frame[HEADER_BYTES..])?;
        self.frame.truncate(HEADER_BYTES + payload_bytes);
        self.write_header(batch, payload_bytes);
        Ok(Some(&self.frame))
    }

    fn write_header(&mut self, batch: &Batch, payload_bytes: usize) {
        let narrow = |length: usize| u32::try_from(length).expect("bounded by FRAME_BYTES_MAX").to_le_bytes();
        let (header, payload) = self.frame.split_at_mut(HEADER_BYTES);
        header[..4].copy_from_slice(&MAGIC);
        header[4..8].copy_from_slice(&narrow(payload_bytes));
        header[8..12].copy_from_slice(&narrow(self.content.len()));
        header[12..16].copy_from_slice(&narrow(batch.entries.len()));
        header[16..24].copy_from_slice(&batch.entries[0].number.to_le_bytes());
        let seed = XxHash3_64::oneshot(&header[..CHECKED_BYTES]);
        let checksum = XxHash3_64::oneshot_with_seed(seed, payload);
        header[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
    }
}
