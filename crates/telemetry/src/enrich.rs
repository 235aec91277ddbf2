//! Where clients are: the autonomous system and the region of an address, from MaxMind databases (MaxMind DB file format,
//! version 2.0) and from a CSV of prefixes, which goes before them.
//!
//! ```text
//! prefix,asn,region
//! 203.0.113.0/24,64500,DE
//! 2001:db8::/32,64501,
//! ```

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use maxminddb::Reader;
use maxminddb::geoip2::{Asn, City};
use thalweg_record::{Network, Prefix};

/// Bytes of one file; the largest that MaxMind offers have less.
const FILE_BYTES_MAX: u64 = 2 << 30;
/// Networks that are remembered.
const REMEMBERED_MAX: usize = 100_000;
/// Regions that are remembered, so that each is a text once.
const REGIONS_MAX: usize = 10_000;

/// A file of networks that cannot be used.
#[derive(Debug)]
pub enum EnrichError {
    /// It cannot be read.
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// It is no MaxMind database.
    Database {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: maxminddb::MaxMindDbError,
    },
    /// A line of the CSV is not as it has to be.
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        fault: String,
    },
}

impl fmt::Display for EnrichError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, .. } => write!(f, "cannot read {}", path.display()),
            Self::Database { path, .. } => write!(f, "{} is no MaxMind database", path.display()),
            Self::Line { path, line, fault } => write!(f, "{}:{line}: {fault}", path.display()),
        }
    }
}

impl std::error::Error for EnrichError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { cause, .. } => Some(cause),
            Self::Database { cause, .. } => Some(cause),
            Self::Line { .. } => None,
        }
    }
}

/// What is known of networks.
#[derive(Debug)]
pub struct Networks {
    paths: Paths,
    files: Files,
    remembered: HashMap<Prefix, Network>,
    regions: BTreeSet<Arc<str>>,
}

#[derive(Debug)]
struct Paths {
    databases: Vec<PathBuf>,
    csv: Option<PathBuf>,
}

#[derive(Debug)]
struct Files {
    stamps: Vec<Stamp>,
    databases: Vec<Reader<Vec<u8>>>,
    csv: Csv,
}

/// By which a changed file is known: length and time of change.
type Stamp = Option<(u64, Option<SystemTime>)>;

/// Networks by prefix; the lengths that there are, the longest last.
#[derive(Debug, Default)]
struct Csv {
    networks: HashMap<Prefix, Network>,
    bits: BTreeSet<u8>,
}

impl Networks {
    /// Reads the databases, and the CSV if there is one.
    ///
    /// # Errors
    /// At the first file or line that cannot be used.
    pub fn open(databases: &[PathBuf], csv: Option<&Path>) -> Result<Self, EnrichError> {
        let paths = Paths { databases: databases.to_vec(), csv: csv.map(Path::to_owned) };
        let files = Files::read(&paths)?;
        Ok(Self { paths, files, remembered: HashMap::new(), regions: BTreeSet::new() })
    }

    /// Reads anew if a file has changed; whether one had.
    ///
    /// # Errors
    /// When what it has become cannot be used: what was read before goes on.
    pub fn refresh(&mut self) -> Result<bool, EnrichError> {
        if self.paths.stamps() == self.files.stamps {
            return Ok(false);
        }
        self.files = Files::read(&self.paths)?;
        self.remembered.clear();
        self.regions.clear();
        Ok(true)
    }

    /// What is known of the network of `client`. All of a /24 or /56 are taken to be in one.
    pub fn find(&mut self, client: IpAddr) -> Network {
        let prefix = Prefix::of_client(client);
        if let Some(network) = self.remembered.get(&prefix) {
            return network.clone();
        }
        let mut network = self.files.find(prefix.first());
        network.region = network.region.map(|region| self.one_text(region));
        if self.remembered.len() >= REMEMBERED_MAX {
            self.remembered.clear();
        }
        self.remembered.insert(prefix, network.clone());
        network
    }

    fn one_text(&mut self, region: Arc<str>) -> Arc<str> {
        if let Some(known) = self.regions.get(&region) {
            return known.clone();
        }
        if self.regions.len() >= REGIONS_MAX {
            self.regions.clear();
        }
        self.regions.insert(region.clone());
        region
    }
}

