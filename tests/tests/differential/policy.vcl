# What the sequences of policies run through, on our edge and on Varnish alike: a section for each, by the first segment
# of the path. The version and the backend, called "scripted", stand before it.

import std;
import cookie;

acl here { "127.0.0.0"/8; ! "127.0.0.2"; }

sub vcl_recv {
    if (req.url ~ "^/policy-texts/") {
        set req.http.concat = "one" + " " + "two";
        set req.http.absent = "[" + req.http.none + "]";
        set req.http.int = 5 + 3 * 2;
        set req.http.real = 1.5 + 2.25;
        set req.http.duration = 1h + 30m;
        set req.http.bool = true;
        set req.http.ip = client.ip;
        set req.http.lower = req.http.mixed.lower();
        set req.http.upper = req.http.mixed.upper();
        set req.http.long = {"a "quoted" text"};
        set req.http.empty = "";
        unset req.http.gone;
    }
    if (req.url ~ "^/policy-regex/") {
        set req.http.sub = regsub(req.url, "^/([^/]+)/(.*)$", "\2-\1");
        set req.http.all = regsuball("a.b.c", "\.", "-");
        set req.http.none = regsub("abc", "x", "y");
        set req.http.icase = regsub("ABC", "(?i)b", "_");
        set req.http.look = regsuball("price 10 and 20", "(?<=\s)\d+", "#");
        if (req.http.agent ~ "(?i)^mobile" && req.http.agent !~ "tablet$") { set req.http.device = "phone"; }
        else if (req.http.agent) { set req.http.device = "other"; }
    }
    if (req.url ~ "^/policy-std/") {
        set req.http.integer = std.integer("12abc", 7);
        set req.http.fallback = std.integer("abc", 7);
        set req.http.duration = std.duration("90s", 1s);
        set req.http.real = std.real("2.5", 0.0);
        set req.http.sort = std.querysort("/x?b=2&a=1&c=3");
        set req.http.upper = std.toupper("abc") + std.tolower("DEF");
        set req.http.fnmatch = std.fnmatch("/policy-*/?", req.url);
        set req.http.ip = std.ip("10.0.0.1", "0.0.0.0");
        set req.http.bad-ip = std.ip("nothing", "192.0.2.1");
        set req.http.healthy = std.healthy(req.backend_hint);
        std.collect(req.http.many, ", ");
    }
    if (req.url ~ "^/policy-cookie/") {
        cookie.parse(req.http.cookie);
        cookie.keep("session,lang");
        cookie.set("added", "1");
        set req.http.cookie = cookie.get_string();
        set req.http.lang = cookie.get("lang");
        set req.http.isset = cookie.isset("tracking");
        return (hash);
    }
    if (req.url ~ "^/policy-acl/") {
        if (client.ip ~ here) { set req.http.in = "yes"; }
        if (std.ip("127.0.0.2", "0.0.0.0") !~ here) { set req.http.out = "yes"; }
    }
    if (req.url ~ "^/policy-pass/") { return (pass); }
    if (req.url ~ "^/policy-synth/") {
        if (req.http.redirect) { return (synth(750, "http://elsewhere.example/")); }
        return (synth(418, "Short and stout"));
    }
    if (req.url ~ "^/policy-purge/" && req.method == "PURGE") { return (purge); }
    if (req.url ~ "^/policy-restart/") {
        set req.http.restarts = req.restarts;
        if (req.http.always) { return (restart); }
    }
    if (req.url ~ "^/policy-(anew|busy)") {
        if (req.http.anew) { set req.hash_always_miss = true; }
        if (req.http.busy) { set req.hash_ignore_busy = true; }
        if (req.http.young) { set req.ttl = 1s; }
    }
    if (req.url ~ "^/policy-grace" && req.http.strict) { set req.grace = 0s; }
}

sub vcl_hash {
    if (req.url ~ "^/policy-hash/") {
        hash_data(regsub(req.url, "\?.*", ""));
        hash_data(req.http.device);
        return (lookup);
    }
}

sub vcl_hit {
    if (req.url ~ "^/policy-hit/") {
        set req.http.found = "hit";
        if (req.http.fresh) { return (pass); }
    }
}

sub vcl_miss {
    if (req.url ~ "^/policy-hit/") { set req.http.found = "miss"; }
    if (req.url ~ "^/policy-miss/" && req.http.refuse) { return (synth(404)); }
}

sub vcl_pass {
    if (req.url ~ "^/policy-hit/") { set req.http.found = "pass"; }
}

