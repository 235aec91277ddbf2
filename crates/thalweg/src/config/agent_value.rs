//! Values that only the agent's settings have.

use std::path::{Path, PathBuf};

use thalweg_tcp::diag::Filter;

use super::value::Value;

/// Which sockets are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SocketFilter(pub(crate) Filter);

impl Value for SocketFilter {
    const FORM: &'static str = "a filter of sockets such as \"sport 80,443 dst 203.0.113.0/24\"";
    const PLACEHOLDER: &'static str = "FILTER";

    fn from_text(text: &str) -> Result<Self, String> {
        Filter::parse(text).map(Self).map_err(|fault| fault.message().to_owned())
    }
}

/// A network namespace: by the name that `ip netns` has for it, or by its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Namespace {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

impl Namespace {
    /// Where `ip netns` keeps them.
    const DIRECTORY: &'static str = "/run/netns";
}

impl Value for Namespace {
    const FORM: &'static str = "a network namespace such as \"edge\" or \"/proc/42/ns/net\"";
    const PLACEHOLDER: &'static str = "NAME|PATH";

    fn from_text(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err(format!("{text:?} is not {}", Self::FORM));
        }
        let directory = if text.contains('/') { Path::new("") } else { Path::new(Self::DIRECTORY) };
        Ok(Self { name: text.to_owned(), path: directory.join(text) })
    }
}