impl Paths {
    fn stamps(&self) -> Vec<Stamp> {
        let stamp = |path: &PathBuf| {
            fs::metadata(path).ok().map(|metadata| (metadata.len(), metadata.modified().ok()))
        };
        self.databases.iter().chain(&self.csv).map(stamp).collect()
    }
}

impl Files {
    fn read(paths: &Paths) -> Result<Self, EnrichError> {
        let stamps = paths.stamps();
        let database = |path: &PathBuf| {
            Reader::from_source(read(path)?)
                .map_err(|cause| EnrichError::Database { path: path.clone(), cause })
        };
        let databases = paths.databases.iter().map(database).collect::<Result<_, _>>()?;
        let csv = paths.csv.as_deref().map(Csv::read).transpose()?.unwrap_or_default();
        Ok(Self { stamps, databases, csv })
    }

    /// The CSV goes before the databases, and the first of these that says something before the next.
    fn find(&self, address: IpAddr) -> Network {
        let first = self.csv.find(address).cloned().unwrap_or_default();
        self.databases.iter().fold(first, |known, database| {
            if known.asn.is_some() && known.region.is_some() {
                return known;
            }
            let next = look_up(database, address).unwrap_or_else(|error| {
                tracing::debug!(%address, %error, "no record in the database");
                Network::default()
            });
            Network { asn: known.asn.or(next.asn), region: known.region.or(next.region) }
        })
    }
}

fn look_up(database: &Reader<Vec<u8>>, address: IpAddr) -> Result<Network, maxminddb::MaxMindDbError> {
    let record = database.lookup(address)?;
    let asn = record.decode::<Asn<'_>>()?.and_then(|record| record.autonomous_system_number);
    let place = record.decode::<City<'_>>()?;
    let region = place.and_then(|place| {
        let country = place.country.iso_code?;
        let subdivision = place.subdivisions.first().and_then(|subdivision| subdivision.iso_code);
        Some(subdivision.map_or(Arc::from(country), |code| Arc::from(format!("{country}-{code}"))))
    });
    Ok(Network { asn, region })
}

impl Csv {
    fn read(path: &Path) -> Result<Self, EnrichError> {
        let bytes = read(path)?;
        let mut csv = Self::default();
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .comment(Some(b'#'))
            .flexible(true)
            .from_reader(&*bytes);
        for (index, record) in reader.records().enumerate() {
            let fault = |fault: String, line: usize| EnrichError::Line { path: path.to_owned(), line, fault };
            let record = record.map_err(|error| fault(error.to_string(), index + 1))?;
            let line =
                record.position().map_or(index + 1, |at| usize::try_from(at.line()).unwrap_or(index + 1));
            if index == 0 && record.get(0) == Some("prefix") {
                continue;
            }
            let (prefix, network) = network_of(&record).map_err(|text| fault(text, line))?;
            csv.bits.insert(prefix.bits());
            csv.networks.insert(prefix, network);
        }
        Ok(csv)
    }

    fn find(&self, address: IpAddr) -> Option<&Network> {
        let family_bits = if address.is_ipv4() { 32 } else { 128 };
        let bits = self.bits.range(..=family_bits).rev();
        bits.filter_map(|&bits| self.networks.get(&Prefix::cut(address, bits))).next()
    }
}

fn network_of(record: &csv::StringRecord) -> Result<(Prefix, Network), String> {
    let &[prefix, asn, region] = &*record.iter().map(str::trim).collect::<Vec<_>>() else {
        return Err("not three fields: prefix,asn,region".to_owned());
    };
    let prefix = prefix.parse::<Prefix>().map_err(|fault| format!("{prefix:?}: {fault}"))?;
    let number = asn.trim_start_matches("AS");
    let asn = if number.is_empty() {
        None
    } else {
        Some(number.parse().map_err(|_| format!("{asn:?} is not the number of an autonomous system"))?)
    };
    Ok((prefix, Network { asn, region: (!region.is_empty()).then(|| Arc::from(region)) }))
}

fn read(path: &Path) -> Result<Vec<u8>, EnrichError> {
    let failed = |cause| EnrichError::Read { path: path.to_owned(), cause };
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.len() > FILE_BYTES_MAX {
        return Err(failed(io::Error::from(io::ErrorKind::FileTooLarge)));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}
