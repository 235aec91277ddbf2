//! The way from the server's side to the host, for a server that runs outside: a pair of devices, one end here and one there.
//!
//! The host's end has the server's address, so the clients' side is as ever, and the host has routes through it to the clients'
//! prefixes. No address is translated.
//!
//! **Invariant:** no address or route of the host is put out of use: what overlaps with one of its own is refused.
//! **Invariant:** the host's addresses and routes go with the device, and that with this value, with the server's namespace, or
//! with what the next run clears.

use crate::scenario::Scenario;

use super::addresses::{GATEWAY, UPLINK_ENDS, host, host_device};
use super::namespace::server_name;
use super::setup::{ip_batch, run_ip};
use super::{Error, Family};

/// Such a way, until it is dropped.
#[derive(Debug)]
pub(super) struct Uplink {
    id: String,
}

impl Uplink {
    /// Makes both ends, and sets up the host's.
    ///
    /// # Errors
    /// If `ip` does not; nothing is left then.
    pub(super) fn lay(scenario: &Scenario, family: Family, id: &str) -> Result<Self, Error> {
        let (device, namespace) = (host_device(id), server_name(id));
        let [here, there] = UPLINK_ENDS;
        let make = format!(
            "link add {device} address {here} type veth peer name {GATEWAY} address {there} netns {namespace}\n"
        );
        ip_batch(("-4", &make))?;
        let uplink = Self { id: id.to_owned() };
        ip_batch(host(scenario, id).of(family))?;
        Ok(uplink)
    }
}

impl Drop for Uplink {
    fn drop(&mut self) {
        remove(&self.id);
    }
}

/// Removes the devices of the emulation `id`, if it has any.
pub(super) fn remove(id: &str) {
    let _ = run_ip(&["link", "delete", &host_device(id)], "");
}

/// Whether the host has no route but its default one to where the clients and the server are to be.
///
/// # Errors
/// The first that it has.
pub(super) fn check(scenario: &Scenario, family: Family) -> Result<(), Error> {
    let (option, server) = match family {
        Family::Four => ("-4", scenario.server4.to_string()),
        Family::Six => ("-6", scenario.server6.to_string()),
    };
    let prefixes = scenario.paths.iter().map(|path| match family {
        Family::Four => format!("{}/24", path.prefix4),
        Family::Six => format!("{}/56", path.prefix6),
    });
    for addresses in prefixes.chain([server]) {
        // What is within it, and what it is within.
        for which in ["root", "match"] {
            let shown = run_ip(&[option, "route", "show", "table", "all", which, &addresses], "");
            let shown = shown.map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Error::Missing("ip", "iproute2"),
                _ => Error::System("process for `ip`", error),
            })?;
            let routes = String::from_utf8_lossy(&shown.stdout);
            if let Some(route) = routes.lines().find(|route| !route.split(' ').any(|word| word == "default"))
            {
                return Err(Error::Taken(addresses, route.trim().to_owned()));
            }
        }
    }
    Ok(())
}
