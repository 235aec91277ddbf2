//! A policy's access to the process.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use thalweg_bundle::Bundle;
use thalweg_cache::tags::xkeys;
use thalweg_cache::{Cache, PurgeScope};
use thalweg_policy::task::{Geo, Host, Storage};

use super::loaded::Loaded;
use crate::bundle::Bundles;
use crate::clock::{now_ms, now_s};

/// Maximum size of a file that a policy may read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of tags in one purge.
const TAGS_MAX: usize = 1024;

/// The process, as a policy sees it.
pub(crate) struct Process<'a> {
    pub(crate) cache: &'a Arc<Cache>,
    pub(crate) loaded: &'a Loaded,
    /// Source of the active bundle; `None` without a client, because rules and experiments apply to
    /// clients only.
    pub(crate) bundles: Option<&'a Bundles>,
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
        let ban = crate::ban::new(expression).map_err(|error| error.to_string())?;
        self.purge(PurgeScope::Ban(Arc::new(ban)), None)
    }

    fn purge_tags(&self, tags: &str, soft: bool) -> Result<u64, String> {
        let soft_ms = soft.then(now_ms);
        let tags: Vec<_> = xkeys(tags.as_bytes()).take(TAGS_MAX + 1).collect();
        if tags.len() > TAGS_MAX {
            return Err(format!("cannot purge more than {TAGS_MAX} tags at once"));
        }
        tags.iter().try_for_each(|tag| self.purge(PurgeScope::Tag((*tag).into()), soft_ms))?;
        Ok(tags.len() as u64)
    }

    fn bundle_number(&self) -> Option<u64> {
        self.in_bundle(|bundle| Some(bundle.content().number))
    }

    fn rule_algorithm(&self, address: IpAddr, host: &str) -> Option<String> {
        self.in_bundle(|bundle| Some(bundle.rule(address, host)?.congestion_control.clone()))
    }

    fn is_holdout(&self, client: SocketAddr, host: &str) -> bool {
        let (client, unix_s) = (client.ip(), now_ms() / 1_000);
        self.in_bundle(|bundle| Some(bundle.rule(client, host)?.holds_out(client, unix_s))).unwrap_or(false)
    }

    fn arm(&self, experiment: &str, host: &str, client: SocketAddr) -> Option<String> {
        self.in_bundle(|bundle| {
            let found = bundle.experiment(host).filter(|found| found.name == experiment)?;
            Some(found.arm(client).name.clone())
        })
    }
}

impl Process<'_> {
    /// Reads a value from the active bundle.
    fn in_bundle<T>(&self, read: impl FnOnce(&Bundle) -> Option<T>) -> Option<T> {
        self.bundles.and_then(|bundles| read(&bundles.active().as_ref()?.bundle))
    }

    /// Purges stored responses; the purge is in force on return. The disk tier's journal is written
    /// later, because policies run on workers, which must not wait for a disk.
    fn purge(&self, what: PurgeScope, soft_ms: Option<u64>) -> Result<(), String> {
        self.cache.purge_without_waiting(what, soft_ms).map(|_| ()).map_err(|error| error.to_string())
    }
}

/// Reads a regular file; any other kind could block the worker.
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
