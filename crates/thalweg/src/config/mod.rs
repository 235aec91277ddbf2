//! Configuration: turns raw text into checked settings before any port is bound.
//!
//! [`sections`] declares every setting once. [`mod@file`] reads settings from `thalweg.toml`,
//! [`flags`] from the command line; [`mod@reference`] prints the declarations. This file checks
//! settings against each other.
//!
//! **Invariant:** a [`Config`] has passed all checks, so every role has the settings and other
//! roles that it needs. All faults of a file are reported at once, each with its line and column.

mod agent_value;
mod controller_value;
mod declare;
mod edge_value;
mod file;
mod flags;
mod origin_value;
mod place;
mod reference;
mod sections;
mod tls;
mod value;

pub(crate) use agent_value::{Broker, KafkaProperty};
pub(crate) use declare::{Section, Set};
pub(crate) use flags::{Flags, from_flag};
pub(crate) use place::{Fault, Faults, Place};
pub(crate) use reference::reference;
pub(crate) use sections::{Agent, Console, Consumer, Controller, Edge, Origin, Source, Tenant};
pub(crate) use value::ChannelName;

use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use hyper::Uri;
use thalweg_origin::{Ingest, IngestToken, MediaLocation, UnprotectedIngest};

/// Roles to run, with their settings.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// File name as given by the user; empty if flags were used.
    pub(crate) file: String,
    pub(crate) edge: Option<Edge>,
    pub(crate) origin: Option<Origin>,
    pub(crate) console: Option<Console>,
    pub(crate) agent: Option<Agent>,
    pub(crate) consumer: Option<Consumer>,
    pub(crate) controller: Option<Controller>,
    pub(crate) tenants: Vec<Tenant>,
    pub(crate) sources: Vec<Source>,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    ///
    /// Returns [`Faults`] if there are any faults.
    pub(crate) fn from_file(path: &Path) -> Result<Self, Faults> {
        let text = fs::read_to_string(path);
        let text = text
            .map_err(|fault| Faults::alone(format!("{}: cannot read the file: {fault}", path.display())))?;
        Self::from_text(path, &text)
    }

    /// Parses and checks `text`, the content of the file at `path`. Relative paths are resolved
    /// against the file's directory.
    ///
    /// # Errors
    ///
    /// Returns [`Faults`] if there are any faults.
    pub(crate) fn from_text(path: &Path, text: &str) -> Result<Self, Faults> {
        let mut faults = Vec::new();
        let config = file::read(text, path.parent().unwrap_or(Path::new("")), &mut faults);
        if faults.is_empty() {
            check_file(&config, &mut faults);
        }
        Self { file: path.display().to_string(), ..config }.unless(faults)
    }

    /// Builds a config with a single role from its flags; `with` wraps the role's section in a
    /// config.
    ///
    /// # Errors
    ///
    /// Returns [`Faults`] if there are any faults.
    pub(crate) fn from_flags<S: Section>(
        flags: &Flags<S>,
        with: impl FnOnce(S) -> Self,
    ) -> Result<Self, Faults> {
        let mut faults = Vec::new();
        let config = flags.read(&mut faults).map(with).unwrap_or_default();
        check_roles(&config, &mut faults);
        config.unless(faults)
    }

    fn unless(self, faults: Vec<Fault>) -> Result<Self, Faults> {
        if faults.is_empty() { Ok(self) } else { Err(Faults::new(&self.file, faults)) }
    }

    /// Builds a config with a single source.
    pub(crate) fn from_source(media: PathBuf, to: Uri, token: Option<IngestToken>) -> Self {
        fn set<T>(name: &str, value: T) -> Set<T> {
            let setting = Source::SETTINGS
                .iter()
                .find(|setting| setting.name == name)
                .expect("the setting is declared");
            Set { value, place: Place::Command, setting }
        }
        let source = Source {
            place: Place::Command,
            media: set("media", media),
            channel: None,
            to: Some(set("to", to)),
            token: token.map(|token| set("token", token)),
        };
        Self { sources: vec![source], ..Self::default() }
    }
}

/// Checks the settings of a config file against each other.
fn check_file(config: &Config, faults: &mut Vec<Fault>) {
    let has_server = config.edge.is_some() || config.origin.is_some() || config.console.is_some();
    let has_other = config.agent.is_some() || config.consumer.is_some() || config.controller.is_some();
    if !has_server && !has_other && config.sources.is_empty() {
        let message = "the file names no role: write [edge], [origin], [console], [agent], [consumer], [controller] or \
                       [[source]]"
            .to_owned();
        faults.push(Fault { place: Place::File { line: 1, column: 1 }, setting: None, message });
    }
    check_roles(config, faults);
    check_listeners(config, faults);
}

