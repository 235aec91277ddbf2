//! One route as rtnetlink has it. Pure.
//!
//! By hand: `netlink-packet-route` takes the value of RTAX_CC_ALGO for a number, and it is a name. What a path has beside its next
//! hops (encapsulation, realm, metrics) is copied as bytes: it need not be understood to be kept.
//!
//! **Invariant:** two routes are equal if the kernel treats packets of new connections alike by them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::message::{
    MESSAGE_BYTES, NEXTHOP_BYTES, RTM_DELROUTE, RTM_NEWROUTE, address, header, kind, nexthops, put, short,
    with_length,
};
use super::{Error, PRIORITY, PROTOCOL};
use crate::CongestionControl;
use crate::diag::netlink::{aligned, split_attribute, u32_at};
use crate::diag::{Malformed, Prefix};

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// `RTN_UNICAST`: a way to somewhere, not a refusal.
const UNICAST: u8 = 1;
/// `RT_SCOPE_NOWHERE`: in a removal, that of any.
const SCOPE_NOWHERE: u8 = 255;
/// `RTNH_F_DEAD`: the next hop's interface is down. The kernel passes over it, and takes no new route by it.
const NEXTHOP_DEAD: u32 = 1;
/// `RTNH_F_ONLINK`: what else there is of flags is what the kernel tells, and not what it takes.
const NEXTHOP_ONLINK: u32 = 4;
/// `RTM_F_CLONED`: no route, but what the kernel has learned of one address by a route, such as its path MTU. It tells these of IPv6
/// with the routes, with the protocol and the metric of that route.
const CLONED: u32 = 0x200;
/// `RTAX_CC_ALGO`.
const METRIC_CC_ALGO: u16 = 16;

/// Attributes of a path, which a route by the same path has too.
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
/// Those of one next hop of several, beside its interface.
const OF_NEXTHOP: [u16; 5] = [kind::GATEWAY, kind::FLOW, kind::VIA, kind::ENCAP_TYPE, kind::ENCAP];
/// What the kernel tells of a next hop object beside its number, and does not take with it.
const OF_OBJECT: [u16; 6] =
    [kind::OIF, kind::GATEWAY, kind::MULTIPATH, kind::VIA, kind::ENCAP_TYPE, kind::ENCAP];

type Attributes = BTreeMap<u16, Vec<u8>>;

/// A route of the kernel, or one that it is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Where it leads.
    pub prefix: Prefix,
    /// The routing table.
    pub table: u32,
    /// Who has set it, `rtm_protocol`.
    pub protocol: u8,
    /// Which of several of a prefix holds: the one with the least.
    pub priority: u32,
    /// The congestion control of connections that it carries.
    pub congestion_control: Option<CongestionControl>,
    /// Only for packets of a type of service, or from some addresses.
    pub(super) is_selective: bool,
    /// No next hop is up.
    pub(super) is_dead: bool,
    path: Path,
}

/// How a route goes there.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Path {
    /// `rtm_type`.
    kind: u8,
    scope: u8,
    /// Of `RTNH_F_*` what the kernel takes.
    flags: u32,
    attributes: Attributes,
    /// `RTAX_*`, without the congestion control.
    metrics: Attributes,
}

/// A next hop, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nexthop {
    /// The router, if there is one on the way.
    pub gateway: Option<IpAddr>,
    /// The interface's number.
    pub interface: Option<u32>,
}

impl Route {
    /// The route of ours to `prefix` in `table` that goes by the same path.
    pub(super) fn along(&self, prefix: Prefix, table: u32, algorithm: CongestionControl) -> Self {
        Self {
            prefix,
            table,
            protocol: PROTOCOL,
            priority: PRIORITY,
            congestion_control: Some(algorithm),
            ..self.clone()
        }
    }

    /// Set by us.
    pub fn is_own(&self) -> bool {
        self.protocol == PROTOCOL
    }

    /// Leads somewhere: no blackhole, and none that refuses.
    pub(super) fn is_unicast(&self) -> bool {
        self.path.kind == UNICAST
    }

