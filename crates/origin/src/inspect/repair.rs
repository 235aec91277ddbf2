//! Commands that repair a fault. They write to the current directory; the operator then replaces
//! the file.

use std::path::Path;

use thalweg_media::error::Fault as MediaFault;
use thalweg_media::fourcc::FourCc;
use thalweg_media::presentation::Misaligned;
use thalweg_media::summary::Movie;

use crate::vod::Fault;

/// ffmpeg flags for a file with one track in fragments, as in docs/guides/deliver-files.md.
const FRAGMENTED: &str = "-f mp4 -movflags delay_moov+default_base_moof+frag_keyframe -frag_duration 500000";
/// ffmpeg flags for video with a key frame every two seconds.
const KEY_FRAMES: &str = "-c:v libx264 -pix_fmt yuv420p -force_key_frames 'expr:gte(t,n_forced*2)'";

/// Returns the commands that repair a fault, if there are any. `path` locates a file, and `movie`
/// is the moov of the fault's file.
pub(super) fn commands(
    fault: &Fault,
    path: impl Fn(&str) -> std::path::PathBuf,
    movie: Option<&Movie>,
) -> Vec<String> {
    match fault {
        Fault::Media { key, error } => media(&error.fault, &path(key), movie),
        Fault::Misaligned(misaligned) => self::misaligned(misaligned, path),
        _ => Vec::new(),
    }
}

fn media(fault: &MediaFault, path: &Path, movie: Option<&Movie>) -> Vec<String> {
    match fault {
        MediaFault::MissingHeader => {
            vec![format!("cat INIT.mp4 {} > {}", quoted(path), output(path, ".fixed"))]
        }
        MediaFault::Empty => {
            vec![format!("cat {} SEGMENT.m4s … > {}", quoted(path), output(path, ".fixed"))]
        }
        MediaFault::UnsupportedCodec(kind) if matches!(&kind.0, b"encv" | b"enca" | b"enct" | b"encs") => {
            Vec::new()
        }
        // The rest of the file must be copied again; what is there does not suffice.
        MediaFault::Truncated { .. } | MediaFault::MissingMoov => Vec::new(),
        MediaFault::UnsupportedCodec(_) | MediaFault::CodecConfiguration(_) => split(path, movie, true),
        _ => split(path, movie, false),
    }
}

/// Returns one command for each track of a file. Without a readable moov, assumes a single track.
fn split(path: &Path, movie: Option<&Movie>, is_encoded: bool) -> Vec<String> {
    let tracks = movie.map(|movie| &movie.tracks[..]).unwrap_or_default();
    let codec = |coded: &'static str| if is_encoded { coded } else { "-c copy" };
    let (mut video, mut audio, mut commands) = (0, 0, Vec::new());
    for track in tracks {
        let (map, codec, suffix) = match track.handler {
            FourCc::VIDE => {
                video += 1;
                (format!("0:v:{}", video - 1), codec(KEY_FRAMES), format!("-video{}", number(video)))
            }
            FourCc::SOUN => {
                audio += 1;
                (format!("0:a:{}", audio - 1), codec("-c:a aac"), format!("-audio{}", number(audio)))
            }
            _ => continue,
        };
        let suffix = if tracks.len() == 1 { String::from(".fixed") } else { suffix };
        commands.push(ffmpeg(path, &format!("-map {map} {codec}"), &suffix));
    }
    if commands.is_empty() {
        commands.push(ffmpeg(path, "-map 0:0 -c copy", ".fixed"));
    }
    commands
}

fn number(n: usize) -> String {
    if n == 1 { String::new() } else { format!("-{n}") }
}

fn misaligned(misaligned: &Misaligned, path: impl Fn(&str) -> std::path::PathBuf) -> Vec<String> {
    match misaligned {
        Misaligned::Boundary { first, second, .. } | Misaligned::Count { first, second, .. } => {
            [first, second].map(|file| encode(&path(file))).into()
        }
        Misaligned::End { first_us, second, second_us, .. } if second_us > first_us => {
            let seconds = *first_us as f64 / 1e6;
            vec![ffmpeg(&path(second), &format!("-t {seconds} -c copy"), ".fixed")]
        }
        Misaligned::NothingShown { file } => {
            let file = path(file);
            let input = format!("ffmpeg -ignore_editlist 1 -i {}", quoted(&file));
            vec![format!("{input} -map 0:0 -c copy {FRAGMENTED} {}", output(&file, ".fixed"))]
        }
        _ => Vec::new(),
    }
}

/// Returns the command that encodes a video file with a key frame every two seconds.
pub(super) fn encode(path: &Path) -> String {
    ffmpeg(path, KEY_FRAMES, ".fixed")
}

fn ffmpeg(path: &Path, options: &str, suffix: &str) -> String {
    format!("ffmpeg -i {} {options} {FRAGMENTED} {}", quoted(path), output(path, suffix))
}

/// Returns the name of the repaired file.
fn output(path: &Path, suffix: &str) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    quote(&format!("{stem}{suffix}.mp4"))
}

fn quoted(path: &Path) -> String {
    quote(&path.to_string_lossy())
}

/// Quotes a word for a POSIX shell. A leading `-` would be taken as an option.
fn quote(word: &str) -> String {
    let word = if word.starts_with('-') { format!("./{word}") } else { word.to_owned() };
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_media::error::Error;

    fn of(fault: MediaFault, movie: Option<&Movie>) -> Vec<String> {
        let error = Error { offset: 0, kind: FourCc::MOOV, fault };
        commands(&Fault::Media { key: String::from("film/it's.mp4"), error }, |key| key.into(), movie)
    }

    #[test]
    fn each_track_gets_a_file() {
        let track = |handler| thalweg_media::summary::Track {
            id: 1,
            handler,
            sample_entry: None,
            timescale: 1,
            duration: 0,
            edits: Vec::new(),
        };
        let tracks = [FourCc::VIDE, FourCc::SOUN, FourCc::SOUN].map(track).to_vec();
        let movie = Movie { timescale: 1, is_fragmented: false, tracks };
        let input = r"ffmpeg -i 'film/it'\''s.mp4' -map";
        let expected = [
            format!(r"{input} 0:v:0 -c copy {FRAGMENTED} 'it'\''s-video.mp4'"),
            format!(r"{input} 0:a:0 -c copy {FRAGMENTED} 'it'\''s-audio.mp4'"),
            format!(r"{input} 0:a:1 -c copy {FRAGMENTED} 'it'\''s-audio-2.mp4'"),
        ];
        assert_eq!(of(MediaFault::ManyTracks(3), Some(&movie)), expected);
        assert_eq!(
            of(MediaFault::UnsupportedCodec(FourCc(*b"mp4v")), Some(&movie))[0],
            format!(r"{input} 0:v:0 {KEY_FRAMES} {FRAGMENTED} 'it'\''s-video.mp4'")
        );
        let alone = [format!(r"{input} 0:0 -c copy {FRAGMENTED} 'it'\''s.fixed.mp4'")];
        assert_eq!(of(MediaFault::NotIsoBmff, None), alone);
        assert_eq!(of(MediaFault::UnsupportedCodec(FourCc(*b"encv")), None), [""; 0]);
        assert_eq!(of(MediaFault::Truncated { need: 8, left: 1 }, None), [""; 0]);
        assert_eq!(quote("-a"), "./-a");
    }
}
