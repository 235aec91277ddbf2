//! Programs by name: loaded from files, one of them active, changed while requests run.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use thalweg_geo::{Databases, GeoError};
use thalweg_policy::source::FILE_BYTES_MAX;
use thalweg_policy::task::{Alone, Client, Fetch, Kept, Object, Session, Workspace};
use thalweg_policy::{Action, File, Known, Program, Report, Sub, Task};

use super::geo::GeoFiles;
use super::socket::NoConnection;
use crate::backend::{Backends, PolicyBackends};
use crate::{now_ms, now_s};

/// Policies that are loaded at a time.
const LOADED_MAX: usize = 100;

/// Text of one policy that is shown: it may have far more.
pub const SHOWN_BYTES_MAX: usize = 4 << 20;

/// Bytes of a policy's name.
const NAME_BYTES_MAX: usize = 64;

/// A policy that was compiled and has begun.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) loaded_ms: u64,
    pub(crate) program: Program,
    pub(crate) backends: PolicyBackends,
    pub(crate) geo: Option<Arc<Databases>>,
}

/// A policy that was compiled, before it has backends.
#[derive(Debug)]
pub(crate) struct Compiled {
    path: PathBuf,
    program: Program,
    geo: Option<Arc<Databases>>,
    pub(crate) warnings: Report,
}

/// All policies of an edge.
#[derive(Debug)]
pub struct Policies {
    backends: Arc<Backends>,
    geo: Option<Arc<GeoFiles>>,
    active: ArcSwapOption<Loaded>,
    all: Mutex<BTreeMap<String, Arc<Loaded>>>,
}

/// What is told of a loaded policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// By which it is used and discarded.
    pub name: String,
    /// The file it came from.
    pub path: PathBuf,
    /// When, in unix milliseconds.
    pub loaded_ms: u64,
    /// Whether new requests run through it.
    pub is_active: bool,
    /// Requests and fetches that still run through it.
    pub in_use: usize,
}

/// A file of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Its path.
    pub name: String,
    /// How long its text is.
    pub text_bytes: usize,
    /// `None` where that is more than is left of [`SHOWN_BYTES_MAX`].
    pub text: Option<String>,
}

/// Why a policy was not loaded, used or discarded.
#[derive(Debug)]
pub enum LoadError {
    /// This is no name.
    Name(String),
    /// The file cannot be read.
    Read(PathBuf, io::Error),
    /// The faults in it.
    Faults(Report),
    /// Its `vcl_init` failed.
    Init(String),
    /// Its backends cannot be used.
    Backends(String),
    /// A database of where clients are, as it is now.
    Geo(GeoError),
    /// There is one of this name.
    Taken(String),
    /// There is none of this name.
    Unknown(String),
    /// New requests run through it.
    Active(String),
    /// Another one sends requests to it: first its own name, then the other's.
    Named(String, String),
    /// As many as there may be are loaded.
    TooMany,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(
                f,
                "{name:?} cannot be a policy's name: that is a letter, then letters, digits, _ and -, {NAME_BYTES_MAX} at most"
            ),
            Self::Read(path, error) => write!(f, "cannot read the policy {}: {error}", path.display()),
            Self::Faults(report) => report.fmt(f),
            Self::Init(reason) => write!(f, "vcl_init failed: {reason}"),
            Self::Backends(reason) => f.write_str(reason),
            Self::Geo(error) => error.fmt(f),
            Self::Taken(name) => write!(f, "there is a policy {name:?} already"),
            Self::Unknown(name) => write!(f, "there is no policy {name:?}"),
            Self::Active(name) => write!(f, "{name:?} is the active policy: use another before"),
            Self::Named(name, by) => write!(f, "{by:?} sends requests to {name:?}: discard that before"),
            Self::TooMany => write!(f, "{LOADED_MAX} policies are loaded: discard one before"),
        }
    }
}

impl std::error::Error for LoadError {}

impl Compiled {
    /// Compiles a file and what it includes, and runs its `vcl_init`.
    pub(crate) fn from_file(
        path: &Path,
        labels: Vec<String>,
        geo: Option<&GeoFiles>,
    ) -> Result<Self, LoadError> {
        let geo = geo.map(GeoFiles::now).transpose().map_err(LoadError::Geo)?;
        let text = read(path).map_err(|error| LoadError::Read(path.to_owned(), error))?;
        // Beside the file that names it.
        let mut loader = |named: &str, from: &str| {
            let path = Path::new(from).parent().unwrap_or(Path::new("")).join(named);
            let name = path.display().to_string();
            let text = read(&path).map_err(|error| format!("cannot read {name}: {error}"))?;
            Ok(File { name, text })
        };
        let main = File { name: path.display().to_string(), text };
        let (mut program, warnings) =
            thalweg_policy::compile(main, &mut loader, &known(labels, geo.is_some()))
                .map_err(LoadError::Faults)?;
        init(&mut program).map_err(LoadError::Init)?;
        Ok(Self { path: path.to_owned(), program, geo, warnings })
    }
}

