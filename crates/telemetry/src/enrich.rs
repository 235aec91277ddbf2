//! Client networks: looks up an address's autonomous system and region in MaxMind databases
//! (MaxMind DB file format, version 2.0) and in a CSV file of prefixes, which takes precedence.
//!
//! ```text
//! prefix,asn,region
//! 203.0.113.0/24,64500,DE
//! 2001:db8::/32,64501,
//! ```

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_geo::{Databases, GeoError, Record, Stamp};
use thalweg_record::{Network, Prefix};

/// Maximum number of cached prefixes.
const REMEMBERED_MAX: usize = 100_000;
/// Maximum number of interned regions. Interning lets records from the same region share one
/// string.
const REGIONS_MAX: usize = 10_000;

/// Reason why a network file cannot be used.
#[derive(Debug)]
pub enum EnrichError {
    /// A database cannot be read.
    Database(GeoError),
    /// The CSV file cannot be read.
    Read {
        /// Path of the CSV file.
        path: PathBuf,
        /// Underlying I/O error.
        cause: io::Error,
    },
    /// A line of the CSV file is malformed.
    Line {
        /// Path of the CSV file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// Description of the error.
        fault: String,
    },
}

impl fmt::Display for EnrichError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database(error) => error.fmt(f),
            Self::Read { path, .. } => write!(f, "cannot read {}", path.display()),
            Self::Line { path, line, fault } => write!(f, "{}:{line}: {fault}", path.display()),
        }
    }
}

impl std::error::Error for EnrichError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { cause, .. } => Some(cause),
            // The message of the other errors already includes the cause.
            Self::Database(_) | Self::Line { .. } => None,
        }
    }
}

/// Look-up of client networks by address.
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
    databases: Databases,
    csv: Csv,
    /// Stamp of the CSV file; `None` if none is configured.
    csv_stamp: Option<Stamp>,
}

/// Networks by prefix, and the prefix lengths that occur.
#[derive(Debug, Default)]
struct Csv {
    networks: HashMap<Prefix, Network>,
    bits: BTreeSet<u8>,
}

impl Networks {
    /// Reads the databases and the CSV file, if configured.
    ///
    /// # Errors
    ///
    /// Returns an error for the first file or line that cannot be used.
    pub fn open(databases: &[PathBuf], csv: Option<&Path>) -> Result<Self, EnrichError> {
        let paths = Paths { databases: databases.to_vec(), csv: csv.map(Path::to_owned) };
        let files = Files::read(&paths)?;
        Ok(Self { paths, files, remembered: HashMap::new(), regions: BTreeSet::new() })
    }

    /// Reloads all files if any has changed. Returns whether they were reloaded.
    ///
    /// # Errors
    ///
    /// Returns an error if a changed file cannot be used. The previous data then stays in use.
    pub fn refresh(&mut self) -> Result<bool, EnrichError> {
        if self.files.are_current(&self.paths) {
            return Ok(false);
        }
        self.files = Files::read(&self.paths)?;
        self.remembered.clear();
        self.regions.clear();
        Ok(true)
    }

    /// Returns the network of `client`. All addresses within a /24 or /56 are assumed to belong to
    /// the same network.
    pub fn find(&mut self, client: IpAddr) -> Network {
        let prefix = Prefix::of_client(client);
        if let Some(network) = self.remembered.get(&prefix) {
            return network.clone();
        }
        let mut network = self.files.find(prefix.first());
        network.region = network.region.map(|region| self.intern(region));
        if self.remembered.len() >= REMEMBERED_MAX {
            self.remembered.clear();
        }
        self.remembered.insert(prefix, network.clone());
        network
    }

    fn intern(&mut self, region: Arc<str>) -> Arc<str> {
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

impl Files {
    fn read(paths: &Paths) -> Result<Self, EnrichError> {
        let databases = Databases::read(&paths.databases).map_err(EnrichError::Database)?;
        let (csv, csv_stamp) = match &paths.csv {
            Some(path) => Csv::read(path).map(|(csv, stamp)| (csv, Some(stamp)))?,
            None => Default::default(),
        };
        Ok(Self { databases, csv, csv_stamp })
    }

    fn are_current(&self, paths: &Paths) -> bool {
        self.databases.are_current() && paths.csv.as_deref().and_then(Stamp::of) == self.csv_stamp
    }

    /// Looks up an address. The CSV file takes precedence over the databases, and earlier databases
    /// over later ones.
    fn find(&self, address: IpAddr) -> Network {
        let mut known = self.csv.find(address).cloned().unwrap_or_default();
        let mut records = self.databases.find(address);
        while (known.asn.is_none() || known.region.is_none())
            && let Some(record) = records.next()
        {
            known.asn = known.asn.or(record.network.autonomous_system_number);
            known.region = known.region.or_else(|| region(&record));
        }
        known
    }
}

/// Returns the region code: the country, such as `DE`, or the country and subdivision, such as
/// `US-CA`, if the subdivision is known.
fn region(record: &Record<'_>) -> Option<Arc<str>> {
    let country = record.place.country.iso_code?;
    let subdivision = record.place.subdivisions.first().and_then(|subdivision| subdivision.iso_code);
    Some(subdivision.map_or(Arc::from(country), |code| Arc::from(format!("{country}-{code}"))))
}

impl Csv {
    fn read(path: &Path) -> Result<(Self, Stamp), EnrichError> {
        let (bytes, stamp) =
            thalweg_geo::read(path).map_err(|cause| EnrichError::Read { path: path.to_owned(), cause })?;
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
        Ok((csv, stamp))
    }

    fn find(&self, address: IpAddr) -> Option<&Network> {
        let family_bits = if address.is_ipv4() { 32 } else { 128 };
        let bits = self.bits.range(..=family_bits).rev();
        bits.filter_map(|&bits| self.networks.get(&Prefix::cut(address, bits))).next()
    }
}

fn network_of(record: &csv::StringRecord) -> Result<(Prefix, Network), String> {
    let &[prefix, asn, region] = &*record.iter().map(str::trim).collect::<Vec<_>>() else {
        return Err("expected three fields: prefix,asn,region".to_owned());
    };
    let prefix = prefix.parse::<Prefix>().map_err(|fault| format!("{prefix:?}: {fault}"))?;
    let number = asn.trim_start_matches("AS");
    let asn = if number.is_empty() {
        None
    } else {
        Some(number.parse().map_err(|_| format!("{asn:?}: expected an autonomous system number"))?)
    };
    Ok((prefix, Network { asn, region: (!region.is_empty()).then(|| Arc::from(region)) }))
}
