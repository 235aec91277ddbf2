//! Client locations from MaxMind databases (MaxMind DB file format, version 2.0). The operator
//! configures the files, which are read completely into memory. Callers decide how to use a record:
//! the edge passes it to policies, and the agent adds it to telemetry records.
//!
//! **Invariant:** the databases are reloaded together or not at all. If one of them cannot be used,
//! the caller keeps the old ones.

mod file;

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use maxminddb::{MaxMindDbError, Reader};

pub use file::{FILE_BYTES_MAX, Stamp, read};
pub use maxminddb::geoip2::{Asn, City};

/// Failure to read or parse a database.
#[derive(Debug)]
pub struct GeoError {
    path: PathBuf,
    cause: MaxMindDbError,
}

impl fmt::Display for GeoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.cause {
            MaxMindDbError::Io(error) => write!(f, "cannot read database {path}: {error}"),
            error => write!(f, "{path} is not a MaxMind database: {error}"),
        }
    }
}

impl std::error::Error for GeoError {}

/// The loaded databases.
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

/// One database's data for an address. Parts not covered by the database are empty.
#[derive(Debug)]
pub struct Record<'a> {
    /// Location, from a City or Country database.
    pub place: City<'a>,
    /// Network, from an ASN database.
    pub network: Asn<'a>,
}

impl Databases {
    /// Reads the files at `paths`, which are in order of precedence.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or is not a MaxMind database. The error names the
    /// first such file.
    pub fn read(paths: &[PathBuf]) -> Result<Self, GeoError> {
        let read =
            |path: &PathBuf| Database::read(path).map_err(|cause| GeoError { path: path.clone(), cause });
        Ok(Self { databases: paths.iter().map(read).collect::<Result<_, _>>()? })
    }

    /// Returns whether the files are unchanged since they were read.
    pub fn are_current(&self) -> bool {
        self.databases.iter().all(|database| Stamp::of(&database.path) == Some(database.stamp))
    }

    /// Returns an address's records, in order of precedence. Records that cannot be decoded are
    /// skipped.
    pub fn find(&self, address: IpAddr) -> impl Iterator<Item = Record<'_>> {
        self.databases.iter().filter_map(move |database| {
            database.find(address).unwrap_or_else(|error| {
                tracing::debug!(%address, %error, path = %database.path.display(), "cannot decode database record");
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
