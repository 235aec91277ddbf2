//! Configuration: raw text to resolved settings, everything checked before a port is bound.
//!
//! [`sections`] declares every setting once; [`mod@file`] reads them from `thalweg.toml`, [`flags`] from the
//! command line, [`mod@reference`] prints them. This file says what must hold between settings.
//!
//! **Invariant:** a [`Config`] has been checked: each role has what it needs, and every fault of a file was told at
//! once, each with its line and column.

mod agent_value;
mod controller_value;
mod declare;
mod edge_value;
mod file;
mod flags;
mod place;
mod reference;
mod secret;
mod sections;
mod value;

pub(crate) use agent_value::{Broker, ClickHouseUrl, KafkaProperty};
pub(crate) use controller_value::{ClientNetwork, Part};
pub(crate) use edge_value::{Congestion, LogTarget, StateDirectory};
pub(crate) use flags::Flags;
pub(crate) use place::{Fault, Faults, Place};
pub(crate) use reference::reference;
pub(crate) use secret::reveal;
pub(crate) use sections::{Agent, Console, Consumer, Controller, Edge, Origin, Source, Tenant};
pub(crate) use value::{ChannelName, Count, IngestUrl, Value};

use declare::Section;
pub(crate) use declare::Set;
pub(crate) use file::nearest;

use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The roles to run, and how.
#[derive(Debug)]
pub(crate) struct Config {
    /// The file as the user named it; empty where flags took its place.
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
    /// Every fault there is, as [`Faults`].
    pub(crate) fn from_file(path: &Path) -> Result<Self, Faults> {
        let text = fs::read_to_string(path);
        let text = text
            .map_err(|fault| Faults::alone(format!("{}: cannot read the file: {fault}", path.display())))?;
        Self::from_text(path, &text)
    }

    /// Checks the text of the file at `path`, beside which its relative paths start.
    ///
    /// # Errors
    /// Every fault there is, as [`Faults`].
    pub(crate) fn from_text(path: &Path, text: &str) -> Result<Self, Faults> {
        let (name, base) = (path.display().to_string(), path.parent().unwrap_or(Path::new("")));
        let mut faults = Vec::new();
        let file = file::read(text, base, &mut faults);
        if faults.is_empty() {
            check_file(&file, &mut faults);
        }
        if !faults.is_empty() {
            return Err(Faults::new(&name, faults));
        }
        Ok(Self {
            file: name,
            edge: file.edge.map(|(_, edge)| edge),
            origin: file.origin.map(|(_, origin)| origin),
            console: file.console.map(|(_, console)| console),
            agent: file.agent.map(|(_, agent)| agent),
            consumer: file.consumer.map(|(_, consumer)| consumer),
            controller: file.controller.map(|(_, controller)| controller),
            tenants: file.tenants.into_iter().map(|(_, tenant)| tenant).collect(),
            sources: file.sources.into_iter().map(|(_, source)| source).collect(),
        })
    }

    /// An edge alone, by its flags.
    ///
    /// # Errors
    /// Every fault there is, as [`Faults`].
    pub(crate) fn from_edge_flags(flags: &Flags<Edge>) -> Result<Self, Faults> {
        let mut faults = Vec::new();
        let edge = flags.read(&mut faults);
        if let Some(edge) = &edge {
            check_edge(edge, Place::Command, false, &mut faults);
        }
        Self::alone(faults, Self { edge, ..Self::none() })
    }

    /// An origin alone, by its flags.
    ///
    /// # Errors
    /// Every fault there is, as [`Faults`].
    pub(crate) fn from_origin_flags(flags: &Flags<Origin>) -> Result<Self, Faults> {
        let mut faults = Vec::new();
        let origin = flags.read(&mut faults);
        if let Some(origin) = &origin {
            check_origin(origin, &mut faults);
        }
        Self::alone(faults, Self { origin, ..Self::none() })
    }

