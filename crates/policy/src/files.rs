//! File cache of a program. As in varnishd, entries stay valid for the program's lifetime.
//!
//! With the cache, a policy that reads a file on every request does not block a worker each time.
//! Changes to a file take effect when the next policy is loaded. Failed reads are not cached,
//! because the file may be created later.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of cached files; the oldest is evicted first.
const FILES_MAX: usize = 64;
/// Maximum total size of the cached files in bytes, unless a single file is larger.
const BYTES_MAX: usize = 4 << 20;

/// A path and its content.
type CachedFile = (Box<str>, Arc<[u8]>);

/// Cached files, in the order in which they were read.
#[derive(Debug, Default)]
pub(crate) struct Files(Mutex<VecDeque<CachedFile>>);

impl Files {
    /// Returns the content at `path`, calling `read` if it is not cached.
    ///
    /// # Errors
    ///
    /// Returns the error of `read`.
    pub(crate) fn get(
        &self,
        path: &str,
        read: impl FnOnce() -> Result<Vec<u8>, String>,
    ) -> Result<Arc<[u8]>, String> {
        if let Some((_, content)) = self.lock().iter().find(|(cached, _)| **cached == *path) {
            return Ok(content.clone());
        }
        // Read without the lock, so that other workers are not blocked.
        let content: Arc<[u8]> = read()?.into();
        let mut files = self.lock();
        files.retain(|(cached, _)| **cached != *path);
        files.push_back((path.into(), content.clone()));
        let bytes =
            |files: &VecDeque<(_, Arc<[u8]>)>| files.iter().map(|(_, content)| content.len()).sum::<usize>();
        while files.len() > FILES_MAX || files.len() > 1 && bytes(&files) > BYTES_MAX {
            files.pop_front();
        }
        Ok(content)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<CachedFile>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_read_once_until_evicted() {
        let files = Files::default();
        let mut reads = Vec::new();
        let mut get = |path: &str, length: usize| {
            let read = || {
                reads.push(path.to_owned());
                Ok(vec![0; length])
            };
            assert_eq!(files.get(path, read).expect("the read must succeed").len(), length);
        };
        get("/a", BYTES_MAX);
        get("/a", BYTES_MAX);
        get("/b", 1);
        get("/a", BYTES_MAX);
        (0..FILES_MAX).for_each(|number| get(&number.to_string(), 0));
        get("/a", BYTES_MAX);
        get("1", 0);
        let named: Vec<_> = reads.iter().filter(|path| matches!(&***path, "/a" | "/b" | "1")).collect();
        assert_eq!(named, ["/a", "/b", "/a", "1", "/a"]);
    }

    #[test]
    fn failed_reads_are_retried() {
        let files = Files::default();
        assert_eq!(files.get("/a", || Err("not there".into())), Err("not there".into()));
        assert_eq!(files.get("/a", || Ok(b"a".to_vec())).as_deref(), Ok(&b"a"[..]));
    }
}
