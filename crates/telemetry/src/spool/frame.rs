//! A frame: one batch, and how far edges have been heard with it, compressed, behind a header by which a whole frame is told from a torn one. Pure.
//!
//! ```text
//! "TWFR" | payload bytes | content bytes | records: 4 bytes each | first number | checksum: 8 bytes each | payload (zstd)
//! ```
//!
//! All numbers have their least byte first. The checksum is XXH3 of the payload, seeded with that of what is before it.
//!
//! **Invariant:** nothing of a frame is used before its checksum was right, and no length allocates more than its limit.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_record::{Batch, Heard};
use twox_hash::XxHash3_64;

/// A batch has no more records than this.
pub(super) const FRAME_RECORDS_MAX: usize = 8192;
/// Nor does it take more bytes than this, before compression.
pub(super) const FRAME_BYTES_MAX: usize = 32 << 20;
/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 32;

const MAGIC: [u8; 4] = *b"TWFR";
/// What the checksum is behind.
const CHECKED_BYTES: usize = 24;
/// Higher levels of zstd made frames of samples a tenth smaller for twice the time.
const ZSTD_LEVEL: i32 = 1;

/// What a frame says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Number of its first record.
    pub(super) first: u64,
    /// How many records it has, with the numbers that follow.
    pub(super) records: u32,
    /// Length of what follows the header.
    pub(super) payload_bytes: u32,
    content_bytes: u32,
    seed: u64,
    checksum: u64,
}

/// A frame that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Damaged(pub(super) &'static str);

impl Header {
    /// Number of the record after its last.
    pub(super) fn end(&self) -> u64 {
        self.first + u64::from(self.records)
    }

    /// Reads a header.
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
        if is_possible { Ok(header) } else { Err(Damaged("no frame where one ought to begin")) }
    }

    /// Whether `payload` is what the header was written with.
    pub(super) fn check(&self, payload: &[u8]) -> Result<(), Damaged> {
        let is_right = XxHash3_64::oneshot_with_seed(self.seed, payload) == self.checksum;
        if is_right { Ok(()) } else { Err(Damaged("a frame's checksum is wrong")) }
    }

    /// The batch in a payload.
    pub(super) fn batch(&self, payload: &[u8]) -> Result<Batch, Damaged> {
        let batch = Batch::decode(&self.content(payload)?).map_err(|_| NO_BATCH)?;
        let numbers = batch.entries.iter().map(|entry| entry.number);
        if !numbers.eq(self.first..self.end()) {
            return Err(Damaged("a frame's records have other numbers"));
        }
        Ok(batch)
    }

    /// How far edges had been heard with the batch in a payload, and before.
    pub(super) fn heard(&self, payload: &[u8]) -> Result<Edges, Damaged> {
        let heard = Heard::decode(&self.content(payload)?).map_err(|_| NO_BATCH)?;
        Ok(heard.into_iter().map(|heard| (heard.edge.clone(), heard)).collect())
    }

    fn content(&self, payload: &[u8]) -> Result<Vec<u8>, Damaged> {
        self.check(payload)?;
        zstd::bulk::decompress(payload, self.content_bytes as usize)
            .map_err(|_| Damaged("a frame cannot be decompressed"))
    }
}

const NO_BATCH: Damaged = Damaged("a frame holds no batch that can be read");

/// How far each edge has been heard.
pub(super) type Edges = BTreeMap<Arc<str>, Heard>;

/// Makes frames; keeps its buffers and zstd's tables.
pub(super) struct Encoder {
    zstd: zstd::bulk::Compressor<'static>,
    content: Vec<u8>,
    frame: Vec<u8>,
}

impl Encoder {
    /// An encoder without anything in it.
    pub(super) fn new() -> std::io::Result<Self> {
        let zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL)?;
        Ok(Self { zstd, content: Vec::new(), frame: Vec::new() })
    }

    /// The frame of a batch with at least one record and at most [`FRAME_RECORDS_MAX`]; `None` if it takes more than
    /// [`FRAME_BYTES_MAX`].
    pub(super) fn encode(&mut self, batch: &Batch, edges: &Edges) -> std::io::Result<Option<&[u8]>> {
        self.content.clear();
        batch.encode(&mut self.content);
        Heard::encode(edges.values(), &mut self.content);
        if self.content.len() > FRAME_BYTES_MAX {
            self.content = Vec::new();
            return Ok(None);
        }
        let bound = zstd::zstd_safe::compress_bound(self.content.len());
        self.frame.resize(HEADER_BYTES + bound, 0);
        let payload_bytes = self.zstd.compress_to_buffer(&self.content, &mut self.frame[HEADER_BYTES..])?;
        self.frame.truncate(HEADER_BYTES + payload_bytes);
        self.put_header(batch, payload_bytes);
        Ok(Some(&self.frame))
    }

    fn put_header(&mut self, batch: &Batch, payload_bytes: usize) {
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
