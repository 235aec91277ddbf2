//! TLS settings: checked against each other, then opened.

use std::path::PathBuf;

use thalweg_surface::{ClientTls, KeyPair};

use super::declare::{Section as _, Set};
use super::place::{Fault, Place};
use super::sections::{Agent, Controller, Edge};

/// An optional setting that names a file.
type File = Option<Set<PathBuf>>;

/// TLS settings of a client of the controller.
struct ClientSettings<'a> {
    /// Start of the role's section.
    place: Place,
    /// Setting with the URL.
    url: &'static str,
    /// Whether it is an `https` URL.
    is_secure: bool,
    ca: &'a File,
    certificate: &'a File,
    key: &'a File,
}

impl ClientSettings<'_> {
    fn pair(&self) -> Result<Option<KeyPair>, Fault> {
        let set = [self.ca, self.certificate, self.key].into_iter().flatten().next();
        match set.filter(|_| !self.is_secure) {
            Some(set) => Err(set.fault(format!("{} must be an https:// URL", self.url))),
            None => pair(self.certificate, self.key),
        }
    }

    fn open(&self) -> Result<Option<ClientTls>, Fault> {
        let pair = self.pair()?;
        if !self.is_secure {
            return Ok(None);
        }
        let opened = ClientTls::open(self.ca.as_ref().map(|ca| ca.value.clone()), pair);
        // Without these settings, only the system's authorities can be missing.
        opened.map(Some).map_err(|fault| match self.ca.as_ref().or(self.certificate.as_ref()) {
            Some(set) => set.fault(fault),
            None => Fault { place: self.place, setting: None, message: fault },
        })
    }
}

impl Edge {
    fn tls(&self) -> ClientSettings<'_> {
        let Self { controller_ca: ca, controller_certificate: certificate, controller_key: key, .. } = self;
        let is_secure = self.bundle.as_ref().is_some_and(|bundle| bundle.value.is_secure());
        ClientSettings { place: self.place, url: "bundle", is_secure, ca, certificate, key }
    }

    /// Reads the files for TLS to the bundle server.
    ///
    /// # Errors
    ///
    /// Returns a fault located at the setting if a file is unusable.
    pub(crate) fn client_tls(&self) -> Result<Option<ClientTls>, Fault> {
        self.tls().open()
    }
}

impl Agent {
    fn tls(&self) -> ClientSettings<'_> {
        let Self { controller_ca: ca, controller_certificate: certificate, controller_key: key, .. } = self;
        let is_secure = self.controller.as_ref().is_some_and(|url| url.value.is_secure());
        ClientSettings { place: self.place, url: "controller", is_secure, ca, certificate, key }
    }

    /// Reads the files for TLS to the controller.
    ///
    /// # Errors
    ///
    /// Returns a fault located at the setting if a file is unusable.
    pub(crate) fn client_tls(&self) -> Result<Option<ClientTls>, Fault> {
        self.tls().open()
    }
}

impl Controller {
    /// Returns the files for TLS, if configured.
    ///
    /// # Errors
    ///
    /// Returns a fault located at the setting that requires a missing setting.
    pub(crate) fn tls(&self) -> Result<Option<thalweg_controller::Tls>, Fault> {
        let client_ca = self.tls_client_ca.as_ref();
        match (pair(&self.tls_certificate, &self.tls_key)?, client_ca) {
            (Some(pair), ca) => {
                Ok(Some(thalweg_controller::Tls { pair, client_ca: ca.map(|ca| ca.value.clone()) }))
            }
            (None, Some(ca)) => Err(ca.fault("needs tls_certificate and tls_key".to_owned())),
            (None, None) => Ok(None),
        }
    }
}

