//! One rtnetlink route: decoding, encoding and comparison.
//!
//! Routes are decoded by hand, because `netlink-packet-route` reads RTAX_CC_ALGO as a number
//! although its value is a name. Path attributes other than next hops (encapsulation, realm,
//! metrics) are copied as opaque bytes, because they only need to be preserved.
//!
//! **Invariant:** two routes are equal if the kernel treats new connections identically under
//! either.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::message::{
    MESSAGE_BYTES, NEXTHOP_BYTES, RTM_DELROUTE, RTM_NEWROUTE, address, header, kind, nexthops,
    push_attribute, short, with_length,
};
use super::{Error, PRIORITY, PROTOCOL, Steering};
use crate::CongestionControl;
use crate::diag::netlink::{aligned, split_attribute, u32_at};
use crate::diag::{Malformed, network};

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// `RTN_UNICAST`: a route that forwards rather than rejects.
const UNICAST: u8 = 1;
/// `RT_SCOPE_NOWHERE`: matches any scope in a removal request.
const SCOPE_NOWHERE: u8 = 255;
/// `RTNH_F_DEAD`: the next hop's interface is down. The kernel skips such a next hop and accepts no
/// new route through it.
const NEXTHOP_DEAD: u32 = 1;
/// `RTNH_F_ONLINK`: the only flag that the kernel accepts in requests. The others are report-only.
const NEXTHOP_ONLINK: u32 = 4;
/// `RTM_F_CLONED`: marks state, such as a path MTU, that the kernel learned about one address
/// through a route. IPv6 dumps list this state among the routes, with the original route's protocol
/// and metric.
const CLONED: u32 = 0x200;
/// `RTAX_INITCWND`.
const METRIC_INITCWND: u16 = 11;
/// `RTAX_INITRWND`.
const METRIC_INITRWND: u16 = 14;
/// `RTAX_CC_ALGO`.
const METRIC_CC_ALGO: u16 = 16;

/// Path attributes, which are copied into a route along the same path.
const OF_PATH: [u16; 9] = [
    kind::OIF,
    kind::GATEWAY,
    kind::PREFSRC,
    kind::MULTIPATH,
    kind::FLOW,
    kind::VIA,
    kind::ENCAP_TYPE,
    kind::ENCAP,
    kind::NH_ID,
];
/// Attributes of a next hop in a multipath route, other than its interface.
const OF_NEXTHOP: [u16; 5] = [kind::GATEWAY, kind::FLOW, kind::VIA, kind::ENCAP_TYPE, kind::ENCAP];
/// Attributes that the kernel reports for a route with a next hop object, but rejects in a request
/// that refers to the object.
const OF_OBJECT: [u16; 6] =
    [kind::OIF, kind::GATEWAY, kind::MULTIPATH, kind::VIA, kind::ENCAP_TYPE, kind::ENCAP];

type Attributes = BTreeMap<u16, Vec<u8>>;

/// A route read from the kernel or to be added to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The destination.
    pub prefix: IpNet,
    /// The routing table.
    pub table: u32,
    /// Identifies the program that set the route (`rtm_protocol`).
    pub protocol: u8,
    /// The route's metric; among routes to the same prefix, the lowest metric wins.
    pub priority: u32,
    /// The congestion control of connections using this route, if set.
    pub congestion_control: Option<CongestionControl>,
    /// Whether the route applies only to one type of service or to some source addresses.
    pub(super) is_selective: bool,
    /// Whether all next hops are down.
    pub(super) is_dead: bool,
    path: Path,
}

/// A route's path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Path {
    /// `rtm_type`.
    kind: u8,
    scope: u8,
    /// The `RTNH_F_*` flags accepted by the kernel in requests.
    flags: u32,
    attributes: Attributes,
    /// Metrics (`RTAX_*`) other than the congestion control.
    metrics: Attributes,
}

/// A next hop, for display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nexthop {
    /// The gateway, if any.
    pub gateway: Option<IpAddr>,
    /// Interface index, if any.
    pub interface: Option<u32>,
}

impl Route {
    /// Builds our route to `prefix` in `table`, along the path of this route.
    pub(super) fn along(&self, prefix: IpNet, table: u32, steering: Steering) -> Self {
        let mut route = Self {
            prefix,
            table,
            protocol: PROTOCOL,
            priority: PRIORITY,
            congestion_control: Some(steering.congestion_control),
            ..self.clone()
        };
        for (metric, window) in [(METRIC_INITCWND, steering.initcwnd), (METRIC_INITRWND, steering.initrwnd)] {
            route.path.metrics.extend(window.map(|window| (metric, window.to_ne_bytes().to_vec())));
        }
        route
    }

