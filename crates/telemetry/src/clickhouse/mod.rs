//! A ClickHouse server over HTTP, for threads that may block: statements, answers as text, and blocks of rows that are inserted
//! once however often they are sent.
//!
//! **Invariant:** a block goes with a token. Tables remember the tokens of their last blocks
//! (`non_replicated_deduplication_window`, `replicated_deduplication_window`), the targets of their materialised views
//! likewise, and drop a block whose token they know. A block is also looked for where a kill may have parted it from its token.

mod aside;
mod doubt;
pub mod rowbinary;
mod verify;

use std::time::Duration;

use bytes::Bytes;
use clickhouse::Compression;
use clickhouse::error::Error as ServerError;
use tokio::runtime::{Builder, Runtime};
use url::Url;

use crate::{Error, SinkError};

pub(crate) use doubt::Doubt;
pub use doubt::Verified;
pub(crate) use verify::Target;

/// How long a statement may take.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);
/// How long [`Doubt::insert`] may take: the insert, a look, and the statement that it began last.
pub(crate) const ATTEMPT_SECONDS_MAX: u64 = 2 * STATEMENT_TIMEOUT.as_secs() + aside::LOOK_TIME_MAX.as_secs();
/// Rows go out in pieces of this size.
const SEND_BYTES_MAX: usize = 1 << 20;
/// Codes of `ErrorCodes.cpp` that pass by themselves: timeouts, too many queries or parts, the network, memory, a full
/// disk, a table or a Keeper that is away for now.
const PASSING: [u32; 15] = [159, 160, 164, 202, 203, 209, 210, 236, 241, 242, 243, 252, 319, 425, 999];

/// Codes that say that nothing was taken: no such table, no right, no such user, too many queries or parts.
const REFUSING: [u32; 5] = [60, DENIED, 516, 202, 252];
/// The code of a right that is missing.
const DENIED: u32 = 497;

/// Rows of one table, as `RowBinary`.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: u64,
}

/// A server and a database on it.
pub struct Server {
    client: clickhouse::Client,
    /// There until the drop.
    runtime: Option<Runtime>,
    place: String,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Server").field(&self.place).finish()
    }
}

impl Server {
    /// The server of a URL, `http://user:password@host:8123/database`; nothing is sent yet. User, password and database may be
    /// left out.
    ///
    /// # Errors
    /// When it is no such URL, or the system gives no runtime.
    pub fn at(url: &str) -> Result<Self, Error> {
        // Not the URL itself: it may have a password.
        let refused =
            || Error::refused("not a ClickHouse URL: write http://user:password@host:8123/database");
        let parsed = Url::parse(url).map_err(|_| refused())?;
        let database = parsed.path().trim_matches('/');
        if !matches!(parsed.scheme(), "http" | "https") || database.contains('/') {
            return Err(refused());
        }
        let host = parsed.host_str().ok_or_else(refused)?;
        let place =
            format!("{}://{host}:{}", parsed.scheme(), parsed.port_or_known_default().unwrap_or(8123));
        let mut client = clickhouse::Client::default()
            .with_url(&place)
            .with_compression(Compression::None)
            .with_setting("async_insert", "0")
            // A clock that jumped is no reason to refuse a block for ever.
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
        // A thread of its own, so that a connection that the server closes between two statements is seen to be closed.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|cause| Error::of("cannot start a runtime", cause))?;
        Ok(Self { client, runtime: Some(runtime), place })
    }

    /// Runs a statement without an answer.
    ///
    /// # Errors
    /// When the server refuses it, or is not there.
    pub fn execute(&self, statement: &str) -> Result<(), SinkError> {
        self.wait("cannot run a statement on", self.client.query_raw(statement).execute())
    }

    /// What a statement answers, in a format of ClickHouse.
    ///
    /// # Errors
    /// When the server refuses it, or is not there.
    pub fn query(&self, statement: &str, format: &str) -> Result<Bytes, SinkError> {
        self.wait("cannot ask", async {
            self.client.query_raw(statement).fetch_bytes(format)?.collect().await
        })
    }

    /// What a statement answers as text: a row a line, columns with tabs between.
    fn text(&self, statement: &str) -> Result<String, SinkError> {
        let answer = self.query(statement, "TabSeparated")?;
        Ok(String::from_utf8_lossy(&answer).trim_end().to_owned())
    }

    /// Inserts rows into a table, as `RowBinary`, unless the table knows the token.
    ///
    /// # Errors
    /// When the server refuses them, or is not there: then some, all or none are in the table, and the same under the same
    /// token complete it, but for what [`Doubt`] is about.
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
        let runtime = self.runtime.as_ref().expect("it is there until the drop");
        runtime.block_on(bounded).map_err(|cause| SinkError {
            what: format!("{what} ClickHouse at {}", self.place),
            is_passing: is_passing(&cause),
            cause: Box::new(cause),
        })
    }
}

/// Without waiting: where a start fails this is dropped on a thread of another runtime, which must not block.
impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Text of a URL without its percent signs.
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

/// Whether an error may pass by itself: the server says so by its code, or could not be asked.
fn is_passing(error: &ServerError) -> bool {
    match error {
        ServerError::Network(_) | ServerError::TimedOut => true,
        ServerError::BadResponse(text) => code(text).is_none_or(|code| PASSING.contains(&code)),
        _ => false,
    }
}

/// Whether a failed insert has left nothing behind for certain.
fn is_refusal(error: &SinkError) -> bool {
    code_of(error).is_some_and(|code| REFUSING.contains(&code))
}

/// Whether a right is missing.
fn is_denied(error: &SinkError) -> bool {
    code_of(error) == Some(DENIED)
}

/// The code of the exception that a server has answered with.
fn code_of(error: &SinkError) -> Option<u32> {
    let Some(ServerError::BadResponse(text)) = error.cause.downcast_ref() else { return None };
    code(text)
}

/// The code of an exception: `Code: 60. DB::Exception: …`. What has none is of something between here and the server.
fn code(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("Code: ")?;
    rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_says_whether_an_error_passes() {
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
    fn a_url_is_checked() {
        for good in ["http://localhost:8123", "https://a%40b:c@db.example/telemetry", "http://[::1]:8123/x"] {
            assert!(Server::at(good).is_ok(), "{good}");
        }
        for bad in ["localhost:8123", "ftp://x/", "http://x/a/b", "http://%zz@x/"] {
            assert!(Server::at(bad).is_err(), "{bad}");
        }
        assert_eq!(unescaped("a%40b").as_deref(), Some("a@b"));
    }
}
