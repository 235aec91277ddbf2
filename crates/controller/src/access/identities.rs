//! Identities file: who may use the controller, as TOML with one `[[identity]]` table per token or
//! certificate.
//!
//! ```toml
//! [[identity]]
//! role = "edge"                  # edge, agent or operator
//! pop = "fra1"
//! name = "edge-1"
//! token_sha256 = "…"             # 64 hexadecimal digits
//!
//! [[identity]]
//! role = "agent"
//! pop = "fra1"
//! name = "edge-1"
//! edges = ["edge-1", "edge-2"]   # hosts of the records; if absent, the agent's name
//! certificate_name = "edge-1.fra1.example"   # a DNS name or URI in the client's certificate
//! ```
//!
//! If an identity has both a token and a certificate name, each of its requests needs both.
//!
//! TOML is also the format of the config file, and each identity is a block that can be pasted,
//! commented and removed on its own. Two identities may differ only in the token or certificate, so
//! that a token or certificate can be replaced without an interruption.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use thalweg_record::is_name;
use thalweg_surface::PeerNames;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::token::Digest;

/// Maximum length of an identities file in bytes.
pub(crate) const FILE_BYTES_MAX: usize = 4 << 20;
/// Maximum number of identities.
const IDENTITIES_MAX: usize = 10_000;
/// Maximum number of edges for which an agent may send records.
const AGENT_EDGES_MAX: usize = 64;
/// Maximum length of a URI in a certificate, in bytes: that of a SPIFFE ID.
const URI_BYTES_MAX: usize = 2_048;
const KEYS: [&str; 6] = ["role", "pop", "name", "edges", "token_sha256", "certificate_name"];

/// What an identity may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    /// Polls for bundles, under its own name.
    Edge,
    /// Sends the records of its edges.
    Agent,
    /// Reads the state.
    Operator,
}

impl Role {
    const ALL: [Self; 3] = [Self::Edge, Self::Agent, Self::Operator];

    fn as_str(self) -> &'static str {
        match self {
            Self::Edge => "edge",
            Self::Agent => "agent",
            Self::Operator => "operator",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The owner of a token or certificate.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) role: Role,
    /// PoP of an edge or agent. Empty if the PoP is unnamed, and for operators.
    pub(crate) pop: String,
    pub(crate) name: String,
    /// Hosts whose records an agent may send. Empty for other roles.
    edges: Vec<String>,
    token: Option<Digest>,
    /// Name that the client's certificate must have; a DNS name is in lower case.
    certificate: Option<String>,
}

impl Identity {
    /// Returns whether one of these names of a certificate is the identity's certificate name. Also
    /// true if the identity has none.
    pub(crate) fn has_certificate(&self, names: &PeerNames) -> bool {
        self.certificate.as_deref().is_none_or(|own| names.iter().any(|name| name == own))
    }

    /// Returns whether the identity is an agent that may send records of `host` at `pop`.
    pub(crate) fn reports(&self, pop: &str, host: &str) -> bool {
        self.role == Role::Agent && self.pop == pop && self.edges.iter().any(|edge| edge == host)
    }
}

/// All identities of a file. Look-ups by token are not in constant time. An attacker cannot choose
/// the digests of guessed tokens, so the time taken reveals nothing useful.
#[derive(Debug, Default)]
pub(crate) struct Identities {
    all: Vec<Arc<Identity>>,
    by_token: HashMap<Digest, Arc<Identity>>,
    /// Identities without a token.
    by_certificate: HashMap<(Role, String), Arc<Identity>>,
}

impl Identities {
    /// Returns the owner of a token.
    pub(crate) fn find(&self, token: &[u8]) -> Option<&Arc<Identity>> {
        self.by_token.get(&Digest::of(token))
    }

    /// Returns the owner of a certificate with these names, preferably an owner with this role.
    pub(crate) fn of_certificate(&self, role: Role, names: &PeerNames) -> Option<&Arc<Identity>> {
        let roles = [role].into_iter().chain(Role::ALL);
        let mut keys = roles.flat_map(|role| names.iter().map(move |name| (role, name.to_owned())));
        keys.find_map(|key| self.by_certificate.get(&key))
    }

    /// Returns whether any identity has a certificate name.
    pub(crate) fn use_certificates(&self) -> bool {
        self.all.iter().any(|identity| identity.certificate.is_some())
    }

    /// Adds an identity.
    ///
    /// # Errors
    ///
    /// Returns an error if another identity already has the same token or certificate, or if the
    /// identity has neither.
    fn add(&mut self, identity: Identity) -> Result<(), String> {
        let identity = Arc::new(identity);
        let replaced = match (&identity.token, &identity.certificate) {
            (Some(token), _) => {
                let replaced = self.by_token.insert(*token, identity.clone());
                replaced.map(|_| "token_sha256 is already used by another identity".to_owned())
            }
            (None, Some(name)) => {
                let role = identity.role;
                let replaced = self.by_certificate.insert((role, name.clone()), identity.clone());
                replaced
                    .map(|_| format!("certificate_name is already used by another {role} without a token"))
            }
            (None, None) => Some("missing: token_sha256 or certificate_name".to_owned()),
        };
        self.all.push(identity);
        replaced.map_or(Ok(()), Err)
    }

