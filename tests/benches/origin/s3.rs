//! versitygw as the storage, on the clients' core, filled with the presentation.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::support::{Server, free_address, start_other_on_client_core, target_directory};

const ACCESS_KEY: &str = "bench";
const SECRET_KEY: &str = "bench-secret";
const REGION: &str = "us-east-1";
const BUCKET: &str = "bench";
/// Prefix of the library in the bucket.
const LIBRARY: &str = "library";

/// A running S3 server that has the presentation.
pub(crate) struct Storage {
    address: SocketAddr,
    _server: Server,
}

impl Storage {
    pub(crate) fn start(scratch: &Path, media: &Path, presentation: &str) -> Result<Self> {
        let program = target_directory()?.join("services/bin/versitygw");
        let (address, directory) = (free_address()?, scratch.join("s3"));
        std::fs::create_dir_all(&directory)?;
        let arguments = ["--keep-alive", "--quiet", "--access", ACCESS_KEY, "--secret", SECRET_KEY, "--port"];
        let mut arguments: Vec<String> = arguments.map(str::to_owned).to_vec();
        arguments.extend([address.to_string(), "posix".to_owned(), directory.display().to_string()]);
        let program = program.display().to_string();
        let server = start_other_on_client_core(&program, &arguments, address, &scratch.join("s3-output"))?;
        let storage = Self { address, _server: server };
        storage.put(&format!("/{BUCKET}"), None)?;
        for entry in std::fs::read_dir(media)? {
            let file = entry?.path();
            let name = file.file_name().context("a file without a name")?.to_string_lossy().into_owned();
            storage.put(&format!("/{BUCKET}/{LIBRARY}/{presentation}/{name}"), Some(&file))?;
        }
        Ok(storage)
    }

    /// Returns the origin's flags for this storage.
    pub(crate) fn flags(&self) -> Vec<String> {
        let endpoint = format!("http://{}", self.address);
        ["--media", &format!("s3://{BUCKET}/{LIBRARY}"), "--s3-endpoint", &endpoint, "--s3-path-style"]
            .map(str::to_owned)
            .to_vec()
    }

    /// Returns the origin's credentials.
    pub(crate) fn environment(&self) -> [(&'static str, String); 3] {
        [
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_owned()),
            ("AWS_REGION", REGION.to_owned()),
        ]
    }

    /// Sends a PUT request, signed by curl, with the content of a file.
    fn put(&self, target: &str, content: Option<&Path>) -> Result<()> {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--fail", "--output", "/dev/null"]);
        command.args(["--aws-sigv4", &format!("aws:amz:{REGION}:s3")]);
        command.args(["--user", &format!("{ACCESS_KEY}:{SECRET_KEY}")]);
        command.args(["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]);
        match content {
            Some(file) => command.arg("--upload-file").arg(file),
            None => command.args(["--request", "PUT"]),
        };
        let output = command.arg(format!("http://{}{target}", self.address)).output().context("curl")?;
        ensure!(output.status.success(), "PUT {target}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}
