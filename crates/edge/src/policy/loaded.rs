//! Policies by name: loaded from files, replaceable while requests run, and at most one of them
//! active.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use thalweg_geo::{Databases, GeoError};
use thalweg_policy::source::FILE_BYTES_MAX;
use thalweg_policy::task::{Client, Fetch, NoHost, Object, RequestState, Session, Workspace};
use thalweg_policy::{Action, File, Known, Program, Report, Sub, Task};

use super::geo::GeoFiles;
use super::socket::NoConnection;
use crate::backend::{Backends, PolicyBackends};
use crate::clock::{now_ms, now_s};
use crate::warnings::{WarningLimit, warn_limited};

/// Maximum number of loaded policies.
const LOADED_MAX: usize = 100;

/// Maximum total length of the sources shown per policy, in bytes; the sources themselves may be
/// far longer.
pub const SHOWN_BYTES_MAX: usize = 4 << 20;

/// Reserved name: activating it makes new requests run without a policy.
const NO_POLICY: &str = "none";

/// Maximum length of a policy's name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// A compiled policy that is ready for requests.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) loaded_ms: u64,
    pub(crate) program: Program,
    pub(crate) backends: PolicyBackends,
    pub(crate) geo: Option<Arc<Databases>>,
    /// Rate limit for failure warnings, because a broken policy may fail on every request.
    failures: WarningLimit,
}

/// A compiled policy whose backends are not created yet.
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

/// Description of a loaded policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyInfo {
    /// Name by which the policy is activated and discarded.
    pub name: String,
    /// File that the policy was loaded from.
    pub path: PathBuf,
    /// When the policy was loaded, in Unix milliseconds.
    pub loaded_ms: u64,
    /// Whether new requests run through the policy.
    pub is_active: bool,
    /// Number of requests and fetches still running through the policy.
    pub in_use: usize,
}

/// A source file of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Path of the file.
    pub name: String,
    /// Length of the content in bytes.
    pub text_bytes: usize,
    /// Content of the file; `None` if it exceeds what remains of [`SHOWN_BYTES_MAX`].
    pub text: Option<String>,
}

/// Reasons why a policy cannot be loaded, activated or discarded.
#[derive(Debug)]
pub enum LoadError {
    /// The name is invalid.
    Name(String),
    /// The file cannot be read.
    Read(PathBuf, io::Error),
    /// The source has faults.
    Faults(Report),
    /// The policy's `vcl_init` failed.
    Init(String),
    /// The policy's backends cannot be used.
    Backends(String),
    /// A GeoIP database cannot be read.
    Geo(GeoError),
    /// The name is already in use.
    Taken(String),
    /// No policy has this name.
    Unknown(String),
    /// The policy is active.
    Active(String),
    /// Another policy sends requests to this one. Contains this policy's name, then the other's.
    Named(String, String),
    /// The limit on loaded policies is reached.
    TooMany,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(
                f,
                "{name:?} is not a valid policy name: must be a letter followed by letters, digits, _ and -, at most {NAME_BYTES_MAX} characters in all, and not {NO_POLICY}"
            ),
            Self::Read(path, error) => write!(f, "cannot read policy {}: {error}", path.display()),
            Self::Faults(report) => report.fmt(f),
            Self::Init(reason) => write!(f, "vcl_init failed: {reason}"),
            Self::Backends(reason) => f.write_str(reason),
            Self::Geo(error) => error.fmt(f),
            Self::Taken(name) => write!(f, "policy {name:?} already exists"),
            Self::Unknown(name) => write!(f, "there is no policy {name:?}"),
            Self::Active(name) => write!(f, "{name:?} is the active policy: activate another first"),
            Self::Named(name, by) => write!(f, "{by:?} sends requests to {name:?}: discard {by:?} first"),
            Self::TooMany => write!(f, "{LOADED_MAX} policies are already loaded: discard one first"),
        }
    }
}

impl std::error::Error for LoadError {}

