//! A log file: its last lines, then what is added, woken by inotify(7), over rotation and truncation.
//!
//! One watch on the directory tells of writes to the file and of a new file under its name; a file that was
//! moved away is read to its end before the new one is opened.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, bail};
use rustix::fs::inotify;

use super::printer::Printer;

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// The longest line that is taken for a record; more is no log of ours.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Room for inotify's events: each is 16 bytes and a name of at most 256.
const EVENT_BYTES: usize = 4 << 10;

/// Prints the last `lines` lines.
pub(super) fn print(path: &Path, lines: usize, printer: &mut Printer<impl io::Write>) -> anyhow::Result<()> {
    let mut tail = Tail::open(path, Some(lines))?;
    tail.print_new(printer)?;
    if !tail.partial.is_empty() {
        printer.line(&String::from_utf8_lossy(&tail.partial))?;
    }
    Ok(printer.flush()?)
}

/// Prints the last `lines` lines and then what is added, for ever.
pub(super) fn follow(path: &Path, lines: usize, printer: &mut Printer<impl io::Write>) -> anyhow::Result<()> {
    let name = path.file_name().with_context(|| format!("{} is no file", path.display()))?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // The watch comes before the first read, so that nothing falls between.
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC).context("cannot watch files")?;
    let wanted = inotify::WatchFlags::MODIFY | inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
    inotify::add_watch(&watch, directory, wanted)
        .with_context(|| format!("cannot watch {}", directory.display()))?;
    let mut tail = Tail::open(path, Some(lines))?;
    let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
    let mut events = inotify::Reader::new(&watch, &mut buffer);
    loop {
        tail.print_new(printer)?;
        printer.flush()?;
        let replaced = loop {
            let event = events.next().context("cannot watch files")?;
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

/// An open log file, read up to some place.
struct Tail {
    file: File,
    /// The start of a line whose end is not written yet.
    partial: Vec<u8>,
}

impl Tail {
    /// Opens the file at its beginning, or before the last `lines` lines.
    fn open(path: &Path, lines: Option<usize>) -> anyhow::Result<Self> {
        let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        if let Some(lines) = lines {
            let start = start_of_last_lines(&mut file, lines)?;
            file.seek(SeekFrom::Start(start))?;
        }
        Ok(Self { file, partial: Vec::new() })
    }

    /// Prints every whole line that was added since.
    fn print_new(&mut self, printer: &mut Printer<impl io::Write>) -> anyhow::Result<()> {
        if self.file.metadata()?.len() < self.file.stream_position()? {
            self.file.rewind()?; // it was truncated and is written anew
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
                bail!("a line of more than {LINE_BYTES_MAX} bytes: this is no request log");
            }
        }
    }
}

/// The offset at which the last `lines` whole lines begin, found from the end of the file.
fn start_of_last_lines(file: &mut (impl Read + Seek), lines: usize) -> io::Result<u64> {
    let mut at = file.seek(SeekFrom::End(0))?;
    let mut buffer = vec![0; READ_BYTES];
    // The newline that ends the line before the wanted ones; the last byte's own newline is one more.
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
    fn the_last_lines() {
        let check = |text: &str, lines, expected: &str| {
            let start = start_of_last_lines(&mut Cursor::new(text), lines).unwrap();
            assert_eq!(&text[start as usize..], expected, "{lines} of {text:?}");
        };
        check("", 2, "");
        check("a\n", 2, "a\n");
        check("a\nb\nc\n", 2, "b\nc\n");
        check("a\nb\nc\n", 9, "a\nb\nc\n");
        check("a\nb\nc\n", 0, "");
        check("a\nb\nc", 1, "b\nc"); // the last is not whole yet: it comes on top
        let long = format!("{}\nlast\n", "x".repeat(3 * READ_BYTES));
        check(&long, 1, "last\n");
        check(&long, 2, &long);
    }
}