    /// An agent alone, by its flags.
    ///
    /// # Errors
    /// Every fault there is, as [`Faults`].
    pub(crate) fn from_agent_flags(flags: &Flags<Agent>) -> Result<Self, Faults> {
        let mut faults = Vec::new();
        let agent = flags.read(&mut faults);
        if let Some(agent) = &agent {
            check_bundles(agent, None, &mut faults);
            check_agent(agent, None, &mut faults);
        }
        Self::alone(faults, Self { agent, ..Self::none() })
    }

    /// A consumer alone, by its flags.
    ///
    /// # Errors
    /// Every fault there is, as [`Faults`].
    pub(crate) fn from_consumer_flags(flags: &Flags<Consumer>) -> Result<Self, Faults> {
        let mut faults = Vec::new();
        let consumer = flags.read(&mut faults);
        Self::alone(faults, Self { consumer, ..Self::none() })
    }

    /// A controller alone, by its flags.
    ///
    /// # Errors
    /// Every fault there is, as [`Faults`].
    pub(crate) fn from_controller_flags(flags: &Flags<Controller>) -> Result<Self, Faults> {
        let mut faults = Vec::new();
        let controller = flags.read(&mut faults);
        if let Some(controller) = &controller {
            check_controller(controller, Place::Command, &[], &mut faults);
        }
        Self::alone(faults, Self { controller, ..Self::none() })
    }

    /// A source alone.
    pub(crate) fn from_source(media: PathBuf, to: IngestUrl) -> Self {
        let declared =
            |name| Source::SETTINGS.iter().find(|setting| setting.name == name).expect("it is declared");
        let media = Set { value: media, place: Place::Command, setting: declared("media") };
        let to = Some(Set { value: to, place: Place::Command, setting: declared("to") });
        Self { sources: vec![Source { media, channel: None, to }], ..Self::none() }
    }

    fn alone(faults: Vec<Fault>, config: Self) -> Result<Self, Faults> {
        if faults.is_empty() { Ok(config) } else { Err(Faults::new("", faults)) }
    }

    fn none() -> Self {
        Self {
            file: String::new(),
            edge: None,
            origin: None,
            console: None,
            agent: None,
            consumer: None,
            controller: None,
            tenants: Vec::new(),
            sources: Vec::new(),
        }
    }
}

/// What must hold between the sections of a file.
fn check_file(file: &file::File, faults: &mut Vec<Fault>) {
    let has_server = file.edge.is_some() || file.origin.is_some() || file.console.is_some();
    let has_other = file.agent.is_some() || file.consumer.is_some() || file.controller.is_some();
    if !has_server && !has_other && file.sources.is_empty() {
        let message = "the file names no role: write [edge], [origin], [console], [agent], [consumer], [controller] or \
                       [[source]]"
            .to_owned();
        faults.push(Fault { place: Place::File { line: 1, column: 1 }, setting: None, message });
    }
    if let Some((place, edge)) = &file.edge {
        check_edge(edge, *place, file.origin.is_some(), faults);
    }
    if let Some((_, origin)) = &file.origin {
        check_origin(origin, faults);
    }
    if let Some((place, console)) = &file.console {
        check_console(console, *place, file, faults);
    }
    if let Some((_, agent)) = &file.agent {
        check_bundles(agent, file.edge.as_ref().map(|(_, edge)| edge), faults);
        check_agent(agent, file.edge.as_ref().map(|(_, edge)| edge), faults);
    }
    if let Some((place, controller)) = &file.controller {
        check_controller(controller, *place, &file.tenants, faults);
    } else if let Some((place, _)) = file.tenants.first() {
        let message = "a tenant is one of the controller of the same file: write [controller]".to_owned();
        faults.push(Fault { place: *place, setting: None, message });
    }
    check_sources(file, faults);
    check_listeners(file, faults);
}

