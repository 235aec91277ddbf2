//! S3 servers: versitygw and MinIO, started on the far side of the path and filled with the film.
//!
//! Objects are stored through S3 itself, with curl, which signs requests. Everybody may read them,
//! so that nginx, which cannot sign requests, can read the same objects as the origin.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use thalweg_netem::emulation::Emulation;

use super::content::Film;
use super::{FAR, Store};
use crate::process::ChildProcess;

/// Credentials of both servers, which exist only inside an emulation.
pub(super) const ACCESS_KEY: &str = "thalweg-lab";
pub(super) const SECRET_KEY: &str = "thalweg-lab-secret";
/// Region in signatures; both servers use this default.
pub(super) const REGION: &str = "us-east-1";
/// The bucket.
const BUCKET: &str = "lab";
/// Name of the presentation.
pub(super) const PRESENTATION: &str = "film";
/// Port of the servers.
const PORT: u16 = 9000;
/// Port of MinIO's console, which cannot be turned off at another address.
const CONSOLE_PORT: u16 = 9001;
/// Where `tools/setup` builds the servers, relative to the project or to the directory of this
/// program.
const BUILT: [&str; 2] = ["target/services/bin", "../services/bin"];

/// A running S3 server that has the film.
#[derive(Debug)]
pub(super) struct Storage {
    /// Address of the server.
    pub(super) address: SocketAddr,
    /// Prefix of the library that contains the film.
    prefix: String,
    _server: ChildProcess,
}

/// Checks that the programs are installed.
///
/// # Errors
///
/// Returns an error that names the missing program.
pub fn check(stores: &[Store]) -> anyhow::Result<()> {
    for store in stores {
        program(*store)?;
    }
    let curl = Command::new("curl").arg("--version").stdout(Stdio::null()).status();
    ensure!(
        curl.is_ok_and(|status| status.success()),
        "`curl` not found, needed to store the film: install curl"
    );
    Ok(())
}

fn program(store: Store) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).map(|directory| directory.join(BUILT[1]));
    let in_path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&in_path).chain([PathBuf::from(BUILT[0])]).chain(beside);
    let found = directories.map(|directory| directory.join(store.name())).find(|file| file.is_file());
    let found =
        found.with_context(|| format!("`{}` not found: `tools/setup bench` builds it", store.name()))?;
    found.canonicalize().with_context(|| found.display().to_string())
}

impl Storage {
    /// Starts a server on the far side, and stores the film unless it is there from an earlier run.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not start or refuses a request.
    pub(super) fn start(
        emulation: &Emulation,
        cache: &Path,
        store: Store,
        film: &Film,
    ) -> anyhow::Result<Self> {
        let directory = cache.join(store.name());
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        let address = SocketAddr::from((emulation.scenario().server4, PORT));
        let command = command(store, address, &directory)?;
        let server = ChildProcess::start_on_at(emulation, FAR, command, address)?;
        let prefix = format!("{}s", film.duration.as_secs());
        let storage = Self { address, prefix, _server: server };
        let done = cache.join(format!("{}-{}.stored", store.name(), storage.prefix));
        if !done.exists() {
            storage.fill(emulation, film)?;
            fs::write(&done, "").with_context(|| done.display().to_string())?;
        }
        Ok(storage)
    }

    /// Returns the library's URL for the origin.
    pub(super) fn library(&self) -> String {
        format!("s3://{BUCKET}/{}", self.prefix)
    }

    /// Returns the path of an object of the film, given its file name.
    pub(super) fn object(&self, file: &str) -> String {
        format!("/{BUCKET}/{}/{PRESENTATION}/{file}", self.prefix)
    }

    fn fill(&self, emulation: &Emulation, film: &Film) -> anyhow::Result<()> {
        // The bucket may already exist, with a film of another duration. The server then responds
        // 409.
        self.put(emulation, &format!("/{BUCKET}"), None, &[200, 409])?;
        let policy = emulation.scratch().join("policy.json");
        let text = format!(
            r#"{{"Version":"2012-10-17","Statement":[{{"Effect":"Allow","Principal":"*","Action":["s3:GetObject"],"Resource":["arn:aws:s3:::{BUCKET}/*"]}}]}}"#
        );
        fs::write(&policy, text).with_context(|| policy.display().to_string())?;
        self.put(emulation, &format!("/{BUCKET}?policy="), Some(&policy), &[200, 204])?;
        for file in film.files() {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            self.put(emulation, &self.object(&name), Some(&file), &[200])?;
        }
        Ok(())
    }

    /// Sends a signed PUT request with the content of a file, from the server's own side.
    fn put(
        &self,
        emulation: &Emulation,
        target: &str,
        content: Option<&Path>,
        statuses: &[u16],
    ) -> anyhow::Result<()> {
        let url = format!("http://{}{target}", self.address);
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--output", "/dev/null", "--write-out", "%{http_code}"]);
        command.args(["--aws-sigv4", &format!("aws:amz:{REGION}:s3")]);
        command.args(["--user", &format!("{ACCESS_KEY}:{SECRET_KEY}")]);
        command.args(["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]);
        match content {
            Some(file) => command.arg("--upload-file").arg(file),
            None => command.args(["--request", "PUT"]),
        };
        command.arg(&url).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = emulation.spawn(FAR, &mut command).context("curl")?;
        let output = child.wait_with_output().context("curl")?;
        let status = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(0);
        if !statuses.contains(&status) {
            let message = String::from_utf8_lossy(&output.stderr);
            bail!("PUT {url}: status {status}; {}", message.lines().last().unwrap_or("no message"));
        }
        Ok(())
    }
}

fn command(store: Store, address: SocketAddr, directory: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(program(store)?);
    match store {
        Store::Versitygw => {
            // Without --keep-alive, it closes every connection after one response.
            command.args(["--keep-alive", "--quiet", "--port", &address.to_string(), "posix"]);
            command.env("ROOT_ACCESS_KEY", ACCESS_KEY).env("ROOT_SECRET_KEY", SECRET_KEY);
        }
        Store::Minio => {
            let console = format!("127.0.0.1:{CONSOLE_PORT}");
            command.args(["server", "--quiet", "--address", &address.to_string()]);
            command.args(["--console-address", &console]).env("MINIO_UPDATE", "off");
            command.env("MINIO_ROOT_USER", ACCESS_KEY).env("MINIO_ROOT_PASSWORD", SECRET_KEY);
        }
    }
    command.arg(directory);
    Ok(command)
}
