//! TLS of a client: the authorities that it trusts, its certificate, and errors in plain words.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::files::{Files, Paths, Watched};
use super::{KeyPair, authorities, certificates, private_key, provider, versions};

/// Names of the settings that configure a client's TLS, for error messages.
#[derive(Debug, Clone, Copy)]
pub struct TlsSettings {
    /// Setting with the authorities.
    pub ca: &'static str,
    /// Settings with the client certificate and its key, if the client can have one.
    pub pair: Option<&'static str>,
}

/// Settings of the clients of the controller.
pub(crate) const CONTROLLER: TlsSettings =
    TlsSettings { ca: "controller_ca", pair: Some("controller_certificate and controller_key") };

/// A client's TLS configuration. Changed files take effect for new requests.
#[derive(Debug, Clone)]
pub struct ClientTls {
    config: Arc<Watched<ClientConfig>>,
    settings: TlsSettings,
}

impl ClientTls {
    /// Reads the files. Servers must have a certificate signed by an authority in `ca` or, without
    /// `ca`, by an authority that the system trusts. `pair` is presented to servers that ask for a
    /// certificate.
    ///
    /// # Errors
    ///
    /// Returns an error that names the unusable file.
    pub fn open(ca: Option<PathBuf>, pair: Option<KeyPair>) -> Result<Self, String> {
        Self::open_for(CONTROLLER, ca, pair)
    }

    /// Reads the files like [`open`](Self::open). Error messages name `settings`.
    ///
    /// # Errors
    ///
    /// Returns an error that names the unusable file.
    pub fn open_for(
        settings: TlsSettings,
        ca: Option<PathBuf>,
        pair: Option<KeyPair>,
    ) -> Result<Self, String> {
        let opened = Watched::open(Paths { ca, pair }, config);
        let config = opened.map_err(|fault| fault.replace(CA_SETTING, settings.ca))?;
        Ok(Self { config: Arc::new(config), settings })
    }

    /// Performs the handshake on a connection to `host`, and verifies the server's certificate.
    ///
    /// # Errors
    ///
    /// Returns an error that states the reason and, if there is one, the remedy.
    pub async fn connect<S>(&self, host: &str, stream: S) -> Result<TlsStream<S>, String>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(name).map_err(|_| format!("{host:?} is not a host name"))?;
        let connected = TlsConnector::from(self.current()).connect(name, stream).await;
        connected.map_err(|error| explain(&error, self.settings).unwrap_or_else(|| error.to_string()))
    }

    pub(crate) fn current(&self) -> Arc<ClientConfig> {
        self.config.current()
    }

    pub(crate) fn settings(&self) -> TlsSettings {
        self.settings
    }
}

/// Stands for the name of the setting with the authorities.
const CA_SETTING: &str = "{ca}";

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
        return Err(format!(
            "no certificate authorities on this machine: install ca-certificates, or set {CA_SETTING}"
        ));
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
pub(crate) fn explain(error: &(dyn Error + 'static), settings: TlsSettings) -> Option<String> {
    use AlertDescription as Alert;
    use rustls::Error as Tls;
    Some(match cause(error)? {
        Tls::InvalidCertificate(CertificateError::UnknownIssuer) => {
            format!("certificate signed by an unknown authority: set {}", settings.ca)
        }
        Tls::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "the server's certificate has expired".to_owned()
        }
        Tls::InvalidCertificate(error) => format!("invalid certificate: {error}"),
        Tls::InvalidMessage(_) => "the server does not speak TLS: check the URL and the port".to_owned(),
        Tls::AlertReceived(Alert::CertificateRequired) => {
            let remedy = settings.pair.map_or_else(String::new, |pair| format!(": set {pair}"));
            format!("the server requires a client certificate{remedy}")
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