sub vcl_backend_fetch {
    if (bereq.url ~ "^/policy-fetch/") {
        set bereq.http.retries = bereq.retries;
        set bereq.http.host = "other.example";
        unset bereq.http.secret;
        if (bereq.http.refuse) { return (error(599, "Refused")); }
    }
    if (bereq.url ~ "^/policy-method/" && bereq.http.as) { set bereq.method = bereq.http.as; }
    if (bereq.url ~ "^/policy-hit(miss|pass)") { set bereq.http.known = bereq.is_hitmiss + " " + bereq.is_hitpass; }
    if (bereq.url ~ "^/policy-grace") { set bereq.http.behind = bereq.is_bgfetch; }
}

sub vcl_backend_response {
    if (bereq.url ~ "^/policy-retry/" && beresp.status == 503 && bereq.retries < 2) { return (retry); }
    if (bereq.url ~ "^/policy-error/") { return (error(502, "Not this")); }
    if (bereq.url ~ "^/policy-ttl/") {
        set beresp.http.first = beresp.ttl;
        set beresp.ttl = 1h;
        set beresp.http.then = beresp.ttl;
        set beresp.http.grace = beresp.grace;
        return (deliver);
    }
    if (bereq.url ~ "^/policy-uncacheable/") { set beresp.uncacheable = true; }
    if (bereq.url ~ "^/policy-passed/") { return (pass(10s)); }
    if (bereq.url ~ "^/policy-hitpass/" && beresp.http.for == "long") { return (pass(1h)); }
    if (bereq.url ~ "^/policy-hitpass-short/" && beresp.http.for == "short") { return (pass(1s)); }
    if (bereq.url ~ "^/policy-hitmiss" && beresp.http.for) {
        set beresp.uncacheable = true;
        set beresp.ttl = 1h;
        set beresp.grace = 0s;
        set beresp.keep = 0s;
        if (beresp.http.for ~ "short") { set beresp.ttl = 1s; }
        if (beresp.http.for ~ "grace") { set beresp.grace = 1h; }
        return (deliver);
    }
    if (bereq.url ~ "^/policy-below/") { set beresp.ttl = 20.4s; set beresp.grace = 250ms; }
    if (bereq.url ~ "^/policy-grace" && beresp.status == 200) {
        set beresp.ttl = 1s;
        set beresp.grace = 1h;
        return (deliver);
    }
    if (bereq.url ~ "^/policy-set-cookie/") { unset beresp.http.set-cookie; }
    if (bereq.url ~ "^/policy-status/") { set beresp.status = 404; }
    if (bereq.url ~ "^/policy-vary/") { set beresp.http.Vary = "Device"; }
}

sub vcl_backend_error {
    if (bereq.url ~ "^/policy-grace-retry/" && bereq.retries == 0) { return (retry); }
    if (bereq.url ~ "^/policy-(error|fetch|retry|grace|grace-waiting|anew)/") {
        set beresp.http.made = "here";
        set beresp.body = "sorry: " + beresp.status + " " + beresp.reason;
        return (deliver);
    }
}

sub vcl_deliver {
    if (req.url ~ "^/policy-hit/") {
        set resp.http.found = req.http.found;
        set resp.http.hits = obj.hits;
    }
    if (req.url ~ "^/policy-deliver/") {
        set resp.http.status = resp.status;
        set resp.status = 203;
        unset resp.http.secret;
        set resp.http.uncacheable = obj.uncacheable;
    }
    if (req.url ~ "^/policy-restart/") {
        if (resp.status == 404 && req.restarts < 1) { return (restart); }
        set resp.http.restarts = req.restarts;
    }
    if (req.url ~ "^/policy-late/") { return (synth(403, "Late")); }
    if (req.url ~ "^/policy-(hit(miss|pass)|uncacheable|passed)") {
        set resp.http.known = req.is_hitmiss + " " + req.is_hitpass + " " + obj.uncacheable;
    }
    if (req.url ~ "^/policy-below/") {
        if (obj.ttl + obj.age > 20.35s && obj.ttl + obj.age < 20.9s) { set resp.http.lives = "exactly"; }
        set resp.http.grace = obj.grace;
    }
    if (req.url ~ "^/policy-fields/") {
        set resp.http.made = "here";
        unset resp.http.gone;
    }
}

sub vcl_synth {
    if (resp.status == 750) {
        set resp.http.location = resp.reason;
        set resp.status = 301;
        set resp.body = "";
        return (deliver);
    }
    set resp.http.made = "here";
    set resp.body = "synth " + resp.status + " " + resp.reason;
    return (deliver);
}
