//! Four-character codes: the names of boxes, brands, handlers and sample entries
//! (ISO/IEC 14496-12 §4.2).

use std::fmt;

/// A four-character code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FourCc(pub [u8; 4]);

/// Declares the named codes.
macro_rules! known {
    ($($name:ident = $code:literal, $doc:literal;)*) => {
        impl FourCc {
            $(#[doc = $doc] pub const $name: FourCc = FourCc(*$code);)*
        }
    };
}

known! {
    FTYP = b"ftyp", "File type and brands, §4.3.";
    STYP = b"styp", "Segment type and brands, §8.16.2.";
    MOOV = b"moov", "Movie, §8.2.1.";
    MVHD = b"mvhd", "Movie header, §8.2.2.";
    TRAK = b"trak", "Track, §8.3.1.";
    TKHD = b"tkhd", "Track header, §8.3.2.";
    EDTS = b"edts", "Edits, §8.6.5.";
    ELST = b"elst", "Edit list, §8.6.6.";
    MDIA = b"mdia", "Media, §8.4.1.";
    MDHD = b"mdhd", "Media header, §8.4.2.";
    ELNG = b"elng", "Extended language, §8.4.6.";
    HDLR = b"hdlr", "Handler, §8.4.3.";
    MINF = b"minf", "Media information, §8.4.4.";
    STBL = b"stbl", "Sample table, §8.5.1.";
    STSD = b"stsd", "Sample descriptions, §8.5.2.";
    DINF = b"dinf", "Data information, §8.7.1.";
    DREF = b"dref", "Data references, §8.7.2.";
    STTS = b"stts", "Decoding times, §8.6.1.2.";
    CTTS = b"ctts", "Composition offsets, §8.6.1.3.";
    STSS = b"stss", "Sync samples, §8.6.2.";
    SDTP = b"sdtp", "Dependencies of samples, §8.6.4.";
    STSZ = b"stsz", "Sample sizes, §8.7.3.2.";
    STZ2 = b"stz2", "Compact sample sizes, §8.7.3.3.";
    STSC = b"stsc", "Samples per chunk, §8.7.4.";
    STCO = b"stco", "Chunk offsets, §8.7.5.";
    CO64 = b"co64", "Chunk offsets of 64 bits, §8.7.5.";
    MVEX = b"mvex", "Movie extends: the file is fragmented, §8.8.1.";
    TREX = b"trex", "Track extends: default sample values, §8.8.3.";
    MOOF = b"moof", "Movie fragment, §8.8.4.";
    MFHD = b"mfhd", "Movie fragment header, §8.8.5.";
    TRAF = b"traf", "Track fragment, §8.8.6.";
    TFHD = b"tfhd", "Track fragment header, §8.8.7.";
    TFDT = b"tfdt", "Track fragment decode time, §8.8.12.";
    TRUN = b"trun", "Track run, §8.8.8.";
    MDAT = b"mdat", "Media data, §8.1.1.";
    SIDX = b"sidx", "Segment index, §8.16.3.";
    SSIX = b"ssix", "Subsegment index, §8.16.4.";
    PRFT = b"prft", "Producer reference time, §8.16.5.";
    EMSG = b"emsg", "Event message, ISO/IEC 23009-1 §5.10.3.3.";
    MFRA = b"mfra", "Movie fragment random access, §8.8.9.";
    FREE = b"free", "Free space, §8.1.2.";
    SKIP = b"skip", "Free space, §8.1.2.";
    WIDE = b"wide", "Room for a 64-bit size, QuickTime.";
    META = b"meta", "Metadata, §8.11.1.";
    UDTA = b"udta", "User data, §8.10.1.";
    KIND = b"kind", "Track kind, §8.10.4.";
    PDIN = b"pdin", "Progressive download information, §8.1.3.";
    UUID = b"uuid", "A box named by a 16-byte UUID, §4.2.";
    LMSG = b"lmsg", "Brand of a track's last segment, ISO/IEC 23009-1 §6.3.3.";
    WEBVTT = b"vtt ", "Not a box: a WebVTT file, in errors.";
    VIDE = b"vide", "Handler of video tracks.";
    SOUN = b"soun", "Handler of audio tracks.";
    TEXT = b"text", "Handler of WebVTT tracks, ISO/IEC 14496-30.";
    SUBT = b"subt", "Handler of TTML tracks, ISO/IEC 14496-30.";
    SBTL = b"sbtl", "Handler of 3GPP timed text in QuickTime's form.";
    TX3G = b"tx3g", "Sample entry of 3GPP timed text, 3GPP TS 26.245.";
}

impl FourCc {
    /// Returns whether a file or an upload may begin with a box of this type. Input that begins
    /// with any other type is not MP4.
    #[must_use]
    pub fn can_begin(self) -> bool {
        let (known, media) = (
            [Self::FTYP, Self::STYP, Self::MOOV, Self::FREE, Self::SKIP, Self::WIDE],
            [Self::PRFT, Self::EMSG, Self::SIDX, Self::MOOF, Self::MDAT, Self::PDIN, Self::UUID, Self::META],
        );
        known.contains(&self) || media.contains(&self)
    }

    /// Returns whether the code could be a box type: four printable ASCII characters, like every
    /// registered code. QuickTime's `©` codes occur only in udta, which is never parsed.
    #[must_use]
    pub fn is_plausible(self) -> bool {
        self.0.iter().all(|b| (0x20..0x7f).contains(b))
    }
}

impl fmt::Display for FourCc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for FourCc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{self}'")
    }
}
