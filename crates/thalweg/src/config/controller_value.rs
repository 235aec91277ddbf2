//! Values that only the controller's settings have, and where it is.

use thalweg_bundle::Share;
use thalweg_control::Measure;
use thalweg_http::Authority;
use thalweg_record::Prefix;
use thalweg_tcp::CongestionControl;

use super::value::{Value, Written};

/// A controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ControllerUrl(pub(crate) String);

impl Value for ControllerUrl {
    const FORM: &'static str = "a controller's address such as \"http://127.0.0.1:8083\"";
    const PLACEHOLDER: &'static str = "URL";

    fn from_text(text: &str) -> Result<Self, String> {
        match text.strip_prefix("http://").map(|rest| Authority::parse(rest.trim_end_matches('/').as_bytes()))
        {
            Some(Ok(authority)) if !authority.host().is_empty() => Ok(Self(text.to_owned())),
            _ => Err(format!("{text:?} is not {}", Self::FORM)),
        }
    }
}

/// A part of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part(pub(crate) Share);

impl Value for Part {
    const FORM: &'static str = "a number from 0 to 1 such as 0.25";
    const PLACEHOLDER: &'static str = "SHARE";

    fn from_text(text: &str) -> Result<Self, String> {
        let share = text.parse().ok().and_then(Share::from_number);
        share.map(Self).ok_or_else(|| format!("{text:?} is not {}, with at most six decimals", Self::FORM))
    }

    fn from_written(written: &Written) -> Result<Self, String> {
        match written {
            Written::Text(text) | Written::Number(text) => Self::from_text(text),
            other => Err(format!("{other} where {} is expected", Self::FORM)),
        }
    }
}

/// By what networks are ranked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RankedBy(pub(crate) Measure);

impl Value for RankedBy {
    const FORM: &'static str = "\"delivery_rate\" or \"goodput\"";
    const PLACEHOLDER: &'static str = "delivery_rate|goodput";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "delivery_rate" => Ok(Self(Measure::DeliveryRate)),
            "goodput" => Ok(Self(Measure::Goodput)),
            _ => Err(format!("{text:?} is not {}", Self::FORM)),
        }
    }
}

/// A network of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientNetwork(pub(crate) Prefix);

impl Value for ClientNetwork {
    const FORM: &'static str = "a network such as \"10.0.0.0/8\"";
    const PLACEHOLDER: &'static str = "PREFIX";

    fn from_text(text: &str) -> Result<Self, String> {
        Prefix::of_text_or_address(text).map(Self).map_err(|fault| format!("{text:?}: {fault}"))
    }
}

/// A congestion control of the edges' kernels, which may have others than this machine's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TriedControl(pub(crate) String);

impl Value for TriedControl {
    const FORM: &'static str = "a congestion control such as \"bbr\"";
    const PLACEHOLDER: &'static str = "NAME";

    fn from_text(text: &str) -> Result<Self, String> {
        let name: CongestionControl = text.parse().map_err(|fault: thalweg_tcp::Error| fault.to_string())?;
        Ok(Self(name.to_string()))
    }
}
