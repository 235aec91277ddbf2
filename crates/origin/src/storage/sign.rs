//! AWS Signature Version 4, with the usual chain of credentials: environment, profile, SSO, web
//! identity, process, container, and instance metadata (IMDSv2).
//!
//! Credentials with an expiry are renewed before it. Credentials that the service calls expired or
//! unknown are loaded again, at most once in [`RENEW_INTERVAL`].

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::{Request, Response};
use reqsign_aws_v4::{Credential, DefaultCredentialProvider, RequestSigner};
use reqsign_core::{
    CommandExecute, CommandOutput, Context, Error, FileRead, HttpSend, OsEnv, Result, Signer,
};

use super::pool::{Failure, FailureKind, Pool};

/// Minimum time between two attempts to load credentials again.
const RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum length of a response with credentials, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Maximum time to obtain credentials.
const LOAD_TIME_MAX: Duration = Duration::from_secs(15);

/// Signs requests to S3.
#[derive(Debug)]
pub(super) struct Sign {
    context: Context,
    region: String,
    current: Mutex<(Signer<Credential>, Instant)>,
}

impl Sign {
    /// Creates a signer. Credentials are loaded when the first request is signed.
    pub(super) fn new(region: &str, pool: Pool) -> Sign {
        let context = Context::new()
            .with_env(OsEnv)
            .with_file_read(Files)
            .with_command_execute(Commands)
            .with_http_send(Http(pool));
        let signer = signer(&context, region);
        Sign { context, region: region.to_owned(), current: Mutex::new((signer, Instant::now())) }
    }

    /// Adds the signature to a request.
    pub(super) async fn sign(&self, request: Request<Bytes>) -> std::result::Result<Request<Bytes>, Failure> {
        let (mut head, content) = request.into_parts();
        let signer = self.lock().0.clone();
        let fault = |why: String| {
            let remedy = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or s3_anonymous";
            Failure::new(FailureKind::Credentials, format!("no credentials for S3: {why}; {remedy}"))
        };
        match tokio::time::timeout(LOAD_TIME_MAX, signer.sign(&mut head, None)).await {
            Ok(Ok(())) => Ok(Request::from_parts(head, content)),
            Ok(Err(error)) => Err(fault(error.to_string())),
            Err(_) => Err(fault(format!("none obtained within {LOAD_TIME_MAX:?}"))),
        }
    }

    /// Forgets credentials that the service refused, so that they are loaded again. Returns false
    /// if that happened only a moment ago.
    pub(super) fn renew(&self) -> bool {
        let mut current = self.lock();
        if current.1.elapsed() < RENEW_INTERVAL {
            return false;
        }
        tracing::warn!("credentials for S3 refused, loading them again");
        *current = (signer(&self.context, &self.region), Instant::now());
        true
    }

    fn lock(&self) -> MutexGuard<'_, (Signer<Credential>, Instant)> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn signer(context: &Context, region: &str) -> Signer<Credential> {
    let provider = DefaultCredentialProvider::new();
    Signer::new(context.clone(), provider, RequestSigner::new("s3", region))
}

/// Sends requests for credentials over the pool.
#[derive(Debug)]
struct Http(Pool);

impl HttpSend for Http {
    async fn http_send(&self, request: Request<Bytes>) -> Result<Response<Bytes>> {
        let fault = |failure: Failure| Error::unexpected(failure.to_string());
        let (head, content) = self.0.send(request).await.map_err(fault)?.into_parts();
        Ok(Response::from_parts(head, content.collect(ANSWER_BYTES_MAX).await.map_err(fault)?))
    }
}

/// Reads files with profiles and tokens.
#[derive(Debug)]
struct Files;

impl FileRead for Files {
    async fn file_read(&self, path: &str) -> Result<Vec<u8>> {
        let path = path.to_owned();
        blocking(move || std::fs::read(path)).await
    }
}

/// Runs a profile's `credential_process`.
#[derive(Debug)]
struct Commands;

impl CommandExecute for Commands {
    async fn command_execute<'a>(&'a self, program: &'a str, args: &'a [&'a str]) -> Result<CommandOutput> {
        let mut command = std::process::Command::new(program);
        command.args(args);
        let output = blocking(move || command.output()).await?;
        Ok(CommandOutput {
            status: output.status.code().unwrap_or(-1),
            stdout: output.stdout,
            stderr: output.stderr,
        })
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)));
    done.map_err(|error| Error::unexpected(error.to_string()))
}
