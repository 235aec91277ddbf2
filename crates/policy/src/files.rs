//! Files that a program has read, for as long as it lives, as with varnishd: a policy that reads one with each request
//! costs no worker a read with each. A changed file is read by the next policy that is loaded.
//!
//! What cannot be read is not kept: it may be there the next time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Files that are kept; with more, those that were read first are read again.
const FILES_MAX: usize = 64;
/// Bytes of all that is kept, where that is more than one file.
const BYTES_MAX: usize = 4 << 20;

/// A path, and what was read there.
type Kept = (Box<str>, Arc<[u8]>);

/// Contents by path, the one that was read first in front.
#[derive(Debug, Default)]
pub(crate) struct Files(Mutex<VecDeque<Kept>>);

impl Files {
    /// The content at `path`, which `read` is asked for if it is not kept.
    ///
    /// # Errors
    /// What `read` says.
    pub(crate) fn get(
        &self,
        path: &str,
        read: impl FnOnce() -> Result<Vec<u8>, String>,
    ) -> Result<Arc<[u8]>, String> {
        if let Some((_, content)) = self.lock().iter().find(|(kept, _)| **kept == *path) {
            return Ok(content.clone());
        }
        // Not under the lock: the other workers go on.
        let content: Arc<[u8]> = read()?.into();
        let mut files = self.lock();
        files.retain(|(kept, _)| **kept != *path);
        files.push_back((path.into(), content.clone()));
        let bytes =
            |files: &VecDeque<(_, Arc<[u8]>)>| files.iter().map(|(_, kept)| kept.len()).sum::<usize>();
        while files.len() > FILES_MAX || files.len() > 1 && bytes(&files) > BYTES_MAX {
            files.pop_front();
        }
        Ok(content)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_once_until_others_take_its_place() {
        let files = Files::default();
        let mut reads = Vec::new();
        let mut get = |path: &str, length: usize| {
            let read = || {
                reads.push(path.to_owned());
                Ok(vec![0; length])
            };
            assert_eq!(files.get(path, read).expect("it is there").len(), length);
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
    fn what_cannot_be_read_is_asked_for_again() {
        let files = Files::default();
        assert_eq!(files.get("/a", || Err("not there".into())), Err("not there".into()));
        assert_eq!(files.get("/a", || Ok(b"a".to_vec())).as_deref(), Ok(&b"a"[..]));
    }
}
