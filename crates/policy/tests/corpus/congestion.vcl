# Thalweg only: congestion control by prefix, host and country; pacing by CMCD.
vcl 4.1;

import tcp;
import std;
import thalweg;
import querystring;
import header;
import xkey;

backend default {
    .host = "127.0.0.1";
}

sub vcl_init {
    new tokens = querystring.filter(sort = true);
    tokens.add_string("token");
    tokens.add_glob("utm_*");
    tokens.add_regex("^_");
}

sub vcl_recv {
    if (client.requests == 1) {
        if (req.url ~ "^/live/" || client.geo.country_code == "NO") {
            set client.socket.congestion_algorithm = "bbr";
        } elsif (client.socket.tcpi_rtt > 200000 && client.socket.tcpi_total_retrans > 0) {
            set req.http.X-tcp = tcp.congestion_algorithm("reno");
        }
        tcp.dump_info();
    }
    if (thalweg.cmcd_ot() == "v" && thalweg.cmcd_bl(0) > 10000) {
        set client.socket.pace = thalweg.cmcd_pace();
    } else {
        tcp.set_socket_pace(0);
    }
    if (tcp.get_estimated_rtt() > 100.0) {
        std.log("far: " + client.socket.tcp_info + " cwnd " + client.socket.cwnd);
    }
    set req.url = tokens.apply(req.url);
    header.remove(req.http.cookie, "^tracking=");
    if (req.method == "PURGE") {
        return (synth(200, "" + xkey.purge(req.http.xkey) + " gone"));
    }
}

sub vcl_deliver {
    set resp.http.X-Cc = client.socket.congestion_algorithm + " rtt=" + client.socket.tcpi_rtt;
}