impl Compiled {
    /// Compiles a file and its includes, and runs its `vcl_init`.
    pub(crate) fn from_file(
        path: &Path,
        labels: Vec<String>,
        geo: Option<&GeoFiles>,
    ) -> Result<Self, LoadError> {
        let geo = geo.map(GeoFiles::now).transpose().map_err(LoadError::Geo)?;
        let text = read(path).map_err(|error| LoadError::Read(path.to_owned(), error))?;
        // Included paths are relative to the including file.
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

/// Lists the names that a policy may use on this machine.
fn known(labels: Vec<String>, has_geo: bool) -> Known {
    let available = thalweg_tcp::congestion::available().ok();
    Known {
        congestion_algorithms: available.map(|names| names.iter().map(ToString::to_string).collect()),
        has_geo: Some(has_geo),
        // Memory, under Varnish's names, and the disk tier.
        storages: ["s0", "Transient", "disk"].map(str::to_owned).into(),
        labels: Some(labels),
        resolve: Some(resolve),
        // Host names are resolved at run time.
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
                .map_or_else(|| "returned fail".into(), |text| String::from_utf8_lossy(&text).into_owned()))
        }
        Ok(_) => Err("did not return ok".into()),
        Err(failure) => Err(failure.to_string()),
    }
}

impl Loaded {
    /// Runs a subroutine. An error is logged and becomes [`Action::Fail`].
    pub(crate) fn run(&self, sub: Sub, task: &mut Task<'_>) -> Action {
        match self.program.run(sub, task) {
            Ok(Action::Fail { reason }) => {
                let reason = reason.map(|text| String::from_utf8_lossy(&text).into_owned());
                warn_limited!(self.failures, policy = self.name, %sub, reason, "policy failed");
                Action::Fail { reason: None }
            }
            Ok(action) => action,
            Err(failure) => {
                warn_limited!(self.failures, policy = self.name, %sub, %failure, "policy failed");
                Action::Fail { reason: None }
            }
        }
    }
}

impl Drop for Loaded {
    /// Runs `vcl_fini` once the policy has been discarded and no request uses it.
    fn drop(&mut self) {
        if !self.program.extends_builtin(Sub::Fini) {
            return;
        }
        let ended = outside_of_requests(Sub::Fini, |task| self.program.run(Sub::Fini, task));
        if let Err(failure) = ended {
            tracing::warn!(policy = self.name, sub = %Sub::Fini, %failure, "policy failed");
        }
    }
}

