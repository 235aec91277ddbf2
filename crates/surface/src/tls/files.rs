//! PEM files, read again when used, at most once per second.
//!
//! The content is compared, not the time of the last change, so a replacement within the resolution
//! of the file system's clock is noticed, too.

use std::fmt;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::KeyPair;

/// Minimum time between two checks for changed files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum length of a file in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Paths of a configuration's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Paths {
    pub(super) ca: Option<PathBuf>,
    pub(super) pair: Option<KeyPair>,
}

/// A file's content.
#[derive(PartialEq, Eq)]
pub(super) struct File {
    path: PathBuf,
    pub(super) content: Vec<u8>,
}

/// Content of a configuration's files.
#[derive(PartialEq, Eq)]
pub(super) struct Files {
    pub(super) ca: Option<File>,
    /// Certificate and private key.
    pub(super) pair: Option<(File, File)>,
}

/// Builds a configuration from its files.
type Build<T> = fn(&Files) -> Result<T, String>;

/// A configuration that follows its files.
pub(super) struct Watched<T> {
    paths: Paths,
    build: Build<T>,
    state: Mutex<State<T>>,
}

struct State<T> {
    config: Arc<T>,
    /// Files from which `config` was built.
    files: Files,
    checked: Instant,
    /// Why newer files are unusable, if they are.
    fault: Option<String>,
}

impl<T> Watched<T> {
    /// Builds the configuration.
    ///
    /// # Errors
    ///
    /// Returns an error that names the unusable file.
    pub(super) fn open(paths: Paths, build: Build<T>) -> Result<Self, String> {
        let files = paths.read()?;
        let config = Arc::new(build(&files)?);
        let state = State { config, files, checked: Instant::now(), fault: None };
        Ok(Self { paths, build, state: Mutex::new(state) })
    }

    /// Returns the configuration, built from the newest usable files.
    pub(super) fn current(&self) -> Arc<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.checked.elapsed() >= CHECK_INTERVAL {
            state.checked = Instant::now();
            self.check(&mut state);
        }
        state.config.clone()
    }

    fn check(&self, state: &mut State<T>) {
        let read = self.paths.read();
        if read.as_ref() == Ok(&state.files) {
            state.fault = None;
            return;
        }
        match read.and_then(|files| Ok(((self.build)(&files)?, files))) {
            Ok((config, files)) => {
                tracing::info!(files = %self.paths, "TLS files loaded");
                (state.config, state.files, state.fault) = (Arc::new(config), files, None);
            }
            // A certificate may be replaced a moment before its key, so the next check tries again.
            Err(fault) if state.fault.as_ref() != Some(&fault) => {
                tracing::error!(fault, "TLS files unusable, the last good ones stay in use");
                state.fault = Some(fault);
            }
            Err(_) => {}
        }
    }
}

impl<T> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("paths", &self.paths).finish_non_exhaustive()
    }
}

impl Paths {
    fn read(&self) -> Result<Files, String> {
        let ca = self.ca.as_deref().map(File::read).transpose()?;
        let pair = self.pair.as_ref();
        let pair = pair.map(|pair| Ok::<_, String>((File::read(&pair.certificate)?, File::read(&pair.key)?)));
        Ok(Files { ca, pair: pair.transpose()? })
    }
}

/// Formats the paths for the log.
impl fmt::Display for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pair = self.pair.iter().flat_map(|pair| [&pair.certificate, &pair.key]);
        let paths: Vec<_> = self.ca.iter().chain(pair).map(|path| path.display().to_string()).collect();
        f.write_str(&paths.join(" "))
    }
}

impl File {
    fn read(path: &Path) -> Result<Self, String> {
        let mut content = Vec::new();
        let file = fs::File::open(path).map(|file| file.take(FILE_BYTES_MAX + 1));
        let read = file.and_then(|mut file| file.read_to_end(&mut content));
        let file = Self { path: path.to_owned(), content };
        match read {
            Err(error) => Err(format!("cannot read {}: {error}", path.display())),
            Ok(bytes) if bytes as u64 > FILE_BYTES_MAX => {
                Err(file.fault(format!("longer than {FILE_BYTES_MAX} bytes")))
            }
            Ok(_) => Ok(file),
        }
    }

    /// Formats a fault of the file.
    pub(super) fn fault(&self, why: impl fmt::Display) -> String {
        format!("{}: {why}", self.path.display())
    }
}
