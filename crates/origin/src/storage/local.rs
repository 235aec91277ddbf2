//! Local storage: a directory of presentations. All system calls run on tokio's blocking threads.

use super::object::{DEPTH_MAX, OBJECTS_MAX, Object, StorageError};
use bytes::Bytes;
use std::fs::{self, DirEntry, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use thalweg_media::track::is_track_file;

#[derive(Debug, Clone)]
pub(crate) struct Local {
    /// Position among the libraries.
    pub(super) library: usize,
    root: Arc<PathBuf>,
}

/// An open file.
#[derive(Debug, Clone)]
pub(crate) struct LocalReader {
    key: Arc<str>,
    file: Arc<File>,
}

impl Local {
    pub(super) fn new(root: &Path) -> io::Result<Local> {
        fs::read_dir(root)?;
        Ok(Local { library: 0, root: Arc::new(root.to_owned()) })
    }

    pub(super) async fn names(&self) -> Result<Vec<String>, StorageError> {
        let root = self.root.clone();
        blocking(move || {
            let mut names = directories(&root).map_err(|e| StorageError::io("media", &e))?;
            names.sort();
            Ok(names)
        })
        .await
    }

    pub(super) async fn tracks(&self, name: &str) -> Result<Option<Vec<Object>>, StorageError> {
        let (library, root, wanted) = (self.library, self.root.clone(), name.to_owned());
        blocking(move || {
            let found = find_directory(&root, &wanted).map_err(|e| StorageError::io("media", &e))?;
            let Some(name) = found else { return Ok(None) };
            let mut objects = Vec::new();
            walk(&root.join(&name), &name, DEPTH_MAX, &mut objects)?;
            objects.sort_by(|a: &Object, b| a.key.cmp(&b.key));
            objects.iter_mut().for_each(|object| object.library = library);
            Ok(Some(objects))
        })
        .await
    }

    pub(super) async fn text(
        &self,
        name: &str,
        file: &'static str,
        bytes_max: u64,
    ) -> Result<Option<Bytes>, StorageError> {
        let (root, wanted) = (self.root.clone(), name.to_owned());
        blocking(move || {
            let found = find_directory(&root, &wanted).map_err(|e| StorageError::io("media", &e))?;
            let Some(name) = found else { return Ok(None) };
            let key = format!("{name}/{file}");
            let opened = match File::open(root.join(&key)) {
                Ok(opened) => opened,
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(e) => return Err(StorageError::io(&key, &e)),
            };
            let mut bytes = Vec::new();
            let read = opened.take(bytes_max + 1).read_to_end(&mut bytes);
            read.map_err(|e| StorageError::io(&key, &e))?;
            if bytes.len() as u64 > bytes_max {
                return Err(StorageError::TooLarge { key, bytes_max });
            }
            Ok(Some(bytes.into()))
        })
        .await
    }

    pub(super) async fn open(&self, object: &Object) -> Result<LocalReader, StorageError> {
        let (root, object) = (self.root.clone(), object.clone());
        blocking(move || {
            let file = File::open(root.join(&object.key)).map_err(|e| match e.kind() {
                io::ErrorKind::NotFound => StorageError::Changed { key: object.key.clone() },
                _ => StorageError::io(&object.key, &e),
            })?;
            let metadata = file.metadata().map_err(|e| StorageError::io(&object.key, &e))?;
            if validator(&metadata) != object.validator {
                return Err(StorageError::Changed { key: object.key });
            }
            Ok(LocalReader { key: object.key.into(), file: Arc::new(file) })
        })
        .await
    }
}

impl LocalReader {
    pub(super) async fn read(&self, offset: u64, len: u64) -> Result<Bytes, StorageError> {
        let reader = self.clone();
        blocking(move || {
            let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
            match reader.file.read_exact_at(&mut bytes, offset) {
                Ok(()) => Ok(bytes.into()),
                // The file was long enough when opened, so it has been truncated since.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    Err(StorageError::Changed { key: reader.key.to_string() })
                }
                Err(e) => Err(StorageError::io(&reader.key, &e)),
            }
        })
        .await
    }
}

/// Lists the directories in `root`, except hidden ones and those whose names are not valid Unicode.
fn directories(root: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if let Some(name) = shown_name(&entry).filter(|_| is_directory(&entry)) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Finds the directory `wanted` in `root`; returns its name from the listing.
fn find_directory(root: &Path, wanted: &str) -> io::Result<Option<String>> {
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if let Some(name) = shown_name(&entry).filter(|n| n == wanted) {
            return Ok(is_directory(&entry).then_some(name));
        }
    }
    Ok(None)
}

fn shown_name(entry: &DirEntry) -> Option<String> {
    entry.file_name().into_string().ok().filter(|name| !name.starts_with('.'))
}

/// Returns whether the entry is a directory, following links.
fn is_directory(entry: &DirEntry) -> bool {
    fs::metadata(entry.path()).is_ok_and(|m| m.is_dir())
}

/// Collects the tracks in `directory`, whose key is `prefix`, and in its subdirectories.
fn walk(directory: &Path, prefix: &str, depth: usize, objects: &mut Vec<Object>) -> Result<(), StorageError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(StorageError::io(prefix, &e)),
    };
    for entry in entries {
        let entry = entry.map_err(|e| StorageError::io(prefix, &e))?;
        let Some(name) = shown_name(&entry) else { continue };
        let key = format!("{prefix}/{name}");
        let metadata = match fs::metadata(entry.path()) {
            Ok(metadata) => metadata,
            // Skip dangling links, files removed during the listing, and files that are not tracks.
            Err(e) if e.kind() == io::ErrorKind::NotFound || !is_track_file(&name) => continue,
            Err(e) => return Err(StorageError::io(&key, &e)),
        };
        if metadata.is_dir() {
            if depth > 0 {
                walk(&entry.path(), &key, depth - 1, objects)?;
            }
        } else if metadata.is_file() && is_track_file(&name) {
            if objects.len() == OBJECTS_MAX {
                return Err(StorageError::TooMany { key: prefix.to_owned() });
            }
            objects.push(object(key, &metadata));
        }
    }
    Ok(())
}

pub(super) fn object(key: String, metadata: &Metadata) -> Object {
    let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
    Object {
        library: 0,
        key,
        size: metadata.len(),
        modified: modified.min(SystemTime::now()),
        validator: validator(metadata),
        version: version(metadata),
        etag: None,
    }
}

/// Formats the size, inode, and modification time in nanoseconds. The result differs whenever the
/// content does, even if a file is replaced by one of the same size within a second.
fn validator(metadata: &Metadata) -> String {
    format!("{:x}-{:x}-{:x}", metadata.len(), metadata.ino(), mtime_ns(metadata))
}

/// Hashes only the size and modification time, to 8 hexadecimal digits. Copies that preserve times
/// (`rsync -a`, `cp -p`) have the same version at every origin, so one origin can serve URLs from
/// another's manifest.
fn version(metadata: &Metadata) -> String {
    super::object::short_hash(
        metadata.len().to_be_bytes().into_iter().chain(mtime_ns(metadata).to_be_bytes()),
    )
}

fn mtime_ns(metadata: &Metadata) -> i128 {
    i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
) -> Result<T, StorageError> {
    // Fails only if the process is exiting or the work panicked, which the panic hook has already
    // reported.
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(StorageError::io("media", &io::Error::other(error))))
}
