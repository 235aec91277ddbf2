# The policy for the sequences that test policies, run on both the edge and Varnish: one section per sequence,
# selected by the first path segment. The test prepends the version and the backends "scripted" and "twin".

import std;
import blob;
import cookie;
import directors;

backend sick {
    .host = "127.0.0.1";
    .port = "1";
    .probe = { .url = "/"; .initial = 0; .threshold = 1; .window = 1; .interval = 1h; .timeout = 1s; }
}

acl here { "127.0.0.0"/8; ! "127.0.0.2"; }

sub vcl_init {
    new turns = directors.round_robin();
    turns.add_backend(scripted);
    turns.add_backend(sick);
    turns.add_backend(twin);
    new last = directors.fallback();
    last.add_backend(sick);
    last.add_backend(twin);
    last.add_backend(scripted);
    new one = directors.random();
    one.add_backend(twin, 1.0);
    one.add_backend(sick, 100.0);
    new hashed = directors.hash();
    hashed.add_backend(scripted, 1.0);
    hashed.add_backend(twin, 2.0);
    new none_well = directors.fallback();
    none_well.add_backend(sick);
    new within = directors.fallback();
    within.add_backend(none_well.backend());
    within.add_backend(one.backend());
    new parameters = directors.shard_param();
    parameters.set(by = URL, healthy = ALL);
    new ring = directors.shard();
    ring.add_backend(directors.lookup("scripted"));
    ring.add_backend(directors.lookup("twin"));
    ring.associate(parameters.use());
    new octets = blob.blob(BASE64, "Zm9vYmFy/w==");
}

