//! Values that only the edge's settings have, and names of hosts.

use std::path::{Path, PathBuf};

use thalweg_edge::{AbandonedFills, BackendUrl, BundleSource, SlowStartAfterIdle};
use thalweg_http::Authority;
use thalweg_record::units::Size;
use thalweg_record::{Prefix, PrefixError};
use thalweg_tcp::CongestionControl;

use super::value::Value;

/// What becomes of fills that nobody reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Abandoned(pub(crate) AbandonedFills);

impl Value for Abandoned {
    const FORM: &'static str = "\"finish\", \"half\" or \"cancel\"";
    const PLACEHOLDER: &'static str = "finish|half|cancel";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "finish" => Ok(Abandoned(AbandonedFills::Finish)),
            "half" => Ok(Abandoned(AbandonedFills::Half)),
            "cancel" => Ok(Abandoned(AbandonedFills::Cancel)),
            _ => Err(format!("{text:?} is not {}", Self::FORM)),
        }
    }
}

/// What becomes of the kernel's slow start after idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlowStart(pub(crate) SlowStartAfterIdle);

impl Value for SlowStart {
    const FORM: &'static str = "\"keep\" or \"off\"";
    const PLACEHOLDER: &'static str = "keep|off";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "keep" => Ok(SlowStart(SlowStartAfterIdle::Keep)),
            "off" => Ok(SlowStart(SlowStartAfterIdle::Off)),
            _ => Err(format!("{text:?} is not {}", Self::FORM)),
        }
    }
}

/// A directory for stored responses, and the most that its files may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DiskTier {
    pub(crate) directory: PathBuf,
    pub(crate) size: Size,
}

impl DiskTier {
    /// The least that is worth a directory: some responses of the size of a segment.
    const BYTES_MIN: u64 = 16 << 20;
}

impl Value for DiskTier {
    const FORM: &'static str = "a directory and a size such as \"/var/cache/thalweg=10GiB\"";
    const PLACEHOLDER: &'static str = "DIR=SIZE";

    fn from_text(text: &str) -> Result<Self, String> {
        let (directory, size) =
            text.rsplit_once('=').ok_or_else(|| format!("{text:?} is not {}", Self::FORM))?;
        let (directory, size) = (PathBuf::from_text(directory)?, Size::from_text(size)?);
        if size.bytes < Self::BYTES_MIN {
            return Err(format!("{text:?}: the size is below 16MiB"));
        }
        Ok(DiskTier { directory, size })
    }

    fn relative_to(self, base: &Path) -> Self {
        DiskTier { directory: base.join(self.directory), ..self }
    }
}

/// Where the request log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LogTarget {
    Off,
    Stdout,
    File(PathBuf),
}

impl Value for LogTarget {
    const FORM: &'static str = "a file, \"-\" for standard output, or \"off\"";
    const PLACEHOLDER: &'static str = "FILE|-|off";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(LogTarget::Off),
            "-" => Ok(LogTarget::Stdout),
            path => PathBuf::from_text(path).map(LogTarget::File),
        }
    }

    fn relative_to(self, base: &Path) -> Self {
        match self {
            LogTarget::File(path) => LogTarget::File(base.join(path)),
            other => other,
        }
    }
}

/// A directory, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StateDirectory {
    Off,
    At(PathBuf),
}

impl Value for StateDirectory {
    const FORM: &'static str = "a directory, or \"off\"";
    const PLACEHOLDER: &'static str = "DIR|off";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(StateDirectory::Off),
            path => PathBuf::from_text(path).map(StateDirectory::At),
        }
    }

    fn relative_to(self, base: &Path) -> Self {
        match self {
            StateDirectory::At(path) => StateDirectory::At(base.join(path)),
            StateDirectory::Off => self,
        }
    }
}

/// A congestion control, or the system's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Congestion {
    System,
    Named(CongestionControl),
}

impl Value for Congestion {
    const FORM: &'static str = "a congestion control such as \"bbr\", or \"system\"";
    const PLACEHOLDER: &'static str = "NAME";

    fn from_text(text: &str) -> Result<Self, String> {
        if text == "system" {
            return Ok(Congestion::System);
        }
        let name: CongestionControl = text.parse().map_err(|fault: thalweg_tcp::Error| fault.to_string())?;
        thalweg_tcp::congestion::check(name).map_err(|fault| chain(&fault))?;
        Ok(Congestion::Named(name))
    }
}

impl Value for BackendUrl {
    const FORM: &'static str = "a server's address such as \"http://127.0.0.1:8081\"";
    const PLACEHOLDER: &'static str = "URL";

    fn from_text(text: &str) -> Result<Self, String> {
        if text.starts_with("https://") {
            return Err(format!("{text:?}: TLS towards a backend is not supported"));
        }
        text.parse().map_err(|fault| format!("{text:?}: {fault}"))
    }
}

impl Value for BundleSource {
    const FORM: &'static str = "a file, or a URL such as \"http://127.0.0.1:8083/bundle?pop=fra1\"";
    const PLACEHOLDER: &'static str = "FILE|URL";

    fn from_text(text: &str) -> Result<Self, String> {
        let source = text.parse().and_then(BundleSource::of_this_machine);
        source.map_err(|fault: thalweg_edge::BundleSourceError| match text {
            "" => fault.to_string(),
            text => format!("{text:?}: {fault}"),
        })
    }

    fn relative_to(self, base: &Path) -> Self {
        match self {
            Self::File(path) => Self::File(base.join(path)),
            Self::Http(_) => self,
        }
    }
}

/// The name of a host, without a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostName(pub(crate) String);

impl Value for HostName {
    const FORM: &'static str = "a host's name such as \"edge.example.com\"";
    const PLACEHOLDER: &'static str = "HOST";

    fn from_text(text: &str) -> Result<Self, String> {
        match Authority::parse(text.as_bytes()) {
            Ok(host) if host.port().is_none() && !host.host().is_empty() => Ok(HostName(text.to_owned())),
            Ok(_) => Err(format!("{text:?} is not {}: write it without a port", Self::FORM)),
            Err(_) => Err(format!("{text:?} is not {}", Self::FORM)),
        }
    }
}

/// Clients that may purge: those of a prefix, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PurgeFrom(pub(crate) Option<Prefix>);

impl Value for PurgeFrom {
    const FORM: &'static str = "an address or a prefix such as \"10.0.0.0/8\", or \"none\"";
    const PLACEHOLDER: &'static str = "PREFIX";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(PurgeFrom(None)),
            text => match Prefix::of_text_or_address(text) {
                Ok(prefix) => Ok(PurgeFrom(Some(prefix))),
                Err(fault @ (PrefixError::Host { .. } | PrefixError::Mapped)) => {
                    Err(format!("{text:?}: {fault}"))
                }
                Err(PrefixError::Form | PrefixError::Bits { .. }) => {
                    Err(format!("{text:?} is not {}", Self::FORM))
                }
            },
        }
    }
}

/// An error and its causes on one line.
fn chain(fault: &dyn std::error::Error) -> String {
    let mut text = fault.to_string();
    let mut cause = fault.source();
    while let Some(next) = cause {
        text.push_str(&format!(": {next}"));
        cause = next.source();
    }
    text
}
