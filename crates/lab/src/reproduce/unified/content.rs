//! The film: a ladder of CMAF tracks, made by ffmpeg from a short clip that is repeated without
//! encoding it again.
//!
//! Pictures are small, because nobody decodes them; the encoder pads each track to its bit rate.
//! Each fragment lasts 2 s, starts with a key frame, and is listed in the track's `sidx`, so that
//! the origin indexes a track with few reads.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};

/// Duration of the clip. 73 times this is the published film's duration of 4,891 s.
pub const CLIP: Duration = Duration::from_secs(67);
/// Duration of a fragment and of a segment; the last one is shorter.
pub const FRAGMENT: Duration = Duration::from_secs(2);
/// Bit rates of the video tracks, in kbit/s.
pub const LADDER_KBIT: [u64; 4] = [400, 900, 1_800, 3_600];
const AUDIO_NAME: &str = "audio.mp4";
/// Published frames per second.
const FPS: u64 = 24;
/// ffmpeg's arguments for fragments. Every second starts with a key frame.
const FRAGMENTS: [&str; 4] =
    ["-movflags", "delay_moov+default_base_moof+global_sidx", "-frag_duration", "2000000"];
/// Length of a box header, and of one with a 64-bit size (ISO/IEC 14496-12 §4.2).
const HEADER_BYTES: usize = 8;
const LARGE_HEADER_BYTES: usize = 16;
/// Maximum boxes at the top level of a track: two for each fragment of three hours.
const BOXES_MAX: usize = 12_000;

/// The film's files.
#[derive(Debug, Clone)]
pub struct Film {
    /// Directory of the tracks.
    pub directory: PathBuf,
    /// Duration.
    pub duration: Duration,
}

/// A range of bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Position of the first byte.
    pub first: u64,
    /// Position of the last byte.
    pub last: u64,
}

impl Film {
    /// Makes a film of this duration in `cache`, unless it exists.
    ///
    /// # Errors
    ///
    /// Returns an error if ffmpeg is missing or fails, or if a file cannot be written.
    pub fn make(cache: &Path, duration: Duration) -> anyhow::Result<Self> {
        let directory = cache.join(format!("film-{}s", duration.as_secs()));
        let film = Self { directory: directory.clone(), duration };
        if directory.is_dir() {
            return Ok(film);
        }
        // Renaming the directory at the end makes the film complete or absent.
        let unfinished = directory.with_extension("part");
        fs::create_dir_all(&unfinished).with_context(|| unfinished.display().to_string())?;
        for track in LADDER_KBIT.into_iter().map(video).chain([audio()]) {
            make_track(&unfinished, &track, duration)?;
        }
        fs::rename(&unfinished, &directory).with_context(|| directory.display().to_string())?;
        Ok(film)
    }

    /// Returns the files of all tracks.
    pub fn files(&self) -> Vec<PathBuf> {
        let video = LADDER_KBIT.into_iter().map(video_name);
        video.chain([AUDIO_NAME.to_owned()]).map(|name| self.directory.join(name)).collect()
    }

    /// Returns the byte ranges of the fragments of a video track, an index into [`LADDER_KBIT`].
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or does not have all fragments.
    pub fn fragments(&self, track: usize) -> anyhow::Result<Vec<Range>> {
        let file = self.directory.join(video_name(LADDER_KBIT[track]));
        let fragments = fragments(&file).with_context(|| file.display().to_string())?;
        let (found, expected) =
            (fragments.len() as u64, self.duration.as_secs().div_ceil(FRAGMENT.as_secs()));
        ensure!(
            found == expected,
            "{}: {found} fragments instead of {expected}: remove the directory and run again",
            file.display()
        );
        Ok(fragments)
    }
}

/// Returns the name of a video track's file.
pub fn video_name(kbit: u64) -> String {
    format!("video-{kbit}k.mp4")
}

/// A track to make.
struct Track {
    name: String,
    /// ffmpeg's arguments for the clip.
    clip: String,
}

fn video(kbit: u64) -> Track {
    // The bit rate is exact: the encoder adds filler where a picture needs less.
    let clip = format!(
        "-f lavfi -i testsrc2=s=256x144:r={FPS} -c:v libx264 -preset ultrafast -threads 1 -pix_fmt yuv420p -g {FPS} -keyint_min {FPS} \
         -sc_threshold 0 -b:v {kbit}k -minrate {kbit}k -maxrate {kbit}k -bufsize {kbit}k -x264-params nal-hrd=cbr:filler=1:bframes=0"
    );
    Track { name: video_name(kbit), clip }
}

