//! TLS for surfaces and their clients, with certificates from PEM files. Changed files take effect
//! without a restart.
//!
//! Versions 1.2 and 1.3, with the cipher suites that rustls considers safe.
//!
//! **Invariant:** unusable files change nothing: the last good ones stay in use, and the fault is
//! logged.

mod client;
mod files;
mod server;

use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ConfigBuilder, ConfigSide, RootCertStore, WantsVerifier, WantsVersions};

pub(crate) use client::{CONTROLLER, explain, no_trust};
pub use client::{ClientTls, TlsSettings};
pub(crate) use server::Accepted;
pub use server::{PeerNames, ServerTls};

/// PEM files that prove an identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPair {
    /// File with the certificate, followed by the certificates of intermediate authorities.
    pub certificate: PathBuf,
    /// File with the certificate's private key.
    pub key: PathBuf,
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Selects the protocol versions.
fn versions<Side: ConfigSide>(
    builder: ConfigBuilder<Side, WantsVersions>,
) -> Result<ConfigBuilder<Side, WantsVerifier>, String> {
    builder.with_safe_default_protocol_versions().map_err(|error| format!("TLS: {error}"))
}

/// Parses the certificates of a PEM file.
fn certificates(file: &files::File) -> Result<Vec<CertificateDer<'static>>, String> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&file.content).collect();
    let parsed = parsed.map_err(|error| file.fault(error))?;
    if parsed.is_empty() { Err(file.fault("no certificate found: expected a PEM file")) } else { Ok(parsed) }
}

/// Parses the authorities of a PEM file.
fn authorities(file: &files::File) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| file.fault(error))?;
    }
    Ok(roots)
}

/// Parses the private key of a PEM file.
fn private_key(file: &files::File) -> Result<PrivateKeyDer<'static>, String> {
    let parsed = PrivateKeyDer::from_pem_slice(&file.content);
    parsed.map_err(|_| file.fault("no private key found: expected a PEM file without a password"))
}
