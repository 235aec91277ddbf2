//! Presentation storage: listings and ranged reads of one or more libraries.
//!
//! A library is a directory ([`local`]), or is reached over HTTP ([`remote`]): a bucket ([`s3`]) or
//! a web server ([`http`]). If several libraries have a presentation of the same name, the first
//! one serves it.
//!
//! A key is a path below the library's root, with `/` between its segments. **Invariant:** keys
//! come only from listings, so no request can name a file that is not a track in a presentation's
//! directory.

mod collapse;
mod fetcher;
mod http;
mod listing;
mod local;
mod object;
mod options;
pub(crate) mod pool;
mod remote;
mod s3;
mod sign;

use bytes::Bytes;
use std::collections::BTreeMap;
use std::io;
#[cfg(test)]
use std::path::Path;
use std::sync::Arc;

pub use options::{MediaLocation, S3Options, StorageOptions};
use pool::Pool;
use remote::Remote;

pub(crate) use object::{Object, StorageError};

/// Size of one read of a local file, in bytes.
const FILE_PIECE_BYTES: u64 = 256 << 10;

/// All libraries.
#[derive(Debug, Clone)]
pub(crate) struct Storage {
    libraries: Vec<Library>,
    /// Connections to remote libraries, if there are any.
    pool: Option<Pool>,
}

#[derive(Debug, Clone)]
struct Library {
    location: MediaLocation,
    kind: Kind,
}

/// Kinds of storage.
#[derive(Debug, Clone)]
enum Kind {
    /// A directory.
    Local(local::Local),
    /// A bucket or a web server.
    Remote(Arc<Remote>),
}

/// Names of presentations, and what is wrong with their libraries.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// All names, sorted, without duplicates.
    pub(crate) names: Vec<String>,
    /// Libraries that could not be listed.
    pub(crate) faults: Vec<(MediaLocation, StorageError)>,
    /// Presentations in a library that does not serve them, because an earlier library has the same
    /// name.
    pub(crate) duplicates: Vec<(String, MediaLocation)>,
}

impl Storage {
    /// Opens the existing directory `root`.
    #[cfg(test)]
    pub(crate) fn local(root: &Path) -> io::Result<Storage> {
        let kind = Kind::Local(local::Local::new(root)?);
        Ok(Storage { libraries: vec![Library { location: root.to_owned().into(), kind }], pool: None })
    }

    /// Opens libraries. Remote ones are not contacted yet.
    ///
    /// # Errors
    ///
    /// Returns the first location that cannot be used, with the reason.
    pub(crate) fn open_all(
        locations: &[MediaLocation],
        options: &StorageOptions,
        listing_max_age: std::time::Duration,
    ) -> Result<Storage, (MediaLocation, io::Error)> {
        let mut storage = Storage { libraries: Vec::new(), pool: None };
        for (index, location) in locations.iter().enumerate() {
            let fault = |error| (location.clone(), error);
            let kind = if let MediaLocation::Directory(path) = location {
                let mut local = local::Local::new(path).map_err(fault)?;
                local.library = index;
                Kind::Local(local)
            } else {
                let pool = match &storage.pool {
                    Some(pool) => pool.clone(),
                    None => remote::pool(options, location).map_err(fault)?,
                };
                storage.pool = Some(pool.clone());
                Kind::Remote(Arc::new(
                    Remote::new(index, location, options, pool, listing_max_age).map_err(fault)?,
                ))
            };
            storage.libraries.push(Library { location: location.clone(), kind });
        }
        Ok(storage)
    }

    /// Returns the names of all presentations, sorted.
    pub(crate) async fn names(&self) -> Result<Vec<String>, StorageError> {
        let mut all = self.all_names().await;
        match all.faults.pop() {
            Some((_, error)) if all.faults.len() + 1 == self.libraries.len() => Err(error),
            _ => Ok(all.names),
        }
    }