    /// Returns whether this program set the route.
    pub fn is_own(&self) -> bool {
        self.protocol == PROTOCOL
    }

    /// Returns whether the route forwards packets, rather than dropping or rejecting them.
    pub(super) fn is_unicast(&self) -> bool {
        self.path.kind == UNICAST
    }

    /// Decodes a netlink message's payload. Returns `None` for an address family other than IPv4
    /// and IPv6, for an IPv4-mapped prefix, and for state learned about a single address.
    ///
    /// # Errors
    ///
    /// Returns an error if the message or an attribute is truncated.
    pub fn decode(payload: &[u8]) -> Result<Option<Self>, Error> {
        let Some((fixed, mut rest)) = payload.split_first_chunk::<MESSAGE_BYTES>() else {
            return Err(Error::Short { bytes: payload.len() });
        };
        let [family, bits, source_bits, tos, table, protocol, scope, kind, f0, f1, f2, f3] = *fixed;
        let flags = u32::from_ne_bytes([f0, f1, f2, f3]);
        let unspecified: IpAddr = match family {
            _ if flags & CLONED != 0 => return Ok(None),
            AF_INET => Ipv4Addr::UNSPECIFIED.into(),
            AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
            _ => return Ok(None),
        };
        let path = Path {
            kind,
            scope,
            flags: flags & NEXTHOP_ONLINK,
            attributes: Attributes::new(),
            metrics: Attributes::new(),
        };
        let mut route = Self {
            prefix: network(unspecified, bits),
            table: table.into(),
            protocol,
            priority: 0,
            congestion_control: None,
            is_selective: tos != 0 || source_bits != 0,
            is_dead: flags & NEXTHOP_DEAD != 0,
            path,
        };
        while !rest.is_empty() {
            let (kind, value, after) = split_attribute(rest)?;
            route.apply_attribute(kind, value, bits)?;
            rest = after;
        }
        if unspecified.is_ipv6() && route.prefix.addr().is_ipv4() {
            return Ok(None); // no connection has an IPv4-mapped destination
        }
        if let Some(nexthops) = route.path.attributes.remove(&kind::MULTIPATH) {
            route.apply_nexthops(&nexthops)?;
        }
        if route.path.attributes.contains_key(&kind::NH_ID) {
            route.path.attributes.retain(|kind, _| !OF_OBJECT.contains(kind));
        }
        Ok(Some(route))
    }

    fn apply_attribute(&mut self, kind: u16, value: &[u8], bits: u8) -> Result<(), Malformed> {
        let number = || u32_at(value, 0).ok_or(short(kind, value, 4));
        match kind {
            kind::DST => self.prefix = network(address(value).ok_or(short(kind, value, 4))?, bits),
            kind::TABLE => self.table = number()?,
            kind::PRIORITY => self.priority = number()?,
            kind::METRICS => {
                let mut rest = value;
                while !rest.is_empty() {
                    let (metric, value, after) = split_attribute(rest)?;
                    if metric == METRIC_CC_ALGO {
                        self.congestion_control = CongestionControl::from_kernel(value);
                    } else {
                        self.path.metrics.insert(metric, value.to_vec());
                    }
                    rest = after;
                }
            }
            _ if OF_PATH.contains(&kind) => {
                self.path.attributes.insert(kind, value.to_vec());
            }
            _ => {}
        }
        Ok(())
    }

    /// Stores the next hops that are up, with only the flags that the kernel accepts. If a single
    /// next hop remains, stores a route with one next hop, as the kernel would report it.
    fn apply_nexthops(&mut self, list: &[u8]) -> Result<(), Malformed> {
        let mut up: Vec<Vec<u8>> = Vec::new();
        for nexthop in nexthops(list) {
            let mut nexthop = nexthop?.to_vec();
            let flags = u32::from(nexthop[2]);
            if flags & NEXTHOP_DEAD == 0 {
                nexthop[2] &= NEXTHOP_ONLINK as u8;
                up.push(nexthop);
            }
        }
        match &up[..] {
            [] => self.is_dead = true,
            [one] => {
                self.path.flags = one[2].into();
                self.path.attributes.insert(kind::OIF, one[4..NEXTHOP_BYTES].to_vec());
                let mut rest = &one[NEXTHOP_BYTES..];
                while !rest.is_empty() {
                    let (kind, value, after) = split_attribute(rest)?;
                    if OF_NEXTHOP.contains(&kind) {
                        self.path.attributes.insert(kind, value.to_vec());
                    }
                    rest = after;
                }
            }
            several => {
                let mut list = Vec::new();
                for nexthop in several {
                    list.extend(nexthop);
                    list.resize(aligned(list.len()), 0);
                }
                self.path.attributes.insert(kind::MULTIPATH, list);
            }
        }
        Ok(())
    }

