# Congestion control by the client's network, for connections that carry something large.
#
# Use:    thalweg edge --backend http://ORIGIN:8081 --policy steer-by-prefix.vcl
#         curl --interface 127.0.0.2 -so /dev/null http://127.0.0.1:8080/PATH; thalweg log    # CC: bbr
# Change: the list, the size, the algorithm.
#
# Most connections of a player carry a playlist and go: what they are sent fits into a few windows of any algorithm. No
# backend is declared, so requests go to those of --backend.

vcl 4.1;

import std;

acl steered {
    "192.0.2.0"/24;
    "2001:db8::"/32;
    # To try it on this machine.
    "127.0.0.2";
}

sub vcl_backend_response {
    # The length is stored beside the content, for hits; what has none is live. A 304 leaves what is stored as it was.
    if (beresp.http.Content-Length) {
        set beresp.http.X-Length = beresp.http.Content-Length;
    }
}

sub vcl_deliver {
    # 100 kB, of this response or of all before it.
    if (client.ip ~ steered &&
        (std.integer(resp.http.X-Length, 0) >= 100000 || client.socket.tcpi_bytes_acked >= 100000) &&
        client.socket.congestion_algorithm != "bbr") {
        set client.socket.congestion_algorithm = "bbr";
    }
    unset resp.http.X-Length;
}
