//! Builder of progressive files with any sample tables.

use super::build::{boxed, full, sound, visual, words};

/// One sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) size: u32,
    pub(crate) duration: u32,
    pub(crate) composition_offset: i32,
    pub(crate) sync: bool,
}

/// A track, and how its tables are written.
#[derive(Debug, Clone)]
pub(crate) struct TrackParts {
    pub(crate) is_video: bool,
    pub(crate) timescale: u32,
    pub(crate) samples: Vec<Sample>,
    /// Samples in each chunk; the last number applies to all further chunks.
    pub(crate) chunks: Vec<u32>,
    /// Field size of stz2; 0 writes stsz.
    pub(crate) size_bits: u32,
    pub(crate) co64: bool,
    /// Boxes in trak before mdia, such as edts.
    pub(crate) in_trak: Vec<u8>,
    /// Boxes in stbl before the tables, such as sdtp.
    pub(crate) in_stbl: Vec<u8>,
}

impl TrackParts {
    pub(crate) fn video(timescale: u32, samples: Vec<Sample>) -> Self {
        let (in_trak, in_stbl) = (Vec::new(), Vec::new());
        let (chunks, size_bits, co64) = (vec![10], 0, false);
        Self { is_video: true, timescale, samples, chunks, size_bits, co64, in_trak, in_stbl }
    }

    pub(crate) fn audio(timescale: u32, samples: Vec<Sample>) -> Self {
        Self { is_video: false, ..Self::video(timescale, samples) }
    }

    /// Returns the number of samples in each chunk.
    fn chunk_counts(&self) -> Vec<u32> {
        let mut left = self.samples.len() as u32;
        let mut sizes = self.chunks.iter().copied().chain(std::iter::repeat(*self.chunks.last().unwrap()));
        let mut counts = Vec::new();
        while left > 0 {
            let count = sizes.next().unwrap().min(left);
            counts.push(count);
            left -= count;
        }
        counts
    }

    /// Returns the size of each chunk.
    fn chunk_sizes(&self) -> Vec<u64> {
        let mut samples = self.samples.iter();
        let size = |count: u32| samples.by_ref().take(count as usize).map(|s| u64::from(s.size)).sum();
        self.chunk_counts().into_iter().map(size).collect()
    }

    fn trak(&self, id: u32, offsets: &[u64]) -> Vec<u8> {
        let (handler, entry) = if self.is_video {
            let avcc = boxed(b"avcC", &[1, 0x64, 0, 0x1f, 0xff, 0xe0, 0]);
            (b"vide", visual(b"avc1", (640, 360), &avcc))
        } else {
            (b"soun", sound(b"ac-3", 2, 48_000, &boxed(b"dac3", &[0x10, 0x11, 0x40])))
        };
        let mdhd = full(b"mdhd", 0, 0, &words(&[0, 0, self.timescale, 0, 0x55c4_0000]));
        let hdlr = full(b"hdlr", 0, 0, &[&[0; 4][..], handler, &[0; 13]].concat());
        let stsd = full(b"stsd", 0, 0, &[words(&[1]), entry].concat());
        let stbl = boxed(b"stbl", &[stsd, self.in_stbl.clone(), self.tables(offsets)].concat());
        let mdia = boxed(b"mdia", &[mdhd, hdlr, boxed(b"minf", &stbl)].concat());
        let matrix = words(&[0x1_0000, 0, 0, 0, 0x1_0000, 0, 0, 0, 0x4000_0000]);
        let tkhd = [words(&[0, 0, id, 0, 9, 0, 0, 0, 0]), matrix, words(&[640 << 16, 360 << 16])].concat();
        boxed(b"trak", &[full(b"tkhd", 0, 0, &tkhd), self.in_trak.clone(), mdia].concat())
    }

    fn tables(&self, offsets: &[u64]) -> Vec<u8> {
        let each = |value: &dyn Fn(&Sample) -> u32| -> Vec<u8> {
            let entries = self.samples.iter().flat_map(|s| [1, value(s)]);
            words(&[&[self.samples.len() as u32][..], &entries.collect::<Vec<_>>()].concat())
        };
        let mut tables = full(b"stts", 0, 0, &each(&|s| s.duration));
        if self.samples.iter().any(|s| s.composition_offset != 0) {
            tables.extend(full(b"ctts", 1, 0, &each(&|s| s.composition_offset.cast_unsigned())));
        }
        if self.samples.iter().any(|s| !s.sync) {
            let numbers: Vec<u32> =
                (1..).zip(&self.samples).filter(|(_, s)| s.sync).map(|(n, _)| n).collect();
            tables.extend(full(b"stss", 0, 0, &words(&[&[numbers.len() as u32], &numbers[..]].concat())));
        }
        tables.extend(self.sizes());
        let counts = self.chunk_counts();
        let groups: Vec<u32> = (1..).zip(&counts).flat_map(|(chunk, count)| [chunk, *count, 1]).collect();
        tables.extend(full(b"stsc", 0, 0, &words(&[&[counts.len() as u32], &groups[..]].concat())));
        let count = words(&[offsets.len() as u32]);
        tables.extend(if self.co64 {
            let wide = offsets.iter().flat_map(|offset| offset.to_be_bytes());
            full(b"co64", 0, 0, &count.into_iter().chain(wide).collect::<Vec<_>>())
        } else {
            let narrow = offsets.iter().flat_map(|offset| (*offset as u32).to_be_bytes());
            full(b"stco", 0, 0, &count.into_iter().chain(narrow).collect::<Vec<_>>())
        });
        tables
    }

