//! Value types of controller settings, and the controller's address.

use std::path::Path;

use thalweg_bundle::Share;
use thalweg_control::Measure;
use thalweg_http::Authority;
use thalweg_record::Prefix;
use thalweg_surface::TokenFile;
use thalweg_tcp::CongestionControl;

use super::value::{Value, is_not, word};

/// Address of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ControllerUrl(pub(crate) String);

impl Value for ControllerUrl {
    const FORM: &'static str =
        "a controller's address such as \"http://127.0.0.1:8083\" or \"https://controller.example.com:8083\"";
    const PLACEHOLDER: &'static str = "URL";

    fn from_text(text: &str, _: &Path) -> Result<Self, String> {
        let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        match rest.map(|rest| Authority::parse(rest.trim_end_matches('/').as_bytes())) {
            Some(Ok(authority)) if !authority.host().is_empty() => Ok(Self(text.to_owned())),
            _ => Err(is_not::<Self>(text)),
        }
    }
}

impl ControllerUrl {
    /// Returns whether the controller speaks TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.0.starts_with("https://")
    }
}

/// A file with a token. It is read for each request.
impl Value for TokenFile {
    const FORM: &'static str = "a file that contains a token";
    const PLACEHOLDER: &'static str = "FILE";

    fn from_text(text: &str, base: &Path) -> Result<Self, String> {
        if text.is_empty() { Err(is_not::<Self>(text)) } else { Self::new(base.join(text)) }
    }
}

impl Value for Share {
    const FORM: &'static str = "a number from 0 to 1 such as 0.25";
    const PLACEHOLDER: &'static str = "SHARE";
    const IS_NUMBER: bool = true;

    fn from_text(text: &str, _: &Path) -> Result<Self, String> {
        let share = text.parse().ok().and_then(Self::from_number);
        share.ok_or_else(|| format!("{}, with at most six decimals", is_not::<Self>(text)))
    }
}

impl Value for Measure {
    const FORM: &'static str = "\"delivery_rate\" or \"goodput\"";
    const PLACEHOLDER: &'static str = "delivery_rate|goodput";

    fn from_text(text: &str, _: &Path) -> Result<Self, String> {
        word(text, &[Self::DeliveryRate, Self::Goodput])
    }
}

/// A client network.
impl Value for Prefix {
    const FORM: &'static str = "a network such as \"10.0.0.0/8\"";
    const PLACEHOLDER: &'static str = "PREFIX";

    fn from_text(text: &str, _: &Path) -> Result<Self, String> {
        Self::of_text_or_address(text).map_err(|fault| format!("{text:?}: {fault}"))
    }
}

/// A congestion control of the edges' kernels. This machine's kernel need not support it.
impl Value for CongestionControl {
    const FORM: &'static str = "a congestion control such as \"bbr\"";
    const PLACEHOLDER: &'static str = "NAME";

    fn from_text(text: &str, _: &Path) -> Result<Self, String> {
        text.parse().map_err(|fault: thalweg_tcp::Error| fault.to_string())
    }
}