sub vcl_recv {
    if (req.url ~ "^/policy-types/") {
        set req.http.real = 1.125 + " " + 2.5 + " " + 123456789.125 + " " + std.real("-0.25", 0.0) + " " + 0.1;
        set req.http.duration = 1ms + " " + 1.5s + " " + 2m + " " + 3h + " " + 4d + " " + 5w + " " + 1y + " " + std.duration("-1.5s", 0s);
        set req.http.time = std.time("Sun, 06 Nov 1994 08:49:37 GMT", now) + " " + std.time("784111777.9", now) + " "
            + std.time("Sunday, 06-Nov-94 08:49:37 GMT", now) + " " + std.time("Sun Nov  6 08:49:37 1994", now) + " "
            + std.time("1994-11-06T08:49:37", now);
        set req.http.bool = true + " " + false + " " + (1 == 1) + " " + (req.http.none && true);
        set req.http.ip = std.ip("::ffff:192.0.2.1", "0.0.0.0") + " " + std.ip("2001:db8:0:0::1", "0.0.0.0") + " "
            + std.ip("[2001:db8::1]:80", "0.0.0.0") + " " + std.ip("192.0.2.1:80", "0.0.0.0") + " " + std.ip("", "0.0.0.0");
        set req.http.int = 0 + " " + 999999999999999 + " " + -5 + " " + std.integer("-9223372036854775808", 1);
        set req.http.bytes = std.bytes("1B", 0B) + " " + std.bytes("2KB", 0B) + " " + std.bytes("3MB", 0B) + " " + std.bytes("1TB", 0B);
        set req.http.backend = req.backend_hint + " " + turns.backend() + " " + last.backend();
        set req.http.joined = req.http.none + req.http.none;
    }
    if (req.url ~ "^/policy-regsub/") {
        set req.http.empty-match = regsuball("abc", "x*", "-");
        set req.http.empty-text = regsuball("", "^$", "x");
        set req.http.star = regsuball("aaa", "a*", "b");
        set req.http.start = regsuball("aaa", "^a", "b");
        set req.http.end = regsuball("aaa", "a$", "b");
        set req.http.whole = regsub("abc", "b", "[\0\0]");
        set req.http.many = regsub("abcdefghij", "(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)", "\9\8\1\10");
        set req.http.unmatched = regsub("ac", "(a)(b)?(c)", "<\1\2\3>");
        set req.http.no-group = regsub("abc", "b", "<\1>");
        set req.http.backslash = regsub("abc", "b", "\\") + regsub("abc", "b", "\x") + regsub("abc", "b", "\");
        set req.http.ampersand = regsub("abc", "b", "&");
        set req.http.case = regsuball("aBAb", "(?i)b", "\0\0");
        set req.http.lazy = regsub("<a><b>", "<.+?>", "");
        set req.http.class = regsuball("a1b22", "[[:digit:]]+", "#") + regsuball("a b	c", "\s", "_");
        set req.http.back = regsuball("aabbcd", "(.)\1", "\1");
        set req.http.ahead = regsuball("foobar foobaz", "foo(?=baz)", "x") + regsuball("foobar foobaz", "foo(?!baz)", "x");
        set req.http.possessive = regsub("aaab", "a++b", "x") + regsub("aaa", "a++a", "x");
        set req.http.unicode = regsuball(req.http.latin, ".", "-");
        set req.http.none = regsub(req.http.missing, "a", "b") + "|" + regsub(req.http.missing, "^$", "b");
        if ("a.b" ~ "a\.b" && "aXb" !~ "^a\.b$" && req.http.missing ~ "^$" && "" ~ "" && "x" ~ "(?i)X") { set req.http.matched = "all"; }
    }
    if (req.url ~ "^/policy-compare/") {
        set req.http.equal = (req.http.a == "abc") + " " + (req.http.a == "ABC") + " " + (req.http.a != "abc") + " " + (req.http.a == "ab" + "c");
        set req.http.unset = (req.http.none == "") + " " + (req.http.none != "") + " " + (req.http.none == req.http.none) + " " + (!req.http.none) + " "
            + (req.http.none < "a") + " " + (req.http.none <= "a") + " " + (req.http.none > "a") + " " + (req.http.none + "" == "");
        set req.http.less = (req.http.a < "abd") + " " + (req.http.a <= "abc") + " " + (req.http.a > "ab") + " " + (req.http.a >= "b");
        set req.http.sign = ("Z" < "a") + " " + ("a" < "b" + "c") + " " + ("" < "a");
        set req.http.blank = (req.http.blank == "") + " " + (!req.http.blank);
        set req.http.int = (1 < 2) + " " + (2 <= 2) + " " + (-1 > 0) + " " + (3 >= 4) + " " + (5 == 5) + " " + (5 != 5);
        set req.http.real = (1.5 < 1.6) + " " + (1.50 == 1.5) + " " + (-0.5 > 0.0);
        set req.http.duration = (60s == 1m) + " " + (1h > 61m) + " " + (1ms < 1s);
        set req.http.bytes = (std.bytes("1KB", 0B) == 1024B) + " " + (std.bytes("1MB", 0B) > 1KB);
        set req.http.ip = (std.ip("192.0.2.1", "0.0.0.0") == std.ip("192.0.2.1:80", "0.0.0.0")) + " "
            + (std.ip("::1", "0.0.0.0") != std.ip("127.0.0.1", "0.0.0.0"));
        set req.http.backend = (req.backend_hint == scripted) + " " + (req.backend_hint != twin);
        set req.http.logic = (true || false && false) + " " + ((true || false) && false) + " " + (!(1 == 2) && !false);
        if (req.http.none) { set req.http.truth = "none"; }
        if (req.http.blank) { set req.http.truth = req.http.truth + " blank"; }
        if (req.restarts) { set req.http.truth = req.http.truth + " int"; }
        if (req.ttl) { set req.http.truth = req.http.truth + " duration"; }
        if (req.backend_hint) { set req.http.truth = req.http.truth + " backend"; }
    }
    if (req.url ~ "^/policy-numbers/") {
        set req.http.int = 7 / 2 + " " + 7 % 3 + " " + (-7) / 2 + " " + (-7) % 3 + " " + 2 * 3 + 4 + " " + (2 + 3 * 4 - 5);
        set req.http.real = 7.0 / 2.0 + " " + 1.5 * 2.0 + " " + (1.0 - 0.25) + " " + 7.5 / 2 + " " + 2.5 * 2;
        set req.http.duration = 10s * 1.5 + " " + 10s / 4 + " " + (1m - 90s) + " " + 5s * 2;
        set req.http.bytes = std.bytes("1KB", 0B) + 1B + " " + (std.bytes("2KB", 0B) - 1KB);
        set req.http.time = std.time("784111777", now) + 1d + " " + (std.time("784111777", now) - 1h) + " "
            + (std.time("784111777", now) - std.time("784111000", now));
        set req.http.grown = "0";
        set req.grace = 10s;
        set req.grace += 5s;
        set req.grace -= 1s;
        set req.grace *= 2;
        set req.grace /= 4;
        set req.http.grown = req.grace;
        unset req.http.no;
        set req.http.ttl = req.ttl;
    }
    if (req.url ~ "^/policy-pure/") {
        set req.http.integer = std.integer("0x1f", 1) + " " + std.integer(" 12 ", 1) + " " + std.integer("-12", 1) + " " + std.integer("+12", 1)
            + " " + std.integer("1.9", 1) + " " + std.integer("", 1) + " " + std.integer(real = -1.9) + " " + std.integer(bool = true)
            + " " + std.integer(duration = 2m) + " " + std.integer(bytes = 1KB) + " " + std.integer("99999999999999999999", 1);
        set req.http.real = std.real("1e3", 0.5) + " " + std.real(".5", 0.5) + " " + std.real("5.", 0.5) + " " + std.real("-1.25", 0.5)
            + " " + std.real("a", 0.5) + " " + std.real(integer = 3) + " " + std.real(bool = true) + " " + std.real(duration = 1500ms)
            + " " + std.real("1.1234567", 0.5);
        set req.http.duration = std.duration("1h", 1s) + " " + std.duration("1.5", 1s) + " " + std.duration("10ms", 1s) + " "
            + std.duration("2w", 1s) + " " + std.duration("1y", 1s) + " " + std.duration("", 1s) + " " + std.duration("5 s", 1s) + " "
            + std.duration(real = 2.5) + " " + std.duration(integer = 3) + " " + std.duration("5x", 1s) + " " + std.duration(" 5s", 1s);
        set req.http.bytes = std.bytes("1", 7B) + " " + std.bytes("1.5K", 7B) + " " + std.bytes("1k", 7B) + " " + std.bytes("2MB", 7B) + " "
            + std.bytes("1T", 7B) + " " + std.bytes("x", 7B) + " " + std.bytes("-1", 7B) + " " + std.bytes("1 K", 7B) + " " + std.bytes("", 7B);
        set req.http.round = std.round(2.5) + " " + std.round(-2.5) + " " + std.round(1.499) + " " + std.round(0.5);
        set req.http.convert = std.real2integer(1.9, 0) + " " + std.real2integer(-1.9, 0) + " " + std.real2time(784111777.5, now) + " "
            + std.time2integer(std.time("784111777.9", now), 0) + " " + std.time2real(std.time("784111777.5", now), 0.0);
        set req.http.sort = std.querysort("/a") + " " + std.querysort("/a?") + " " + std.querysort("/a?b&a&&c") + " " + std.querysort("/a?b=2&b=1&a")
            + " " + std.querysort("/a?c?b&a") + " " + std.querysort("/a?&");
        set req.http.strstr = std.strstr("abcabc", "bc") + " " + std.strstr("abc", "") + " [" + std.strstr("abc", "x") + "]";
        set req.http.upper = std.toupper("aZ-9{") + std.tolower("aZ-9[") + std.toupper(req.http.none);
        set req.http.fnmatch = std.fnmatch("*.m4s", "a.m4s") + " " + std.fnmatch("/*", "/a/b") + " " + std.fnmatch("/*", "/a/b", pathname = false)
            + " " + std.fnmatch("[a-c]?", "bx") + " " + std.fnmatch("[!a-c]?", "bx") + " " + std.fnmatch("\*", "*") + " "
            + std.fnmatch("\*", "\a", noescape = true) + " " + std.fnmatch("*", ".a", period = true) + " " + std.fnmatch("", "");
        set req.http.strftime = std.strftime(std.time("784111777", now), "%Y-%m-%dT%H:%M:%SZ %a %b %j %e %y %p %I %%");
        set req.http.port = std.port(std.ip("192.0.2.1:8080", "0.0.0.0")) + " " + std.port(std.ip("192.0.2.1", "0.0.0.0", p = "81"));
        set req.http.syntax = std.syntax(4.0) + " " + std.syntax(4.1) + " " + std.syntax(4.2) + " " + std.syntax(3.9);
        set req.http.exists = std.file_exists("/") + " " + std.file_exists("/nosuch");
        set req.http.healthy = std.healthy(sick) + " " + std.healthy(scripted) + " " + std.healthy(last.backend()) + " "
            + std.healthy(none_well.backend()) + " " + std.healthy(within.backend());
    }
    if (req.url ~ "^/policy-blob/") {
        set req.http.encode = blob.encode(HEX, blob = :YWJj/w==:) + " " + blob.encode(HEX, UPPER, :YWJj/w==:) + " " + blob.encode(BASE64, blob = :YQ==:)
            + " " + blob.encode(BASE64URL, blob = :+/8=:) + " " + blob.encode(BASE64URLNOPAD, blob = :+/8=:) + " " + blob.encode(BASE64CF, blob = :+/8=:)
            + " " + blob.encode(URL, blob = blob.decode(IDENTITY, encoded = "a b/~%")) + " " + blob.encode(URL, UPPER, blob.decode(HEX, encoded = "ff20"));
        set req.http.decode = blob.transcode(HEX, IDENTITY, encoded = "616263") + " " + blob.transcode(HEX, BASE64, encoded = "1") + " "
            + blob.transcode(URL, HEX, encoded = "%41b+%2f") + " " + blob.transcode(BASE64, HEX, length = 4, encoded = "YWJjZGVm") + " "
            + blob.transcode(BASE64URLNOPAD, HEX, encoded = "-_8");
        set req.http.object = blob.encode(HEX, blob = octets.get()) + " " + octets.encode(HEX, UPPER) + " " + octets.encode(BASE64);
        set req.http.length = blob.length(octets.get()) + " " + blob.length(blob.sub(octets.get(), 3B, 1B));
        set req.http.equal = blob.equal(octets.get(), blob.decode(HEX, encoded = "666f6f626172ff")) + " " + blob.equal(:YQ==:, :Yg==:);
    }
    if (req.url ~ "^/policy-rollback/") {
        set req.http.kept = "changed";
        set req.http.added = "yes";
        unset req.http.removed;
        set req.method = "HEAD";
        set req.url = req.url + "?x";
        std.late_100_continue(true);
        if (req.http.back) { std.rollback(req); }
        set req.http.after = req.http.kept + " " + req.http.added + " " + req.http.removed + " " + req.method + " " + req.url;
        set req.method = "GET";
    }
    if (req.url ~ "^/policy-directors/turns") { set req.backend_hint = turns.backend(); }
    if (req.url ~ "^/policy-directors/last") { set req.backend_hint = last.backend(); }
    if (req.url ~ "^/policy-directors/one") { set req.backend_hint = one.backend(); }
    if (req.url ~ "^/policy-directors/hashed") { set req.backend_hint = hashed.backend(req.url); }
    if (req.url ~ "^/policy-directors/within") { set req.backend_hint = within.backend(); }
    if (req.url ~ "^/policy-directors/none") { set req.backend_hint = none_well.backend(); }
    if (req.url ~ "^/policy-directors/ring") { set req.backend_hint = ring.backend(by = URL); }
    if (req.url ~ "^/policy-directors/later") { set req.backend_hint = ring.backend(resolve = LAZY); }
    if (req.url ~ "^/policy-cookies/") {
        cookie.parse(req.http.cookie);
        set req.http.get = "[" + cookie.get("a") + "][" + cookie.get("A") + "][" + cookie.get("none") + "][" + cookie.get("empty") + "]";
        set req.http.isset = cookie.isset("empty") + " " + cookie.isset("none") + " " + cookie.isset("quoted");
        set req.http.get-re = cookie.get_re("^(b|c)$") + " " + cookie.get_re("nothing");
        set req.http.all = cookie.get_string();
        cookie.set("a", "new");
        cookie.delete("b");
        set req.http.changed = cookie.get_string();
        cookie.filter_re("^_");
        set req.http.filtered = cookie.get_string();
        cookie.keep_re("^(a|quoted)$");
        set req.http.kept = cookie.get_string();
        cookie.filter("a,none");
        set req.http.rest = cookie.get_string();
        cookie.clean();
        set req.http.clean = "[" + cookie.get_string() + "]";
        set req.http.date = cookie.format_date(std.time("784111777", now), 1d);
        unset req.http.cookie;
    }
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
    if (req.url ~ "^/policy-digest/") {
        hash_data("a" + req.url);
        if (req.http.more) { hash_data(req.http.none); }
        return (lookup);
    }
}

sub vcl_miss {
    if (req.url ~ "^/policy-digest/") {
        set req.http.digest = blob.encode(HEX, blob = req.hash);
        set req.http.length = blob.length(req.hash);
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
    if (bereq.url ~ "^/policy-digest/") { set bereq.http.bedigest = blob.encode(HEX, blob = bereq.hash); }
    if (bereq.url ~ "^/policy-directors/") {
        if (bereq.url ~ "alt") { parameters.set(alt = 1); }
        if (bereq.url ~ "by") { set bereq.backend = ring.backend(by = KEY, key = 1, param = parameters.use()); }
        set bereq.http.by = parameters.get_by() + " " + parameters.get_alt() + " " + parameters.get_key() + " " + parameters.get_warmup() + " "
            + parameters.get_rampup() + " " + parameters.get_healthy();
    }
    if (bereq.url ~ "^/policy-rolled/") {
        set bereq.http.kept = "changed";
        set bereq.http.added = "yes";
        std.rollback(bereq);
        set bereq.http.after = bereq.http.kept + " " + bereq.http.added;
    }
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
    if (bereq.url ~ "^/policy-directors/") { set beresp.http.from = beresp.backend + " " + bereq.backend; }
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