/// What the machine has that a policy may name.
fn known(labels: Vec<String>, has_geo: bool) -> Known {
    let available = thalweg_tcp::congestion::available().ok();
    Known {
        congestion_algorithms: available.map(|names| names.iter().map(ToString::to_string).collect()),
        has_geo: Some(has_geo),
        // The memory, by the names that Varnish gives its own, and the disk tier.
        storages: ["s0", "Transient", "disk"].map(str::to_owned).into(),
        labels: Some(labels),
        resolve: Some(resolve),
        // It looks names up as long as it runs.
        is_known_host: None,
    }
}

fn resolve(host: &str) -> Vec<IpAddr> {
    (host, 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect()).unwrap_or_default()
}

fn read(path: &Path) -> io::Result<String> {
    let bytes = std::fs::read(path)?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("longer than {FILE_BYTES_MAX} bytes"),
        ));
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn init(program: &mut Program) -> Result<(), String> {
    match outside_of_requests(Sub::Init, |task| program.init(task)) {
        Ok(Action::Ok) => Ok(()),
        Ok(Action::Fail { reason }) => {
            Err(reason
                .map_or_else(|| "it says so".into(), |text| String::from_utf8_lossy(&text).into_owned()))
        }
        Ok(_) => Err("it ended without ok".into()),
        Err(failure) => Err(failure.to_string()),
    }
}

impl Drop for Loaded {
    /// `vcl_fini`, once the policy was discarded and no request runs through it any more.
    fn drop(&mut self) {
        if !self.program.is_written(Sub::Fini) {
            return;
        }
        let ended = outside_of_requests(Sub::Fini, |task| self.program.run(Sub::Fini, task));
        if let Err(failure) = ended {
            tracing::warn!(policy = self.name, sub = %Sub::Fini, %failure, "policy failed");
        }
    }
}

