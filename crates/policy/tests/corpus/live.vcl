# Low-latency live: caches playlists for a second and segments for an hour, and serves stale
# responses during validation.
vcl 4.1;

import std;

probe origin {
    .url = "/health";
    .interval = 2s;
    .timeout = 1s;
    .window = 5;
    .threshold = 3;
    .initial = 2;
}

backend default {
    .host = "127.0.0.1";
    .port = "8081";
    .connect_timeout = 500ms;
    .first_byte_timeout = 10s;
    .between_bytes_timeout = 5s;
    .max_connections = 200;
    .probe = origin;
}

sub vcl_recv {
    if (req.url ~ "^/live/") {
        unset req.http.cookie;
        unset req.http.authorization;
        set req.url = std.querysort(req.url);
        if (!std.healthy(req.backend_hint)) {
            set req.grace = 1m;
        } else {
            set req.grace = 2s;
        }
        return (hash);
    }
}

sub vcl_backend_response {
    if (bereq.url ~ "\.(m3u8|mpd)([?].*)?$") {
        set beresp.ttl = 1s;
        set beresp.grace = 4s;
    } elseif (bereq.url ~ "\.(m4s|mp4|ts)([?].*)?$") {
        set beresp.ttl = 1h;
        set beresp.keep = 1m;
        unset beresp.http.set-cookie;
    }
    set beresp.do_stream = true;
}

sub vcl_deliver {
    if (obj.hits > 0) {
        set resp.http.X-Cache = "HIT " + obj.hits;
    } else {
        set resp.http.X-Cache = "MISS";
    }
    set resp.http.Age-Real = obj.age;
}
