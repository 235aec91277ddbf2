# Video on demand: long times, one key however a player writes its query, and ranges of one and the same content.
#
# Use:    thalweg edge --backend http://ORIGIN:8081 --policy vod.vcl
# Change: the times; which arguments do not change the content; the endings of names.
#
# Ranges need no word here: they are answered from what is stored, from what is arriving, or from slices. No backend is
# declared, so requests go to those of --backend.

vcl 4.1;

import querystring;

sub vcl_recv {
    unset req.http.Cookie;
    # Arguments that only count viewers. Do not list one that the origin checks, such as a token: a hit does not ask it.
    set req.url = querystring.regfilter(req.url, "^(CMCD|utm_.*|fbclid|gclid|_)$");
    # The rest in one order, so that it is one key.
    set req.url = querystring.sort(querystring.clean(req.url));
    # Media do not get smaller, and ranges of a compressed file are of other bytes.
    if (req.url ~ "\.(m4s|mp4|m4a|m4v|cmfa|cmfv|cmft|aac|ts)(\?|$)") {
        unset req.http.Accept-Encoding;
    }
}

sub vcl_backend_response {
    # What is stale goes on being served in its grace, and the next request has it refreshed again.
    if (bereq.is_bgfetch && beresp.status >= 500) {
        return (abandon);
    }
    # What is for one viewer, and what is an error, is the built-in policy's to judge.
    if (beresp.status == 200 && beresp.http.Cache-Control !~ "(?i)private|no-store") {
        if (bereq.url ~ "\.(m3u8|mpd)(\?|$)") {
            unset beresp.http.Set-Cookie;
            set beresp.ttl = 10m;
            set beresp.grace = 1h;
            return (deliver);
        }
        if (bereq.url ~ "\.(m4s|mp4|m4a|m4v|cmfa|cmfv|cmft|aac|ts|vtt|jpg|png)(\?|$)") {
            unset beresp.http.Set-Cookie;
            set beresp.ttl = 1w;
            set beresp.grace = 1d;
            return (deliver);
        }
    }
}
