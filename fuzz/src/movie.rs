//! Progressive MP4 target: whatever the moov says, segments have their stated sizes, their media
//! lies within the file, and reads yield exactly that media.

use std::sync::Arc;

use thalweg_media::boxes::Boxes;
use thalweg_media::fragment::Fragment;
use thalweg_media::index::{IndexOptions, Indexer, Step};
use thalweg_media::progressive::reads::{READ_BYTES_MAX, reads};
use thalweg_media::progressive::{Movie, MovieTrack};

/// Bytes after the input that the file claims to have, so that a short input can describe media.
const MEDIA_BYTES: u64 = 1 << 20;
/// Maximum segments of a track to check; tables of a few bytes can describe millions.
const CHECKED_MAX: usize = 16;

/// Indexes `input` as a file, followed by media, and checks its tracks.
pub(crate) fn run(input: &[u8]) {
    let Some(movie) = index(input) else { return };
    assert!(!movie.tracks.is_empty() || !movie.faults.is_empty());
    movie.tracks.iter().for_each(|track| check(track, input.len() as u64 + MEDIA_BYTES));
}

/// Returns the index of a progressive file.
fn index(input: &[u8]) -> Option<Arc<Movie>> {
    let file_size = input.len() as u64 + MEDIA_BYTES;
    let mut indexer = Indexer::new(file_size, IndexOptions::default());
    loop {
        match indexer.step() {
            Ok(Step::Want(want)) => indexer.feed(&bytes(input, want.offset, want.len)),
            Ok(Step::Movie(movie)) => return Some(movie),
            Ok(Step::Done(_)) | Err(_) => return None,
        }
    }
}

/// Returns bytes of the file; its media is 0.
fn bytes(input: &[u8], offset: u64, len: u64) -> Vec<u8> {
    let byte = |at: u64| usize::try_from(at).ok().and_then(|at| input.get(at)).copied().unwrap_or(0);
    (offset..offset + len).map(byte).collect()
}

fn check(track: &MovieTrack, file_size: u64) {
    let mut end = track.header().len() as u64;
    for (number, segment) in track.index.segments.iter().enumerate() {
        assert_eq!(segment.offset, end);
        end += segment.size;
        if number >= CHECKED_MAX {
            continue;
        }
        let parts = track.segment(segment).expect("an indexed segment must exist");
        assert!(parts.data.iter().all(|range| range.start < range.end && range.end <= file_size));
        let data: u64 = parts.data.iter().map(|range| range.end - range.start).sum();
        assert_eq!(segment.size, parts.head.len() as u64 + data);
        let moof = Boxes::new(&parts.head, 0).next().expect("a segment begins with a moof");
        let moof = moof.expect("a built moof must parse");
        let fragment = Fragment::parse(moof.bytes, 0, &track.index.info).expect("a built moof must parse");
        assert_eq!((fragment.data_size, fragment.presentation_time), (data, segment.time));
        let mut read = 0;
        for part in reads(parts.data, 0..data) {
            assert!((1..=READ_BYTES_MAX).contains(&part.len) && part.offset + part.len <= file_size);
            read += part.pieces.iter().map(|piece| piece.end - piece.start).sum::<usize>() as u64;
        }
        assert_eq!(read, data);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn corpus_movies_are_sound() {
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/movie");
        for entry in std::fs::read_dir(corpus).expect("corpus directory must be readable") {
            let path = entry.expect("corpus directory must be readable").path();
            let input = std::fs::read(&path).expect("corpus file must be readable");
            let movie = super::index(&input).expect("corpus file must be a movie");
            assert_eq!(movie.faults, [], "{}", path.display());
        }
    }
}