    /// Returns whether an agent may send records of `host` at `pop`.
    pub(crate) fn has_reporter(&self, pop: &str, host: &str) -> bool {
        self.all.iter().any(|identity| identity.reports(pop, host))
    }

    /// Returns the number of identities.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Parses the content of an identities file.
    ///
    /// # Errors
    ///
    /// Returns the first fault, as `LINE:COLUMN: what is wrong`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (table, faults) = DeTable::parse_recoverable(text);
        let at = |span: Range<usize>, what: String| format!("{}: {what}", place(text, span.start));
        if let Some(fault) = faults.first() {
            return Err(at(fault.span().unwrap_or(0..0), fault.message().replace('\n', ", ")));
        }
        let mut identities = Self::default();
        for (key, value) in table.get_ref() {
            let tables = value.get_ref().as_array().filter(|_| key.get_ref() == "identity");
            let Some(tables) = tables else {
                return Err(at(key.span(), "expected only [[identity]] tables".to_owned()));
            };
            for table in tables {
                let fault = |(span, what)| at(span, what);
                let identity = identity(table).map_err(fault)?;
                if identities.len() == IDENTITIES_MAX {
                    return Err(at(table.span(), format!("more than {IDENTITIES_MAX} identities")));
                }
                identities.add(identity).map_err(|what| at(table.span(), what))?;
            }
        }
        if identities.all.is_empty() {
            return Err("1:1: no [[identity]]: create one with `thalweg controller token`".to_owned());
        }
        Ok(identities)
    }
}

type Fault = (Range<usize>, String);

fn identity(value: &Spanned<DeValue<'_>>) -> Result<Identity, Fault> {
    let fault = |what: &str| (value.span(), what.to_owned());
    let table =
        value.get_ref().as_table().ok_or_else(|| fault("identity must be a table: write [[identity]]"))?;
    if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.get_ref().as_ref())) {
        return Err((key.span(), format!("unknown key {:?}; known are {}", key.get_ref(), KEYS.join(", "))));
    }
    let text = |key: &str| table.get(key).map(text).transpose();
    let name_of = |key: &str| text(key)?.map(|(span, name)| named(span, name)).transpose();
    let (span, role) = text("role")?.ok_or_else(|| fault("missing: role"))?;
    let role = Role::ALL.into_iter().find(|it| it.as_str() == role);
    let role = role.ok_or_else(|| (span, "role must be edge, agent or operator".to_owned()))?;
    let pop = name_of("pop")?.unwrap_or_default();
    let name = name_of("name")?.ok_or_else(|| fault("missing: name"))?;
    let token = text("token_sha256")?.map(|(span, token)| {
        Digest::parse(token).ok_or_else(|| (span, "token_sha256 must be 64 hexadecimal digits".to_owned()))
    });
    let certificate = text("certificate_name")?.map(|(span, name)| certificate_name(span, name));
    let edges = match (role, table.get("edges")) {
        (Role::Agent, Some(list)) => names(list)?,
        (Role::Agent, None) => vec![name.clone()],
        (_, Some(list)) => return Err((list.span(), "edges is for agents only".to_owned())),
        (_, None) => Vec::new(),
    };
    if role == Role::Operator && !pop.is_empty() {
        return Err(fault("pop is for edges and agents only"));
    }
    let (token, certificate) = (token.transpose()?, certificate.transpose()?);
    Ok(Identity { role, pop, name, edges, token, certificate })
}

fn text<'a>(value: &'a Spanned<DeValue<'_>>) -> Result<(Range<usize>, &'a str), Fault> {
    let text = value.get_ref().as_str().ok_or_else(|| (value.span(), "must be a string".to_owned()))?;
    Ok((value.span(), text))
}

fn named(span: Range<usize>, name: &str) -> Result<String, Fault> {
    let why = "must be a name of letters, digits, '-', '_' and '.', at most 253";
    if is_name(name) { Ok(name.to_owned()) } else { Err((span, format!("{name:?} {why}"))) }
}

fn certificate_name(span: Range<usize>, name: &str) -> Result<String, Fault> {
    let is_uri = name.contains("://") && name.bytes().all(|byte| byte.is_ascii_graphic());
    if is_uri && name.len() <= URI_BYTES_MAX {
        return Ok(name.to_owned());
    }
    if is_name(name) {
        return Ok(name.to_ascii_lowercase());
    }
    let why = "must be a DNS name without a wildcard, or a URI such as \"spiffe://example/edge-1\"";
    Err((span, format!("{name:?} {why}")))
}

