//! Parser test fixtures: media created by ffmpeg, files built box by box, and drivers that check
//! the indexer's and the scanner's invariants.

#![allow(clippy::unwrap_used, reason = "tests may panic")]
#![allow(dead_code, reason = "each test binary uses only some fixtures")]

pub(crate) mod build;
pub(crate) mod movie;

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use thalweg_media::chunk::{ChunkScanner, Event};
use thalweg_media::error::{Error, Fault};
use thalweg_media::fourcc::FourCc;
use thalweg_media::index::{IndexOptions, Indexer, Step, Want};
use thalweg_media::progressive::{Movie, MovieTrack};
use thalweg_media::track::{TrackIndex, TrackInfo};

/// ffmpeg arguments for five seconds of video with a sync sample every two seconds.
pub(crate) const VIDEO: &str = "-f lavfi -i testsrc2=size=128x72:rate=25 -t 5 -c:v libx264 -preset ultrafast -g 50 \
                         -keyint_min 50 -sc_threshold 0 -pix_fmt yuv420p";
/// Like [`VIDEO`], but with frames whose presentation order differs from their decoding order.
pub(crate) const VIDEO_B: &str = "-f lavfi -i testsrc2=size=128x72:rate=25 -t 5 -c:v libx264 -preset veryfast -bf 3 \
                           -g 50 -keyint_min 50 -sc_threshold 0 -pix_fmt yuv420p";
/// ffmpeg arguments for five seconds of a tone.
pub(crate) const AUDIO: &str = "-f lavfi -i sine=440:sample_rate=48000 -t 5 -c:a aac -b:a 64k";

/// Returns a new path under the target directory.
pub(crate) fn temporary(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let unique = format!("{}-{}-{name}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(unique)
}

/// Runs ffmpeg with space-separated arguments and returns the MP4 file.
pub(crate) fn ffmpeg(args: &str) -> Vec<u8> {
    let path = temporary("media.mp4");
    let run = Command::new("ffmpeg")
        .args(["-v", "error", "-nostdin", "-y"])
        .args(args.split_whitespace())
        .args(["-f", "mp4"])
        .arg(&path)
        .output()
        .expect("ffmpeg must be installed");
    assert!(run.status.success(), "ffmpeg {args}: {}", String::from_utf8_lossy(&run.stderr));
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    bytes
}

/// A sample as reported by ffprobe.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    pub(crate) pts: i64,
    pub(crate) duration: i64,
    pub(crate) pos: u64,
    pub(crate) key: bool,
}

/// Returns the samples of a file according to ffprobe, independently of this crate.
pub(crate) fn ffprobe(file: &[u8]) -> Vec<Packet> {
    let mut packets: Vec<Packet> = ffprobe_lines(file).lines().map(packet).collect();
    // ffprobe 5.1 does not report the duration of the first AAC frame.
    if let [first, second, ..] = &mut packets[..]
        && first.duration == 0
    {
        first.duration = second.duration;
    }
    packets
}

/// Returns the number of frames that ffprobe can decode from a file.
pub(crate) fn ffprobe_frames(file: &[u8]) -> usize {
    let args = ["-count_frames", "-show_entries", "stream=nb_read_frames", "-of", "csv=p=0"];
    probe(file, &args).trim().parse().unwrap_or(0)
}

/// Returns one line for each packet of a stream such as `v:0`: times in seconds, size, flags, and a
/// hash of the data. The flag D is left out: ffprobe 5.1 sets it on the packets before the start of
/// the edit list, but only in progressive files.
pub(crate) fn packets(file: &[u8], stream: &str) -> Vec<String> {
    let args = ["-select_streams", stream, "-show_packets", "-show_data_hash", "md5", "-of", "compact=p=0"];
    let wanted = ["pts_time=", "dts_time=", "size=", "flags=", "data_hash="];
    let mut lines = Vec::new();
    for field in probe(file, &args).split(['|', '\n']) {
        // The fields of a packet with side data are on two lines.
        if field.starts_with("codec_type=") {
            lines.push(String::new());
        }
        if let (Some(line), true) = (lines.last_mut(), wanted.iter().any(|name| field.starts_with(name))) {
            *line += &field.replace("KD", "K_");
            *line += " ";
        }
    }
    lines
}

fn ffprobe_lines(file: &[u8]) -> String {
    let entries = "packet=pts,duration,pos,flags";
    probe(file, &["-ignore_editlist", "1", "-show_entries", entries, "-of", "compact=p=0"])
}

fn probe(file: &[u8], args: &[&str]) -> String {
    let path = temporary("probed.mp4");
    std::fs::write(&path, file).unwrap();
    let run = Command::new("ffprobe").args(["-v", "error"]).args(args).arg(&path).output();
    let run = run.expect("ffprobe must be installed");
    std::fs::remove_file(&path).unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).unwrap()
}

