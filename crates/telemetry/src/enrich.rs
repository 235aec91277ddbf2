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
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_geo::{Databases, GeoError, Record, Stamp};
use thalweg_record::{Network, Prefix};

/// Networks that are remembered.
const REMEMBERED_MAX: usize = 100_000;
/// Regions that are remembered, so that each is a text once.
const REGIONS_MAX: usize = 10_000;

/// A file of networks that cannot be used.
#[derive(Debug)]
pub enum EnrichError {
    /// A database that cannot be had.
    Database(GeoError),
    /// The CSV cannot be read.
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
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
            // Their text has the cause.
            Self::Database(_) | Self::Line { .. } => None,
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
    databases: Databases,
    csv: Csv,
    /// The CSV's; none without one.
    csv_stamp: Option<Stamp>,
}

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
        if self.files.are_current(&self.paths) {
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

    /// The CSV goes before the databases, and the first of these that says something before the next.
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

/// `DE`, or `US-CA` where a subdivision is known.
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
