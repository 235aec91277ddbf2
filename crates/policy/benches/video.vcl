# A typical video CDN policy of 200 lines. It runs 60 statements more than the built-in policy.
vcl 4.1;

import std;

probe health {
    .url = "/health";
    .interval = 2s;
    .timeout = 1s;
}

backend default {
    .host = "192.0.2.10";
    .probe = health;
}

backend live {
    .host = "192.0.2.11";
    .first_byte_timeout = 10s;
}

backend vod {
    .host = "192.0.2.12";
    .between_bytes_timeout = 5s;
}

acl purgers {
    "127.0.0.1";
    "10.20.0.0"/16;
}

acl inside {
    "10.0.0.0"/8;
    "192.168.0.0"/16;
    "203.0.113.0"/24;
    "2001:db8::"/32;
    ! "10.66.0.0"/16;
}

# Drop request fields that only the edge may set.
sub untrusted {
    unset req.http.x-arm;
    unset req.http.x-kind;
    unset req.http.x-device;
    unset req.http.x-inside;
    unset req.http.x-country;
    unset req.http.forwarded;
}

sub normal_host {
    set req.http.host = regsub(req.http.host, ":[0-9]+$", "");
    if (req.http.host ~ "^www\.") {
        set req.http.host = regsub(req.http.host, "^www\.", "");
    }
    if (req.http.host == "cdn.media.example" || req.http.host == "edge.media.example") {
        set req.http.host = "media.example";
    }
    if (req.http.host != "media.example" && req.http.host != "live.example" && req.http.host != "vod.example") {
        return (synth(421, "Misdirected Request"));
    }
}

sub normal_url {
    if (req.url ~ "//") {
        set req.url = regsuball(req.url, "//+", "/");
    }
    if (req.url ~ "[?&](utm_[a-z]+|gclid|fbclid)=") {
        set req.url = regsuball(req.url, "(utm_[a-z]+|gclid|fbclid)=[^&]*&?", "");
    }
    if (req.url ~ "\.(m4s|mp4|ts|cmfv|cmfa|init)([?]|$)") {
        set req.url = regsub(req.url, "[?].*$", "");
    } elseif (req.url ~ "[?]") {
        set req.url = std.querysort(req.url);
    }
    set req.url = regsub(req.url, "[?&]+$", "");
}

sub normal_fields {
    unset req.http.cookie;
    unset req.http.authorization;
    unset req.http.pragma;
    unset req.http.cache-control;
    if (req.http.accept-encoding) {
        if (req.url ~ "\.(m4s|mp4|ts|cmfv|cmfa|jpg|png)$") {
            unset req.http.accept-encoding;
        } elseif (req.http.accept-encoding ~ "gzip") {
            set req.http.accept-encoding = "gzip";
        } else {
            unset req.http.accept-encoding;
        }
    }
    if (req.http.user-agent ~ "(?i)(smart-?tv|tizen|webos|bravia|roku)") {
        set req.http.x-device = "tv";
    } elseif (req.http.user-agent ~ "(?i)(iphone|ipad|android|mobile)") {
        set req.http.x-device = "mobile";
    } else {
        set req.http.x-device = "desktop";
    }
}

sub kind {
    if (req.url ~ "^/live/") {
        set req.http.x-kind = "live";
        set req.backend_hint = live;
        set req.grace = 2s;
    } elseif (req.url ~ "^/vod/") {
        set req.http.x-kind = "vod";
        set req.backend_hint = vod;
        set req.grace = 1h;
    } elseif (req.url ~ "\.(jpg|png|vtt)$") {
        set req.http.x-kind = "image";
    }
    if (req.url ~ "^/(live|vod)/[^/]+/(audio|video)/[0-9]+p?/") {
        set req.http.x-rendition = regsub(req.url, "^/(live|vod)/[^/]+/(audio|video)/([0-9]+p?)/.*$", "\2-\3");
    }
}

sub transport {
    if (client.requests == 1) {
        if (req.http.host == "live.example") {
            set client.socket.congestion_algorithm = "bbr";
        } elseif (req.http.host == "vod.example" && req.http.x-device == "tv") {
            set client.socket.congestion_algorithm = "cubic";
        }
    }
}

sub vcl_recv {
    if (req.method == "PURGE") {
        if (client.ip !~ purgers) {
            return (synth(405, "Not Allowed"));
        }
        return (purge);
    }
    call untrusted;
    call normal_host;
    call normal_url;
    if (req.url == "/health" || req.url == "/ready") {
        return (synth(200, "OK"));
    }
    if (req.url ~ "^/(admin|internal|metrics)(/|$)" && client.ip !~ inside) {
        return (synth(403, "Forbidden"));
    }
    if (client.ip ~ inside) {
        set req.http.x-inside = "1";
    }
    if (req.method != "GET" && req.method != "HEAD" && req.method != "OPTIONS") {
        return (synth(405, "Not Allowed"));
    }
    call normal_fields;
    call kind;
    call transport;
    if (req.http.x-forwarded-for) {
        set req.http.x-forwarded-for = req.http.x-forwarded-for + ", " + client.ip;
    } else {
        set req.http.x-forwarded-for = client.ip;
    }
    set req.http.x-request = req.method + " " + req.http.host + req.url;
    set req.http.via = "1.1 " + server.identity;
    if (req.http.origin && req.http.origin !~ "^https://([a-z0-9-]+\.)?media\.example$") {
        unset req.http.origin;
    }
}

sub vcl_hash {
    if (req.http.x-kind == "image" && req.http.x-device == "mobile") {
        hash_data(req.http.x-device);
    }
}

sub vcl_backend_response {
    if (bereq.url ~ "\.(m3u8|mpd)$") {
        set beresp.ttl = 1s;
        set beresp.grace = 4s;
    } elseif (bereq.url ~ "\.(m4s|mp4|ts|cmfv|cmfa|init)$" && beresp.status == 200) {
        set beresp.ttl = 1h;
        set beresp.keep = 1m;
        unset beresp.http.set-cookie;
    } elseif (beresp.status == 404 || beresp.status >= 500) {
        set beresp.ttl = 1s;
    }
    unset beresp.http.server;
    set beresp.do_stream = true;
}

sub vcl_deliver {
    if (obj.hits > 0) {
        set resp.http.x-cache = "HIT " + obj.hits;
    } else {
        set resp.http.x-cache = "MISS";
    }
    unset resp.http.server;
    unset resp.http.x-powered-by;
    set resp.http.x-served-by = server.identity;
    set resp.http.timing-allow-origin = "*";
    if (req.http.origin) {
        set resp.http.access-control-allow-origin = req.http.origin;
        set resp.http.vary = "Origin";
    }
}