/// Checks each role, including its dependencies on other roles.
fn check_roles(config: &Config, faults: &mut Vec<Fault>) {
    if let Some(edge) = &config.edge {
        check_edge(edge, config.origin.is_some(), faults);
    }
    if let Some(origin) = &config.origin {
        check_origin(origin, faults);
    }
    if let Some(console) = &config.console {
        check_console(console, config, faults);
    }
    if let Some(agent) = &config.agent {
        check_agent(agent, config.edge.as_ref(), faults);
    }
    if let Some(controller) = &config.controller {
        check_controller(controller, &config.tenants, faults);
        check_tokens(controller, config, faults);
    } else if let Some(tenant) = config.tenants.first() {
        faults.push(tenant.fault("a tenant needs a controller in the same file: write [controller]"));
    }
    tls::check(config.edge.as_ref(), config.agent.as_ref(), config.controller.as_ref(), faults);
    check_sources(config, faults);
}

impl Agent {
    /// Returns whether the agent writes to SQLite: if configured, or if no other sink is.
    pub(crate) fn keeps_sqlite(&self) -> bool {
        let has_files = self.json.is_some() || self.parquet.is_some();
        let has_other = has_files || self.kafka.is_some() || self.clickhouse.is_some();
        self.sqlite.is_some() || !has_other
    }
}

/// Checks that the file has a role whose data the console can show, and an edge if the console
/// names its URL.
fn check_console(console: &Console, config: &Config, faults: &mut Vec<Fault>) {
    let shows_telemetry = config.agent.as_ref().is_some_and(Agent::keeps_sqlite);
    if config.edge.is_none() && !shows_telemetry && config.controller.is_none() {
        faults
            .push(console.fault(
                "the console has nothing to show: write [edge], [agent] with sqlite, or [controller]",
            ));
    }
    if let (Some(edge), None) = (&console.edge, &config.edge) {
        faults.push(edge.fault("must belong to an edge in the same file: write [edge]".to_owned()));
    }
}

/// Checks that no edge is followed twice, which would record each response twice.
fn check_agent(agent: &Agent, edge: Option<&Edge>, faults: &mut Vec<Fault>) {
    let Some(edges) = &agent.edges else { return };
    let own = edge.map(|edge| edge.admin.value);
    let twice = edges
        .value
        .iter()
        .enumerate()
        .find(|(at, address)| own == Some(**address) || edges.value[..*at].contains(address));
    if let Some((_, address)) = twice {
        faults.push(edges.fault(format!("edge at {address} is already followed")));
    }
}

/// Checks the controller's settings against each other.
fn check_controller(controller: &Controller, tenants: &[Tenant], faults: &mut Vec<Fault>) {
    for span in [&controller.window, &controller.late, &controller.acknowledge_max] {
        if span.value.duration.subsec_nanos() > 0 {
            faults.push(span.fault("must be whole seconds".to_owned()));
        }
    }
    let alone = controller.settings(&[]);
    let of_all = alone.check();
    faults.extend(of_all.iter().map(|fault| controller.fault(fault.to_string())));
    let all = controller.settings(tenants);
    for (tenant, settings) in tenants.iter().zip(&all.tenants) {
        // Faults of the shared settings are already reported.
        let own = alone.check_tenant(settings).into_iter().filter(|fault| !of_all.contains(fault));
        faults.extend(own.map(|fault| tenant.fault(fault.to_string())));
    }
    let hosts = all.check_hosts_of_tenants().into_iter();
    faults.extend(hosts.map(|(at, fault)| tenants[at].fault(fault.to_string())));
}

/// Checks access to the controller: without identities, it must listen on loopback; with
/// identities, the edge and the agent that use the controller in the same file need tokens.
fn check_tokens(controller: &Controller, config: &Config, faults: &mut Vec<Fault>) {
    if controller.identities.is_none() {
        let listen = controller.listen.value;
        if !thalweg_controller::is_loopback(listen) {
            faults.push(
                controller.listen.fault(thalweg_controller::BindError::Unprotected(listen).to_string()),
            );
        }
        return;
    }
    let missing = |setting: &str| format!("the controller in the same file has identities: set {setting}");
    if let Some(edge) =
        config.edge.as_ref().filter(|it| it.bundle.is_none() && it.bundle_token_file.is_none())
    {
        faults.push(edge.fault(missing("bundle_token_file")));
    }
    let agent = config.agent.as_ref();
    if let Some(agent) = agent.filter(|it| it.controller.is_none() && it.controller_token_file.is_none()) {
        faults.push(agent.fault(missing("controller_token_file")));
    }
}

