//! Route target: routes as encoded by rtnetlink.

use thalweg_tcp::diag::netlink::HEADER_BYTES;
use thalweg_tcp::routes::Route;

/// Decodes `input` as a route. An encoded route must decode to the same route, apart from
/// properties that our routes never have: a type of service, a source, next hops that are down.
pub(crate) fn run(input: &[u8]) {
    let Ok(Some(route)) = Route::decode(input) else { return };
    let _ = (route.nexthops(), route.nexthop_id(), route.source());
    let told = |route: &Route| route.to_be_set(0, 1);
    let again = Route::decode(&told(&route)[HEADER_BYTES..])
        .expect("an encoded route must decode")
        .expect("its family must be IPv4 or IPv6");
    assert_eq!(told(&again), told(&route));
    assert_eq!((again.prefix, again.table, again.nexthops()), (route.prefix, route.table, route.nexthops()));
}
