//! Log file reader: prints the last lines, then new ones, across rotation and truncation.
//!
//! One inotify(7) watch on the directory reports writes to the file and the creation of a file with
//! the same name. A renamed file is read to its end before the new file is opened.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, bail};
use rustix::fs::inotify;

use super::printer::Printer;

/// Read size in bytes.
const READ_BYTES: usize = 64 << 10;

/// Maximum length of a line in bytes; a longer line cannot be a log record.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Size in bytes of the buffer for inotify events. An event takes 16 bytes, and up to 256 more for
/// the file name.
const EVENT_BYTES: usize = 4 << 10;

/// Prints the last `lines` lines, or all lines.
pub(super) fn print(
    path: &Path,
    lines: Option<usize>,
    printer: &mut Printer<impl io::Write>,
) -> anyhow::Result<()> {
    let mut tail = Tail::open(path, lines)?;
    tail.print_new(printer)?;
    if !tail.partial.is_empty() {
        printer.line(&String::from_utf8_lossy(&tail.partial))?;
    }
    Ok(printer.flush()?)
}

/// Prints the last `lines` lines, or all lines, and then new lines forever.
pub(super) fn follow(
    path: &Path,
    lines: Option<usize>,
    printer: &mut Printer<impl io::Write>,
) -> anyhow::Result<()> {
    let name = path.file_name().with_context(|| format!("{} does not name a file", path.display()))?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // Set up the watch before the first read, so that no write is missed.
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC).context("cannot start inotify")?;
    let wanted = inotify::WatchFlags::MODIFY | inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
    inotify::add_watch(&watch, directory, wanted)
        .with_context(|| format!("cannot watch {}", directory.display()))?;
    let mut tail = Tail::open(path, lines)?;
    let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
    let mut events = inotify::Reader::new(&watch, &mut buffer);
    loop {
        tail.print_new(printer)?;
        printer.flush()?;
        let replaced = loop {
            let event = events.next().context("cannot read inotify events")?;
            let ours = event.file_name().is_some_and(|found| found.to_bytes() == name.as_bytes());
            let overflowed = event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW);
            if ours || overflowed {
                break event.events().intersects(inotify::ReadFlags::CREATE | inotify::ReadFlags::MOVED_TO);
            }
        };
        if replaced {
            tail.print_new(printer)?;
            tail = Tail::open(path, None)?;
        }
    }
}

/// Open log file, read up to its current position.
struct Tail {
    file: File,
    /// Start of the last line, if that line is not yet complete.
    partial: Vec<u8>,
}

impl Tail {
    /// Opens the file and seeks to its last `lines` lines, if given, or else to its start.
    fn open(path: &Path, lines: Option<usize>) -> anyhow::Result<Self> {
        let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        if let Some(lines) = lines {
            let start = start_of_last_lines(&mut file, lines)?;
            file.seek(SeekFrom::Start(start))?;
        }
        Ok(Self { file, partial: Vec::new() })
    }

    /// Prints every complete line added since the last call.
    fn print_new(&mut self, printer: &mut Printer<impl io::Write>) -> anyhow::Result<()> {
        if self.file.metadata()?.len() < self.file.stream_position()? {
            self.file.rewind()?; // truncated: read the new content from the start
            self.partial.clear();
        }
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let len = self.file.read(&mut buffer)?;
            if len == 0 {
                return Ok(());
            }
            self.partial.extend_from_slice(&buffer[..len]);
            let whole = self.partial.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
            for line in self.partial[..whole].split_inclusive(|&byte| byte == b'\n') {
                printer.line(String::from_utf8_lossy(line).trim_end_matches(['\n', '\r']))?;
            }
            self.partial.drain(..whole);
            if self.partial.len() > LINE_BYTES_MAX {
                bail!("line longer than {LINE_BYTES_MAX} bytes: expected a request log");
            }
        }
    }
}

/// Finds the offset at which the last `lines` complete lines start, searching from the end of the
/// file.
fn start_of_last_lines(file: &mut (impl Read + Seek), lines: usize) -> io::Result<u64> {
    let mut at = file.seek(SeekFrom::End(0))?;
    let mut buffer = vec![0; READ_BYTES];
    // Count newlines backwards. The newline that ends the last line is counted, but does not start
    // a line, so one more than `lines` is needed.
    let mut left = lines;
    while at > 0 {
        let len = usize::try_from(at).map_or(READ_BYTES, |at| at.min(READ_BYTES));
        at -= len as u64;
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut buffer[..len])?;
        for index in (0..len).rev().filter(|&index| buffer[index] == b'\n') {
            if left == 0 {
                return Ok(at + index as u64 + 1);
            }
            left -= 1;
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn last_lines_start_at_the_right_offset() {
        let check = |text: &str, lines, expected: &str| {
            let start = start_of_last_lines(&mut Cursor::new(text), lines).unwrap();
            assert_eq!(&text[start as usize..], expected, "{lines} of {text:?}");
        };
        check("", 2, "");
        check("a\n", 2, "a\n");
        check("a\nb\nc\n", 2, "b\nc\n");
        check("a\nb\nc\n", 9, "a\nb\nc\n");
        check("a\nb\nc\n", 0, "");
        check("a\nb\nc", 1, "b\nc"); // an incomplete last line does not count
        let long = format!("{}\nlast\n", "x".repeat(3 * READ_BYTES));
        check(&long, 1, "last\n");
        check(&long, 2, &long);
    }
}
