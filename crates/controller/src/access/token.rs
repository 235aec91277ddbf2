//! Tokens that identify edges, agents and operators: 256 random bits, stored only as their SHA-256
//! digest.
//!
//! A fast digest suffices because tokens are random, unlike passwords, and cannot be guessed.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

/// Number of random bytes in a token.
const TOKEN_BYTES: usize = 32;
/// Source of random bytes.
const RANDOM: &str = "/dev/urandom";
/// Start of every token, by which scanners for leaked secrets recognise it.
const PREFIX: &str = "thalweg_";

/// SHA-256 digest of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Digest([u8; 32]);

impl Digest {
    /// Computes a token's digest.
    pub(crate) fn of(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// Parses 64 hexadecimal digits.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut digest = [0; 32];
        if text.len() != 2 * digest.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for (at, byte) in digest.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some(Self(digest))
    }

    /// Formats the digest as hexadecimal digits.
    pub(crate) fn text(&self) -> String {
        hex(&self.0)
    }
}

/// Creates a token. Returns the token and its digest, as written in an identities file.
///
/// # Errors
///
/// Returns an error if the system has no random bytes.
pub fn create_token() -> io::Result<(String, String)> {
    let mut random = [0; TOKEN_BYTES];
    File::open(RANDOM)?.read_exact(&mut random)?;
    let token = format!("{PREFIX}{}", hex(&random));
    let digest = Digest::of(token.as_bytes()).text();
    Ok((token, digest))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String cannot fail");
        text
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn token_matches_only_its_digest() {
        let (token, digest) = create_token().unwrap();
        let (other, _) = create_token().unwrap();
        assert_eq!((token.len(), digest.len()), (72, 64));
        let stored = Digest::parse(&digest).unwrap();
        assert_eq!(stored, Digest::of(token.as_bytes()));
        assert_eq!(Digest::parse(&digest.to_uppercase()).unwrap(), stored);
        for wrong in [other.as_str(), "", &token[1..], &format!("{token} ")] {
            assert_ne!(stored, Digest::of(wrong.as_bytes()), "{wrong}");
        }
        // FIPS 180-4, the example for one block.
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::of(b"abc").text(), known);
        for bad in ["", &digest[1..], &format!("{}g", &digest[1..]), &format!("+{}", &digest[1..])] {
            assert!(Digest::parse(bad).is_none(), "{bad}");
        }
    }
}
