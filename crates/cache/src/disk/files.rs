//! Files of the disk tier: a thin layer over the system calls that create, read and remove them.
//!
//! ```text
//! DIR/v1/            locked (flock) by the process that uses it
//!   journal          purges that may not have been applied to all files
//!   tmp/NUMBER       being written
//!   ab/HASH-NUMBER   complete: header, then content
//!   ab/HASH-NUMBER.head   header as of the last validation, if any
//! ```
//!
//! **Invariant:** a file receives its final name only once it is complete, and is never written to
//! after that, except for the journal, which grows. **Invariant:** nothing outside `DIR/v1` is
//! touched, and no directory inside it is removed.
//!
//! Files are not synced, except for the journal and before the journal is shortened. If the process
//! is killed, the kernel still writes the data it has; after a power loss, checksums detect damaged
//! files.

use std::fmt;
use std::io;
use std::path::Path;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    self, AtFlags, Dir as Listing, FileType, FlockOperation, Mode, OFlags, mkdirat, openat, renameat,
    unlinkat,
};

use super::journal::JOURNAL_BYTES_MAX;
use super::record::{Fault, HEADER_ALIGN, Record, header_bytes};

const MODE_DIR: Mode = Mode::from_raw_mode(0o750);
const MODE_FILE: Mode = Mode::from_raw_mode(0o640);
const TMP: &str = "tmp";
const HEAD: &str = ".head";
const JOURNAL: &str = "journal";
/// Number of directories over which files are spread.
pub(super) const SPREAD: usize = 256;

/// Name of a stored response's file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) number: u64,
    pub(super) hash: u128,
}

impl Name {
    fn in_directory(self) -> u8 {
        (self.hash >> 120) as u8
    }

    /// Parses a file name; also returns whether it names a head file.
    fn parse(text: &str) -> Option<(Self, bool)> {
        let (file, is_head) = text.strip_suffix(HEAD).map_or((text, false), |file| (file, true));
        let (hash, number) = file.split_once('-')?;
        let hash = u128::from_str_radix(hash, 16).ok()?;
        let name = Self { number: u64::from_str_radix(number, 16).ok()?, hash };
        // Accept only the canonical form.
        (name.file() == file).then_some((name, is_head))
    }

    fn file(self) -> String {
        format!("{:032x}-{:016x}", self.hash, self.number)
    }

    fn path(self) -> String {
        format!("{:02x}/{}", self.in_directory(), self.file())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path())
    }
}

/// Reason why a file could not be read.
#[derive(Debug)]
pub(super) enum Unreadable {
    Io(io::Error),
    Fault(Fault),
    /// The file length differs from the length in the header.
    Length,
    /// The content does not match its checksum.
    Sum,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Fault(fault) => fault.fmt(f),
            Self::Length => f.write_str("file length does not match its header"),
            Self::Sum => f.write_str("content checksum mismatch"),
        }
    }
}

impl std::error::Error for Unreadable {}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof { Self::Length } else { Self::Io(error) }
    }
}

impl From<rustix::io::Errno> for Unreadable {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}

/// The tier's directory, open and locked.
#[derive(Debug)]
pub(super) struct Directory(OwnedFd);

/// Files found in a directory.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Complete files, and whether each has a separate head file.
    pub(super) files: Vec<(Name, bool)>,
    /// Paths of all other files.
    pub(super) unknown: Vec<String>,
}

