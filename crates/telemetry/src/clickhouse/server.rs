//! Blocking connection to a ClickHouse server over HTTP: statements, results as text, and inserts.

use std::time::Duration;

use bytes::Bytes;
use clickhouse::Compression;
use clickhouse::error::Error as ServerError;
use tokio::runtime::{Builder, Runtime};
use url::Url;

use crate::error::{Error, SinkError};

/// Maximum duration of a statement.
pub(super) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size, in bytes, of the pieces in which rows are sent.
const SEND_BYTES_MAX: usize = 1 << 20;
/// Codes in `ErrorCodes.cpp` of temporary errors: timeouts, too many queries or parts, network
/// errors, out of memory, full disk, and a table or Keeper that is temporarily unavailable.
const PASSING: [u32; 15] = [159, 160, 164, 202, 203, 209, 210, 236, 241, 242, 243, 252, 319, 425, 999];

/// Codes of errors that guarantee that nothing was stored: unknown table, missing privilege, failed
/// authentication, too many queries or parts.
const REFUSING: [u32; 5] = [60, DENIED, 516, 202, 252];
/// ClickHouse's error code for a missing privilege, `ACCESS_DENIED`.
const DENIED: u32 = 497;

/// Rows for one table, encoded as `RowBinary`.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: u64,
}

/// A database on a ClickHouse server.
pub struct Server {
    client: clickhouse::Client,
    /// Always set, except while the server is being dropped.
    runtime: Option<Runtime>,
    endpoint: String,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Server").field(&self.endpoint).finish()
    }
}

impl Server {
    /// Creates a client for the URL `http://user:password@host:8123/database`, without connecting
    /// yet. User, password and database are optional.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL is invalid, or the system cannot start a runtime.
    pub fn at(url: &str) -> Result<Self, Error> {
        // Errors must never quote the URL, because it may contain a password.
        let refused =
            || Error::refused("ClickHouse URL must have the form http://user:password@host:8123/database");
        let parsed = Url::parse(url).map_err(|_| refused())?;
        let database = parsed.path().trim_matches('/');
        if !matches!(parsed.scheme(), "http" | "https") || database.contains('/') {
            return Err(refused());
        }
        let host = parsed.host_str().ok_or_else(refused)?;
        let endpoint =
            format!("{}://{host}:{}", parsed.scheme(), parsed.port_or_known_default().unwrap_or(8123));
        let mut client = clickhouse::Client::default()
            .with_url(&endpoint)
            .with_compression(Compression::None)
            .with_setting("async_insert", "0")
            // By default, ClickHouse rejects a block that spans many partitions, as after a clock
            // jump. Retries of the block would then fail forever.
            .with_setting("throw_on_max_partitions_per_insert_block", "0")
            .with_setting("output_format_json_quote_64bit_integers", "0")
            .with_setting("deduplicate_blocks_in_dependent_materialized_views", "1");
        if !database.is_empty() {
            client = client.with_database(database);
        }
        if !parsed.username().is_empty() {
            client = client.with_user(unescaped(parsed.username()).ok_or_else(refused)?);
        }
        if let Some(password) = parsed.password() {
            client = client.with_password(unescaped(password).ok_or_else(refused)?);
        }
        // A worker thread notices when the server closes a connection between two statements.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|cause| Error::of("cannot start a runtime", cause))?;
        Ok(Self { client, runtime: Some(runtime), endpoint })
    }

    /// Runs a statement that returns no result.
    ///
    /// # Errors
    ///
    /// Returns an error if the server rejects the statement or cannot be reached.
    pub fn execute(&self, statement: &str) -> Result<(), SinkError> {
        self.wait("cannot run a statement on", self.client.query_raw(statement).execute())
    }

    /// Runs a statement and returns its result in the given ClickHouse format.
    ///
    /// # Errors
    ///
    /// Returns an error if the server rejects the statement or cannot be reached.
    pub fn query(&self, statement: &str, format: &str) -> Result<Bytes, SinkError> {
        self.wait("cannot query", async {
            self.client.query_raw(statement).fetch_bytes(format)?.collect().await
        })
    }

