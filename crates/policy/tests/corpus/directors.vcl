# Directors over several origins: round robin, weighted, hash and fallback.
vcl 4.1;

import directors;

backend one {
    .host = "127.0.0.1";
    .port = "8081";
}

backend two {
    .host = "[::1]:8082";
    .host_header = "two.example";
}

backend unix {
    .host = "127.0.0.1:8083";
    .proxy_header = 1;
}

backend nobody none;

sub vcl_init {
    new turn = directors.round_robin();
    turn.add_backend(one);
    turn.add_backend(two);
    new weighted = directors.random();
    weighted.add_backend(one, 10);
    weighted.add_backend(two, 5.5);
    new last = directors.fallback(sticky = true);
    last.add_backend(turn.backend());
    last.add_backend(unix);
    new keyed = directors.hash();
    keyed.add_backend(one, 1.0);
    keyed.add_backend(two, 1.0);
    new ring = directors.shard();
    ring.set_warmup(0.1);
    ring.set_rampup(30s);
    ring.add_backend(one);
    ring.add_backend(two, ident = "second", weight = 2);
    ring.reconfigure(replicas = 25);
}

sub vcl_recv {
    if (req.restarts > 0) {
        set req.backend_hint = last.backend();
    } elsif (req.url ~ "^/vod/") {
        set req.backend_hint = ring.backend(by = URL);
    } elif (req.http.X-Session) {
        set req.backend_hint = keyed.backend(req.http.X-Session);
    } else if (req.url ~ "^/w/") {
        set req.backend_hint = weighted.backend();
    } else {
        set req.backend_hint = turn.backend();
    }
    if (req.url == "/nobody") {
        set req.backend_hint = nobody;
    }
}

sub vcl_backend_fetch {
    if (bereq.retries > 0) {
        set bereq.backend = last.backend();
        set bereq.first_byte_timeout = 2s;
        set bereq.connect_timeout = 300ms;
        set bereq.between_bytes_timeout = 1s;
    }
}

sub vcl_backend_response {
    if (beresp.status >= 500 && bereq.retries < 2) {
        return (retry);
    }
    set beresp.http.X-Backend = beresp.backend + " " + beresp.backend.name;
}

sub vcl_backend_error {
    if (bereq.retries == 0) {
        return (retry);
    }
    set beresp.status = 503;
    set beresp.http.Retry-After = "2";
    synthetic("no origin");
    return (deliver);
}