    /// Encodes the request that sets this route. `flags` decide what happens if the route already
    /// exists.
    pub fn set_message(&self, flags: u16, sequence: u32) -> Vec<u8> {
        let path = &self.path;
        let mut message = self.message(RTM_NEWROUTE, flags, sequence, (path.scope, path.kind, path.flags));
        for (kind, value) in &path.attributes {
            push_attribute(&mut message, *kind, value);
        }
        let mut metrics = Vec::new();
        for (metric, value) in &path.metrics {
            push_attribute(&mut metrics, *metric, value);
        }
        if let Some(algorithm) = self.congestion_control {
            push_attribute(&mut metrics, METRIC_CC_ALGO, &[algorithm.as_str().as_bytes(), &[0]].concat());
        }
        push_attribute(&mut message, kind::METRICS, &metrics);
        with_length(message)
    }

    /// Encodes the request that removes exactly this route. The kernel matches it by table, prefix,
    /// priority and protocol, regardless of its path.
    pub(super) fn remove_message(&self, flags: u16, sequence: u32) -> Vec<u8> {
        with_length(self.message(RTM_DELROUTE, flags, sequence, (SCOPE_NOWHERE, 0, 0)))
    }

    fn message(
        &self,
        kind: u16,
        flags: u16,
        sequence: u32,
        (scope, route_kind, route_flags): (u8, u8, u32),
    ) -> Vec<u8> {
        let mut message = header(kind, flags, sequence);
        let family = if self.prefix.addr().is_ipv4() { AF_INET } else { AF_INET6 };
        // The table byte stays unspecified, because the table attribute overrides it.
        message.extend([family, self.prefix.prefix_len(), 0, 0, 0, self.protocol, scope, route_kind]);
        message.extend(route_flags.to_ne_bytes());
        push_attribute(&mut message, kind::TABLE, &self.table.to_ne_bytes());
        push_attribute(&mut message, kind::PRIORITY, &self.priority.to_ne_bytes());
        match self.prefix.addr() {
            IpAddr::V4(address) => push_attribute(&mut message, kind::DST, &address.octets()),
            IpAddr::V6(address) => push_attribute(&mut message, kind::DST, &address.octets()),
        }
        message
    }

    /// Returns the route's next hops, or none if it uses a next hop object.
    pub fn nexthops(&self) -> Vec<Nexthop> {
        let attributes = &self.path.attributes;
        if attributes.contains_key(&kind::NH_ID) {
            return Vec::new();
        }
        let Some(list) = attributes.get(&kind::MULTIPATH) else {
            let of = |kind| attributes.get(&kind).map(Vec::as_slice);
            return vec![nexthop(of(kind::GATEWAY), of(kind::VIA), of(kind::OIF))];
        };
        let of_list = |bytes: &[u8]| {
            let (mut gateway, mut via, mut rest) = (None, None, &bytes[NEXTHOP_BYTES..]);
            while let Ok((kind, value, after)) = split_attribute(rest) {
                match kind {
                    kind::GATEWAY => gateway = Some(value),
                    kind::VIA => via = Some(value),
                    _ => {}
                }
                rest = after;
            }
            nexthop(gateway, via, Some(&bytes[4..NEXTHOP_BYTES]))
        };
        nexthops(list).map_while(Result::ok).map(of_list).collect()
    }

    /// Returns the ID of the route's next hop object, if it uses one.
    pub fn nexthop_id(&self) -> Option<u32> {
        u32_at(self.path.attributes.get(&kind::NH_ID)?, 0)
    }

    /// Returns the initial congestion window that the route sets, in TCP segments, if any.
    pub fn initcwnd(&self) -> Option<u32> {
        u32_at(self.path.metrics.get(&METRIC_INITCWND)?, 0)
    }

    /// Returns the initial receive window that the route sets, in TCP segments, if any.
    pub fn initrwnd(&self) -> Option<u32> {
        u32_at(self.path.metrics.get(&METRIC_INITRWND)?, 0)
    }

    /// Returns the source address that the route sets for its connections, if any.
    pub fn source(&self) -> Option<IpAddr> {
        address(self.path.attributes.get(&kind::PREFSRC)?)
    }
}

/// Decodes a next hop. `RTA_VIA` is a gateway of the other address family: two bytes of family,
/// then the address.
fn nexthop(gateway: Option<&[u8]>, via: Option<&[u8]>, interface: Option<&[u8]>) -> Nexthop {
    let gateway = gateway.or_else(|| via?.get(2..)).and_then(address);
    Nexthop { gateway, interface: interface.and_then(|bytes| u32_at(bytes, 0)) }
}
