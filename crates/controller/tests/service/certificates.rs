//! Tests of TLS: identities by client certificate, alone or with a token.

use std::path::Path;

use bytes::Bytes;
use hyper::{Request, Response};
use thalweg_controller::Tls;
use thalweg_surface::client::Blocking;
use thalweg_surface::{ClientTls, KeyPair, Limits};

use crate::authority::Authority;
use crate::running::{PATIENCE, Place, RECORDS, Service, batch, until};

const EDGE: &str = "role = 'edge'\npop = 'here'\nname = 'edge-1'";
const AGENT: &str = "role = 'agent'\npop = 'here'\nname = 'edge-1'";
const OPERATOR: &str = "role = 'operator'\nname = 'anna'";
const BUNDLE: &str = "/bundle?pop=here&edge=edge-1";

fn pair((certificate, key): (std::path::PathBuf, std::path::PathBuf)) -> KeyPair {
    KeyPair { certificate, key }
}

/// A client that keeps its connection.
struct Client {
    https: Blocking,
    url: String,
}

impl Client {
    fn new(service: &Service<'_>, ca: &Path, pair: KeyPair) -> Self {
        let tls = ClientTls::open(Some(ca.to_owned()), Some(pair)).unwrap();
        let limits = Limits { idle: Some(PATIENCE), ..Limits::default() };
        let https = Blocking::with_tls(limits, Some(tls)).unwrap();
        Self { https, url: format!("https://localhost:{}", service.address.port()) }
    }

    /// Sends a request with a field, `NAME: VALUE\r\n` or empty.
    fn send(&self, method: &str, target: &str, field: &str, content: Vec<u8>) -> Response<Bytes> {
        let mut request = Request::builder().method(method).uri(format!("{}{target}", self.url));
        if let Some((name, value)) = field.trim_end().split_once(": ") {
            request = request.header(name, value);
        }
        self.https.send(request.body(content.into()).unwrap()).unwrap()
    }

    fn get(&self, target: &str, field: &str) -> (u16, String) {
        let response = self.send("GET", target, field, Vec::new());
        let status = response.status().as_u16();
        (status, String::from_utf8(response.into_body().into()).unwrap())
    }

    fn status(&self, target: &str, field: &str) -> u16 {
        self.get(target, field).0
    }
}

/// Returns a place for a controller with mutual TLS, and the authority that issues all
/// certificates.
fn place() -> (Place, Authority) {
    let mut place = Place::new();
    let ca = Authority::new(place.directory(), "ca");
    let own = pair(ca.issue("controller", "DNS:localhost"));
    place.tls = Some(Tls { pair: own, client_ca: Some(ca.certificate()) });
    (place, ca)
}

#[test]
fn certificate_identifies_edges_agents_and_operators() {
    let (place, ca) = place();
    // An edge and its agent share a certificate.
    place.write_identity(EDGE, "certificate_name = 'spiffe://example/here/edge-1'");
    place.write_identity(AGENT, "certificate_name = 'spiffe://example/here/edge-1'");
    place.write_identity(OPERATOR, "certificate_name = 'Anna.example'");
    let service = place.start();
    let client =
        |name: &str, names: &str| Client::new(&service, &ca.certificate(), pair(ca.issue(name, names)));
    let edge = client("edge", "URI:spiffe://example/here/edge-1");
    let anna = client("anna", "DNS:other.example,DNS:ANNA.example");
    let stranger = client("stranger", "DNS:stranger.example,DNS:*.example");

    assert_eq!((edge.status(BUNDLE, ""), anna.status("/metrics", "")), (204, 200));
    let posted = edge.send("POST", "/records", RECORDS, batch(0));
    assert_eq!(posted.status(), 200);
    for target in ["/bundle?pop=here&edge=edge-2", "/bundle?pop=there&edge=edge-1", "/bundle"] {
        assert_eq!(edge.status(target, ""), 403, "{target}");
    }
    let (status, why) = edge.get("/scopes", "");
    assert_eq!((status, why.contains("is not for an operator")), (403, true), "{why}");
    assert_eq!(
        (anna.status(BUNDLE, ""), anna.status("/position?pop=here&host=edge-1&epoch=1", "")),
        (403, 403)
    );
    for target in [BUNDLE, "/scopes"] {
        assert_eq!(stranger.status(target, ""), 401, "{target}");
    }
    assert_eq!(stranger.status("/healthz", ""), 200);
    assert_eq!(edge.status(BUNDLE, "Authorization: Bearer wrong"), 401, "a wrong token counts");

    // A revoked identity loses access on its open connection.
    let path = place.identities().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let (_, rest) = text.split_once("[[identity]]").unwrap().1.split_once("[[identity]]").unwrap();
    std::fs::write(&path, format!("[[identity]]{rest}")).unwrap();
    until("the edge is revoked", || edge.status(BUNDLE, "") != 204);
    assert_eq!(edge.send("POST", "/records", RECORDS, batch(1)).status(), 200, "the agent is not");
    drop((edge, anna, stranger));
    service.end();
}

#[test]
fn identity_with_token_and_certificate_needs_both() {
    let (place, ca) = place();
    let token = place.add_identity(&format!("{OPERATOR}\ncertificate_name = 'anna.example'"));
    let other = place.add_identity("role = 'operator'\nname = 'bert'");
    let service = place.start();
    let client =
        |name: &str, names: &str| Client::new(&service, &ca.certificate(), pair(ca.issue(name, names)));
    let anna = client("anna", "DNS:anna.example");
    let stranger = client("stranger", "DNS:stranger.example");
    assert_eq!([anna.status("/scopes", &token), anna.status("/scopes", "")], [200, 401]);
    let (status, why) = stranger.get("/scopes", &token);
    assert_eq!((status, why.contains("valid only with its client certificate")), (403, true), "{why}");
    assert_eq!(stranger.status("/scopes", &other), 200, "a token without a certificate name");
    drop((anna, stranger));
    service.end();
}

#[test]
fn unusable_files_prevent_the_start() {
    let (mut place, ca) = place();
    place.write_identity(EDGE, "certificate_name = 'edge-1.example'");
    let own = place.tls.clone().unwrap();
    place.tls = Some(Tls { client_ca: None, ..own.clone() });
    let fault = place.bind().unwrap_err();
    assert!(fault.ends_with("identities.toml: certificate_name needs tls_client_ca"), "{fault}");
    let other = pair(ca.issue("other", "DNS:localhost"));
    let mixed = KeyPair { key: other.key, ..own.pair.clone() };
    place.tls = Some(Tls { pair: mixed, ..own.clone() });
    let fault = place.bind().unwrap_err();
    assert!(fault.contains("other.key: "), "{fault}");
    place.tls = Some(own);
    assert!(place.bind().is_ok());
}
