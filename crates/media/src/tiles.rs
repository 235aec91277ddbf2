//! Thumbnails: images of tiles beside the tracks, for seek previews.
//!
//! A set of images is stated by file names alone: `NAME.COLUMNSxROWS.SECONDSs.NUMBER.jpg`, such as
//! `thumbs.5x4.10s.001.jpg` for the first 20 thumbnails, one every 10 s. Numbers begin at 1 and
//! have no gaps. All images of a set have the same size; the last may have unused tiles.

/// Maximum columns or rows of an image.
const TILES_MAX: u32 = 100;
/// Maximum time of one thumbnail, in seconds.
const SECONDS_MAX: u32 = 3600;
/// Maximum bytes of an image that are read to find its size.
pub const HEAD_BYTES_MAX: u64 = 64 << 10;

/// A set of images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tiles {
    /// Path segment of URLs and `Representation@id`; contains only unreserved characters.
    pub name: String,
    /// Path segment in the images' URLs. It changes with the content of any image.
    pub version: String,
    /// Layout and timing.
    pub layout: Layout,
    /// Format of the images.
    pub format: Format,
    /// Width and height of an image in pixels.
    pub size: (u32, u32),
    /// Number of images.
    pub count: u32,
    /// Size of the largest image in bytes.
    pub bytes_max: u64,
}

/// Layout and timing of the images of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Layout {
    /// Thumbnails in a row.
    pub columns: u32,
    /// Rows in an image.
    pub rows: u32,
    /// Time for which a thumbnail stands, in seconds.
    pub seconds: u32,
}

/// Format of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// JPEG.
    Jpeg,
    /// PNG.
    Png,
}

/// A file name of an image, in the order of the images of a set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TileName {
    /// The key up to the layout.
    pub set: String,
    /// Layout and timing.
    pub layout: Layout,
    /// Format.
    pub format: Format,
    /// Number of the image, from 1.
    pub number: u32,
}

impl Format {
    /// Returns the extension of files and URLs.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Format::Jpeg => "jpg",
            Format::Png => "png",
        }
    }

    /// Returns the media type.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Format::Jpeg => "image/jpeg",
            Format::Png => "image/png",
        }
    }
}

impl Layout {
    /// Returns the time that an image covers, in seconds.
    #[must_use]
    pub fn image_seconds(self) -> u32 {
        self.columns * self.rows * self.seconds
    }
}

impl Tiles {
    /// Returns the size of one thumbnail in pixels.
    #[must_use]
    pub fn thumbnail(&self) -> (u32, u32) {
        (self.size.0 / self.layout.columns, self.size.1 / self.layout.rows)
    }

    /// Returns the largest bitrate, in bits per second.
    #[must_use]
    pub fn bandwidth(&self) -> u64 {
        (self.bytes_max * 8).div_ceil(u64::from(self.layout.image_seconds())).max(1)
    }

    /// Returns the duration of each image within a presentation, in microseconds. Images past its
    /// end are left out.
    pub(crate) fn durations_us(&self, presentation_us: u64) -> impl Iterator<Item = u64> {
        let image_us = u64::from(self.layout.image_seconds()) * 1_000_000;
        let starts = (0..u64::from(self.count)).map(move |i| i * image_us);
        starts
            .take_while(move |start| *start < presentation_us)
            .map(move |start| image_us.min(presentation_us - start))
    }
}

/// Parses a key; returns `None` if it does not name an image of tiles.
#[must_use]
pub fn parse_name(key: &str) -> Option<TileName> {
    let mut parts = key.rsplitn(5, '.');
    let extension = parts.next()?;
    let format = [Format::Jpeg, Format::Png]
        .into_iter()
        .find(|format| extension.eq_ignore_ascii_case(format.extension()))?;
    let number = parts.next().and_then(digits).filter(|number| *number > 0)?;
    let seconds =
        parts.next()?.strip_suffix('s').and_then(digits).filter(|s| (1..=SECONDS_MAX).contains(s))?;
    let (columns, rows) = parts.next()?.split_once('x')?;
    let tiles = |text| digits(text).filter(|count| (1..=TILES_MAX).contains(count));
    let layout = Layout { columns: tiles(columns)?, rows: tiles(rows)?, seconds };
    let set = parts.next().filter(|set| !set.is_empty() && !set.ends_with('/'))?.to_owned();
    Some(TileName { set, layout, format, number })
}

fn digits(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Returns the width and height of an image from its first bytes: PNG's IHDR, or JPEG's frame
/// header (ITU-T T.81 §B.2.2).
#[must_use]
pub fn image_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let word = |at: usize| Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    let half = |at: usize| Some(u32::from(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?)));
    let size = if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        (word(16)?, word(20)?)
    } else {
        let mut at = bytes.starts_with(b"\xff\xd8").then_some(2)?;
        loop {
            let [0xff, marker] = *bytes.get(at..)?.first_chunk()? else { return None };
            match marker {
                // SOF0 to SOF15, except DHT, JPG and DAC.
                0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => break (half(at + 7)?, half(at + 5)?),
                0xff => at += 1,
                _ => at += 2 + usize::try_from(half(at + 2)?.max(2)).ok()?,
            }
        }
    };
    (size.0 > 0 && size.1 > 0).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_state_layout_and_order() {
        let of = |key: &str| parse_name(key).map(|n| (n.set, n.layout.image_seconds(), n.number));
        assert_eq!(of("a/thumbs.5x4.10s.001.jpg"), Some((String::from("a/thumbs"), 200, 1)));
        assert_eq!(of("a/t.big.1x1.1s.12.PNG"), Some((String::from("a/t.big"), 1, 12)));
        let none = [
            "a/poster.jpg",
            "a/t.5x4.10s.000.jpg",
            "a/t.0x4.10s.1.jpg",
            "a/t.5x101.10s.1.jpg",
            "a/t.5x4.0s.1.jpg",
            "a/t.5x4.10.1.jpg",
            "a/.5x4.10s.1.jpg",
            "a/t.5x4.10s.1.gif",
            "a/t.5x4.10s.99999999999.jpg",
        ];
        assert_eq!(none.map(of), [const { None }; 9]);
    }

    #[test]
    fn size_is_read_from_png_and_jpeg() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x03\x20\0\0\x01\x68";
        assert_eq!(image_size(png), Some((800, 360)));
        let jpeg = b"\xff\xd8\xff\xe0\0\x04ab\xff\xc4\0\x02\xff\xff\xc2\0\x11\x08\x01\x68\x03\x20";
        assert_eq!(image_size(jpeg), Some((800, 360)));
        for end in 0..jpeg.len() {
            assert_eq!(image_size(&jpeg[..end]), None);
        }
        assert_eq!(image_size(b"GIF89a"), None);
    }

    #[test]
    fn images_past_the_end_are_left_out() {
        let layout = Layout { columns: 5, rows: 2, seconds: 1 };
        let (name, version, format) = (String::from("t"), String::from("v"), Format::Jpeg);
        let tiles = Tiles { name, version, layout, format, size: (500, 100), count: 3, bytes_max: 1001 };
        let of = |us| tiles.durations_us(us).collect::<Vec<_>>();
        assert_eq!(of(25_000_000), [10_000_000, 10_000_000, 5_000_000]);
        assert_eq!(of(99_000_000), [10_000_000; 3]);
        assert_eq!(of(10_000_000), [10_000_000]);
        assert_eq!((tiles.thumbnail(), tiles.bandwidth()), ((100, 50), 801));
    }
}
