//! Values that may be secret: written as they are, or as `@FILE`, a file that has them. So no list of processes, shell's history or
//! config file need show them.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::value::{Raw, Refused, Value, Written};

/// A secret is no longer than this.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// The text itself, or what the file that it names has, without the ends of lines behind it. Messages have no secret.
///
/// # Errors
/// When the file cannot be read, or has no text.
pub(crate) fn reveal(text: &str, base: &Path) -> Result<String, String> {
    let Some(name) = text.strip_prefix('@') else { return Ok(text.to_owned()) };
    let path = base.join(name);
    let mut secret = String::new();
    let read = File::open(&path).and_then(|file| file.take(SECRET_BYTES_MAX + 1).read_to_string(&mut secret));
    let told = path.display();
    match read {
        Err(error) => Err(format!("cannot read {told}, which follows the @: {error}")),
        Ok(bytes) if bytes as u64 > SECRET_BYTES_MAX => Err(format!("{told} is too long for a secret")),
        Ok(_) => match secret.trim_end_matches(['\r', '\n']) {
            "" => Err(format!("{told} is empty")),
            secret => Ok(secret.to_owned()),
        },
    }
}

/// Reads a value whose text, or a part of it, may be in a file.
pub(super) fn read<T: Value>(
    raw: &Raw,
    from_text: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, Vec<Refused>> {
    let value = match &raw.written {
        Written::Text(text) => from_text(text),
        other => T::from_written(other),
    };
    value.map_err(|message| vec![Refused { place: raw.place, message }])
}
