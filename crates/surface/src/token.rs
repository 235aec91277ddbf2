//! Token file: the secret that a client presents to a server, as `Authorization: Bearer TOKEN`
//! (RFC 6750).
//!
//! The file is read for each request, so a token can be replaced without a restart.
//!
//! **Invariant:** the token never appears in messages.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use hyper::header::HeaderValue;

/// Maximum length of a token file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 10;

/// A file that contains a token on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenFile(PathBuf);

impl TokenFile {
    /// Checks that the file contains a token.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or its content is not a token.
    pub fn new(path: PathBuf) -> Result<Self, String> {
        let file = Self(path);
        file.credentials().map(|_| file)
    }

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads the token and returns the value of the `Authorization` field.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or its content is not a token.
    pub fn credentials(&self) -> Result<HeaderValue, String> {
        let path = self.0.display();
        let mut token = String::new();
        let file = File::open(&self.0).map(|file| file.take(FILE_BYTES_MAX + 1));
        let read = file.and_then(|mut file| file.read_to_string(&mut token));
        let length = read.map_err(|error| format!("cannot read token file {path}: {error}"))?;
        let token = token.trim_end_matches(['\r', '\n']);
        // The characters of RFC 6750 §2.1.
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        if token.is_empty() || length as u64 > FILE_BYTES_MAX || !token.bytes().all(is_allowed) {
            return Err(format!("token file {path} must contain one token of letters, digits and -._~+/="));
        }
        let value = HeaderValue::try_from(format!("Bearer {token}"));
        let mut value = value.map_err(|_| format!("token file {path} is not a token"))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic fails the test")]
mod tests {
    use super::*;

    #[test]
    fn token_is_read_again_after_a_change_and_never_shown() {
        let path = std::env::temp_dir().join(format!("thalweg-token-{}", std::process::id()));
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        let _ = std::fs::remove_file(&path);
        assert!(TokenFile::new(path.clone()).unwrap_err().starts_with("cannot read token file"));
        write("abc\n");
        let file = TokenFile::new(path.clone()).unwrap();
        assert_eq!(file.credentials().unwrap(), "Bearer abc");
        assert_eq!(format!("{:?}", file.credentials().unwrap()), "Sensitive");
        write("def");
        assert_eq!(file.credentials().unwrap(), "Bearer def");
        for bad in ["", "\n", "secret two", "secret\ntwo", "sécret", &"a".repeat(2_000)] {
            write(bad);
            let error = file.credentials().unwrap_err();
            assert!(error.ends_with("must contain one token of letters, digits and -._~+/="), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
