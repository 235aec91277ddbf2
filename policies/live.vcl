# Low-latency live: playlists and manifests for a second, segments and init for an hour, stale while a new one is made.
#
# Use:    thalweg edge --backend http://ORIGIN:8081 --policy live.vcl
# Change: the two times, and the endings of names by which playlists and segments are told apart.
#
# What is still arriving needs no word here: all who ask for a segment get each chunk as it comes. No backend is declared,
# so requests go to those of --backend.

vcl 4.1;

import querystring;

sub vcl_recv {
    # With a cookie the built-in policy would pass the request; media are the same for all.
    unset req.http.Cookie;
    # What a player says of itself (CTA-5004) is not part of what it asks for. _HLS_msn and _HLS_part are.
    set req.url = querystring.regfilter(req.url, "^CMCD$");
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
            set beresp.ttl = 1s;
            set beresp.grace = 2s;
            return (deliver);
        }
        if (bereq.url ~ "\.(m4s|mp4|m4a|m4v|cmfa|cmfv|cmft|aac|ts|vtt)(\?|$)") {
            unset beresp.http.Set-Cookie;
            set beresp.ttl = 1h;
            set beresp.grace = 10s;
            return (deliver);
        }
    }
}
