//! JSON form of a bundle: serde structs, encoding, decoding and the checksum.
//!
//! The checksum covers the canonical form: the document without `checksum`, on one line, without
//! spaces between tokens, and with the members of each object sorted by name. The fields below are
//! declared in name order, so serde writes the canonical form.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::fault::{Faults, Place};
use crate::{BYTES_MAX, Bundle, Content, Experiment, FORMAT, Rule, Tenant, check};

/// Algorithm prefix of a checksum.
const CHECKSUM: &str = "sha256:";
const CHECKSUM_DIGITS: usize = 64;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WireBundle {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) checksum: Option<String>,
    pub(crate) experiments: Vec<WireExperiment>,
    pub(crate) format: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hosts_left_alone: Option<Vec<String>>,
    pub(crate) made_at: String,
    pub(crate) number: u64,
    pub(crate) reason: String,
    pub(crate) rules: Vec<WireRule>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenants: Option<Vec<WireTenant>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WireTenant {
    pub(crate) hosts: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WireExperiment {
    pub(crate) arms: Vec<WireArm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hosts: Option<Vec<String>>,
    pub(crate) name: String,
    pub(crate) salt: String,
    pub(crate) unit: Unit,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WireArm {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) congestion_control: Option<String>,
    pub(crate) name: String,
    pub(crate) share: f64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WireRule {
    pub(crate) congestion_control: String,
    pub(crate) holdout: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) initcwnd: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) initrwnd: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) period_s: Option<u32>,
    pub(crate) prefix: String,
    pub(crate) reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) salt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) size_bytes_min: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) switchback_block_s: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
}

/// Unit of allocation: what an experiment assigns to an arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// A client: an IPv4 address, or the first 56 bits of an IPv6 address. All connections of a
    /// client get the same arm. Meant for effects visible to viewers.
    Client,
    /// Each connection separately. Meant for effects on single connections.
    Connection,
}

pub(crate) fn decode(document: &[u8]) -> Result<Bundle, Faults> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    if document.len() > BYTES_MAX {
        return Err(too_long());
    }
    let wire: WireBundle =
        serde_json::from_slice(document).map_err(|error| {
            match serde_json::from_slice::<Version>(document) {
                Ok(Version { format }) if format != FORMAT => other_format(format),
                _ => unreadable(&error),
            }
        })?;
    if wire.format != FORMAT {
        return Err(other_format(wire.format));
    }
    check::bundle(&wire, true)
}

fn too_long() -> Faults {
    Faults::alone(Place::Whole, format!("longer than {BYTES_MAX} bytes"))
}

/// Returns the only fault reported for a document in an unsupported format.
fn other_format(format: u32) -> Faults {
    let message = format!("unsupported format {format}, expected {FORMAT}");
    Faults::alone(Place::Value("/format".into()), message)
}

fn unreadable(error: &serde_json::Error) -> Faults {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let message = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
    Faults::alone(Place::Text { line, column }, message.to_owned())
}

pub(crate) fn checked(content: Content) -> Result<Bundle, Faults> {
    let bundle = check::bundle(&WireBundle::from(&content), false)?;
    if encode(&bundle).len() > BYTES_MAX {
        return Err(too_long());
    }
    Ok(bundle)
}

pub(crate) fn encode(bundle: &Bundle) -> String {
    let checksum = Some(bundle.checksum.clone());
    let mut document = json(&WireBundle { checksum, ..WireBundle::from(&bundle.content) });
    document.push('\n');
    document
}

fn json(wire: &WireBundle) -> String {
    serde_json::to_string(wire).expect("bundle structs contain no maps with non-string keys")
}

/// Returns the checksum declared by a document if it is well formed, without validating the rest.
/// An edge that rejects a document identifies it by this checksum.
pub fn declared_checksum(document: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Declared {
        checksum: String,
    }
    if document.len() > BYTES_MAX {
        return None;
    }
    let declared: Declared = serde_json::from_slice(document).ok()?;
    is_checksum(&declared.checksum).then_some(declared.checksum)
}

/// Returns whether `text` has the form of [`Bundle::checksum`].
pub fn is_checksum(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.strip_prefix(CHECKSUM)
        .is_some_and(|digits| digits.len() == CHECKSUM_DIGITS && digits.bytes().all(is_digit))
}

/// Computes a document's checksum, ignoring the declared one.
pub(crate) fn checksum(wire: &WireBundle) -> String {
    let canonical = json(&WireBundle { checksum: None, ..wire.clone() });
    let mut text = String::from(CHECKSUM);
    for byte in Sha256::digest(canonical.as_bytes()) {
        write!(text, "{byte:02x}").expect("writing to a String cannot fail");
    }
    text
}

/// Formats a Unix time as RFC 3339, in UTC, to the second.
pub(crate) fn time(unix_s: u64) -> String {
    format!("{:.0}", thalweg_record::time(unix_s.saturating_mul(1_000_000)))
}

/// Returns a copy of `names`, or `None` if it is empty, so that the member is omitted.
fn non_empty(names: &[String]) -> Option<Vec<String>> {
    (!names.is_empty()).then(|| names.to_vec())
}

impl From<&Content> for WireBundle {
    fn from(content: &Content) -> Self {
        Self {
            checksum: None,
            experiments: content.experiments.iter().map(WireExperiment::from).collect(),
            format: FORMAT,
            hosts_left_alone: non_empty(&content.hosts_left_alone),
            made_at: time(content.made_unix_s),
            number: content.number,
            reason: content.reason.clone(),
            rules: content.rules.iter().map(WireRule::from).collect(),
            tenants: (!content.tenants.is_empty())
                .then(|| content.tenants.iter().map(WireTenant::from).collect()),
        }
    }
}

impl From<&Rule> for WireRule {
    fn from(rule: &Rule) -> Self {
        Self {
            congestion_control: rule.congestion_control.clone(),
            holdout: rule.holdout.number(),
            period_s: rule.period_s,
            initcwnd: rule.initcwnd,
            initrwnd: rule.initrwnd,
            prefix: rule.prefix.to_string(),
            reason: rule.reason.clone(),
            salt: (!rule.salt.is_empty()).then(|| rule.salt.clone()),
            size_bytes_min: rule.size_bytes_min,
            switchback_block_s: rule.switchback_block_s,
            tenant: (!rule.tenant.is_empty()).then(|| rule.tenant.clone()),
        }
    }
}

impl From<&Tenant> for WireTenant {
    fn from(tenant: &Tenant) -> Self {
        Self { hosts: tenant.hosts.clone() }
    }
}

impl From<&Experiment> for WireExperiment {
    fn from(experiment: &Experiment) -> Self {
        let arm = |arm: &crate::Arm| WireArm {
            congestion_control: arm.congestion_control.clone(),
            name: arm.name.clone(),
            share: arm.share.number(),
        };
        Self {
            arms: experiment.arms.iter().map(arm).collect(),
            hosts: non_empty(&experiment.hosts),
            name: experiment.name.clone(),
            salt: experiment.salt.clone(),
            unit: experiment.unit,
        }
    }
}
