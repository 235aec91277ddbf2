//! Common encryption (ISO/IEC 23001-7) of a track: scheme, key identifier, and the data that
//! protection systems need to obtain the key.
//!
//! Encrypted tracks are served as they are. **Invariant:** no key is ever read or written, only key
//! identifiers.

use std::fmt;

use crate::boxes::Mp4Box;
use crate::error::{Fault, Result};
use crate::fourcc::FourCc;

/// Maximum protection systems of a track.
pub const SYSTEMS_MAX: u64 = 32;
/// Maximum length of a pssh box, in bytes.
pub const PSSH_BYTES_MAX: u64 = 16 << 10;

/// Encryption of a track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protection {
    /// Encryption scheme.
    pub scheme: Scheme,
    /// Identifier of the key (tenc default_KID).
    pub key_id: Uuid,
    /// Protection systems, in the order of the file.
    pub systems: Vec<System>,
}

/// Encryption schemes (§10). The other two, `cens` and `cbc1`, have no method in HLS and are not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// AES in counter mode.
    Cenc,
    /// AES in CBC mode over a pattern of blocks.
    Cbcs,
}

/// Data of one protection system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct System {
    /// SystemID of the system.
    pub id: Uuid,
    /// The complete pssh box (§8.1).
    pub pssh: Vec<u8>,
    /// Position of the system's own data in `pssh`.
    data_at: usize,
}

/// A 16-byte identifier, displayed in the form of RFC 9562.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uuid(pub [u8; 16]);

impl Scheme {
    /// Returns the scheme's four-character code.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Cenc => "cenc",
            Scheme::Cbcs => "cbcs",
        }
    }
}

impl System {
    /// Returns the system's own data, without the box around it.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.pssh.get(self.data_at..).unwrap_or_default()
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let hyphen = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{hyphen}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::LowerHex for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Reads the sinf box (ISO/IEC 14496-12 §8.12) in an encrypted sample entry. Returns the original
/// format of the entry, and its protection.
pub(crate) fn parse(sinf: &Mp4Box<'_>) -> Result<(FourCc, Protection)> {
    let format = sinf.require(FourCc(*b"frma"))?.reader().fourcc()?;
    let schm = sinf.require(FourCc(*b"schm"))?;
    let (_, _, mut fields) = schm.full()?;
    let scheme = match &fields.fourcc()?.0 {
        b"cenc" => Scheme::Cenc,
        b"cbcs" => Scheme::Cbcs,
        _ => return Err(schm.invalid("the track is encrypted, with another scheme than cenc or cbcs")),
    };
    let tenc = sinf.require(FourCc(*b"schi"))?.require(FourCc(*b"tenc"))?;
    let (_, _, mut fields) = tenc.full()?;
    // Skip reserved, pattern, default_isProtected and default_Per_Sample_IV_Size.
    fields.skip(4)?;
    let key_id = Uuid(fields.array()?);
    Ok((format, Protection { scheme, key_id, systems: Vec::new() }))
}

/// Reads the pssh boxes of a moov.
pub(crate) fn systems(moov: &Mp4Box<'_>) -> Result<Vec<System>> {
    let mut systems = Vec::new();
    for child in moov.children() {
        let pssh = child?;
        if pssh.kind != FourCc(*b"pssh") {
            continue;
        }
        let over = |limit, max, found| pssh.fault(Fault::OverLimit { limit, max, found });
        let size = pssh.bytes.len() as u64;
        if size > PSSH_BYTES_MAX {
            return Err(over("PSSH_BYTES_MAX", PSSH_BYTES_MAX, size));
        }
        let found = systems.len() as u64 + 1;
        if found > SYSTEMS_MAX {
            return Err(over("SYSTEMS_MAX", SYSTEMS_MAX, found));
        }
        let (version, _, mut fields) = pssh.full()?;
        let id = Uuid(fields.array()?);
        if version > 0 {
            let key_ids = usize::try_from(fields.u32()?).unwrap_or(usize::MAX);
            fields.skip(key_ids.saturating_mul(16))?;
        }
        let data_size = usize::try_from(fields.u32()?).unwrap_or(usize::MAX);
        let data_at = pssh.bytes.len() - fields.rest().len();
        fields.skip(data_size)?;
        systems.push(System { id, pssh: pssh.bytes.to_vec(), data_at });
    }
    Ok(systems)
}