/// What bundles over Kafka need.
fn check_bundles(agent: &Agent, edge: Option<&Edge>, faults: &mut Vec<Fault>) {
    let Some(topic) = &agent.kafka_bundles else {
        faults.extend(
            agent.bundle_file.iter().map(|file| file.fault("kafka_bundles says what comes there".to_owned())),
        );
        return;
    };
    let needed = [
        (agent.kafka.is_some(), "kafka, where the topic is"),
        (agent.pop.is_some(), "pop, whose bundles they are"),
        (agent.bundle_file.is_some(), "bundle_file, where they go"),
        (agent.edges.is_some() || edge.is_some(), "edges, which take them"),
    ];
    let missing = needed.into_iter().filter(|(is_there, _)| !is_there);
    faults.extend(missing.map(|(_, what)| topic.fault(format!("set {what}"))));
    check_topics(topic, &agent.kafka_topic, faults);
}

/// A topic of records keeps all of them for a time, one of bundles the last of each key for good.
fn check_topics(bundles: &Set<ChannelName>, records: &Set<ChannelName>, faults: &mut Vec<Fault>) {
    if bundles.value == records.value {
        faults.push(bundles.fault("the topic of records: name another".to_owned()));
    }
}

impl Agent {
    /// Whether it keeps SQLite: as named, or because it has no other sink.
    pub(crate) fn keeps_sqlite(&self) -> bool {
        let has_files = self.json.is_some() || self.parquet.is_some();
        let has_other = has_files || self.kafka.is_some() || self.clickhouse.is_some();
        self.sqlite.is_some() || !has_other
    }
}

/// A console shows what the same file has.
fn check_console(console: &Console, place: Place, file: &file::File, faults: &mut Vec<Fault>) {
    let shows_telemetry = file.agent.as_ref().is_some_and(|(_, agent)| agent.keeps_sqlite());
    if file.edge.is_none() && !shows_telemetry && file.controller.is_none() {
        let message =
            "a console shows what the same file has: write [edge], [agent] with sqlite, or [controller]"
                .to_owned();
        faults.push(Fault { place, setting: None, message });
    }
    if let (Some(edge), None) = (&console.edge, &file.edge) {
        faults.push(edge.fault("the edge is that of the same file: write [edge]".to_owned()));
    }
}

/// An edge that is followed twice has each response recorded twice.
fn check_agent(agent: &Agent, edge: Option<&Edge>, faults: &mut Vec<Fault>) {
    let Some(edges) = &agent.edges else { return };
    let own = edge.map(|edge| edge.admin.value);
    let twice = edges
        .value
        .iter()
        .enumerate()
        .find(|(at, address)| own == Some(**address) || edges.value[..*at].contains(address));
    if let Some((_, address)) = twice {
        faults.push(edges.fault(format!("the edge at {address} is followed already")));
    }
}

/// What must hold between settings of a decision.
fn check_controller(
    controller: &Controller,
    place: Place,
    tenants: &[(Place, Tenant)],
    faults: &mut Vec<Fault>,
) {
    for span in [&controller.window, &controller.late, &controller.acknowledge_max] {
        if span.value.duration.subsec_nanos() > 0 {
            faults.push(span.fault("not whole seconds".to_owned()));
        }
    }
    if let (Some(topic), None) = (&controller.kafka_bundles, &controller.kafka) {
        faults.push(topic.fault("set kafka, where the topic is".to_owned()));
    }
    if let Some(topic) = &controller.kafka_bundles {
        check_topics(topic, &controller.kafka_topic, faults);
    }
    let tell = |place, faults: Vec<thalweg_control::Fault>| {
        faults.into_iter().map(move |fault| Fault { place, setting: None, message: fault.to_string() })
    };
    let alone = controller.settings(&[]);
    let of_all = alone.check();
    faults.extend(tell(place, of_all.clone()));
    let all: Vec<_> = tenants.iter().map(|(_, tenant)| tenant.clone()).collect();
    let all = controller.settings(&all);
    for ((place, _), tenant) in tenants.iter().zip(&all.tenants) {
        // What is wrong for all was told above.
        let own = alone.check_tenant(tenant).into_iter().filter(|fault| !of_all.contains(fault)).collect();
        faults.extend(tell(*place, own));
    }
    for (at, fault) in all.check_hosts_of_tenants() {
        faults.extend(tell(tenants[at].0, vec![fault]));
    }
}

