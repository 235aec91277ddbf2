//! Route tests: decoding the kernel's messages, and planning changes.

use expect_test::{Expect, expect};
use ipnet::IpNet;

use super::*;

use crate::diag::netlink::{HEADER_BYTES, aligned};

const BGP: u8 = 186;
const DEAD: u32 = 1;
const UNICAST: u8 = 1;
const BLACKHOLE: u8 = 6;

fn prefix(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap();
    let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(aligned(bytes.len()), 0);
    bytes
}

fn octets(address: &str) -> Vec<u8> {
    match address.parse().unwrap() {
        std::net::IpAddr::V4(address) => address.octets().to_vec(),
        std::net::IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// A route as reported by the kernel, without its path attributes.
#[derive(Clone, Copy)]
struct KernelRoute {
    prefix: &'static str,
    table: u32,
    protocol: u8,
    priority: u32,
    kind: u8,
    tos: u8,
    flags: u32,
}

const DEFAULT: KernelRoute = KernelRoute {
    prefix: "0.0.0.0/0",
    table: TABLE_MAIN,
    protocol: 16,
    priority: 100,
    kind: UNICAST,
    tos: 0,
    flags: 0,
};

impl KernelRoute {
    fn with(self, attributes: &[Vec<u8>]) -> Route {
        let of = prefix(self.prefix);
        let family = if of.addr().is_ipv4() { 2 } else { 10 };
        // The table byte 254 must be ignored in favour of the attribute.
        let mut bytes = vec![family, of.prefix_len(), 0, self.tos, 254, self.protocol, 0, self.kind];
        bytes.extend(self.flags.to_ne_bytes());
        bytes.extend(attribute(15, &self.table.to_ne_bytes()));
        if of.prefix_len() > 0 {
            bytes.extend(attribute(1, &octets(&of.addr().to_string())));
        }
        bytes.extend(attribute(6, &self.priority.to_ne_bytes()));
        bytes.extend(attributes.concat());
        Route::decode(&bytes).unwrap().unwrap()
    }

    fn via(self, gateway: &str) -> Route {
        self.with(&[attribute(5, &octets(gateway)), attribute(4, &7u32.to_ne_bytes())])
    }
}

fn steering(algorithm: &str) -> Steering {
    Steering { congestion_control: algorithm.parse().unwrap(), initcwnd: None, initrwnd: None }
}

fn wanted(table: u32, rules: &[(&str, &str)]) -> Wanted {
    Wanted {
        table,
        prefixes: rules.iter().map(|(of, algorithm)| (prefix(of), steering(algorithm))).collect(),
    }
}

fn gateways(route: &Route) -> String {
    let gateways =
        route.nexthops().into_iter().map(|hop| hop.gateway.map_or("-".into(), |it| it.to_string()));
    gateways.collect::<Vec<_>>().join("+")
}

/// Computes the plan for these routes, asserts its text form, and returns it.
fn check(wanted: &Wanted, routes: &[Route], expected: Expect) -> Plan {
    let routes: Vec<_> = routes.iter().filter(|route| wanted.concerns(route)).cloned().collect();
    let plan = plan(wanted, &routes);
    let line = |verb: &str, route: &Route| {
        let algorithm = route.congestion_control.unwrap();
        format!("{verb} {} table {} {algorithm} via {}\n", route.prefix, route.table, gateways(route))
    };
    let mut text: String = plan
        .changes
        .iter()
        .map(|change| match change {
            Change::Add(new) => line("add", new),
            Change::Replace { new, .. } => line("replace", new),
            Change::Remove(old) => line("remove", old),
        })
        .collect();
    text += &format!("kept {}, skipped {:?}, within {:?}\n", plan.kept, plan.skipped, plan.within);
    expected.assert_eq(&text);
    plan
}

/// Applies a plan's changes to `routes`.
fn after(routes: &[Route], plan: &Plan) -> Vec<Route> {
    let mut routes = routes.to_vec();
    for change in &plan.changes {
        if let Change::Replace { old, .. } | Change::Remove(old) = change {
            routes.retain(|route| route != old);
        }
        if let Change::Add(new) | Change::Replace { new, .. } = change {
            routes.push(new.clone());
        }
    }
    routes
}

#[test]
fn plan_is_the_difference_to_existing_routes() {
    let mut routes =
        vec![DEFAULT.via("10.0.0.1"), KernelRoute { prefix: "203.0.113.0/25", ..DEFAULT }.via("10.0.0.9")];
    let first = [("198.51.100.0/24", "bbr"), ("203.0.113.0/24", "bbr")];
    let second = [("192.0.2.0/24", "bbr"), ("203.0.113.0/24", "reno")];
    let steps = [
        (
            "10.0.0.1",
            first,
            expect![[r#"
                add 198.51.100.0/24 table 254 bbr via 10.0.0.1
                add 203.0.113.0/24 table 254 bbr via 10.0.0.1
                kept 0, skipped [], within {203.0.113.0/24: 1}
            "#]],
        ),
        (
            "10.0.0.1",
            first,
            expect![[r#"
                kept 2, skipped [], within {203.0.113.0/24: 1}
            "#]],
        ),
        (
            "10.0.0.1",
            second,
            expect![[r#"
                remove 198.51.100.0/24 table 254 bbr via 10.0.0.1
                add 192.0.2.0/24 table 254 bbr via 10.0.0.1
                replace 203.0.113.0/24 table 254 reno via 10.0.0.1
                kept 0, skipped [], within {203.0.113.0/24: 1}
            "#]],
        ),
        (
            "10.0.0.2",
            second,
            expect![[r#"
                replace 192.0.2.0/24 table 254 bbr via 10.0.0.2
                replace 203.0.113.0/24 table 254 reno via 10.0.0.2
                kept 0, skipped [], within {203.0.113.0/24: 1}
            "#]],
        ),
    ];
    for (router, rules, expected) in steps {
        routes[0] = DEFAULT.via(router);
        let plan = check(&wanted(TABLE_MAIN, &rules), &routes, expected);
        routes = after(&routes, &plan);
    }
}

#[test]
fn own_route_copies_the_path_packets_take_without_it() {
    let wide = KernelRoute { prefix: "203.0.0.0/16", ..DEFAULT };
    let routes = [
        DEFAULT.via("10.0.0.1"),
        wide.via("10.0.0.2"),
        KernelRoute { priority: 5, ..wide }.via("10.0.0.3"),
        KernelRoute { priority: 1, tos: 8, ..wide }.via("10.0.0.4"),
        KernelRoute { priority: 2, flags: DEAD, ..wide }.via("10.0.0.5"),
        KernelRoute { table: 100, prefix: "203.0.112.0/22", ..DEFAULT }.via("10.0.0.6"),
    ];
    for (table, router) in [(TABLE_MAIN, "10.0.0.3"), (100, "10.0.0.6"), (101, "10.0.0.3")] {
        let plan = plan(&wanted(table, &[("203.0.113.0/24", "bbr")]), &routes);
        let [Change::Add(new)] = &plan.changes[..] else { panic!("{table}: {plan:?}") };
        assert_eq!((new.table, &*gateways(new)), (table, router));
        assert_eq!((plan.kept, plan.skipped.len(), plan.within.len()), (0, 0, 0), "{table}");
    }
}

#[test]
fn prefix_that_cannot_have_a_route_is_skipped_and_its_own_route_removed() {
    let bgp = KernelRoute { protocol: BGP, ..DEFAULT };
    let routes = [
        KernelRoute { prefix: "0.0.0.0/0", ..DEFAULT }.via("10.0.0.1"),
        KernelRoute { prefix: "203.0.113.0/24", ..bgp }.via("10.0.0.2"),
        KernelRoute { prefix: "198.51.0.0/16", kind: BLACKHOLE, ..bgp }.with(&[]),
        KernelRoute { prefix: "203.0.113.0/24", protocol: PROTOCOL, priority: PRIORITY, ..DEFAULT }
            .with(&[attribute(8, &attribute(16, b"bbr\0"))]),
        KernelRoute { prefix: "192.0.2.0/24", protocol: PROTOCOL, priority: 7, ..DEFAULT }
            .with(&[attribute(8, &attribute(16, b"bbr\0"))]),
    ];
    let rules = [
        ("192.0.2.0/24", "reno"),
        ("198.51.100.0/24", "reno"),
        ("203.0.113.0/24", "reno"),
        ("2001:db8::/56", "reno"),
    ];
    check(
        &wanted(TABLE_MAIN, &rules),
        &routes,
        expect![[r#"
            remove 192.0.2.0/24 table 254 bbr via -
            remove 203.0.113.0/24 table 254 bbr via -
            add 192.0.2.0/24 table 254 reno via 10.0.0.1
            kept 0, skipped [(198.51.100.0/24, Blackhole), (203.0.113.0/24, Taken { protocol: 186 }), (2001:db8::/56, NoRoute)], within {}
        "#]],
    );
}

#[test]
fn only_overlapping_routes_concern_the_prefixes() {
    let rules = wanted(100, &[("203.0.113.0/24", "bbr"), ("2001:db8::/56", "bbr")]);
    let concerns = |of: &'static str, table, protocol| {
        rules.concerns(&KernelRoute { prefix: of, table, protocol, ..DEFAULT }.with(&[]))
    };
    for of in
        ["0.0.0.0/0", "203.0.0.0/16", "203.0.113.0/24", "203.0.113.128/25", "::/0", "2001:db8:0:12::/64"]
    {
        assert!(concerns(of, 100, BGP) && concerns(of, TABLE_MAIN, BGP) && !concerns(of, 101, BGP), "{of}");
    }
    for of in ["203.0.112.0/24", "203.0.114.0/24", "204.0.0.0/8", "2001:db8:0:100::/56", "10.0.0.0/8"] {
        assert!(!concerns(of, 100, BGP), "{of}");
    }
    assert!(concerns("10.0.0.0/8", 100, PROTOCOL) && !concerns("203.0.113.0/24", TABLE_MAIN, PROTOCOL));
}

fn nexthop(gateway: &str, interface: u32, flags: u8) -> Vec<u8> {
    let gateway = attribute(5, &octets(gateway));
    let length = u16::try_from(8 + gateway.len()).unwrap().to_ne_bytes();
    [&length[..], &[flags, 0], &interface.to_ne_bytes(), &gateway].concat()
}

#[test]
fn next_hops_that_are_down_are_omitted() {
    let hops = |flags: [u8; 2]| {
        let list = [nexthop("10.0.0.1", 7, flags[0]), nexthop("10.0.0.2", 8, flags[1])].concat();
        DEFAULT.with(&[attribute(9, &list)])
    };
    // Report-only flags, such as hardware offload, are ignored.
    assert_eq!(hops([0, 8]), hops([16, 0]));
    assert_eq!(gateways(&hops([0, 0])), "10.0.0.1+10.0.0.2");
    // If one next hop remains, the route equals one with a single next hop.
    assert_eq!(
        hops([1, 0]),
        DEFAULT.with(&[attribute(5, &octets("10.0.0.2")), attribute(4, &8u32.to_ne_bytes())])
    );
    assert!(hops([1, 1]).is_dead && !hops([1, 0]).is_dead);
}

#[test]
fn next_hop_object_is_copied_by_id() {
    let object = |more: &[Vec<u8>]| DEFAULT.with(&[&[attribute(30, &12u32.to_ne_bytes())], more].concat());
    let expanded = object(&[attribute(5, &octets("10.0.0.1")), attribute(4, &7u32.to_ne_bytes())]);
    assert_eq!(expanded, object(&[]));
    assert_eq!((expanded.nexthop_id(), expanded.nexthops()), (Some(12), Vec::new()));
}

#[test]
fn encoded_route_decodes_to_an_equal_route() {
    let metrics = [
        attribute(1, &0x800u32.to_ne_bytes()),
        attribute(11, &30u32.to_ne_bytes()),
        attribute(16, b"reno\0"),
    ];
    let source = attribute(7, &octets("10.0.0.5"));
    let base = DEFAULT.with(&[
        source,
        attribute(5, &octets("10.0.0.1")),
        attribute(4, &7u32.to_ne_bytes()),
        attribute(8, &metrics.concat()),
    ]);
    let ours = base.along(prefix("203.0.113.0/24"), 300, steering("bbr"));
    let decoded = Route::decode(&ours.set_message(0, 1)[HEADER_BYTES..]).unwrap().unwrap();
    assert_eq!(decoded, ours);
    assert_eq!((decoded.protocol, decoded.priority, decoded.table), (PROTOCOL, PRIORITY, 300));
    assert_eq!((decoded.source(), decoded.congestion_control), ("10.0.0.5".parse().ok(), "bbr".parse().ok()));
    assert!(decoded != base.along(prefix("203.0.113.0/24"), 300, steering("reno")));
    let without = DEFAULT.via("10.0.0.1").along(prefix("203.0.113.0/24"), 300, steering("bbr"));
    assert!(decoded != without, "routes with different path settings must differ");
}

#[test]
fn initial_windows_are_set_or_copied() {
    let base = DEFAULT.with(&[attribute(8, &attribute(11, &30u32.to_ne_bytes()))]);
    let windows = |initcwnd, initrwnd| {
        let steering = Steering { initcwnd, initrwnd, ..steering("bbr") };
        let ours = base.along(prefix("203.0.113.0/24"), 300, steering);
        let decoded = Route::decode(&ours.set_message(0, 1)[HEADER_BYTES..]).unwrap().unwrap();
        assert_eq!(decoded, ours);
        (decoded.initcwnd(), decoded.initrwnd())
    };
    assert_eq!(windows(None, None), (Some(30), None));
    assert_eq!(windows(Some(50), Some(60)), (Some(50), Some(60)));
    assert_eq!(base.along(prefix("203.0.113.0/24"), 300, steering("bbr")).initcwnd(), Some(30));
}

#[test]
fn failures_name_the_operation() {
    let cause = || std::io::Error::from_raw_os_error(1);
    for (error, text) in [
        (kernel::failed("open a route socket")(cause()), "cannot open a route socket"),
        (kernel::failed("receive route changes")(cause()), "cannot receive route changes"),
    ] {
        assert_eq!(error.to_string(), text);
        assert!(std::error::Error::source(&error).is_some());
    }
}

#[test]
fn messages_without_a_route_for_connections_are_skipped() {
    let decoded = |family: u8, bits: u8, flags: u32, to: &str| {
        let mut bytes = vec![family, bits, 0, 0, 254, PROTOCOL, 0, UNICAST];
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(attribute(1, &octets(to)));
        Route::decode(&bytes).unwrap()
    };
    // State that the kernel learned about an address through one of our routes (`RTM_F_CLONED`)
    // carries that route's protocol.
    let cases = [
        ("a route", 10, 128, 0, "2001:db8::7", true),
        ("IPv4 in IPv6 form", 10, 96, 0, "::ffff:0:0", false),
        ("another family", 28, 32, 0, "192.0.2.7", false),
        ("a path MTU, IPv6", 10, 128, 0x200, "2001:db8::7", false),
        ("a path MTU, IPv4", 2, 32, 0x200, "192.0.2.7", false),
    ];
    for (what, family, bits, flags, to, is_route) in cases {
        assert_eq!(decoded(family, bits, flags, to).is_some(), is_route, "{what}");
    }
}

#[test]
fn truncated_message_is_an_error() {
    let whole = DEFAULT.via("10.0.0.1").set_message(0, 1).split_off(HEADER_BYTES);
    let mut read = 0;
    for end in 0..whole.len() {
        read += usize::from(Route::decode(&whole[..end]).is_ok());
    }
    // A cut message decodes only if it is cut between attributes: after the fixed part, or after
    // any attribute but the last.
    assert_eq!(read, 6);
}
