//! Where clients are, as files say that an operator names: MaxMind databases (MaxMind DB file format, version 2.0), read whole into
//! memory. What is made of a record is the caller's: the edge gives it to policies, the agent to records.
//!
//! **Invariant:** files that have changed are read all together or not at all: where one cannot be used, the caller keeps what it had.

mod file;

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use maxminddb::{MaxMindDbError, Reader};

pub use file::{FILE_BYTES_MAX, Stamp, read};
pub use maxminddb::geoip2::{Asn, City};

/// A database that cannot be had.
#[derive(Debug)]
pub struct GeoError {
    path: PathBuf,
    cause: MaxMindDbError,
}

impl fmt::Display for GeoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.cause {
            MaxMindDbError::Io(error) => write!(f, "cannot read the database {path}: {error}"),
            error => write!(f, "{path} is no MaxMind database: {error}"),
        }
    }
}

impl std::error::Error for GeoError {}

/// Databases as they were read.
pub struct Databases {
    databases: Vec<Database>,
}

struct Database {
    path: PathBuf,
    stamp: Stamp,
    reader: Reader<Vec<u8>>,
}

impl fmt::Debug for Databases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.databases.iter().map(|database| &database.reader.metadata().database_type);
        f.debug_list().entries(kinds).finish()
    }
}

/// What one database has of an address: subjects that it is not about are empty.
#[derive(Debug)]
pub struct Record<'a> {
    /// Of a City or a Country database.
    pub place: City<'a>,
    /// Of an ASN database.
    pub network: Asn<'a>,
}

impl Databases {
    /// Reads files, in the order in which they count.
    ///
    /// # Errors
    /// At the first that cannot be read, or is no database.
    pub fn read(paths: &[PathBuf]) -> Result<Self, GeoError> {
        let read =
            |path: &PathBuf| Database::read(path).map_err(|cause| GeoError { path: path.clone(), cause });
        Ok(Self { databases: paths.iter().map(read).collect::<Result<_, _>>()? })
    }

    /// Whether the files are as they were read.
    pub fn are_current(&self) -> bool {
        self.databases.iter().all(|database| Stamp::of(&database.path) == Some(database.stamp))
    }

    /// What the databases have of an address, in their order. A record that cannot be read says nothing.
    pub fn find(&self, address: IpAddr) -> impl Iterator<Item = Record<'_>> {
        self.databases.iter().filter_map(move |database| {
            database.find(address).unwrap_or_else(|error| {
                tracing::debug!(%address, %error, path = %database.path.display(), "no record in the database");
                None
            })
        })
    }
}

impl Database {
    fn read(path: &Path) -> Result<Self, MaxMindDbError> {
        let (bytes, stamp) = file::read(path)?;
        Ok(Self { path: path.to_owned(), stamp, reader: Reader::from_source(bytes)? })
    }

    fn find(&self, address: IpAddr) -> Result<Option<Record<'_>>, MaxMindDbError> {
        let found = self.reader.lookup(address)?;
        let Some(place) = found.decode::<City<'_>>()? else { return Ok(None) };
        let nothing = Asn { autonomous_system_number: None, autonomous_system_organization: None };
        Ok(Some(Record { place, network: found.decode()?.unwrap_or(nothing) }))
    }
}
