//! What a policy may ask of the process.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use thalweg_bundle::Bundle;
use thalweg_cache::tags::xkeys;
use thalweg_cache::{Ban, Cache, Expression, What};
use thalweg_policy::task::{Geo, Host, Storage};

use super::Loaded;
use crate::bundle::Bundles;
use crate::{now_ms, now_s};

/// Bytes of a file that a policy reads.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Tags of one purge.
const TAGS_MAX: usize = 1024;

/// The process, to a policy.
pub(super) struct Process<'a> {
    pub(super) cache: &'a Arc<Cache>,
    pub(super) loaded: &'a Loaded,
    /// `None` where there is no client whom it could be about.
    pub(super) bundles: Option<&'a Bundles>,
}

impl Host for Process<'_> {
    fn now_s(&self) -> Option<f64> {
        Some(now_s())
    }

    fn is_healthy(&self, backend: u32) -> bool {
        self.loaded.backends.is_healthy(backend)
    }

    fn changed_s(&self, backend: u32) -> f64 {
        self.loaded.backends.changed_s(backend)
    }

    fn storage(&self, name: &str) -> Storage {
        let arena = self.cache.arena();
        match (name, self.cache.disk_stats()) {
            ("disk", Some(disk)) => Storage {
                free_bytes: disk.bytes_max.saturating_sub(disk.bytes),
                used_bytes: disk.bytes,
                is_happy: true,
            },
            ("disk", None) => Storage::default(),
            _ => {
                let (all, free) = (arena.slabs_max() as u64, arena.free_slabs() as u64);
                let slab = thalweg_cache::SLAB_BYTES as u64;
                Storage { free_bytes: free * slab, used_bytes: (all - free) * slab, is_happy: true }
            }
        }
    }

    fn geo(&self, address: IpAddr) -> Option<Geo> {
        super::geo::find(self.loaded.geo.as_ref()?, address)
    }

    fn environment(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn read_file(&self, path: &str) -> Result<Vec<u8>, String> {
        read(path).map_err(|error| format!("{path}: {error}"))
    }

    fn file_exists(&self, path: &str) -> bool {
        std::fs::metadata(path).is_ok()
    }

    fn ban(&self, expression: &str) -> Result<(), String> {
        let expression = Expression::parse(expression).map_err(|error| error.to_string())?;
        self.purge(What::Ban(Arc::new(Ban { expression, made_ms: now_ms() })), None)
    }

    fn purge_tags(&self, tags: &str, soft: bool) -> Result<u64, String> {
        let soft_ms = soft.then(now_ms);
        let tags: Vec<_> = xkeys(tags.as_bytes()).take(TAGS_MAX + 1).collect();
        if tags.len() > TAGS_MAX {
            return Err(format!("more than {TAGS_MAX} tags are purged at once"));
        }
        tags.iter().try_for_each(|tag| self.purge(What::Tag((*tag).into()), soft_ms))?;
        Ok(tags.len() as u64)
    }

    fn bundle_number(&self) -> Option<u64> {
        self.in_bundle(|bundle| Some(bundle.content().number))
    }

    fn rule_algorithm(&self, address: IpAddr, host: &str) -> Option<String> {
        self.in_bundle(|bundle| Some(bundle.rule(address, host)?.congestion_control.clone()))
    }

    fn is_holdout(&self, client: SocketAddr, host: &str) -> bool {
        self.in_bundle(|bundle| Some(bundle.rule(client.ip(), host)?.holds_out(client))).unwrap_or(false)
    }

    fn arm(&self, experiment: &str, host: &str, client: SocketAddr) -> Option<String> {
        self.in_bundle(|bundle| {
            let found = bundle.experiment(host).filter(|found| found.name == experiment)?;
            Some(found.arm(client).name.clone())
        })
    }
}

impl Process<'_> {
    /// What `look` finds in the bundle in force.
    fn in_bundle<T>(&self, look: impl FnOnce(&Bundle) -> Option<T>) -> Option<T> {
        self.bundles.and_then(|bundles| look(&bundles.active().as_ref()?.bundle))
    }

    /// In force once it returns. It is a worker that runs a policy: the journal of the disk tier is written behind.
    fn purge(&self, what: What, soft_ms: Option<u64>) -> Result<(), String> {
        self.cache.purge_unwritten(what, soft_ms).map(|_| ()).map_err(|error| error.to_string())
    }
}

/// The content of a regular file: with another a worker might wait for whoever is at its other end.
fn read(path: &str) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    if metadata.len() <= FILE_BYTES_MAX {
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    }
    if metadata.len().max(bytes.len() as u64) > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("longer than {FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}