    /// Decodes what follows the header of a netlink message; none of a family without TCP, of IPv4 in IPv6 form, or of what was
    /// learned of one address.
    ///
    /// # Errors
    /// Where it is cut short, or an attribute is.
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
            prefix: Prefix::of(unspecified, bits),
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
            route.take(kind, value, bits)?;
            rest = after;
        }
        if unspecified.is_ipv6() && route.prefix.first().is_ipv4() {
            return Ok(None); // IPv4 in IPv6 form, where no connection goes
        }
        if let Some(nexthops) = route.path.attributes.remove(&kind::MULTIPATH) {
            route.take_nexthops(&nexthops)?;
        }
        if route.path.attributes.contains_key(&kind::NH_ID) {
            route.path.attributes.retain(|kind, _| !OF_OBJECT.contains(kind));
        }
        Ok(Some(route))
    }

    fn take(&mut self, kind: u16, value: &[u8], bits: u8) -> Result<(), Malformed> {
        let number = || u32_at(value, 0).ok_or(short(kind, value, 4));
        match kind {
            kind::DST => self.prefix = Prefix::of(address(value).ok_or(short(kind, value, 4))?, bits),
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

    /// Takes those of several next hops that are up, with the flags that the kernel takes. One alone is no list: the kernel tells
    /// it as that of a route with one.
    fn take_nexthops(&mut self, list: &[u8]) -> Result<(), Malformed> {
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

    /// The message that sets it, without what is to be done where one is there already.
    pub fn to_be_set(&self, flags: u16, sequence: u32) -> Vec<u8> {
        let path = &self.path;
        let mut message = self.message(RTM_NEWROUTE, flags, sequence, (path.scope, path.kind, path.flags));
        for (kind, value) in &path.attributes {
            put(&mut message, *kind, value);
        }
        let mut metrics = Vec::new();
        for (metric, value) in &path.metrics {
            put(&mut metrics, *metric, value);
        }
        if let Some(algorithm) = self.congestion_control {
            put(&mut metrics, METRIC_CC_ALGO, &[algorithm.as_str().as_bytes(), &[0]].concat());
        }
        put(&mut message, kind::METRICS, &metrics);
        with_length(message)
    }

    /// The message that removes it, and no other: by table, prefix, priority and protocol, however it goes by now.
    pub(super) fn to_be_removed(&self, flags: u16, sequence: u32) -> Vec<u8> {
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
        let family = if self.prefix.first().is_ipv4() { AF_INET } else { AF_INET6 };
        // The table's byte is unspecified: its attribute holds.
        message.extend([family, self.prefix.bits(), 0, 0, 0, self.protocol, scope, route_kind]);
        message.extend(route_flags.to_ne_bytes());
        put(&mut message, kind::TABLE, &self.table.to_ne_bytes());
        put(&mut message, kind::PRIORITY, &self.priority.to_ne_bytes());
        match self.prefix.first() {
            IpAddr::V4(address) => put(&mut message, kind::DST, &address.octets()),
            IpAddr::V6(address) => put(&mut message, kind::DST, &address.octets()),
        }
        message
    }

    /// Its next hops; none where it goes by a next hop object.
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

    /// The number of the next hop object that it goes by.
    pub fn nexthop_id(&self) -> Option<u32> {
        u32_at(self.path.attributes.get(&kind::NH_ID)?, 0)
    }

    /// The address that connections have on this side by it.
    pub fn source(&self) -> Option<IpAddr> {
        address(self.path.attributes.get(&kind::PREFSRC)?)
    }
}

/// `RTA_VIA` is a gateway of the other family: two bytes of family, then the address.
fn nexthop(gateway: Option<&[u8]>, via: Option<&[u8]>, interface: Option<&[u8]>) -> Nexthop {
    let gateway = gateway.or_else(|| via?.get(2..)).and_then(address);
    Nexthop { gateway, interface: interface.and_then(|bytes| u32_at(bytes, 0)) }
}
