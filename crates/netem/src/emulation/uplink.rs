//! Link between the server's side and the host, used if the server runs on the host: a veth pair
//! with one end in each.
//!
//! The host's end has the server's address, so the clients' side needs no change. The host routes
//! the clients' prefixes through that end, without address translation.
//!
//! **Invariant:** the host's own addresses and routes remain in effect: a scenario that overlaps
//! with them is rejected.
//! **Invariant:** the added addresses and routes disappear with the device. The device is removed
//! when [`Uplink`] is dropped, when the server's namespace disappears, or by the next run.

use crate::scenario::Scenario;

use super::addresses::{GATEWAY, UPLINK_ENDS, host, host_device};
use super::namespace::server_name;
use super::setup::{ip_batch, run_ip};
use super::{Error, Family};

/// The link, removed on drop.
#[derive(Debug)]
pub(super) struct Uplink {
    id: String,
}

impl Uplink {
    /// Creates both ends and configures the host's end.
    ///
    /// # Errors
    ///
    /// Returns an error if `ip` fails; nothing is left behind.
    pub(super) fn create(scenario: &Scenario, family: Family, id: &str) -> Result<Self, Error> {
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

/// Removes the host's end of emulation `id`'s link, if it exists.
pub(super) fn remove(id: &str) {
    let _ = run_ip(&["link", "delete", &host_device(id)], "");
}

/// Checks that none of the host's routes, except default routes, overlaps with the clients' or the
/// server's addresses.
///
/// # Errors
///
/// Returns [`Error::Taken`] with the first overlapping route, or another error if `ip` cannot be
/// run.
pub(super) fn check(scenario: &Scenario, family: Family) -> Result<(), Error> {
    let (option, server) = match family {
        Family::Four => ("-4", scenario.server4.to_string()),
        Family::Six => ("-6", scenario.server6.to_string()),
    };
    let prefixes = scenario.paths.iter().map(|path| family.prefix(path));
    for addresses in prefixes.chain([server]) {
        // Find routes to part of the addresses (`root`), and routes that contain them (`match`).
        for which in ["root", "match"] {
            let shown = run_ip(&[option, "route", "show", "table", "all", which, &addresses], "");
            let shown = shown.map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Error::Missing("ip", "iproute2"),
                _ => Error::System("a process for `ip`", error),
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
