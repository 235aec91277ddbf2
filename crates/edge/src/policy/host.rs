//! What a policy may ask of the process.

use std::io::Read as _;
use std::sync::Arc;

use thalweg_cache::tags::xkeys;
use thalweg_cache::{Ban, Cache, Expression, What};
use thalweg_policy::task::{Host, Storage};

use crate::backend::PolicyBackends;
use crate::now_ms;
use crate::purge::in_background;

/// Bytes of a file that a policy reads.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The process, to a policy.
pub(super) struct Process<'a> {
    pub(super) cache: &'a Arc<Cache>,
    pub(super) backends: &'a PolicyBackends,
}

impl Host for Process<'_> {
    fn is_healthy(&self, backend: u32) -> bool {
        self.backends.is_healthy(backend)
    }

    fn changed_s(&self, backend: u32) -> f64 {
        self.backends.changed_s(backend)
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

    fn environment(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn read_file(&self, path: &str) -> Result<Vec<u8>, String> {
        let told = |error: std::io::Error| format!("{path}: {error}");
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(told)?;
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(told)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(format!("{path}: longer than {FILE_BYTES_MAX} bytes"));
        }
        Ok(bytes)
    }

    fn ban(&self, expression: &str) -> Result<(), String> {
        let expression = Expression::parse(expression).map_err(|error| error.to_string())?;
        self.purge(What::Ban(Arc::new(Ban { expression, made_ms: now_ms() })), None);
        Ok(())
    }

    fn purge_tags(&self, tags: &str, soft: bool) -> u64 {
        let tags: Vec<Box<[u8]>> = xkeys(tags.as_bytes()).map(Into::into).collect();
        let count = tags.len() as u64;
        for tag in tags {
            self.purge(What::Tag(tag), soft.then(now_ms));
        }
        count
    }
}

impl Process<'_> {
    /// Beside the request: a journal on disk may have to be waited for.
    fn purge(&self, what: What, soft_ms: Option<u64>) {
        let cache = self.cache.clone();
        tokio::spawn(async move {
            if let Err(error) = in_background(&cache, move |cache| cache.purge(what, soft_ms)).await {
                tracing::warn!(%error, "a policy's purge was not done");
            }
        });
    }
}