fn audio() -> Track {
    Track {
        name: AUDIO_NAME.to_owned(),
        clip: "-f lavfi -i sine=440:r=48000 -ac 2 -c:a aac -b:a 128k".to_owned(),
    }
}

/// Encodes a clip and repeats it up to `duration`.
fn make_track(directory: &Path, track: &Track, duration: Duration) -> anyhow::Result<()> {
    let Track { name, clip } = track;
    let clip_file = directory.join(format!("clip-{name}"));
    let encoded = ffmpeg(|command| {
        command.args(clip.split_whitespace()).args(["-t", &CLIP.as_secs().to_string()]).arg(&clip_file);
    });
    encoded.with_context(|| format!("cannot encode {name}"))?;
    let repeats = (duration.as_secs() / CLIP.as_secs()).saturating_sub(1).to_string();
    let repeated = ffmpeg(|command| {
        command.args(["-stream_loop", &repeats, "-i"]).arg(&clip_file).args(["-c", "copy", "-t"]);
        command.arg(duration.as_secs().to_string()).args(FRAGMENTS);
        command.args(["-f", "mp4"]).arg(directory.join(name));
    });
    repeated.with_context(|| format!("cannot repeat {name}"))?;
    fs::remove_file(&clip_file).with_context(|| clip_file.display().to_string())
}

fn ffmpeg(arguments: impl FnOnce(&mut Command)) -> anyhow::Result<()> {
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-nostdin", "-y"]).stdin(Stdio::null());
    arguments(&mut command);
    let output = command.output().context("`ffmpeg` not found, needed to make the film: install ffmpeg")?;
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ffmpeg failed: {}", message.lines().last().unwrap_or("no output"));
    Ok(())
}

/// Returns the ranges of a file's fragments: each from a `moof` box to the end of its `mdat`.
fn fragments(path: &Path) -> anyhow::Result<Vec<Range>> {
    let mut file = fs::File::open(path)?;
    let end = file.metadata()?.len();
    let (mut at, mut fragments, mut moof_at) = (0, Vec::new(), None);
    for _ in 0..BOXES_MAX {
        if at >= end {
            return Ok(fragments);
        }
        let mut header = [0; LARGE_HEADER_BYTES];
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut header[..HEADER_BYTES])?;
        let [a, b, c, d, name @ ..]: [u8; HEADER_BYTES] =
            header[..HEADER_BYTES].try_into().expect("eight bytes");
        let mut bytes = u64::from(u32::from_be_bytes([a, b, c, d]));
        if bytes == 1 {
            file.read_exact(&mut header[HEADER_BYTES..])?;
            bytes = u64::from_be_bytes(header[HEADER_BYTES..].try_into().expect("eight bytes"));
        }
        ensure!(bytes >= HEADER_BYTES as u64 && at + bytes <= end, "offset {at}: damaged box");
        match &name {
            b"moof" => moof_at = Some(at),
            b"mdat" => {
                let first = moof_at.take().with_context(|| format!("offset {at}: mdat without moof"))?;
                fragments.push(Range { first, last: at + bytes - 1 });
            }
            _ => {}
        }
        at += bytes;
    }
    anyhow::bail!("more than {BOXES_MAX} boxes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn film_has_all_fragments_and_its_bit_rate() {
        let cache = std::env::temp_dir().join(format!("thalweg-lab-film-{}", std::process::id()));
        let film = Film::make(&cache, CLIP * 2).unwrap();
        for (track, kbit) in LADDER_KBIT.into_iter().enumerate() {
            let fragments = film.fragments(track).unwrap();
            let bytes: u64 = fragments.iter().map(|range| range.last + 1 - range.first).sum();
            let found_kbit = bytes as f64 * 8e-3 / film.duration.as_secs_f64();
            assert!((found_kbit / kbit as f64 - 1.0).abs() < 0.05, "{found_kbit} instead of {kbit} kbit/s");
            assert!(fragments.windows(2).all(|pair| pair[0].last + 1 == pair[1].first));
        }
        assert!(film.files().iter().all(|file| file.is_file()));
        fs::remove_dir_all(&cache).unwrap();
    }
}
