# Purges and bans from a policy, by tag and by URL.
vcl 4.1;

import std;

backend default {
    .host = "127.0.0.1";
}

acl purgers +log -pedantic {
    "127.0.0.1";
    "10.1.2.3"/8;
    ! "10.0.0.13";
    "2001:db8::"/32;
}

sub vcl_recv {
    if (req.method == "PURGE") {
        if (client.ip !~ purgers) {
            return (synth(405, "Not from " + client.ip));
        }
        return (purge);
    }
    if (req.method == "BAN") {
        if (client.ip ~ purgers && std.ban("req.url ~ " + req.url)) {
            return (synth(200, "Banned"));
        }
        return (synth(400, std.ban_error()));
    }
}

sub vcl_purge {
    set req.method = "GET";
    return (restart);
}

sub vcl_synth {
    set resp.http.Content-Type = "application/json";
    set resp.body = {"{"status": "} + resp.status + {", "reason": ""} + resp.reason + {"" }"};
    if (resp.status == 405) {
        set resp.http.Allow = "GET, HEAD";
    }
    return (deliver);
}
