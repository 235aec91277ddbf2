//! Display of routes for users, in the style of `ip route`.

use std::fmt;

use super::{Nexthop, Route, Routes, TABLE_MAIN};

/// A route for display, with interfaces shown by name.
#[derive(Debug)]
pub struct Shown<'a> {
    route: &'a Route,
    kernel: &'a Routes,
}

impl Routes {
    /// Wraps a route for display.
    pub fn shown<'a>(&'a self, route: &'a Route) -> Shown<'a> {
        Shown { route, kernel: self }
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let route = self.route;
        write!(f, "{}", route.prefix)?;
        if let Some(id) = route.nexthop_id() {
            write!(f, " nhid {id}")?;
        }
        let nexthops = route.nexthops();
        for Nexthop { gateway, interface } in &nexthops {
            if nexthops.len() > 1 {
                f.write_str(" nexthop")?;
            }
            if let Some(gateway) = gateway {
                write!(f, " via {gateway}")?;
            }
            if let Some(interface) = interface {
                write!(f, " dev {}", self.kernel.interface(*interface))?;
            }
        }
        if let Some(source) = route.source() {
            write!(f, " src {source}")?;
        }
        if route.table != TABLE_MAIN {
            write!(f, " table {}", route.table)?;
        }
        for (name, window) in [("initcwnd", route.initcwnd()), ("initrwnd", route.initrwnd())] {
            window.map_or(Ok(()), |window| write!(f, " {name} {window}"))?;
        }
        route.congestion_control.map_or(Ok(()), |algorithm| write!(f, " congctl {algorithm}"))
    }
}