/// Runs what belongs to no request; what it logs is told.
fn outside_of_requests<T>(sub: Sub, work: impl FnOnce(&mut Task<'_>) -> T) -> T {
    let mut log = Vec::new();
    let result = work(&mut Task {
        now_s: now_s(),
        original: None,
        req: None,
        bereq: None,
        beresp: None,
        obj: None,
        resp: None,
        client: &mut Client::default(),
        fetch: &mut Fetch::default(),
        object: &Object::default(),
        session: &mut Session::default(),
        connection: &mut NoConnection,
        host: &Alone,
        log: &mut log,
        kept: &mut Kept::default(),
        workspace: &mut Workspace::default(),
        random: &mut now_ms(),
    });
    for line in &log {
        tracing::info!(tag = ?line.tag, text = line.text, %sub, "policy");
    }
    result
}

impl Policies {
    pub(crate) fn new(backends: Arc<Backends>, geo: Option<GeoFiles>) -> Self {
        Self { backends, geo: geo.map(Arc::new), active: ArcSwapOption::empty(), all: Mutex::default() }
    }

    /// The policy that new requests run through.
    pub(crate) fn active(&self) -> Option<Arc<Loaded>> {
        self.active.load_full()
    }

    /// The policy of this name: where `return (vcl(NAME))` leads.
    pub(crate) fn labelled(&self, name: &str) -> Option<Arc<Loaded>> {
        self.all().get(name).cloned()
    }

    /// Whether a policy may have this name: `return (vcl(NAME))` has to be able to name it.
    ///
    /// # Errors
    /// What a name may be.
    pub fn check_name(name: &str) -> Result<(), LoadError> {
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let is_name = name.len() <= NAME_BYTES_MAX
            && name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name.bytes().all(is_of_name);
        if is_name { Ok(()) } else { Err(LoadError::Name(name.into())) }
    }

    /// Compiles a policy and looks its backends up, so that requests can run through it; new ones do at once if
    /// `use_it`. With the warnings.
    ///
    /// # Errors
    /// What is wrong with it; nothing has changed then.
    pub async fn load(&self, name: &str, path: &Path, use_it: bool) -> Result<Report, LoadError> {
        Self::check_name(name)?;
        let labels: Vec<_> = self.all().keys().cloned().collect();
        let (path, geo) = (path.to_owned(), self.geo.clone());
        let compiled =
            tokio::task::spawn_blocking(move || Compiled::from_file(&path, labels, geo.as_deref())).await;
        self.add(name, self.with_backends(compiled.expect("no policy panics")?)?, use_it).await
    }

    /// Compiles the policy that the edge begins with.
    pub(crate) fn compile(&self, path: &Path) -> Result<Compiled, LoadError> {
        self.with_backends(Compiled::from_file(path, Vec::new(), self.geo.as_deref())?)
    }

    /// A policy that has somewhere to send requests.
    fn with_backends(&self, compiled: Compiled) -> Result<Compiled, LoadError> {
        if !compiled.program.backends().is_empty() || self.backends.has_configured() {
            return Ok(compiled);
        }
        let path = compiled.path.display();
        Err(LoadError::Backends(format!(
            "{path} declares no backend and the edge has none: declare one, or give --backend URL"
        )))
    }

    /// Adds a policy that was compiled, and has new requests run through it if `use_it`.
    pub(crate) async fn add(
        &self,
        name: &str,
        compiled: Compiled,
        use_it: bool,
    ) -> Result<Report, LoadError> {
        let Compiled { path, program, geo, warnings } = compiled;
        let backends = PolicyBackends::load(&self.backends, program.backends(), program.probes()).await;
        let backends = backends.map_err(|error| LoadError::Backends(error.to_string()))?;
        let mut all = self.all();
        if all.contains_key(name) {
            return Err(LoadError::Taken(name.into()));
        }
        if all.len() == LOADED_MAX {
            return Err(LoadError::TooMany);
        }
        let loaded = Loaded { name: name.to_owned(), path, loaded_ms: now_ms(), program, backends, geo };
        let loaded = Arc::new(loaded);
        all.insert(name.to_owned(), loaded.clone());
        if use_it {
            self.active.store(Some(loaded));
        }
        Ok(warnings)
    }

    /// Has new requests run through a policy. Those under way keep theirs.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn activate(&self, name: &str) -> Result<(), LoadError> {
        // With the list held: what is active is never discarded meanwhile.
        let all = self.all();
        let loaded = all.get(name).ok_or_else(|| LoadError::Unknown(name.into()))?;
        self.active.store(Some(loaded.clone()));
        Ok(())
    }

    /// Forgets a policy. Requests under way keep theirs.
    ///
    /// # Errors
    /// When there is none of this name, new requests run through it, or another policy sends them to it.
    pub fn discard(&self, name: &str) -> Result<(), LoadError> {
        let mut all = self.all();
        if self.active().is_some_and(|active| active.name == name) {
            return Err(LoadError::Active(name.into()));
        }
        let names_it = |(by, other): &(&String, &Arc<Loaded>)| *by != name && other.program.names(name);
        if let Some((by, _)) = all.iter().find(names_it).filter(|_| all.contains_key(name)) {
            return Err(LoadError::Named(name.into(), by.clone()));
        }
        let removed = all.remove(name);
        // Workers wait for the list: `vcl_fini` and what else its end takes comes after.
        drop(all);
        removed.map(drop).ok_or_else(|| LoadError::Unknown(name.into()))
    }

    /// The files of a policy as they were when it was loaded, the main one first, the built-in one not among them.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn sources(&self, name: &str) -> Result<Vec<Source>, LoadError> {
        let loaded = self.labelled(name).ok_or_else(|| LoadError::Unknown(name.into()))?;
        let mut left = SHOWN_BYTES_MAX;
        let source = |file: &File| {
            let text_bytes = file.text.len();
            let rest = left.checked_sub(text_bytes);
            left = rest.unwrap_or(left);
            Source { name: file.name.clone(), text_bytes, text: rest.map(|_| file.text.clone()) }
        };
        Ok(loaded.program.files().iter().map(source).collect())
    }

    /// All that are loaded, by name.
    pub fn list(&self) -> Vec<Told> {
        let active = self.active();
        let is_active =
            |loaded: &Arc<Loaded>| active.as_ref().is_some_and(|active| Arc::ptr_eq(active, loaded));
        let told = |loaded: &Arc<Loaded>| Told {
            name: loaded.name.clone(),
            path: loaded.path.clone(),
            loaded_ms: loaded.loaded_ms,
            is_active: is_active(loaded),
            // Beside the list's own and, of the active one, two more: the place of the active one, and this look.
            in_use: Arc::strong_count(loaded).saturating_sub(if is_active(loaded) { 3 } else { 1 }),
        };
        self.all().values().map(told).collect()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Loaded>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
