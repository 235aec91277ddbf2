# VCL 4.0, with the features that 4.1 lacks.
vcl 4.0;

import std;

backend default {
    .host = "127.0.0.1";
    .port = "80";
}

sub vcl_recv {
    set req.esi = false;
    set req.proto = "HTTP/1.1";
    if (std.syntax(4.0) && !std.syntax(4.1)) {
        set req.http.X-Version = "4.0";
    }
}

sub vcl_backend_response {
    set beresp.storage_hint = "s0";
    set beresp.proto = "HTTP/1.1";
    set beresp.http.X-From = beresp.backend.ip;
}

sub vcl_deliver {
    set resp.proto = "HTTP/1.1";
}