fn check_edge(edge: &Edge, place: Place, has_origin: bool, faults: &mut Vec<Fault>) {
    if edge.backends.is_none() && !has_origin && edge.policy.is_none() {
        let message = match place {
            Place::File { .. } => "the edge has no backend: set backends or policy, or write [origin]",
            _ => "the edge has no backend: give --backend http://HOST:PORT, or a --policy that has one",
        };
        faults.push(Fault { place, setting: None, message: message.to_owned() });
    }
}

fn check_origin(origin: &Origin, faults: &mut Vec<Fault>) {
    if let Some(media) = &origin.media {
        check_directory(media, faults);
    }
    if origin.window.value.duration < 2 * origin.segment_target.value.duration {
        faults.push(origin.window.fault("shorter than two segments".to_owned()));
    }
}

fn check_sources(file: &file::File, faults: &mut Vec<Fault>) {
    let mut channels = HashSet::new();
    for (place, source) in &file.sources {
        check_directory(&source.media, faults);
        let message = match (&source.channel, &source.to) {
            (Some(_), Some(_)) => {
                "channel and to exclude each other: to names the publishing point whole".to_owned()
            }
            (None, None) => "the source has nowhere to push: set channel or to".to_owned(),
            (Some(_), None) if file.origin.is_none() => {
                "channel is one of the origin in the same file: write [origin], or set to instead".to_owned()
            }
            (Some(channel), None) if !channels.insert(&channel.value.0) => {
                format!("another source pushes channel {:?} already", channel.value.0)
            }
            (Some(_), None) | (None, Some(_)) => continue,
        };
        faults.push(Fault { place: *place, setting: None, message });
    }
}

/// Two roles of one file on one port would fail when the second binds: it is known before.
fn check_listeners(file: &file::File, faults: &mut Vec<Fault>) {
    let edge = file.edge.iter().flat_map(|(_, edge)| [&edge.listen, &edge.admin]);
    let origin = file.origin.iter().map(|(_, origin)| &origin.listen);
    let console = file.console.iter().map(|(_, console)| &console.listen);
    let agent = file.agent.iter().filter_map(|(_, agent)| agent.listen.as_ref());
    let consumer = file.consumer.iter().filter_map(|(_, consumer)| consumer.listen.as_ref());
    let controller = file.controller.iter().map(|(_, controller)| &controller.listen);
    let mut seen: Vec<&Set<SocketAddr>> = Vec::new();
    for listener in edge.chain(origin).chain(console).chain(agent).chain(consumer).chain(controller) {
        if let Some(before) = seen.iter().find(|before| collide(before.value, listener.value)) {
            // The one that stands in the file is the one to change.
            let by_default = listener.place == Place::Default;
            let (wrong, other) = if by_default { (*before, listener) } else { (listener, *before) };
            let Set { value, setting, .. } = other;
            faults.push(
                wrong.fault(format!("{}.{} listens on {value} already", setting.section, setting.name)),
            );
        }
        seen.push(listener);
    }
}

fn collide(a: SocketAddr, b: SocketAddr) -> bool {
    /// An unspecified address is every one of its family; an IPv6 socket takes IPv4 too.
    fn covers(a: SocketAddr, b: SocketAddr) -> bool {
        a.ip() == b.ip() || (a.ip().is_unspecified() && (a.is_ipv6() || b.is_ipv4()))
    }
    a.port() == b.port() && a.port() != 0 && (covers(a, b) || covers(b, a))
}

fn check_directory(directory: &Set<PathBuf>, faults: &mut Vec<Fault>) {
    let path = directory.value.display();
    let message = match fs::read_dir(&directory.value) {
        Ok(_) => return,
        Err(fault) => format!("cannot read directory {path}: {fault}"),
    };
    faults.push(directory.fault(message));
}

#[cfg(test)]
mod tests;
