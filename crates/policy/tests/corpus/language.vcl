# Every construct of the language, once each.
vcl 4.1;

import std;
import blob;
import cookie;

/* A comment
   of several lines. */
backend default {
    .host = "127.0.0.1";
    .preamble = :SGVsbG8=:;
    .probe = {
        .request = "GET /up HTTP/1.1" "Host: origin.example" "Connection: close";
        .expected_response = 204;
    }
}

sub arm {
    if (!req.http.cookie) {
        return;
    }
    cookie.parse(req.http.cookie);
    set req.http.X-Arm = cookie.get("arm");
    cookie.filter_re("^_");
    cookie.delete("arm");
    set req.http.cookie = cookie.get_string();
    if (req.http.cookie == "") {
        unset req.http.cookie;
    }
}

sub vcl_recv {
    call arm;
    set req.http.X-Sum = (1 + 2) * 3 - 4 / 2 + 7 % 4;
    set req.http.X-Real = 1.5 + 2;
    set req.http.X-Until = now + 1.5h;
    set req.http.X-Since = now - req.time;
    set req.http.X-Long = {"a "quoted" text"} + """and "another" one""";
    set req.http.X-Sub = regsuball(regsub(req.url, "\?.*$", ""), "/+", "/");
    set req.http."x.quoted" = "a";
    set req.http.X-Up = req.method.lower() + req.http.host.upper();
    set req.http.X-Bool = req.http.a == "b" && !(req.http.c ~ "d" || req.http.e != "f");
    set req.http.X-Blob = blob.transcode(encoding = HEX, encoded = "abc");
    set req.ttl = std.duration(req.http.X-TTL, 5m);
    set req.ttl += 1s;
    set req.ttl *= 2;
    set req.hash_always_miss = req.http.X-Refresh == "1";
    set req.hash_ignore_vary = false;
    if (std.integer(req.http.X-Level, 0) >= 3 && std.real("1.5", 0.0) < 2.0) {
        std.log("level " + req.http.X-Level + " from " + client.ip + ":" + std.port(client.ip));
    }
    if (req.http.X-Forwarded-For && std.ip(regsub(req.http.X-Forwarded-For, ",.*", ""), "0.0.0.0") == "192.0.2.1") {
        return (synth(403));
    }
    std.collect(req.http.accept, ", ");
    set req.http.X-Empty = "";
    unset req.http.X-Empty;
    {
        set sess.timeout_idle = 30s;
    }
}

sub vcl_hash {
    hash_data(req.url);
    hash_data(req.http.X-Arm);
    if (req.http.host) {
        hash_data(req.http.host);
    } else {
        hash_data(server.ip);
    }
    return (lookup);
}

sub vcl_pipe {
    set bereq.http.connection = "close";
    return (pipe);
}

sub vcl_pass {
    if (req.restarts > 2) {
        return (synth(503, "Again and again"));
    }
    return (fetch);
}

sub vcl_hit {
    if (obj.ttl > 0s || obj.ttl + obj.grace > 0s) {
        return (deliver);
    }
    if (obj.http.X-Broken ~ "yes" || obj.status == 500) {
        return (pass);
    }
}

sub vcl_miss {
    set req.http.X-Hash = blob.encode(encoding = HEX, case = UPPER, blob = req.hash);
    return (fetch);
}

sub vcl_backend_fetch {
    unset bereq.http.X-Sum;
    unset bereq.body;
}

sub vcl_backend_response {
    if (beresp.status == 404 || beresp.http.X-Private) {
        set beresp.uncacheable = true;
        set beresp.ttl = 10s;
        return (deliver);
    }
    if (beresp.http.X-Pass) {
        return (pass(30s));
    }
    if (bereq.is_bgfetch && beresp.status >= 500) {
        return (abandon);
    }
    set beresp.http.X-Fetched = beresp.time;
}

sub vcl_deliver {
    unset resp.http.via;
    set resp.http.X-Id = req.xid + "/" + sess.xid + "@" + server.identity + " " + server.hostname;
    set resp.http.X-Local = local.ip + " " + local.socket + " " + local.endpoint + " " + remote.ip;
    if (resp.status == 200 && req.http.X-Redirect) {
        set resp.status = 302;
        set resp.reason = "Elsewhere";
        set resp.http.Location = "/" + req.http.X-Redirect;
    }
    if (req.url == "/again" && req.restarts < 1) {
        return (restart);
    }
}

sub vcl_fini {
    return (ok);
}
