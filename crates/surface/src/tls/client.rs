//! TLS of a client: the authorities that it trusts, its certificate, and errors in plain words.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};

use super::files::{Files, Paths, Watched};
use super::{KeyPair, authorities, certificates, private_key, provider, versions};

/// A client's TLS configuration. Changed files take effect for new requests.
#[derive(Debug, Clone)]
pub struct ClientTls(Arc<Watched<ClientConfig>>);

impl ClientTls {
    /// Reads the files. Servers must have a certificate signed by an authority in `ca` or, without
    /// `ca`, by an authority that the system trusts. `pair` is presented to servers that ask for a
    /// certificate.
    ///
    /// # Errors
    ///
    /// Returns an error that names the unusable file.
    pub fn open(ca: Option<PathBuf>, pair: Option<KeyPair>) -> Result<Self, String> {
        Watched::open(Paths { ca, pair }, config).map(|config| Self(Arc::new(config)))
    }

    pub(crate) fn current(&self) -> Arc<ClientConfig> {
        self.0.current()
    }
}

fn config(files: &Files) -> Result<ClientConfig, String> {
    let roots = files.ca.as_ref().map_or_else(system_authorities, authorities)?;
    let builder = versions(ClientConfig::builder_with_provider(provider()))?.with_root_certificates(roots);
    let Some((certificate, key)) = &files.pair else { return Ok(builder.with_no_client_auth()) };
    let built = builder.with_client_auth_cert(certificates(certificate)?, private_key(key)?);
    built.map_err(|error| key.fault(error))
}

fn system_authorities() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(
            "no certificate authorities on this machine: install ca-certificates, or set controller_ca"
                .to_owned(),
        );
    }
    Ok(roots)
}

/// Returns the configuration of a client that trusts no authority.
pub(crate) fn no_trust() -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = versions(builder).expect("ring supports the default versions");
    Arc::new(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

/// Describes a TLS failure and its remedy. Returns `None` if the error has another cause.
pub(crate) fn explain(error: &(dyn Error + 'static)) -> Option<String> {
    use AlertDescription as Alert;
    use rustls::Error as Tls;
    Some(match cause(error)? {
        Tls::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "certificate signed by an unknown authority: set controller_ca".to_owned()
        }
        Tls::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "the server's certificate has expired".to_owned()
        }
        Tls::InvalidCertificate(error) => format!("invalid certificate: {error}"),
        Tls::InvalidMessage(_) => "the server does not speak TLS: check the URL and the port".to_owned(),
        Tls::AlertReceived(Alert::CertificateRequired) => {
            "the server requires a client certificate: set controller_certificate and controller_key"
                .to_owned()
        }
        Tls::AlertReceived(alert) => format!("the server refused the connection: {alert:?}"),
        error => error.to_string(),
    })
}

/// Returns the TLS error in a chain of causes. An [`io::Error`] is not a link of the chain, but may
/// contain one.
fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source());
    }
    None
}
