//! Value types of edge settings, and host names.

use std::path::{Path, PathBuf};

use thalweg_edge::{
    AbandonedFills, BackendUrl, BundleSource, BundleSourceError, DiskPlace, LogDestination,
    SlowStartAfterIdle,
};
use thalweg_http::Authority;
use thalweg_record::{Prefix, PrefixError};
use thalweg_tcp::CongestionControl;
use thalweg_units::Size;

use super::value::{Value, is_not, word};

impl Value for AbandonedFills {
    const FORM: &'static str = "\"finish\", \"half\" or \"cancel\"";
    const PLACEHOLDER: &'static str = "finish|half|cancel";

    fn from_text(text: &str, _: &Path) -> Result<Self, String> {
        word(text, &[Self::Finish, Self::Half, Self::Cancel])
    }
}

impl Value for SlowStartAfterIdle {
    const FORM: &'static str = "\"keep\" or \"off\"";
    const PLACEHOLDER: &'static str = "keep|off";

    fn from_text(text: &str, _: &Path) -> Result<Self, String> {
        word(text, &[Self::Keep, Self::Off])
    }
}

/// Minimum useful directory size: room for a few segment-sized responses.
const DISK_BYTES_MIN: u64 = 16 << 20;

/// A directory and the maximum size of its files.
impl Value for DiskPlace {
    const FORM: &'static str = "a directory and a size such as \"/var/cache/thalweg=10GiB\"";
    const PLACEHOLDER: &'static str = "DIR=SIZE";

    fn from_text(text: &str, base: &Path) -> Result<Self, String> {
        let (directory, size) = text.rsplit_once('=').ok_or_else(|| is_not::<Self>(text))?;
        let directory = PathBuf::from_text(directory, base)?;
        let bytes_max = Size::from_text(size, base)?.bytes;
        if bytes_max < DISK_BYTES_MIN {
            return Err(format!("{text:?}: size must be at least 16MiB"));
        }
        Ok(Self { directory, bytes_max })
    }
}

impl Value for LogDestination {
    const FORM: &'static str = "a file, \"-\" for standard output, or \"off\"";
    const PLACEHOLDER: &'static str = "FILE|-|off";

    fn from_text(text: &str, base: &Path) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "-" => Ok(Self::Stdout),
            path => PathBuf::from_text(path, base).map(Self::File),
        }
    }
}

/// A directory, or `off`.
impl Value for Option<PathBuf> {
    const FORM: &'static str = "a directory, or \"off\"";
    const PLACEHOLDER: &'static str = "DIR|off";

    fn from_text(text: &str, base: &Path) -> Result<Self, String> {
        if text == "off" { Ok(None) } else { PathBuf::from_text(text, base).map(Some) }
    }
}

/// A congestion control of this machine's kernel; `None` keeps the system's default.
impl Value for Option<CongestionControl> {
    const FORM: &'static str = "a congestion control such as \"bbr\", or \"system\"";
    const PLACEHOLDER: &'static str = "NAME";

    fn from_text(text: &str, base: &Path) -> Result<Self, String> {
        if text == "system" {
            return Ok(None);
        }
        let name = CongestionControl::from_text(text, base)?;
        thalweg_tcp::congestion::check(name).map_err(|fault| format!("{:#}", anyhow::Error::new(fault)))?;
        Ok(Some(name))
    }
}

impl Value for BackendUrl {
    const FORM: &'static str = "a server's address such as \"http://127.0.0.1:8081\"";
    const PLACEHOLDER: &'static str = "URL";

    fn from_text(text: &str, _: &Path) -> Result<Self, String> {
        if text.starts_with("https://") {
            return Err(format!("{text:?}: TLS to a backend is not supported"));
        }
        text.parse().map_err(|fault| format!("{text:?}: {fault}"))
    }
}

impl Value for BundleSource {
    const FORM: &'static str = "a file, or a URL such as \"http://127.0.0.1:8083/bundle?pop=fra1\"";
    const PLACEHOLDER: &'static str = "FILE|URL";

    fn from_text(text: &str, base: &Path) -> Result<Self, String> {
        let source = text.parse().and_then(Self::of_this_machine);
        match source.map_err(|fault: BundleSourceError| match text {
            "" => fault.to_string(),
            text => format!("{text:?}: {fault}"),
        })? {
            Self::File(path) => Ok(Self::File(base.join(path))),
            url => Ok(url),
        }
    }
}

/// A host name without a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostName(pub(crate) String);

impl Value for HostName {
    const FORM: &'static str = "a host name such as \"edge.example.com\"";
    const PLACEHOLDER: &'static str = "HOST";

    fn from_text(text: &str, _: &Path) -> Result<Self, String> {
        match Authority::parse(text.as_bytes()) {
            Ok(host) if host.port().is_none() && !host.host().is_empty() => Ok(Self(text.to_owned())),
            Ok(_) => Err(format!("{}: write it without a port", is_not::<Self>(text))),
            Err(_) => Err(is_not::<Self>(text)),
        }
    }
}

/// Clients allowed to purge: those in a prefix, or none.
impl Value for Option<Prefix> {
    const FORM: &'static str = "an address or a prefix such as \"10.0.0.0/8\", or \"none\"";
    const PLACEHOLDER: &'static str = "PREFIX";

    fn from_text(text: &str, _: &Path) -> Result<Self, String> {
        match text {
            "none" => Ok(None),
            text => Prefix::of_text_or_address(text).map(Some).map_err(|fault| match fault {
                PrefixError::Host { .. } | PrefixError::Mapped => format!("{text:?}: {fault}"),
                PrefixError::Form | PrefixError::Bits { .. } => is_not::<Self>(text),
            }),
        }
    }
}
