//! Where clients are: MaxMind databases (MaxMind DB file format, version 2.0), read whole into memory.
//!
//! They are read when the edge starts and looked at again whenever a policy is loaded: files that have changed are read
//! anew, and the policy has those; others share what is there.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use maxminddb::geoip2::{Asn, City};
use maxminddb::{MaxMindDbError, Reader};
use thalweg_policy::task::Geo;

/// Bytes of one database; the largest that MaxMind offers have less.
const DATABASE_BYTES_MAX: u64 = 2 << 30;

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
pub(crate) struct Geography {
    databases: Vec<Database>,
}

struct Database {
    stamp: Stamp,
    reader: Reader<Vec<u8>>,
}

/// By which a changed file is known: length and time of change.
type Stamp = (u64, Option<SystemTime>);

impl fmt::Debug for Geography {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.databases.iter().map(|database| &database.reader.metadata().database_type);
        f.debug_list().entries(kinds).finish()
    }
}

/// The files that the operator names.
#[derive(Debug)]
pub(crate) struct GeoFiles {
    paths: Vec<PathBuf>,
    last: Mutex<Arc<Geography>>,
}

impl GeoFiles {
    /// Reads the databases of `paths`; `None` if there is no path.
    pub(crate) fn open(paths: &[PathBuf]) -> Result<Option<Self>, GeoError> {
        if paths.is_empty() {
            return Ok(None);
        }
        let last = Mutex::new(Arc::new(Geography::read(paths)?));
        Ok(Some(Self { paths: paths.to_vec(), last }))
    }

    /// The databases as the files are now.
    pub(crate) fn now(&self) -> Result<Arc<Geography>, GeoError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |(path, database): (&PathBuf, &Database)| {
            fs::metadata(path).is_ok_and(|metadata| stamp(&metadata) == database.stamp)
        };
        if !self.paths.iter().zip(&last.databases).all(is_same) {
            *last = Arc::new(Geography::read(&self.paths)?);
        }
        Ok(last.clone())
    }
}

impl Geography {
    fn read(paths: &[PathBuf]) -> Result<Self, GeoError> {
        let read = |path: &PathBuf| read(path).map_err(|cause| GeoError { path: path.clone(), cause });
        Ok(Self { databases: paths.iter().map(read).collect::<Result<_, _>>()? })
    }

    /// What the databases say of `address`, the first that says something of a subject counting. A record that cannot be
    /// read says nothing.
    pub(crate) fn find(&self, address: IpAddr) -> Option<Geo> {
        let found = self.databases.iter().filter_map(|database| {
            find(&database.reader, address).unwrap_or_else(|error| {
                tracing::debug!(%address, %error, "no record in the database");
                None
            })
        });
        found.reduce(|first, next| Geo {
            as_name: first.as_name.or(next.as_name),
            as_number: first.as_number.or(next.as_number),
            city: first.city.or(next.city),
            continent_code: first.continent_code.or(next.continent_code),
            country_code: first.country_code.or(next.country_code),
            country_name: first.country_name.or(next.country_name),
            latitude: first.latitude.or(next.latitude),
            longitude: first.longitude.or(next.longitude),
            metro_code: first.metro_code.or(next.metro_code),
            postal_code: first.postal_code.or(next.postal_code),
            region: first.region.or(next.region),
        })
    }
}

fn read(path: &Path) -> Result<Database, MaxMindDbError> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.len() > DATABASE_BYTES_MAX {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge).into());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
    file.take(DATABASE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Database { stamp: stamp(&metadata), reader: Reader::from_source(bytes)? })
}

fn stamp(metadata: &Metadata) -> Stamp {
    (metadata.len(), metadata.modified().ok())
}

fn find(reader: &Reader<Vec<u8>>, address: IpAddr) -> Result<Option<Geo>, MaxMindDbError> {
    let record = reader.lookup(address)?;
    let Some(place) = record.decode::<City<'_>>()? else { return Ok(None) };
    let network = record.decode::<Asn<'_>>()?;
    let own = |text: Option<&str>| text.map(str::to_owned);
    Ok(Some(Geo {
        as_name: network.as_ref().and_then(|network| own(network.autonomous_system_organization)),
        as_number: network.as_ref().and_then(|network| network.autonomous_system_number),
        city: own(place.city.names.english),
        continent_code: own(place.continent.code),
        country_code: own(place.country.iso_code),
        country_name: own(place.country.names.english),
        latitude: place.location.latitude,
        longitude: place.location.longitude,
        metro_code: place.location.metro_code,
        postal_code: own(place.postal.code),
        region: place.subdivisions.first().and_then(|subdivision| own(subdivision.iso_code)),
    }))
}
