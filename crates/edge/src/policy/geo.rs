//! Client geolocation for policies, from the configured databases.
//!
//! Databases are read at startup, and their files are checked whenever a policy is loaded. If a
//! file has changed, the databases are read again for that policy; otherwise, policies share them.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use thalweg_geo::{Databases, GeoError, Record};
use thalweg_policy::task::Geo;

/// The configured database files.
#[derive(Debug)]
pub(crate) struct GeoFiles {
    paths: Vec<PathBuf>,
    last: Mutex<Arc<Databases>>,
}

impl GeoFiles {
    /// Reads the databases in `paths`; `None` if `paths` is empty.
    pub(crate) fn open(paths: &[PathBuf]) -> Result<Option<Self>, GeoError> {
        if paths.is_empty() {
            return Ok(None);
        }
        let last = Mutex::new(Arc::new(Databases::read(paths)?));
        Ok(Some(Self { paths: paths.to_vec(), last }))
    }

    /// Returns the current databases, reading them again if a file has changed.
    pub(crate) fn now(&self) -> Result<Arc<Databases>, GeoError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if !last.are_current() {
            *last = Arc::new(Databases::read(&self.paths)?);
        }
        Ok(last.clone())
    }
}

/// Looks up `address` in the databases. Each value comes from the first database that contains it.
pub(crate) fn find(databases: &Databases, address: IpAddr) -> Option<Geo> {
    databases.find(address).map(geo).reduce(|first, next| Geo {
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

fn geo(Record { place, network }: Record<'_>) -> Geo {
    let own = |text: Option<&str>| text.map(str::to_owned);
    Geo {
        as_name: own(network.autonomous_system_organization),
        as_number: network.autonomous_system_number,
        city: own(place.city.names.english),
        continent_code: own(place.continent.code),
        country_code: own(place.country.iso_code),
        country_name: own(place.country.names.english),
        latitude: place.location.latitude,
        longitude: place.location.longitude,
        metro_code: place.location.metro_code,
        postal_code: own(place.postal.code),
        region: place.subdivisions.first().and_then(|subdivision| own(subdivision.iso_code)),
    }
}