fn packet(line: &str) -> Packet {
    let field = |name: &str| {
        let start = line.split('|').find_map(|f| f.strip_prefix(name)?.strip_prefix('='));
        start.unwrap_or_else(|| panic!("no {name} in {line}"))
    };
    Packet {
        pts: field("pts").parse().unwrap(),
        duration: field("duration").parse().unwrap_or(0),
        pos: field("pos").parse().unwrap(),
        key: field("flags").starts_with('K'),
    }
}

/// An index, and the reads required to build it.
#[derive(Debug)]
pub(crate) struct Indexed {
    pub(crate) index: TrackIndex,
    pub(crate) wants: Vec<Want>,
}

/// Indexes a file in memory with 2 s segments.
pub(crate) fn index(file: &[u8]) -> Result<Indexed, Error> {
    index_of(file, file.len() as u64, 2000)
}

/// Indexes a file declared to have `file_size` bytes, as [`run_indexer`]. A progressive file is an
/// error.
pub(crate) fn index_of(file: &[u8], file_size: u64, segment_target_ms: u32) -> Result<Indexed, Error> {
    match run_indexer(file, file_size, segment_target_ms)? {
        (Step::Done(index), wants) => Ok(Indexed { index, wants }),
        _ => Err(Error { offset: 0, kind: FourCc::MOOV, fault: Fault::Progressive }),
    }
}

/// Indexes a progressive file; also returns the reads.
pub(crate) fn movie(file: &[u8]) -> Result<(Arc<Movie>, Vec<Want>), Error> {
    match run_indexer(file, file.len() as u64, 2000)? {
        (Step::Movie(movie), wants) => Ok((movie, wants)),
        (other, _) => panic!("not progressive: {other:?}"),
    }
}

/// Runs the indexer on a file declared to have `file_size` bytes. Checks that every request lies
/// within the file and that the number of requests is bounded.
pub(crate) fn run_indexer(
    file: &[u8],
    file_size: u64,
    segment_target_ms: u32,
) -> Result<(Step, Vec<Want>), Error> {
    let mut indexer = Indexer::new(file_size, IndexOptions { segment_target_ms });
    let mut wants = Vec::new();
    loop {
        match indexer.step()? {
            done @ (Step::Done(_) | Step::Movie(_)) => return Ok((done, wants)),
            Step::Want(want) => {
                assert!(want.len > 0 && want.offset + want.len <= file_size, "{want:?} of {file_size}");
                assert_eq!(indexer.step(), Ok(Step::Want(want)), "a step without bytes must change nothing");
                wants.push(want);
                // Allows two reads per 8-byte box, the smallest possible, and twice as many in case
                // a sidx is abandoned.
                assert!(wants.len() as u64 <= 16 + file_size / 2, "the indexer must not loop");
                let start = usize::try_from(want.offset).unwrap().min(file.len());
                let end = usize::try_from(want.offset + want.len).unwrap().min(file.len());
                indexer.feed(&file[start..end]);
            }
        }
    }
}

/// Returns the CMAF file of a movie's track. Checks that each segment has the size in the index,
/// and that its media lies within `file`.
pub(crate) fn cmaf_file(file: &[u8], track: &MovieTrack) -> Vec<u8> {
    let mut cmaf = track.header().to_vec();
    assert_eq!(cmaf.len() as u64, track.index.header_size);
    for segment in &track.index.segments {
        assert_eq!(cmaf.len() as u64, segment.offset);
        let parts = track.segment(segment).unwrap();
        cmaf.extend(parts.head);
        for range in parts.data {
            cmaf.extend(&file[range.start as usize..range.end as usize]);
        }
        assert_eq!(cmaf.len() as u64, segment.offset + segment.size);
    }
    cmaf
}

/// Scans a stream pushed in pieces that end at `cuts`; returns the events and the final result.
pub(crate) fn scan(
    stream: &[u8],
    info: Option<&TrackInfo>,
    cuts: &[usize],
) -> (Vec<Event>, Result<(), Error>) {
    let mut scanner = info.map_or_else(ChunkScanner::new, ChunkScanner::with_header);
    let mut events = Vec::new();
    let mut from = 0;
    for to in cuts.iter().copied().chain([stream.len()]) {
        let to = to.clamp(from, stream.len());
        scanner.push(&stream[from..to]);
        from = to;
        loop {
            match scanner.next_event() {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(scanner.next_event(), Err(error.clone()), "the scanner must repeat the fault");
                    assert_eq!(scanner.finish(), Err(error), "`finish` must repeat the fault");
                    break;
                }
            }
        }
    }
    (events, scanner.finish())
}
