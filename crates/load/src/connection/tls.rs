//! TLS client: trusted certificates, handshake and error messages.
//!
//! Every handshake is full, without resumption, because each connection represents a new client.

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

use super::server::TlsSettings;
use crate::{ErrorKind, Failure};

/// ALPN protocol names (RFC 7301 §6, RFC 9113 §3.2).
const ALPN_HTTP1: &[u8] = b"http/1.1";
const ALPN_HTTP2: &[u8] = b"h2";

/// Certificates to accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Certificates signed by the system's authorities or, if set, by an authority in the PEM file.
    Authorities(Option<PathBuf>),
    /// Any certificate, regardless of name and date.
    Any,
}

/// Builds the client configuration.
///
/// # Errors
///
/// Returns an error message for the user if the PEM file cannot be read or has no certificate, or
/// if no authorities are available.
pub(super) fn config(trust: &Trust, is_http2: bool) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?;
    let mut config = match trust {
        Trust::Authorities(more) => {
            builder.with_root_certificates(authorities(more.as_deref())?).with_no_client_auth()
        }
        Trust::Any => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAny(provider)))
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
            return Err(wrong(&"no certificate found: expected a PEM file"));
        }
    }
    if roots.is_empty() {
        return Err(
            "no certificate authorities on this machine: install ca-certificates, or pass one with --ca FILE"
                .to_owned(),
        );
    }
    Ok(roots)
}

/// Performs the TLS handshake.
pub(super) async fn handshake(
    stream: TcpStream,
    TlsSettings { name, config }: &TlsSettings,
    within: Duration,
) -> Result<TlsStream<TcpStream>, Failure> {
    let fail =
        |detail: String| Failure::new(ErrorKind::Tls, format!("TLS with {} failed: {detail}", name.to_str()));
    let handshake = TlsConnector::from(Arc::clone(config)).connect(name.clone(), stream);
    let stream = tokio::time::timeout(within, handshake)
        .await
        .map_err(|_| fail(format!("handshake not complete within {within:?}")))?
        .map_err(|error| fail(words(&error)))?;
    // A server without ALPN support ignores the extension and uses HTTP/1.1.
    let is_http2 = config.alpn_protocols.iter().any(|protocol| protocol == ALPN_HTTP2);
    if is_http2 && stream.get_ref().1.alpn_protocol() != Some(ALPN_HTTP2) {
        return Err(fail(NO_HTTP2.to_owned()));
    }
    Ok(stream)
}

const NO_HTTP2: &str = "the server does not support HTTP/2: omit --http2";

/// Returns the failure for a stream error: [`ErrorKind::Tls`] if TLS caused the error, otherwise
/// `kind`.
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
            "certificate signed by an unknown authority: trust it with --ca FILE, or accept any with --insecure"
                .to_owned()
        }
        Some(Error::InvalidCertificate(error)) => {
            format!("invalid certificate: {error}; accept any with --insecure")
        }
        Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => NO_HTTP2.to_owned(),
        Some(Error::InvalidMessage(_)) => "the response is not TLS".to_owned(),
        // Replace rustls's longer message, which contains a link.
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the server closed the connection without a close_notify".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Accepts any certificate; the server must still prove that it has the private key.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
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
