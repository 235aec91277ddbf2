# Each kind of token and node once.
vcl 4.1;
import std;
import directors as d from "x.so";

/* A probe,
   a backend, */ probe up { .url = "/"; .interval = 500ms; }
backend default {
    .host = "::1"; .port = 8081; .probe = up; .preamble = :SGk=:;
}
backend own { .host = "::1"; .probe = { .request = "GET / HTTP/1.1" "Host: a"; .threshold = 2; } }
backend nowhere none;
acl inside +log -pedantic { "192.0.2.0"/24; ! "192.0.2.7"; ("localhost"); }

sub helper { if (!req.http.a) { return; } elseif (req.http.b) { } else if (-1 < 2) { } else { unset req.http.a; } }

sub vcl_init {
    new rr = d.round_robin();
    rr.add_backend(default);
}

sub vcl_recv {
    call helper;
    set req.ttl += 1.5h;
    set req.http."x.y" = "a" "b" + 1 * (2 + 3) % 4;
    set req.http.long = {"a "long" one"} + """and "another" one"""; // to the end of the line
    set req.http.part = regsub(req.url, "^/(\w+)", "\1").lower();
    std.log(s = "x" + now);
    if (client.ip !~ inside && (req.http.a == "b" || 1KB >= std.bytes("2K", fallback = 0B))) {
        return (synth(404, "No"));
    }
    { return (hash); }
}