impl Directory {
    /// Creates `DIR/v1` if it does not exist, locks it, and removes unfinished files.
    ///
    /// # Errors
    ///
    /// Returns an error of kind `WouldBlock` if another process has locked the directory, otherwise
    /// the system's error.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let directory = directory.join("v1");
        std::fs::create_dir_all(&directory)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(&directory, flags, Mode::empty())?;
        fs::flock(&root, FlockOperation::NonBlockingLockExclusive)?;
        let opened = Self(root);
        for unfinished in opened.list_names(TMP)? {
            let _ = unlinkat(&opened.0, format!("{TMP}/{unfinished}").as_str(), AtFlags::empty());
        }
        Ok(opened)
    }

    /// Unlocks the directory for another process, even if files in it are still open here.
    pub(super) fn unlock(&self) {
        let _ = fs::flock(&self.0, FlockOperation::Unlock);
    }

    /// Creates a file under a temporary name.
    pub(super) fn create(&self, number: u64) -> io::Result<OwnedFd> {
        let path = format!("{TMP}/{number:016x}");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        self.in_made(TMP, || openat(&self.0, path.as_str(), flags, MODE_FILE))
    }

    /// Gives the complete file created as `number` its final name.
    pub(super) fn publish(&self, number: u64, name: Name) -> io::Result<()> {
        let (from, directory) = (format!("{TMP}/{number:016x}"), format!("{:02x}", name.in_directory()));
        self.in_made(&directory, || renameat(&self.0, from.as_str(), &self.0, name.path().as_str()))
    }

    /// Renames the file created as `number` to the final name of `name`'s head file, replacing an
    /// older head.
    pub(super) fn publish_head(&self, number: u64, name: Name) -> io::Result<()> {
        Ok(renameat(
            &self.0,
            format!("{TMP}/{number:016x}").as_str(),
            &self.0,
            (name.path() + HEAD).as_str(),
        )?)
    }

    /// Removes a file that was created but not published.
    pub(super) fn discard(&self, number: u64) {
        let _ = unlinkat(&self.0, format!("{TMP}/{number:016x}").as_str(), AtFlags::empty());
    }

    /// Removes a file and its head file. Readers that have the file open can continue.
    ///
    /// # Errors
    ///
    /// Returns an error if one of the two files could not be removed.
    pub(super) fn remove(&self, name: Name) -> io::Result<()> {
        // Remove the head file last: without it, the content file would be valid under its older
        // head. The next start removes a head file whose content file is missing.
        for path in [name.path(), name.path() + HEAD] {
            match unlinkat(&self.0, path.as_str(), AtFlags::empty()) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Opens a file, reads its header, and checks its number and length.
    pub(super) fn read(&self, name: Name) -> Result<(OwnedFd, Record, usize), Unreadable> {
        let file = self.open_for_reading(&name.path())?;
        let (record, header) = read_header(&file)?;
        let length = header as u64 + record.content_bytes;
        if record.number != name.number || fs::fstat(&file)?.st_size.cast_unsigned() != length {
            return Err(Unreadable::Length);
        }
        // Disable the kernel's read-ahead, which would load unverified bytes.
        let _ = fs::fadvise(&file, 0, None, fs::Advice::Random);
        Ok((file, record, header))
    }

    /// Reads the head file of `name`, written at the last validation; `base` is the record in the
    /// file itself.
    pub(super) fn read_head(&self, name: Name, base: &Record) -> Result<(Record, usize), Unreadable> {
        let file = self.open_for_reading(&(name.path() + HEAD))?;
        let (record, header) = read_header(&file)?;
        let same = (record.number, record.content_bytes) == (base.number, base.content_bytes)
            && (&record.key, &record.sums) == (&base.key, &base.sums);
        if same { Ok((record, header)) } else { Err(Unreadable::Fault(Fault::Foreign)) }
    }

    fn open_for_reading(&self, path: &str) -> io::Result<OwnedFd> {
        // Non-blocking, in case the path is a pipe.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        Ok(openat(&self.0, path, flags, Mode::empty())?)
    }

    /// Reads the journal; returns no bytes if it does not exist.
    pub(super) fn read_journal(&self) -> io::Result<Vec<u8>> {
        let file = match self.open_for_reading(JOURNAL) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened?,
        };
        let length = usize::try_from(fs::fstat(&file)?.st_size).unwrap_or(0);
        let mut journal = vec![0; length.min(JOURNAL_BYTES_MAX)];
        read_at(&file, 0, &mut journal)?;
        Ok(journal)
    }

    /// Opens the journal for writing.
    pub(super) fn open_journal(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(&self.0, JOURNAL, flags, MODE_FILE)?;
        fs::fsync(&self.0)?;
        Ok(file)
    }

    /// Replaces the journal and returns the new one, open for writing.
    ///
    /// Does not use `thalweg_replace`, because the tier names files relative to its directory's
    /// descriptor and keeps writing to the new file.
    pub(super) fn replace_journal(&self, journal: &[u8]) -> io::Result<OwnedFd> {
        let path = format!("{TMP}/{JOURNAL}");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = self.in_made(TMP, || openat(&self.0, path.as_str(), flags, MODE_FILE))?;
        write_at(file.as_fd(), 0, journal)?;
        fs::fdatasync(&file)?;
        renameat(&self.0, path.as_str(), &self.0, JOURNAL)?;
        fs::fsync(&self.0)?;
        Ok(file)
    }

    /// Waits until all writes and removals so far would survive a power loss.
    pub(super) fn sync_all(&self) -> io::Result<()> {
        Ok(fs::syncfs(&self.0)?)
    }

    /// Lists one of the directories over which files are spread.
    pub(super) fn list(&self, directory: usize) -> io::Result<Listed> {
        let directory = format!("{directory:02x}");
        let mut listed = Listed::default();
        let mut heads = Vec::new();
        for text in self.list_names(&directory)? {
            match Name::parse(&text) {
                Some((name, is_head)) if directory == format!("{:02x}", name.in_directory()) => {
                    if is_head {
                        heads.push(name);
                    } else {
                        listed.files.push((name, false));
                    }
                }
                _ => listed.unknown.push(format!("{directory}/{text}")),
            }
        }
        listed.files.sort_unstable();
        for head in heads {
            match listed.files.binary_search_by_key(&head, |(name, _)| *name) {
                Ok(at) => listed.files[at].1 = true,
                Err(_) => listed.unknown.push(head.path() + HEAD),
            }
        }
        Ok(listed)
    }

    /// Removes an unknown file from [`Directory::list`].
    pub(super) fn remove_unknown(&self, path: &str) {
        let _ = unlinkat(&self.0, path, AtFlags::empty());
    }

    /// Lists the names in a directory, except those of subdirectories. Returns no names if the
    /// directory does not exist.
    fn list_names(&self, directory: &str) -> io::Result<Vec<String>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let opened = match openat(&self.0, directory, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(Vec::new()),
            opened => opened?,
        };
        let mut names = Vec::new();
        for entry in Listing::new(opened)? {
            let entry = entry?;
            if entry.file_type() != FileType::Directory
                && let Ok(name) = entry.file_name().to_str()
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Runs `attempt`; if the directory does not exist, creates it and tries once more.
    fn in_made<T>(&self, directory: &str, attempt: impl Fn() -> rustix::io::Result<T>) -> io::Result<T> {
        match attempt() {
            Err(rustix::io::Errno::NOENT) => {
                match mkdirat(&self.0, directory, MODE_DIR) {
                    Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                Ok(attempt()?)
            }
            attempted => Ok(attempted?),
        }
    }
}

/// Reads and checks the header at the start of a file; also returns its length.
fn read_header(file: &OwnedFd) -> Result<(Record, usize), Unreadable> {
    let mut header = vec![0; HEADER_ALIGN];
    read_at(file, 0, &mut header)?;
    let length = header_bytes(&header).map_err(Unreadable::Fault)?;
    header.resize(length, 0);
    if length > HEADER_ALIGN {
        read_at(file, HEADER_ALIGN as u64, &mut header[HEADER_ALIGN..])?;
    }
    Ok((Record::decode(&header).map_err(Unreadable::Fault)?, length))
}

/// Fills `bytes` from the file at `offset`.
///
/// # Errors
///
/// Returns an error of kind `UnexpectedEof` if the file is too short, otherwise the system's error.
pub(super) fn read_at(file: &OwnedFd, mut offset: u64, mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::pread(file, &mut *bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                bytes = &mut bytes[read..];
                offset += read as u64;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Writes all of `bytes` to the file at `offset`.
///
/// # Errors
///
/// Returns an error of kind `StorageFull` if the disk is full, otherwise the system's error.
pub(super) fn write_at(file: BorrowedFd<'_>, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Asks the kernel to read ahead, without waiting.
pub(super) fn read_ahead(file: &OwnedFd, offset: u64, bytes: usize) {
    let length = std::num::NonZeroU64::new(bytes as u64);
    let _ = fs::fadvise(file, offset, length, fs::Advice::WillNeed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::tests::Place;

    #[test]
    fn content_is_removed_before_its_head_and_an_orphan_head_is_unknown() {
        let place = Place::new();
        let directory = Directory::open(place.path()).unwrap();
        let name = Name { number: 7, hash: 1 << 120 };
        let at = place.path().join("v1").join(name.path());
        let head = name.path() + HEAD;
        let has_head = || place.path().join("v1").join(&head).exists();
        // A directory in place of the file makes its removal fail.
        std::fs::create_dir_all(&at).unwrap();
        directory.create(8).unwrap();
        directory.publish_head(8, name).unwrap();
        directory.remove(name).unwrap_err();
        assert!(has_head());
        std::fs::remove_dir(&at).unwrap();
        assert_eq!(directory.list(1).unwrap().unknown, std::slice::from_ref(&head));
        directory.remove(name).unwrap();
        assert!(!has_head());
    }
}
