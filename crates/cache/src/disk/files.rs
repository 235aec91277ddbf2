//! The files of the disk tier: where they lie, and how they are made, read and removed. A thin shell over the system.
//!
//! ```text
//! DIR/v1/            locked (flock) by the process that uses it
//!   journal          purges that may not have been carried out yet
//!   tmp/NUMBER       being written
//!   ab/HASH-NUMBER   whole: header, then content
//!   ab/HASH-NUMBER.head   the header as of the last validation, if there was one
//! ```
//!
//! **Invariant:** a file has its final name only once it is whole; it is never written to after that. Only the journal
//! grows.
//! **Invariant:** nothing outside `DIR/v1` is touched, and in it no directory is removed.
//!
//! Nothing but the journal is synced: a process that is killed leaves what it wrote to the kernel, and after a loss of power the
//! checksums tell.

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
/// Directories that files are spread over.
pub(super) const SPREAD: usize = 256;

/// The name of a stored response's file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) number: u64,
    pub(super) hash: u128,
}

impl Name {
    fn in_directory(self) -> u8 {
        (self.hash >> 120) as u8
    }

    /// Reads the name of a file, and whether it is that of a head.
    fn parse(text: &str) -> Option<(Self, bool)> {
        let (file, is_head) = text.strip_suffix(HEAD).map_or((text, false), |file| (file, true));
        let (hash, number) = file.split_once('-')?;
        let hash = u128::from_str_radix(hash, 16).ok()?;
        let name = Self { number: u64::from_str_radix(number, 16).ok()?, hash };
        // In the one way that it is written.
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

/// Why a file could not be read.
#[derive(Debug)]
pub(super) enum Unreadable {
    Io(io::Error),
    Fault(Fault),
    /// It has not the length that its header tells.
    Length,
    /// Its content is not what its checksum was made of.
    Sum,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Fault(fault) => fault.fmt(f),
            Self::Length => f.write_str("the file has not the length that its header tells"),
            Self::Sum => f.write_str("the checksum of the content does not hold"),
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

/// The directory, held and locked.
#[derive(Debug)]
pub(super) struct Directory(OwnedFd);

/// What lies in a directory.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Whole files, and whether each has a head beside it.
    pub(super) files: Vec<(Name, bool)>,
    /// Bytes of paths of what is none.
    pub(super) unknown: Vec<String>,
}

impl Directory {
    /// Makes `DIR/v1` if it is not there, locks it, and clears away what was being written.
    ///
    /// # Errors
    /// `WouldBlock` where another process has it locked; else what the system says.
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

    /// Lets another process have it, though files of it are still open here.
    pub(super) fn unlock(&self) {
        let _ = fs::flock(&self.0, FlockOperation::Unlock);
    }

    /// A new file without a final name.
    pub(super) fn create(&self, number: u64) -> io::Result<OwnedFd> {
        let path = format!("{TMP}/{number:016x}");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        self.in_made(TMP, || openat(&self.0, path.as_str(), flags, MODE_FILE))
    }

    /// Gives the file made as `number` its final name; it is whole.
    pub(super) fn publish(&self, number: u64, name: Name) -> io::Result<()> {
        let (from, directory) = (format!("{TMP}/{number:016x}"), format!("{:02x}", name.in_directory()));
        self.in_made(&directory, || renameat(&self.0, from.as_str(), &self.0, name.path().as_str()))
    }

    /// Gives the file made as `number` its final name, that of the head of `name`, in place of the last one.
    pub(super) fn publish_head(&self, number: u64, name: Name) -> io::Result<()> {
        Ok(renameat(
            &self.0,
            format!("{TMP}/{number:016x}").as_str(),
            &self.0,
            (name.path() + HEAD).as_str(),
        )?)
    }

    /// Removes a file that was made and not published.
    pub(super) fn discard(&self, number: u64) {
        let _ = unlinkat(&self.0, format!("{TMP}/{number:016x}").as_str(), AtFlags::empty());
    }

    /// Removes a file and its head. Who has it open reads on.
    ///
    /// # Errors
    /// When the file is still there.
    pub(super) fn remove(&self, name: Name) -> io::Result<()> {
        // The head last: without it the content counts under an older one. A start clears away a head that stands alone.
        for path in [name.path(), name.path() + HEAD] {
            match unlinkat(&self.0, path.as_str(), AtFlags::empty()) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Opens a file, reads its header, and checks that it is that file and has its length.
    pub(super) fn read(&self, name: Name) -> Result<(OwnedFd, Record, usize), Unreadable> {
        let file = self.open_for_reading(&name.path())?;
        let (record, header) = read_header(&file)?;
        let length = header as u64 + record.content_bytes;
        if record.number != name.number || fs::fstat(&file)?.st_size.cast_unsigned() != length {
            return Err(Unreadable::Length);
        }
        // What the kernel reads ahead of its own accord nobody would verify.
        let _ = fs::fadvise(&file, 0, None, fs::Advice::Random);
        Ok((file, record, header))
    }

    /// The header as of the last validation of `base`, the record of the file called `name`.
    pub(super) fn read_head(&self, name: Name, base: &Record) -> Result<(Record, usize), Unreadable> {
        let file = self.open_for_reading(&(name.path() + HEAD))?;
        let (record, header) = read_header(&file)?;
        let same = (record.number, record.content_bytes) == (base.number, base.content_bytes)
            && (&record.key, &record.sums) == (&base.key, &base.sums);
        if same { Ok((record, header)) } else { Err(Unreadable::Fault(Fault::Foreign)) }
    }

    fn open_for_reading(&self, path: &str) -> io::Result<OwnedFd> {
        // Not to wait for a writer, should it be a pipe that somebody put there.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        Ok(openat(&self.0, path, flags, Mode::empty())?)
    }

    /// The journal of purges as it stands; empty where there is none.
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

    /// The journal, to be written on.
    pub(super) fn open_journal(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(&self.0, JOURNAL, flags, MODE_FILE)?;
        fs::fsync(&self.0)?;
        Ok(file)
    }

    /// Another journal in place of the one there is, to be written on.
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

    /// Waits until all that was written and removed so far outlives a loss of power.
    pub(super) fn sync_all(&self) -> io::Result<()> {
        Ok(fs::syncfs(&self.0)?)
    }

    /// Everything in one of the directories that files are spread over.
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

    /// Removes what [`Directory::list`] did not know.
    pub(super) fn remove_unknown(&self, path: &str) {
        let _ = unlinkat(&self.0, path, AtFlags::empty());
    }

    /// The names in a directory, but those of directories; none where it is not there.
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

    /// Tries once more if the directory it is about was not there.
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

/// Reads and checks the header at the start of a file; with its length.
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

/// Fills `bytes` from `offset` on.
///
/// # Errors
/// `UnexpectedEof` where the file is too short.
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

/// Writes all of `bytes` from `offset` on.
///
/// # Errors
/// `StorageFull` where there is no room, else what the system says.
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

/// Asks the kernel to read on ahead, which it does without anybody waiting.
pub(super) fn read_ahead(file: &OwnedFd, offset: u64, bytes: usize) {
    let length = std::num::NonZeroU64::new(bytes as u64);
    let _ = fs::fadvise(file, offset, length, fs::Advice::WillNeed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::tests::Place;

    #[test]
    fn content_goes_before_its_head_and_a_head_alone_is_not_known() {
        let place = Place::new();
        let directory = Directory::open(place.path()).unwrap();
        let name = Name { number: 7, hash: 1 << 120 };
        let at = place.path().join("v1").join(name.path());
        let head = name.path() + HEAD;
        let has_head = || place.path().join("v1").join(&head).exists();
        // It cannot be removed.
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
