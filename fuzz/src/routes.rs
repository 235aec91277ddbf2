//! Routes as rtnetlink tells them.

use thalweg_tcp::diag::netlink::HEADER_BYTES;
use thalweg_tcp::routes::Route;

/// A route that is understood is told back to the kernel so that it would be understood as the same, but for what a route of ours
/// never has: a type of service, a source, next hops that are down.
pub(crate) fn run(input: &[u8]) {
    let Ok(Some(route)) = Route::decode(input) else { return };
    let _ = (route.nexthops(), route.nexthop_id(), route.source());
    let told = |route: &Route| route.to_be_set(0, 1);
    let again =
        Route::decode(&told(&route)[HEADER_BYTES..]).expect("what we write is whole").expect("TCP's family");
    assert_eq!(told(&again), told(&route));
    assert_eq!((again.prefix, again.table, again.nexthops()), (route.prefix, route.table, route.nexthops()));
}
