//! Checks backends, probes and ACLs.

use std::net::IpAddr;

use super::{Checker, Symbol, index};
use crate::acl::{Acl, ENTRIES_MAX, Entry, bits, mask};
use crate::ast::{AclEntry, Field, FieldValue, Flag, Name};
use crate::fault::suggest;
use crate::idioms::{Place, help};
use crate::program::{BackendAddress, BackendRow, ProbeRow};
use crate::source::Span;

/// Maximum `.window` of a probe.
const WINDOW_MAX: u32 = 64;

const BACKEND_FIELDS: [&str; 11] = [
    "host",
    "port",
    "path",
    "host_header",
    "connect_timeout",
    "first_byte_timeout",
    "between_bytes_timeout",
    "max_connections",
    "proxy_header",
    "preamble",
    "probe",
];
const PROBE_FIELDS: [&str; 8] =
    ["url", "request", "expected_response", "timeout", "interval", "initial", "window", "threshold"];

impl Checker<'_> {
    /// Reports unknown and duplicate attributes.
    fn field_names(&mut self, fields: &[Field], known: &[&str], what: &str) {
        for (at, field) in fields.iter().enumerate() {
            let name = field.name.text.as_str();
            if !known.contains(&name) {
                let help = help(Place::Attribute, name, known.iter().copied());
                self.faults.error_help(field.name.span, format!("a {what} has no .{name}"), help);
            } else if fields[..at].iter().any(|other| other.name.text == name) {
                self.faults.error(field.name.span, format!(".{name} is set twice"));
            }
        }
    }

    /// Converts an attribute's value with `read`. If `read` returns `None`, reports that the
    /// attribute takes `expected`.
    fn field<T>(
        &mut self,
        fields: &[Field],
        name: &str,
        expected: &str,
        read: impl Fn(&FieldValue) -> Option<T>,
    ) -> Option<T> {
        let field = fields.iter().find(|field| field.name.text == name)?;
        let value = read(&field.value);
        if value.is_none() {
            self.faults.error(field.value_span, format!(".{name} takes {expected}"));
        }
        value
    }

    fn text(&mut self, fields: &[Field], name: &str) -> Option<String> {
        self.field(fields, name, "a string", |value| match value {
            FieldValue::Texts(texts) => Some(texts.concat()),
            // Varnish's manual has an example in which `.port` is a number without quotes.
            FieldValue::Int(value) if name == "port" => Some(value.to_string()),
            _ => None,
        })
    }

    fn duration(&mut self, fields: &[Field], name: &str) -> Option<f64> {
        self.field(fields, name, "a duration, such as 5s", |value| match value {
            FieldValue::Duration(seconds) => Some(*seconds),
            _ => None,
        })
    }

    fn number(&mut self, fields: &[Field], name: &str, min: i64, max: i64) -> Option<u32> {
        self.field(fields, name, &format!("a number from {min} to {max}"), |value| match value {
            FieldValue::Int(value) if (min..=max).contains(value) => u32::try_from(*value).ok(),
            _ => None,
        })
    }

    /// Declares a probe and returns its index.
    pub(super) fn probe(&mut self, name: &str, fields: &[Field], span: Span) -> Option<u32> {
        self.field_names(fields, &PROBE_FIELDS, "probe");
        let request = self.field(fields, "request", "strings, one per line", |value| match value {
            FieldValue::Texts(lines) => Some(lines.clone()),
            _ => None,
        });
        let named = |name: &str| fields.iter().find(|field| field.name.text == name);
        if let (Some(field), Some(_)) = (named("request"), named("url")) {
            self.faults.error(field.name.span, "a probe must not have both .url and .request");
        }
        let window = self.number(fields, "window", 1, i64::from(WINDOW_MAX)).unwrap_or(8);
        let threshold = self.number(fields, "threshold", 0, i64::from(WINDOW_MAX)).unwrap_or(3.min(window));
        if threshold > window {
            self.faults
                .error(span, format!(".threshold must be at most .window ({window}), got {threshold}"));
        }
        let initial = self.number(fields, "initial", 0, i64::from(WINDOW_MAX));
        let row = ProbeRow {
            name: name.to_owned(),
            url: self.text(fields, "url").unwrap_or_else(|| "/".to_owned()),
            request: request.unwrap_or_default(),
            expected_status: self
                .number(fields, "expected_response", 100, 999)
                .map_or(200, |status| u16::try_from(status).unwrap_or(200)),
            timeout_s: self.duration(fields, "timeout").unwrap_or(2.0),
            interval_s: self.duration(fields, "interval").unwrap_or(5.0),
            initial: initial.unwrap_or(threshold.saturating_sub(1)).min(threshold),
            window,
            threshold,
        };
        self.program.probes.push(row);
        Some(index(self.program.probes.len() - 1))
    }

    /// Declares a backend; `end` is the last token of its declaration.
    pub(super) fn backend(&mut self, name: &Name, fields: Option<&[Field]>, end: Span) {
        let row = self.backend_row(name, fields, name.span.to(end));
        let at = index(self.program.backends.len());
        self.program.backends.push(row);
        self.symbol(name, "backend", Symbol::Backend(at));
    }

    fn backend_row(&mut self, name: &Name, fields: Option<&[Field]>, whole: Span) -> BackendRow {
        let is_none = fields.is_none();
        let fields = fields.unwrap_or_default();
        self.field_names(fields, &BACKEND_FIELDS, "backend");
        let address = if is_none { None } else { self.backend_address(name.span, fields, whole) };
        let preamble = self.field(fields, "preamble", "a blob, such as :YQ==:", |value| match value {
            FieldValue::Blob(bytes) => Some(bytes.clone()),
            _ => None,
        });
        BackendRow {
            name: name.text.clone(),
            address,
            host_header: self.text(fields, "host_header"),
            connect_timeout_s: self.duration(fields, "connect_timeout"),
            first_byte_timeout_s: self.duration(fields, "first_byte_timeout"),
            between_bytes_timeout_s: self.duration(fields, "between_bytes_timeout"),
            connections_max: self.number(fields, "max_connections", 0, i64::from(u32::MAX)).map(u64::from),
            proxy_header: self
                .number(fields, "proxy_header", 1, 2)
                .map(|version| if version == 1 { 1 } else { 2 }),
            preamble: preamble.unwrap_or_default(),
            probe: self.backend_probe(fields),
        }
    }

    fn backend_probe(&mut self, fields: &[Field]) -> Option<u32> {
        let Some(field) = fields.iter().find(|field| field.name.text == "probe") else {
            return match self.symbols.get("default") {
                Some((Symbol::Probe(probe), _)) => Some(*probe),
                _ => None,
            };
        };
        match &field.value {
            FieldValue::Probe(fields) => self.probe("", fields, field.value_span),
            FieldValue::Name(name) => {
                if let Some((symbol @ Symbol::Probe(probe), _)) = self.symbols.get(name) {
                    let (symbol, probe) = (*symbol, *probe);
                    self.used.push(symbol);
                    return Some(probe);
                }
                let probes =
                    self.program.probes.iter().map(|row| row.name.as_str()).filter(|name| !name.is_empty());
                let help = suggest(name, probes.collect::<Vec<_>>());
                self.faults.refuse_help(field.value_span, format!("unknown probe {name}"), help)
            }
            _ => self.faults.refuse(field.value_span, ".probe takes a probe's name or a probe in braces"),
        }
    }

    fn backend_address(&mut self, span: Span, fields: &[Field], whole: Span) -> Option<BackendAddress> {
        let (host, path) = (self.text(fields, "host"), self.text(fields, "path"));
        let port = self.text(fields, "port");
        let has = |name: &str| fields.iter().any(|field| field.name.text == name);
        match (host, path) {
            (Some(_), Some(_)) => self.faults.refuse(span, "a backend must not have both .host and .path"),
            (None, Some(path)) => {
                if !path.starts_with('/') {
                    self.faults.error(span, ".path must start with /");
                }
                Some(BackendAddress::Path(path))
            }
            (Some(host), None) => {
                let (host, with_host) = match host.split_once(' ') {
                    Some((host, with_host)) if port.is_none() => {
                        (host.to_owned(), Some(with_host.trim_start().to_owned()))
                    }
                    _ => split_port(&host),
                };
                let port = port.or(with_host);
                let number = port.as_deref().map_or(Some(80), port_number);
                if host.is_empty() || host.contains(char::is_whitespace) {
                    self.faults.error(span, ".host must be a name or an address");
                }
                if number.is_none() {
                    let port = port.unwrap_or_default();
                    self.faults.error(span, format!("{port:?} is not a port"));
                }
                if let Some(is_known) = self.known.is_known_host
                    && host.parse::<IpAddr>().is_err()
                    && !is_known(&host)
                {
                    let help = "the edge retries; requests fail until the name resolves".to_owned();
                    self.faults.warning(span, format!("{host} does not resolve on this host"), Some(help));
                }
                Some(BackendAddress::Host { host, port: number? })
            }
            (None, None) => {
                // If the declaration has another fault, do not report this one too: the other may
                // be a misspelt `.host` or `.path`.
                if !has("host") && !has("path") && !self.faults.has_error_in(whole) {
                    let help = "or write backend NAME none; for a backend that always fails";
                    self.faults.error_help(span, "a backend needs .host or .path", help);
                }
                None
            }
        }
    }

    pub(super) fn default_backend(&mut self) {
        let named = match self.symbols.get("default") {
            Some((Symbol::Backend(backend), _)) => Some(*backend),
            _ => None,
        };
        self.program.default_backend = named.or((!self.program.backends.is_empty()).then_some(0));
    }

    pub(super) fn acl(&mut self, name: &Name, flags: &[Flag], rows: &[AclEntry]) {
        let (mut is_logged, mut is_pedantic) = (false, true);
        for flag in flags {
            match flag.name.text.as_str() {
                "log" => is_logged = flag.is_set,
                "pedantic" => is_pedantic = flag.is_set,
                "table" => {}
                other => {
                    let help = suggest(other, ["log", "pedantic", "table"]);
                    self.faults.error_help(flag.name.span, format!("unknown acl flag {other}"), help);
                }
            }
        }
        let mut entries: Vec<Entry> = Vec::new();
        for row in rows.iter().take(ENTRIES_MAX) {
            for entry in self.acl_entries(row, is_pedantic) {
                let same = |other: &&Entry| {
                    (other.is_v4, other.bits, other.prefix_bits)
                        == (entry.is_v4, entry.bits, entry.prefix_bits)
                };
                match entries.iter().find(same) {
                    Some(other) if other.is_negated != entry.is_negated => {
                        self.faults.error(row.span, format!("{} is both included and excluded", entry.shown));
                    }
                    Some(_) => {}
                    None => entries.push(entry),
                }
            }
        }
        if rows.len() > ENTRIES_MAX {
            self.faults.error(name.span, format!("more than {ENTRIES_MAX} entries"));
        }
        let at = index(self.program.acls.len());
        self.program.acls.push(Acl::new(name.text.clone(), is_logged, entries));
        self.symbol(name, "acl", Symbol::Acl(at));
    }

    fn acl_entries(&mut self, row: &AclEntry, is_pedantic: bool) -> Vec<Entry> {
        // Many policies write the prefix length inside the quotes, so accept that, too.
        let (address, within) = match row.address.split_once('/') {
            Some((address, prefix)) => (address, prefix.parse().ok().or(Some(-1))),
            None => (row.address.as_str(), None),
        };
        let addresses = match address.parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) => self.resolve(address, row),
        };
        let mut entries = Vec::new();
        for address in addresses {
            let (is_v4, bits) = bits(address);
            let width = if is_v4 { 32 } else { 128 };
            let prefix = row.prefix_bits.or(within).unwrap_or(width);
            let Some(prefix_bits) = u32::try_from(prefix).ok().filter(|_| (0..=width).contains(&prefix))
            else {
                self.faults.error(row.span, format!("the prefix length of {address} must be 0 to {width}"));
                continue;
            };
            let network = bits & mask(prefix_bits);
            if is_pedantic && network != bits {
                let help = format!("write {}/{prefix}, or acl NAME -pedantic", shown(is_v4, network));
                self.faults.error_help(row.span, "the address has bits set after its prefix", help);
                continue;
            }
            let shown = format!("\"{}\"/{prefix}", shown(is_v4, network));
            entries.push(Entry { is_v4, bits: network, prefix_bits, is_negated: row.is_negated, shown });
        }
        entries
    }

    fn resolve(&mut self, host: &str, row: &AclEntry) -> Vec<IpAddr> {
        // The addresses of `localhost` are fixed and need no name resolution.
        if host == "localhost" {
            return vec![IpAddr::from([127, 0, 0, 1]), IpAddr::from(std::net::Ipv6Addr::LOCALHOST)];
        }
        let found = self.known.resolve.map(|resolve| resolve(host)).unwrap_or_default();
        if found.is_empty() && !row.is_optional {
            let help = "an acl lists addresses; a name in parentheses, (\"name\"), is skipped if it does not resolve";
            self.faults.error_help(row.span, format!("{host:?} is not an address"), help);
        }
        found
    }
}

fn shown(is_v4: bool, bits: u128) -> IpAddr {
    if is_v4 { IpAddr::from(((bits >> 96) as u32).to_be_bytes()) } else { IpAddr::from(bits.to_be_bytes()) }
}

/// Splits `host:port`, `[address]:port`, or either part alone into host and port.
fn split_port(host: &str) -> (String, Option<String>) {
    if let Some((address, rest)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let port = rest.strip_prefix(':').map(str::to_owned);
        return (address.to_owned(), port);
    }
    match host.split_once(':') {
        Some((name, port)) if !port.contains(':') => (name.to_owned(), Some(port.to_owned())),
        _ => (host.to_owned(), None),
    }
}

fn port_number(text: &str) -> Option<u16> {
    match text {
        "http" => Some(80),
        "https" => Some(443),
        _ => text.parse().ok().filter(|port| *port > 0),
    }
}
