//! Values that may be secret, given literally or read from a file with `@FILE`. A file keeps
//! secrets out of process lists, shell histories and config files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Maximum length of a secret in bytes.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// Returns the text itself or, for `@FILE`, the file's content without trailing line breaks. Error
/// messages never contain the secret.
///
/// # Errors
///
/// Returns an error if the file cannot be read, or is empty or too long.
pub fn reveal(text: &str, base: &Path) -> Result<String, String> {
    let Some(name) = text.strip_prefix('@') else { return Ok(text.to_owned()) };
    let file = base.join(name);
    let mut secret = String::new();
    let read = File::open(&file).and_then(|file| file.take(SECRET_BYTES_MAX + 1).read_to_string(&mut secret));
    let path = file.display();
    match read {
        Err(error) => Err(format!("cannot read secret file {path}: {error}")),
        Ok(bytes) if bytes as u64 > SECRET_BYTES_MAX => Err(format!("secret file {path} exceeds 64 KiB")),
        Ok(_) => match secret.trim_end_matches(['\r', '\n']) {
            "" => Err(format!("secret file {path} is empty")),
            secret => Ok(secret.to_owned()),
        },
    }
}

/// ClickHouse server and database. The URL may contain a password, so it never appears in messages.
#[derive(Clone, PartialEq, Eq)]
pub struct ClickHouseUrl(pub String);

impl std::fmt::Debug for ClickHouseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClickHouseUrl")
    }
}

/// Parses a ClickHouse URL, or reads it from `@FILE`.
///
/// # Errors
///
/// Returns an error if the URL is invalid, or the file cannot be read.
pub fn clickhouse_url(text: &str) -> Result<ClickHouseUrl, String> {
    let url = reveal(text, Path::new(""))?;
    match thalweg_telemetry::clickhouse::Server::at(&url) {
        Ok(_) => Ok(ClickHouseUrl(url)),
        Err(error) => Err(error.to_string()),
    }
}
