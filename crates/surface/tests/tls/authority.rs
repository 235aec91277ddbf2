//! A certificate authority for tests, made with openssl.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An authority in a directory: `NAME.pem` and `NAME.key`.
pub struct Authority {
    directory: PathBuf,
    name: String,
}

impl Authority {
    /// Creates an authority in an existing directory.
    pub fn new(directory: &Path, name: &str) -> Self {
        let authority = Self { directory: directory.to_owned(), name: name.to_owned() };
        authority.openssl(&format!("{KEY} -keyout {name}.key -out {name}.pem -subj /CN={name}"));
        authority
    }

    /// Returns the path of the authority's certificate.
    pub fn certificate(&self) -> PathBuf {
        self.directory.join(format!("{}.pem", self.name))
    }

    /// Creates or replaces the certificate `FILE.pem` and its key `FILE.key`, for subject
    /// alternative names such as `DNS:a.example,IP:127.0.0.1`. Returns their paths.
    pub fn issue(&self, file: &str, names: &str) -> (PathBuf, PathBuf) {
        let ca = &self.name;
        self.openssl(&format!(
            "{KEY} -CA {ca}.pem -CAkey {ca}.key -keyout {file}.key -out {file}.pem -subj /CN={file} \
             -addext subjectAltName={names} -addext basicConstraints=critical,CA:FALSE"
        ));
        self.paths(file)
    }

    /// Like [`Self::issue`], with a certificate that has expired.
    pub fn issue_expired(&self, file: &str, names: &str) -> (PathBuf, PathBuf) {
        let ca = &self.name;
        self.openssl(&format!("{NEW_KEY} -keyout {file}.key -out {file}.csr -subj /CN={file}"));
        let extensions = format!("subjectAltName={names}\nbasicConstraints=critical,CA:FALSE\n");
        fs::write(self.directory.join("extensions"), extensions).unwrap();
        self.openssl(&format!(
            "x509 -req -in {file}.csr -CA {ca}.pem -CAkey {ca}.key -extfile extensions -days -1 -out {file}.pem"
        ));
        self.paths(file)
    }

    fn paths(&self, file: &str) -> (PathBuf, PathBuf) {
        let path = |kind| self.directory.join(format!("{file}.{kind}"));
        (path("pem"), path("key"))
    }

    fn openssl(&self, command: &str) {
        let mut openssl = Command::new("openssl");
        let output = openssl.args(command.split_whitespace()).current_dir(&self.directory);
        let output = output.output().expect("tools/setup test installs openssl");
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

const KEY: &str = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
const NEW_KEY: &str = "req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
