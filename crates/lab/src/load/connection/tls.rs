//! TLS: whom to trust, the handshake, and what its errors are.
//!
//! Each handshake is a full one: a client stands for one that has not been here before, so there is no session to resume.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::server::Secure;
use crate::load::{ErrorKind, Failure};

/// RFC 7301 §6, RFC 9113 §3.2.
const ALPN_HTTP1: &[u8] = b"http/1.1";
const ALPN_HTTP2: &[u8] = b"h2";

/// Whose certificates are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// What the system's authorities have signed, and those in this file (PEM).
    Authorities(Option<PathBuf>),
    /// Anybody's, whatever name and date it has.
    Anybody,
}

/// A client's settings.
///
/// # Errors
/// In words for the one who runs it: there are no authorities, or the file has none.
pub(super) fn config(trust: &Trust, is_http2: bool) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?;
    let mut config = match trust {
        Trust::Authorities(more) => {
            builder.with_root_certificates(authorities(more.as_deref())?).with_no_client_auth()
        }
        Trust::Anybody => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
            .with_no_client_auth(),
    };
    config.alpn_protocols = vec![if is_http2 { ALPN_HTTP2 } else { ALPN_HTTP1 }.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn authorities(more: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if let Some(file) = more {
        let wrong = |error: &dyn std::fmt::Display| format!("--ca {}: {error}", file.display());
        let mut count = 0;
        for certificate in CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))? {
            roots.add(certificate.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
            count += 1;
        }
        if count == 0 {
            return Err(wrong(&"there is no certificate in it: it is to be PEM"));
        }
    }
    if roots.is_empty() {
        return Err("this machine knows no authorities: install ca-certificates, or name one with --ca FILE"
            .to_owned());
    }
    Ok(roots)
}

/// Takes a connection through the handshake.
pub(super) async fn shake_hands(
    stream: TcpStream,
    Secure { name, config }: &Secure,
    within: Duration,
) -> Result<TlsStream<TcpStream>, Failure> {
    let fail =
        |detail: String| Failure::new(ErrorKind::Tls, format!("no TLS with {}: {detail}", name.to_str()));
    let shaking = TlsConnector::from(Arc::clone(config)).connect(name.clone(), stream);
    let stream = tokio::time::timeout(within, shaking)
        .await
        .map_err(|_| fail(format!("no handshake within {within:?}")))?
        .map_err(|error| fail(words(&error)))?;
    // A server that knows nothing of ALPN does not answer to it, and speaks HTTP/1.1.
    let is_http2 = config.alpn_protocols.iter().any(|protocol| protocol == ALPN_HTTP2);
    if is_http2 && stream.get_ref().1.alpn_protocol() != Some(ALPN_HTTP2) {
        return Err(fail(NO_HTTP2.to_owned()));
    }
    Ok(stream)
}

const NO_HTTP2: &str = "it does not speak HTTP/2: leave out --http2";

/// An error of a stream: `kind`, unless it is one of TLS.
pub(super) fn explain(error: &io::Error, kind: ErrorKind, what: &str) -> Failure {
    let is_tls = cause(error).is_some();
    Failure::new(if is_tls { ErrorKind::Tls } else { kind }, format!("{what}: {}", words(error)))
}

fn cause(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

fn words(error: &io::Error) -> String {
    match cause(error) {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "nobody known has signed its certificate: --ca FILE names whom to trust, --insecure takes any"
                .to_owned()
        }
        Some(Error::InvalidCertificate(error)) => {
            format!("its certificate is not to be trusted: {error}; --insecure takes any")
        }
        Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => NO_HTTP2.to_owned(),
        Some(Error::InvalidMessage(_)) => "what it says is not TLS".to_owned(),
        // rustls says more, and where to read about it.
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the server closed without a close_notify".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Takes any certificate; who sends it must still have its key.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
