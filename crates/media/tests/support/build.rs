//! Builders that assemble files box by box, for layouts that ffmpeg does not produce.

/// Builds a box: size, type, body.
pub(crate) fn boxed(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(8 + body.len()).unwrap();
    [&size.to_be_bytes()[..], kind, body].concat()
}

/// Builds a full box.
pub(crate) fn full(kind: &[u8; 4], version: u8, flags: u32, body: &[u8]) -> Vec<u8> {
    let word = u32::from(version) << 24 | flags;
    boxed(kind, &[&word.to_be_bytes()[..], body].concat())
}

/// Concatenates 32-bit fields.
pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Parts of a header.
#[derive(Debug, Clone)]
pub(crate) struct HeaderParts {
    pub(crate) handler: [u8; 4],
    pub(crate) timescale: u32,
    pub(crate) sample_entry: Vec<u8>,
    pub(crate) language: u16,
    pub(crate) tkhd_size: (u32, u32),
    /// Additional boxes: in trak after mdia, such as edts, and in mdia after hdlr, such as elng.
    pub(crate) in_trak: Vec<u8>,
    pub(crate) in_mdia: Vec<u8>,
    pub(crate) mvex: bool,
}

impl HeaderParts {
    /// Returns a header for H.264 High, level 3.1, 640×360.
    pub(crate) fn video(timescale: u32) -> Self {
        let avcc = boxed(b"avcC", &[1, 0x64, 0, 0x1f, 0xff, 0xe0, 0]);
        Self {
            handler: *b"vide",
            timescale,
            sample_entry: visual(b"avc1", (640, 360), &avcc),
            language: 0x55c4,
            tkhd_size: (640, 360),
            in_trak: Vec::new(),
            in_mdia: Vec::new(),
            mvex: true,
        }
    }

    /// Returns a header for AC-3, stereo, 48 kHz.
    pub(crate) fn audio(timescale: u32) -> Self {
        let entry = sound(b"ac-3", 2, 48_000, &boxed(b"dac3", &[0x10, 0x11, 0x40]));
        Self { handler: *b"soun", sample_entry: entry, tkhd_size: (0, 0), ..Self::video(timescale) }
    }

    /// Builds ftyp and moov.
    pub(crate) fn build(&self) -> Vec<u8> {
        let mdhd = full(b"mdhd", 0, 0, &[words(&[0, 0, self.timescale, 0]), pair(self.language)].concat());
        let hdlr = full(b"hdlr", 0, 0, &[&[0; 4][..], &self.handler, &[0; 13]].concat());
        let stsd = full(b"stsd", 0, 0, &[words(&[1]), self.sample_entry.clone()].concat());
        let minf = boxed(b"minf", &boxed(b"stbl", &stsd));
        let mdia = boxed(b"mdia", &[mdhd, hdlr, self.in_mdia.clone(), minf].concat());
        let matrix = words(&[0x1_0000, 0, 0, 0, 0x1_0000, 0, 0, 0, 0x4000_0000]);
        let (width, height) = self.tkhd_size;
        let tkhd =
            [words(&[0, 0, 1, 0, 0, 0, 0, 0, 0]), matrix, words(&[width << 16, height << 16])].concat();
        let trak = boxed(b"trak", &[full(b"tkhd", 0, 7, &tkhd), mdia, self.in_trak.clone()].concat());
        let mvhd = full(b"mvhd", 0, 0, &[words(&[0, 0, 1000, 0]), vec![0; 80]].concat());
        let mvex = boxed(b"mvex", &full(b"trex", 0, 0, &words(&[1, 1, 0, 0, 0])));
        let mvex = if self.mvex { mvex } else { Vec::new() };
        let ftyp = boxed(b"ftyp", b"cmf2\0\0\0\0cmf2iso6");
        [ftyp, boxed(b"moov", &[mvhd, trak, mvex].concat())].concat()
    }
}

fn pair(language: u16) -> Vec<u8> {
    [language.to_be_bytes(), [0; 2]].concat()
}

/// Builds a VisualSampleEntry.
pub(crate) fn visual(kind: &[u8; 4], (width, height): (u16, u16), boxes: &[u8]) -> Vec<u8> {
    let size = [width.to_be_bytes(), height.to_be_bytes()].concat();
    boxed(kind, &[&[0, 0, 0, 0, 0, 0, 0, 1][..], &[0; 16], &size, &[0; 50], boxes].concat())
}

