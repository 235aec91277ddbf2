# A/B test by host name: a flag in the host name of a connection's first request selects its
# congestion control.
#
# Use:    give players one of two host names that both resolve to this edge, media-bbr.example or
#         media-cubic.example:
#         thalweg edge --backend http://ORIGIN:8081 --policy ab-by-host.vcl
#         thalweg log     # each record states the final algorithm and that the policy set it
# Change: the flags and the algorithms; X-Original-Host, if your TLS terminator uses another header.
#
# A connection stays in the arm of its first request, so that the arms can be compared. The policy
# declares no backend, so requests are sent to the backend set by --backend.

vcl 4.1;

import std;

sub vcl_recv {
    # A TLS terminator in front of the edge passes the host name requested by the player.
    if (!req.http.X-Original-Host) {
        set req.http.X-Original-Host = req.http.Host;
    }
    if (client.requests == 1) {
        if (req.http.X-Original-Host ~ "^[^.]+-bbr\.") {
            set client.socket.congestion_algorithm = "bbr";
            std.log("arm: bbr");
        } elseif (req.http.X-Original-Host ~ "^[^.]+-cubic\.") {
            set client.socket.congestion_algorithm = "cubic";
            std.log("arm: cubic");
        }
    }
    # Remove the flag, so that both arms share stored responses and the origin sees one host name.
    set req.http.Host = regsub(req.http.Host, "^([^.]+)-(bbr|cubic)\.", "\1.");
    unset req.http.X-Original-Host;
}