    fn sizes(&self) -> Vec<u8> {
        let count = self.samples.len() as u32;
        let sizes = || self.samples.iter().map(|s| s.size);
        match self.size_bits {
            4 => {
                let pairs: Vec<u32> = sizes().collect();
                let bytes = pairs.chunks(2).map(|p| (p[0] << 4 | p.get(1).unwrap_or(&0)) as u8);
                full(b"stz2", 0, 0, &words(&[4, count]).into_iter().chain(bytes).collect::<Vec<_>>())
            }
            8 => {
                let bytes = sizes().map(|size| size as u8);
                full(b"stz2", 0, 0, &words(&[8, count]).into_iter().chain(bytes).collect::<Vec<_>>())
            }
            16 => {
                let bytes = sizes().flat_map(|size| (size as u16).to_be_bytes());
                full(b"stz2", 0, 0, &words(&[16, count]).into_iter().chain(bytes).collect::<Vec<_>>())
            }
            _ => full(b"stsz", 0, 0, &words(&[&[0, count][..], &sizes().collect::<Vec<_>>()].concat())),
        }
    }
}

/// Builds ftyp and moov for media that begins at `media_offset`, or behind them if that is `None`.
/// The chunks of the tracks alternate. Also returns, for each track, the offsets of its chunks.
fn front(tracks: &[TrackParts], media_offset: Option<u64>) -> (Vec<u8>, Vec<Vec<u64>>) {
    let sizes: Vec<Vec<u64>> = tracks.iter().map(TrackParts::chunk_sizes).collect();
    let place = |start: u64| {
        let mut offsets: Vec<Vec<u64>> = tracks.iter().map(|_| Vec::new()).collect();
        let mut at = start;
        for round in 0..sizes.iter().map(Vec::len).max().unwrap_or(0) {
            for (track, sizes) in sizes.iter().enumerate() {
                if let Some(size) = sizes.get(round) {
                    offsets[track].push(at);
                    at += size;
                }
            }
        }
        offsets
    };
    let build = |offsets: &[Vec<u64>]| {
        let mvhd = full(b"mvhd", 0, 0, &[words(&[0, 0, 1000, 9]), vec![0; 80]].concat());
        let traks = (1..).zip(tracks).zip(offsets).flat_map(|((id, t), offsets)| t.trak(id, offsets));
        let moov = boxed(b"moov", &mvhd.into_iter().chain(traks).collect::<Vec<_>>());
        [boxed(b"ftyp", b"isom\0\0\0\0isom"), moov].concat()
    };
    let offsets = place(media_offset.unwrap_or(0));
    let front = build(&offsets);
    match media_offset {
        Some(_) => (front, offsets),
        None => {
            let offsets = place(front.len() as u64 + 8);
            (build(&offsets), offsets)
        }
    }
}

/// Builds ftyp and moov of a file whose media begins at `media_offset`.
pub(crate) fn movie_front(tracks: &[TrackParts], media_offset: u64) -> Vec<u8> {
    front(tracks, Some(media_offset)).0
}

/// Builds a file; also returns the bytes of each track's samples, which differ from each other.
pub(crate) fn movie_file(tracks: &[TrackParts], moov_first: bool) -> (Vec<u8>, Vec<Vec<u8>>) {
    const FTYP_BYTES: u64 = 20;
    let (front, offsets) = front(tracks, (!moov_first).then_some(FTYP_BYTES + 8));
    let total: u64 = tracks.iter().flat_map(TrackParts::chunk_sizes).sum();
    let mut value = 0u64;
    let media: Vec<u8> = std::iter::repeat_with(|| {
        value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (value >> 56) as u8
    })
    .take(total as usize)
    .collect();
    let mdat = boxed(b"mdat", &media);
    let file = match moov_first {
        true => [front, mdat].concat(),
        false => [&front[..FTYP_BYTES as usize], &mdat, &front[FTYP_BYTES as usize..]].concat(),
    };
    let of_track = |(track, offsets): (&TrackParts, &Vec<u64>)| {
        let chunks = offsets.iter().zip(track.chunk_sizes());
        chunks.flat_map(|(at, size)| file[*at as usize..][..size as usize].to_vec()).collect()
    };
    let samples = tracks.iter().zip(&offsets).map(of_track).collect();
    (file, samples)
}