/// Builds an AudioSampleEntry.
pub(crate) fn sound(kind: &[u8; 4], channels: u16, sample_rate: u32, boxes: &[u8]) -> Vec<u8> {
    let middle = [channels.to_be_bytes(), 16u16.to_be_bytes(), [0; 2], [0; 2]].concat();
    let rate = (sample_rate << 16).to_be_bytes();
    boxed(kind, &[&[0, 0, 0, 0, 0, 0, 0, 1][..], &[0; 8], &middle, &rate, boxes].concat())
}

/// A fragment whose samples all have the same duration and size.
#[derive(Debug, Clone)]
pub(crate) struct FragmentParts {
    pub(crate) sequence_number: u32,
    pub(crate) track_id: u32,
    pub(crate) decode_time: u64,
    pub(crate) samples: u32,
    pub(crate) sample_duration: u32,
    pub(crate) sample_size: u32,
    pub(crate) sync: bool,
    /// Composition offsets of the first samples.
    pub(crate) composition_offsets: Option<Vec<i32>>,
    /// Position of the moof in its file, for a tfhd with base_data_offset.
    pub(crate) base_data_offset: Option<u64>,
    /// Boxes between moof and mdat.
    pub(crate) between: Vec<u8>,
}

impl FragmentParts {
    /// Returns a fragment of ten samples, each `duration / 10` units long and 3 bytes in size. The
    /// first is a sync sample.
    pub(crate) fn new(decode_time: u64, duration: u32) -> Self {
        Self {
            sequence_number: 1,
            track_id: 1,
            decode_time,
            samples: 10,
            sample_duration: duration / 10,
            sample_size: 3,
            sync: true,
            composition_offsets: None,
            base_data_offset: None,
            between: Vec::new(),
        }
    }

    pub(crate) fn not_sync(self) -> Self {
        Self { sync: false, ..self }
    }

    pub(crate) fn moof(&self) -> Vec<u8> {
        // The data offset depends on the size of the moof that contains it.
        let moof_bytes = self.moof_with(0).len() + self.between.len() + 8;
        self.moof_with(i32::try_from(moof_bytes).unwrap())
    }

    fn moof_with(&self, data_offset: i32) -> Vec<u8> {
        let flags = if self.sync { 0x0200_0000 } else { 0x0101_0000 };
        let base = self.base_data_offset.map_or(Vec::new(), |base| base.to_be_bytes().to_vec());
        let tfhd_flags = 0x38 | if base.is_empty() { 0x2_0000 } else { 1 };
        let defaults = words(&[self.sample_duration, self.sample_size, 0x0101_0000]);
        let tfhd = full(b"tfhd", 0, tfhd_flags, &[words(&[self.track_id]), base, defaults].concat());
        let tfdt = full(b"tfdt", 1, 0, &self.decode_time.to_be_bytes());
        let mut run = words(&[self.samples, data_offset.cast_unsigned(), flags]);
        let mut run_flags = 0x5;
        if let Some(offsets) = &self.composition_offsets {
            run_flags |= 0x800;
            run.extend(offsets.iter().flat_map(|offset| offset.to_be_bytes()));
        }
        let traf = boxed(b"traf", &[tfhd, tfdt, full(b"trun", 1, run_flags, &run)].concat());
        boxed(b"moof", &[full(b"mfhd", 0, 0, &words(&[self.sequence_number])), traf].concat())
    }

    /// Builds moof and mdat.
    pub(crate) fn build(&self) -> Vec<u8> {
        let data = vec![0xda; (self.samples * self.sample_size) as usize];
        [self.moof(), self.between.clone(), boxed(b"mdat", &data)].concat()
    }
}

/// Builds a sidx of version 0 with these references: (size, duration, SAP word).
pub(crate) fn sidx(timescale: u32, references: &[(u32, u32, u32)]) -> Vec<u8> {
    let mut body = words(&[1, timescale, 0, 0]);
    body.extend([0, 0]);
    body.extend(u16::try_from(references.len()).unwrap().to_be_bytes());
    body.extend(references.iter().flat_map(|(size, duration, sap)| words(&[*size, *duration, *sap])));
    full(b"sidx", 0, 0, &body)
}