/// Runs a subroutine outside any request, and logs its output.
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
        host: &NoHost,
        log: &mut log,
        kept: &mut RequestState::default(),
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

    /// Returns the policy for new requests.
    pub(crate) fn active(&self) -> Option<Arc<Loaded>> {
        self.active.load_full()
    }

    /// Returns the policy with this name, for `return (vcl(NAME))`.
    pub(crate) fn by_name(&self, name: &str) -> Option<Arc<Loaded>> {
        self.all().get(name).cloned()
    }

    /// Checks that a policy name is valid, so that `return (vcl(NAME))` can refer to it.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is invalid; the error describes valid names.
    pub fn check_name(name: &str) -> Result<(), LoadError> {
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let is_name = name != NO_POLICY
            && name.len() <= NAME_BYTES_MAX
            && name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name.bytes().all(is_of_name);
        if is_name { Ok(()) } else { Err(LoadError::Name(name.into())) }
    }

    /// Compiles a policy and resolves its backends, then activates it if `use_it`. Returns the
    /// compiler's warnings.
    ///
    /// # Errors
    ///
    /// Returns an error if the policy cannot be loaded; in that case nothing changes.
    pub async fn load(&self, name: &str, path: &Path, use_it: bool) -> Result<Report, LoadError> {
        Self::check_name(name)?;
        let labels: Vec<_> = self.all().keys().cloned().collect();
        let (path, geo) = (path.to_owned(), self.geo.clone());
        let compiled =
            tokio::task::spawn_blocking(move || Compiled::from_file(&path, labels, geo.as_deref())).await;
        self.add(name, self.with_backends(compiled.expect("compiling a policy does not panic")?)?, use_it)
            .await
    }

    /// Compiles the initial policy.
    pub(crate) fn compile(&self, path: &Path) -> Result<Compiled, LoadError> {
        self.with_backends(Compiled::from_file(path, Vec::new(), self.geo.as_deref())?)
    }

    /// Checks that the policy has at least one backend to send requests to.
    fn with_backends(&self, compiled: Compiled) -> Result<Compiled, LoadError> {
        if !compiled.program.backends().is_empty() || self.backends.has_configured() {
            return Ok(compiled);
        }
        let path = compiled.path.display();
        Err(LoadError::Backends(format!(
            "{path} declares no backend and the edge has none: declare one, or give --backend URL"
        )))
    }

    /// Adds a compiled policy, and activates it if `use_it`.
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
        let loaded = Loaded {
            name: name.to_owned(),
            path,
            loaded_ms: now_ms(),
            program,
            backends,
            geo,
            failures: WarningLimit::new(),
        };
        let loaded = Arc::new(loaded);
        all.insert(name.to_owned(), loaded.clone());
        if use_it {
            self.active.store(Some(loaded));
        }
        Ok(warnings)
    }

    /// Activates a policy; with `none`, new requests run without one. Requests in progress keep
    /// their policy.
    ///
    /// # Errors
    ///
    /// Returns an error if no policy has this name, or `none` would leave the edge without a
    /// backend.
    pub fn activate(&self, name: &str) -> Result<(), LoadError> {
        if name == NO_POLICY {
            if !self.backends.has_configured() {
                let reason = "without a policy, the edge has no backend: give the edge --backend URL";
                return Err(LoadError::Backends(reason.into()));
            }
            self.active.store(None);
            return Ok(());
        }
        // The list stays locked, so that the policy cannot be discarded before it is active.
        let all = self.all();
        let loaded = all.get(name).ok_or_else(|| LoadError::Unknown(name.into()))?;
        self.active.store(Some(loaded.clone()));
        Ok(())
    }

    /// Removes a policy. Requests in progress keep using it.
    ///
    /// # Errors
    ///
    /// Returns an error if no policy has this name, the policy is active, or another policy sends
    /// requests to it.
    pub fn discard(&self, name: &str) -> Result<(), LoadError> {
        let mut all = self.all();
        if self.active().is_some_and(|active| active.name == name) {
            return Err(LoadError::Active(name.into()));
        }
        let names_it =
            |(by, other): &(&String, &Arc<Loaded>)| *by != name && other.program.may_switch_to(name);
        if let Some((by, _)) = all.iter().find(names_it).filter(|_| all.contains_key(name)) {
            return Err(LoadError::Named(name.into(), by.clone()));
        }
        let removed = all.remove(name);
        // Workers may be waiting for the lock, so release it before `vcl_fini` and the rest of the
        // policy's cleanup run.
        drop(all);
        removed.map(drop).ok_or_else(|| LoadError::Unknown(name.into()))
    }

    /// Returns a policy's source files as loaded: the main file first, without the built-in VCL.
    ///
    /// # Errors
    ///
    /// Returns an error if no policy has this name.
    pub fn sources(&self, name: &str) -> Result<Vec<Source>, LoadError> {
        let loaded = self.by_name(name).ok_or_else(|| LoadError::Unknown(name.into()))?;
        let mut left = SHOWN_BYTES_MAX;
        let source = |file: &File| {
            let text_bytes = file.text.len();
            let rest = left.checked_sub(text_bytes);
            left = rest.unwrap_or(left);
            Source { name: file.name.clone(), text_bytes, text: rest.map(|_| file.text.clone()) }
        };
        Ok(loaded.program.files().iter().map(source).collect())
    }

    /// Returns all loaded policies, sorted by name.
    pub fn list(&self) -> Vec<PolicyInfo> {
        let active = self.active();
        let is_active =
            |loaded: &Arc<Loaded>| active.as_ref().is_some_and(|active| Arc::ptr_eq(active, loaded));
        let describe = |loaded: &Arc<Loaded>| PolicyInfo {
            name: loaded.name.clone(),
            path: loaded.path.clone(),
            loaded_ms: loaded.loaded_ms,
            is_active: is_active(loaded),
            // Subtract the reference held by the list and, for the active policy, those held by
            // `active` and by this function.
            in_use: Arc::strong_count(loaded).saturating_sub(if is_active(loaded) { 3 } else { 1 }),
        };
        self.all().values().map(describe).collect()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Loaded>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