    /// Runs a statement and returns its result as text, one line per row, with tab-separated
    /// columns.
    pub(super) fn text(&self, statement: &str) -> Result<String, SinkError> {
        let answer = self.query(statement, "TabSeparated")?;
        Ok(String::from_utf8_lossy(&answer).trim_end().to_owned())
    }

    /// Inserts `RowBinary` rows into a table, unless the table has already stored the token.
    ///
    /// # Errors
    ///
    /// Returns an error if the server rejects the rows or cannot be reached. In that case all, some
    /// or none of the rows are stored. Sending them again under the same token completes the block,
    /// except in the case handled by [`Doubt`](super::Doubt).
    pub(crate) fn insert(
        &self,
        table: &str,
        columns: &[&str],
        token: &str,
        rows: Vec<u8>,
    ) -> Result<(), SinkError> {
        let statement = format!("INSERT INTO {table} ({}) FORMAT RowBinary", columns.join(", "));
        let mut rows = Bytes::from(rows);
        self.wait("cannot insert into", async {
            let mut insert = self
                .client
                .insert_formatted_with(statement)
                .with_setting("insert_deduplication_token", token);
            while !rows.is_empty() {
                insert.send(rows.split_to(rows.len().min(SEND_BYTES_MAX))).await?;
            }
            insert.end().await
        })
    }

    fn wait<T>(
        &self,
        what: &str,
        work: impl Future<Output = Result<T, ServerError>>,
    ) -> Result<T, SinkError> {
        let bounded = async {
            tokio::time::timeout(STATEMENT_TIMEOUT, work).await.unwrap_or(Err(ServerError::TimedOut))
        };
        let runtime = self.runtime.as_ref().expect("present until drop");
        runtime.block_on(bounded).map_err(|cause| SinkError {
            what: format!("{what} ClickHouse at {}", self.endpoint),
            is_passing: is_passing(&cause),
            cause: Box::new(cause),
        })
    }
}

/// Shuts down the runtime without waiting for it. After a failed start, the server is dropped on a
/// thread of another runtime, which must not block.
impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Percent-decodes a part of a URL.
fn unescaped(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let byte = if byte == b'%' {
            let digits = [bytes.next()?, bytes.next()?];
            u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
        } else {
            byte
        };
        out.push(byte);
    }
    String::from_utf8(out).ok()
}

/// Returns whether an error is temporary: the server could not be reached, or the error code is in
/// [`PASSING`].
fn is_passing(error: &ServerError) -> bool {
    match error {
        ServerError::Network(_) | ServerError::TimedOut => true,
        ServerError::BadResponse(text) => code(text).is_none_or(|code| PASSING.contains(&code)),
        _ => false,
    }
}

/// Returns whether an insert's error proves that nothing was stored.
pub(super) fn is_refusal(error: &SinkError) -> bool {
    code_of(error).is_some_and(|code| REFUSING.contains(&code))
}

/// Returns whether the error was caused by a missing privilege.
pub(super) fn is_denied(error: &SinkError) -> bool {
    code_of(error) == Some(DENIED)
}

/// Returns the exception code in the server's response, if any.
fn code_of(error: &SinkError) -> Option<u32> {
    let Some(ServerError::BadResponse(text)) = error.cause.downcast_ref() else { return None };
    code(text)
}

/// Parses an exception code, as in `Code: 60. DB::Exception: …`. A response without a code comes
/// from an intermediary, such as a proxy.
fn code(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("Code: ")?;
    rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_code_decides_whether_an_error_is_temporary() {
        for (text, passes) in [
            ("Code: 60. DB::Exception: no such table", false),
            ("Code: 252. DB::Exception: too many parts", true),
            ("Code: 241", true),
            ("502 Bad Gateway", true),
        ] {
            assert_eq!(is_passing(&ServerError::BadResponse(text.into())), passes, "{text}");
        }
    }

    #[test]
    fn only_well_formed_urls_are_accepted() {
        for good in ["http://localhost:8123", "https://a%40b:c@db.example/telemetry", "http://[::1]:8123/x"] {
            assert!(Server::at(good).is_ok(), "{good}");
        }
        for bad in ["localhost:8123", "ftp://x/", "http://x/a/b", "http://%zz@x/"] {
            assert!(Server::at(bad).is_err(), "{bad}");
        }
        assert_eq!(unescaped("a%40b").as_deref(), Some("a@b"));
    }
}
