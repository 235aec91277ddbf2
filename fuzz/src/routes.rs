//! Route target: routes in rtnetlink encoding.

use thalweg_tcp::diag::netlink::HEADER_BYTES;
use thalweg_tcp::routes::Route;

/// Decodes `input` as a route. Encoding it and decoding the result must give the same route, except
/// for properties that our routes never have: a type of service, a source, or next hops that are
/// down.
pub(crate) fn run(input: &[u8]) {
    let Ok(Some(route)) = Route::decode(input) else { return };
    let _ = (route.nexthops(), route.nexthop_id(), route.source());
    let encode = |route: &Route| route.set_message(0, 1);
    let again = Route::decode(&encode(&route)[HEADER_BYTES..])
        .expect("an encoded route must decode")
        .expect("a route's family must be IPv4 or IPv6");
    assert_eq!(encode(&again), encode(&route));
    assert_eq!((again.prefix, again.table, again.nexthops()), (route.prefix, route.table, route.nexthops()));
}
