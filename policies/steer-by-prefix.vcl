# Congestion control by the client's network, for connections that send large responses.
#
# Use:    thalweg edge --backend http://ORIGIN:8081 --policy steer-by-prefix.vcl
#         curl --interface 127.0.0.2 -so /dev/null http://127.0.0.1:8080/PATH
#         thalweg log    # CC: bbr
# Change: the address list, the size and the algorithm.
#
# Small responses, such as playlists, fit into a few congestion windows of any algorithm, so the
# policy does not switch connections that send nothing else. The policy declares no backend, so
# requests are sent to the backend set by --backend.

vcl 4.1;

import std;

acl steered {
    "192.0.2.0"/24;
    "2001:db8::"/32;
    # For a test on the same machine.
    "127.0.0.2";
}

sub vcl_backend_response {
    # Store the length in another header, so that it is available on a hit. Live content has no
    # length, and a 304 leaves the stored header unchanged.
    if (beresp.http.Content-Length) {
        set beresp.http.X-Length = beresp.http.Content-Length;
    }
}

sub vcl_deliver {
    # Switch if this response has at least 100 kB, or if the connection has already delivered as
    # much.
    if (client.ip ~ steered &&
        (std.integer(resp.http.X-Length, 0) >= 100000 || client.socket.tcpi_bytes_acked >= 100000) &&
        client.socket.congestion_algorithm != "bbr") {
        set client.socket.congestion_algorithm = "bbr";
    }
    unset resp.http.X-Length;
}
