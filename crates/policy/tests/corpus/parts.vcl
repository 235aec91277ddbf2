# Subroutines with several definitions, and statements that run before those of the built-in policy.
vcl 4.1;

backend default {
    .host = "127.0.0.1";
}

sub vcl_recv {
    set req.http.X-Parts = "1";
}

sub vcl_recv {
    set req.http.X-Parts = req.http.X-Parts + "2";
}

sub vcl_req_cookie {
    if (req.url ~ "^/static/") {
        unset req.http.cookie;
    }
}

sub vcl_beresp_stale {
    if (beresp.ttl <= 0s && bereq.url ~ "\.m4s$") {
        set beresp.ttl = 10s;
    }
}