fn check_edge(edge: &Edge, has_origin: bool, faults: &mut Vec<Fault>) {
    if edge.backends.is_none() && !has_origin && edge.policy.is_none() {
        let message = match edge.place {
            Place::File { .. } => "the edge has no backend: set backends or policy, or write [origin]",
            _ => "the edge has no backend: give --backend http://HOST:PORT, or a --policy that declares one",
        };
        faults.push(edge.fault(message));
    }
}

impl Origin {
    /// Returns the address that sources push to and the token that they must present.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is not on loopback and no token is set. A checked config
    /// never has such an address.
    pub(crate) fn ingest(&self) -> Result<Ingest, UnprotectedIngest> {
        let token = self.ingest_token.as_ref().map(|token| token.value.clone());
        Ingest::new(self.ingest.value, token)
    }
}

fn check_origin(origin: &Origin, faults: &mut Vec<Fault>) {
    if let Err(open) = origin.ingest() {
        faults.push(origin.ingest.fault(open.to_string()));
    }
    for location in origin.media.iter().flat_map(|media| &media.value) {
        if let MediaLocation::Directory(path) = location {
            check_directory(path, |message| faults.extend(origin.media.as_ref().map(|it| it.fault(message))));
        }
    }
    if origin.window.value.duration < 2 * origin.segment_target.value.duration {
        faults.push(origin.window.fault("must be at least two segments long".to_owned()));
    }
}

fn check_sources(config: &Config, faults: &mut Vec<Fault>) {
    let mut channels = HashSet::new();
    for source in &config.sources {
        check_directory(&source.media.value, |message| faults.push(source.media.fault(message)));
        let message = match (&source.channel, &source.to) {
            (Some(_), Some(_)) => "channel and to are both set: set only one of them".to_owned(),
            (None, None) => "source has no destination: set channel or to".to_owned(),
            (Some(_), None) if config.origin.is_none() => {
                "channel needs an origin in the same file: write [origin], or set to instead".to_owned()
            }
            (Some(channel), None) if !channels.insert(&channel.value.0) => {
                format!("channel {:?} already has a source", channel.value.0)
            }
            (Some(_), None) if source.token.is_some() => {
                "token is set without to: channel uses the token of [origin]".to_owned()
            }
            (Some(_), None) | (None, Some(_)) => continue,
        };
        faults.push(source.fault(message));
    }
}

/// Checks that no two listeners of a file share a port. Otherwise, the conflict would surface only
/// when the second role binds the port.
fn check_listeners(config: &Config, faults: &mut Vec<Fault>) {
    let edge = config.edge.iter().flat_map(|edge| [&edge.listen, &edge.admin]);
    let origin = config.origin.iter().flat_map(|origin| [&origin.listen, &origin.ingest, &origin.admin]);
    let console = config.console.iter().map(|console| &console.listen);
    let agent = config.agent.iter().filter_map(|agent| agent.listen.as_ref());
    let consumer = config.consumer.iter().filter_map(|consumer| consumer.listen.as_ref());
    let controller = config.controller.iter().map(|controller| &controller.listen);
    let mut seen: Vec<&Set<SocketAddr>> = Vec::new();
    for listener in edge.chain(origin).chain(console).chain(agent).chain(consumer).chain(controller) {
        if let Some(before) = seen.iter().find(|before| collide(before.value, listener.value)) {
            // Report the address set in the file, not the default.
            let by_default = listener.place == Place::Default;
            let (wrong, other) = if by_default { (*before, listener) } else { (listener, *before) };
            let Set { value, setting, .. } = other;
            faults.push(
                wrong.fault(format!("{value} is already used by {}.{}", setting.section, setting.name)),
            );
        }
        seen.push(listener);
    }
}

fn collide(a: SocketAddr, b: SocketAddr) -> bool {
    /// Returns whether a listener on `a` also takes the connections to `b`. An unspecified address
    /// covers its whole family, and the unspecified IPv6 address covers IPv4 too.
    fn covers(a: SocketAddr, b: SocketAddr) -> bool {
        a.ip() == b.ip() || (a.ip().is_unspecified() && (a.is_ipv6() || b.is_ipv4()))
    }
    a.port() == b.port() && a.port() != 0 && (covers(a, b) || covers(b, a))
}

fn check_directory(directory: &Path, fault: impl FnOnce(String)) {
    if let Err(error) = fs::read_dir(directory) {
        fault(format!("cannot read directory {}: {error}", directory.display()));
    }
}

#[cfg(test)]
mod tests;