    /// Returns the names of all presentations, with the faults of their libraries.
    pub(crate) async fn all_names(&self) -> Names {
        let mut all = Names::default();
        let mut seen = BTreeMap::new();
        for (index, library) in self.libraries.iter().enumerate() {
            let listed = match &library.kind {
                Kind::Local(local) => local.names().await,
                Kind::Remote(remote) => remote.names().await.map(|names| names.to_vec()),
            };
            match listed {
                Ok(names) => {
                    for name in names {
                        if *seen.entry(name.clone()).or_insert(index) != index {
                            all.duplicates.push((name, library.location.clone()));
                        }
                    }
                }
                Err(error) => all.faults.push((library.location.clone(), error)),
            }
        }
        all.names = seen.into_keys().collect();
        all
    }

    /// Returns the tracks of a presentation, sorted by key; `None` if no presentation is called
    /// `name`.
    pub(crate) async fn tracks(&self, name: &str) -> Result<Option<Vec<Object>>, StorageError> {
        for library in &self.libraries {
            let found = match &library.kind {
                Kind::Local(local) => local.tracks(name).await?,
                Kind::Remote(remote) => remote.tracks(name).await?,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Opens an object for ranged reads if it still matches its listing. A remote object is checked
    /// by each read.
    pub(crate) async fn open(&self, object: &Object) -> Result<ObjectReader, StorageError> {
        match &self.libraries[object.library].kind {
            Kind::Local(local) => local.open(object).await.map(ObjectReader::Local),
            Kind::Remote(remote) => Ok(ObjectReader::Remote(remote.clone(), Arc::new(object.clone()))),
        }
    }

    /// Returns whether an object is in a remote library.
    pub(crate) fn is_remote(&self, object: &Object) -> bool {
        matches!(self.libraries[object.library].kind, Kind::Remote(_))
    }

    /// Returns the connections to remote libraries.
    pub(crate) fn pool(&self) -> Option<&Pool> {
        self.pool.as_ref()
    }

    /// Returns the location of each library, and its reads if it is remote.
    pub(crate) fn libraries(&self) -> impl Iterator<Item = (&MediaLocation, Option<&Remote>)> {
        self.libraries.iter().map(|library| match &library.kind {
            Kind::Local(_) => (&library.location, None),
            Kind::Remote(remote) => (&library.location, Some(&**remote)),
        })
    }
}

/// An open object.
#[derive(Debug)]
pub(crate) enum ObjectReader {
    /// A file.
    Local(local::LocalReader),
    /// An object of a remote library.
    Remote(Arc<Remote>, Arc<Object>),
}

impl ObjectReader {
    /// Reads the `len` bytes at `offset`, which must be within the object.
    pub(crate) async fn read(&self, offset: u64, len: u64) -> Result<Bytes, StorageError> {
        match self {
            ObjectReader::Local(reader) => reader.read(offset, len).await,
            ObjectReader::Remote(remote, object) => remote.read(object, offset..offset + len).await,
        }
    }

    /// Begins to read a range. A remote object is read with a single request, and its first bytes
    /// have arrived when this returns.
    pub(crate) async fn pieces(self, range: std::ops::Range<u64>) -> Result<Pieces, StorageError> {
        match self {
            ObjectReader::Local(reader) => Ok(Pieces::Local(reader, range)),
            ObjectReader::Remote(remote, object) => remote.stream(object, range).await.map(Pieces::Remote),
        }
    }
}

/// A range being read, piece by piece.
#[derive(Debug)]
pub(crate) enum Pieces {
    /// A file and the rest of the range.
    Local(local::LocalReader, std::ops::Range<u64>),
    /// A response from a remote library.
    Remote(collapse::SharedReader),
}

impl Pieces {
    /// Returns the next piece, or `None` at the end of the range.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, StorageError> {
        match self {
            Pieces::Local(reader, range) => {
                let len = (range.end - range.start).min(FILE_PIECE_BYTES);
                if len == 0 {
                    return Ok(None);
                }
                let bytes = reader.read(range.start, len).await?;
                range.start += bytes.len() as u64;
                Ok(Some(bytes))
            }
            Pieces::Remote(reader) => reader.next().await,
        }
    }
}