fn names(list: &Spanned<DeValue<'_>>) -> Result<Vec<String>, Fault> {
    let items = list.get_ref().as_array().filter(|items| (1..=AGENT_EDGES_MAX).contains(&items.len()));
    let why = || (list.span(), format!("edges must be a list of 1 to {AGENT_EDGES_MAX} names"));
    let items = items.ok_or_else(why)?;
    items.iter().map(|item| text(item).and_then(|(span, name)| named(span, name))).collect()
}

/// Formats a byte offset as line and column.
fn place(text: &str, offset: usize) -> String {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("{line}:{column}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn block(keys: &str, token: &str) -> String {
        format!("[[identity]]\n{keys}\ntoken_sha256 = '{}'\n", Digest::of(token.as_bytes()).text())
    }

    #[test]
    fn tokens_are_bound_to_roles_pops_and_names() {
        let text = block("role = 'edge'\npop = 'fra1'\nname = 'edge-1'", "one")
            + &block("role = 'edge'\npop = 'fra1'\nname = 'edge-1'", "another")
            + &block("role = 'agent'\npop = 'fra1'\nname = 'a'\nedges = ['edge-1', 'edge-2']", "two")
            + &block("role = 'agent'\nname = 'edge-3'", "three")
            + &block("role = 'operator'\nname = 'anna'", "four");
        let identities = Identities::parse(&text).unwrap();
        assert_eq!(identities.len(), 5);
        let find = |token: &str| identities.find(token.as_bytes());
        assert!(find("five").is_none() && find("").is_none());
        for token in ["one", "another"] {
            let edge = find(token).unwrap();
            assert_eq!((edge.role, edge.pop.as_str(), edge.name.as_str()), (Role::Edge, "fra1", "edge-1"));
            assert!(!edge.reports("fra1", "edge-1"));
        }
        let agent = find("two").unwrap();
        assert!(agent.reports("fra1", "edge-1") && agent.reports("fra1", "edge-2"));
        assert!(!agent.reports("fra1", "a") && !agent.reports("", "edge-1"));
        assert!(find("three").unwrap().reports("", "edge-3"));
        assert_eq!(find("four").unwrap().role, Role::Operator);
        assert!(identities.has_reporter("fra1", "edge-2") && !identities.has_reporter("fra2", "edge-2"));
    }

    #[test]
    fn faults_have_their_place() {
        let good = block("role = 'operator'\nname = 'anna'", "one");
        let cases = [
            ("", "1:1: no [[identity]]: create one with `thalweg controller token`"),
            ("[identity]\nrole = 'edge'", "1:2: expected only [[identity]] tables"),
            ("[[identity]]\nrole = 'root'", "2:8: role must be edge, agent or operator"),
            ("[[identity]]\nname = 'a'", "1:1: missing: role"),
            ("[[identity]]\nrole = 'edge'", "1:1: missing: name"),
            ("[[identity]]\nrole = 'edge'\nname = 'a'", "1:1: missing: token_sha256 or certificate_name"),
            (
                "[[identity]]\nrole = 'edge'\nname = 'a'\ncertificate_name = '*.example'",
                "4:20: \"*.example\" must be a DNS name without a wildcard, or a URI such as \"spiffe://example/edge-1\"",
            ),
            (
                "[[identity]]\nrole = 'edge'\nname = 'a'\ncertificate_name = 'A.example'\n\
                 [[identity]]\nrole = 'edge'\nname = 'b'\ncertificate_name = 'a.example'",
                "5:1: certificate_name is already used by another edge without a token",
            ),
            (
                "[[identity]]\nrole = 'edge'\nname = 'a'\ntoken_sha256 = 'abc'",
                "4:16: token_sha256 must be 64 hexadecimal digits",
            ),
            (
                "[[identity]]\nrole = 'edge'\nname = \"a\\u0007\"",
                "3:8: \"a\\u{7}\" must be a name of letters, digits, '-', '_' and '.', at most 253",
            ),
            ("[[identity]]\nrole = 1", "2:8: must be a string"),
            (
                "[[identity]]\ntoken = 'a'",
                "2:1: unknown key \"token\"; known are role, pop, name, edges, token_sha256, certificate_name",
            ),
            (&block("role = 'edge'\nname = 'a'\nedges = ['b']", "one"), "4:9: edges is for agents only"),
            (
                &block("role = 'agent'\nname = 'a'\nedges = []", "one"),
                "4:9: edges must be a list of 1 to 64 names",
            ),
            (
                &block("role = 'operator'\nname = 'a'\npop = 'b'", "one"),
                "1:1: pop is for edges and agents only",
            ),
            (&format!("{good}{good}"), "5:1: token_sha256 is already used by another identity"),
            ("[[identity]\n", "1:12: unclosed array table, expected `]`"),
        ];
        for (text, fault) in cases {
            assert_eq!(Identities::parse(text).unwrap_err(), fault, "{text}");
        }
    }
}