/// Checks the TLS settings of every role.
pub(super) fn check(
    edge: Option<&Edge>,
    agent: Option<&Agent>,
    controller: Option<&Controller>,
    faults: &mut Vec<Fault>,
) {
    faults.extend(edge.and_then(|edge| edge.tls().pair().err()));
    faults.extend(agent.and_then(|agent| agent.tls().pair().err()));
    let Some(controller) = controller else { return };
    match controller.tls() {
        Err(fault) => faults.push(fault),
        Ok(None) => {}
        // With TLS there is no default URL: the other roles do not know which host name the
        // certificate covers.
        Ok(Some(_)) => {
            let missing = |setting| {
                format!("the controller in the same file speaks TLS: set {setting} to its https:// URL")
            };
            let edge = edge.filter(|edge| edge.bundle.is_none());
            faults.extend(edge.map(|edge| edge.fault(missing("bundle"))));
            let reads_kafka = controller.kafka.is_some();
            let sends =
                |agent: &&Agent| agent.controller.is_none() && !(reads_kafka && agent.kafka.is_some());
            let agent = agent.filter(sends);
            faults.extend(agent.map(|agent| agent.fault(missing("controller"))));
        }
    }
}

/// Returns a certificate and its key: both or neither.
fn pair(certificate: &File, key: &File) -> Result<Option<KeyPair>, Fault> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => {
            Ok(Some(KeyPair { certificate: certificate.value.clone(), key: key.value.clone() }))
        }
        (Some(alone), None) => Err(alone.fault(format!("needs {}", other_name(alone, "certificate", "key")))),
        (None, Some(alone)) => Err(alone.fault(format!("needs {}", other_name(alone, "key", "certificate")))),
        (None, None) => Ok(None),
    }
}

fn other_name(set: &Set<PathBuf>, own: &str, other: &str) -> String {
    set.setting.name.replace(own, other)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use expect_test::{Expect, expect};

    use crate::config::Config;

    fn check(text: &str, expected: Expect) {
        let faults = Config::from_text(Path::new("thalweg.toml"), text).map(drop).unwrap_err();
        expected.assert_eq(&faults.to_string());
    }

    #[test]
    fn settings_need_each_other() {
        check(
            "[controller]\ntls_certificate = 'a.pem'",
            expect!["thalweg.toml:2:19: tls_certificate: needs tls_key"],
        );
        check(
            "[controller]\ntls_key = 'a.key'\ntls_client_ca = 'ca.pem'",
            expect!["thalweg.toml:2:11: tls_key: needs tls_certificate"],
        );
        check(
            "[controller]\ntls_client_ca = 'ca.pem'",
            expect!["thalweg.toml:2:17: tls_client_ca: needs tls_certificate and tls_key"],
        );
        check(
            "[agent]\ncontroller = 'https://a:8083'\ncontroller_key = 'a.key'\n\
             [edge]\nbackends = ['http://a']\nbundle = 'https://a/b'\ncontroller_certificate = 'a.pem'",
            expect![[r#"
                thalweg.toml:3:18: controller_key: needs controller_certificate
                thalweg.toml:7:26: controller_certificate: needs controller_key"#]],
        );
        check(
            "[agent]\ncontroller = 'http://a:8083'\ncontroller_ca = 'ca.pem'\n\
             [edge]\nbackends = ['http://a']\nbundle = 'b.json'\ncontroller_key = 'a.key'",
            expect![[r#"
                thalweg.toml:3:17: controller_ca: controller must be an https:// URL
                thalweg.toml:7:18: controller_key: bundle must be an https:// URL"#]],
        );
    }

    #[test]
    fn roles_in_the_same_file_need_the_controllers_url() {
        let controller = "[controller]\ntls_certificate = 'a.pem'\ntls_key = 'a.key'\n";
        check(
            &format!("{controller}[edge]\nbackends = ['http://a']\n[agent]"),
            expect![[r#"
            thalweg.toml:4:2: the controller in the same file speaks TLS: set bundle to its https:// URL
            thalweg.toml:6:2: the controller in the same file speaks TLS: set controller to its https:// URL"#]],
        );
    }
}
