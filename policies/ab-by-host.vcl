# A/B by a flag in the host's name: the first request of a connection chooses its congestion control.
#
# Use:    give players one of two names, media-bbr.example and media-cubic.example, both of which lead here:
#         thalweg edge --backend http://ORIGIN:8081 --policy ab-by-host.vcl
#         thalweg log     # each record says which algorithm there was at the end, and that the policy chose it
# Change: the flags and the algorithms; X-Original-Host, if your TLS terminator names it otherwise.
#
# A connection stays in the arm of its first request, so that the arms can be compared. No backend is declared, so requests
# go to those of --backend.

vcl 4.1;

import std;

sub vcl_recv {
    # A terminator before the edge has the name that the player asked for.
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
    # Both arms share what is stored, and the origin sees one name.
    set req.http.Host = regsub(req.http.Host, "^([^.]+)-(bbr|cubic)\.", "\1.");
    unset req.http.X-Original-Host;
}
