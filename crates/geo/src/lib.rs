//! Client locations from MaxMind databases (MaxMind DB file format, version 2.0). The operator
//! names the files, which are read whole into memory. The caller decides how to use a record: the
//! edge passes it to policies, the agent adds it to telemetry records.
//!
//! **Invariant:** databases are reloaded all together or not at all: if one cannot be used, the
//! caller keeps the old ones.

mod file;

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use maxminddb::{MaxMindDbError, Reader};

pub use file::{FILE_BYTES_MAX, Stamp, read};
pub use maxminddb::geoip2::{Asn, City};

/// Error for a database that cannot be read or is invalid.
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

/// One database's data for an address; parts that the database does not cover are empty.
#[derive(Debug)]
pub struct Record<'a> {
    /// From a City or a Country database.
    pub place: City<'a>,
    /// From an ASN database.
    pub network: Asn<'a>,
}

impl Databases {
    /// Reads the files at `paths`, given in order of precedence.
    ///
    /// # Errors
    /// For the first file that cannot be read or is not a database.
    pub fn read(paths: &[PathBuf]) -> Result<Self, GeoError> {
        let read =
            |path: &PathBuf| Database::read(path).map_err(|cause| GeoError { path: path.clone(), cause });
        Ok(Self { databases: paths.iter().map(read).collect::<Result<_, _>>()? })
    }

    /// Returns whether the files are unchanged since they were read.
    pub fn are_current(&self) -> bool {
        self.databases.iter().all(|database| Stamp::of(&database.path) == Some(database.stamp))
    }

    /// Returns the records for an address, in the order of the databases. Skips records that cannot
    /// be decoded.
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
