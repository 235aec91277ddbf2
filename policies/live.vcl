# Low-latency live: caches playlists and manifests for a second, and segments and CMAF headers for
# an hour. Stale responses are served while they are refreshed.
#
# Use:    thalweg edge --backend http://ORIGIN:8081 --policy live.vcl
# Change: the TTLs and grace times, and the file name extensions of playlists and segments.
#
# Segments still arriving from the backend need no configuration: every client receives each chunk
# as it arrives. The policy declares no backend, so requests are sent to the backend set by
# --backend.

vcl 4.1;

import querystring;

sub vcl_recv {
    # The built-in policy passes requests with a cookie, but media is the same for every client.
    unset req.http.Cookie;
    # CMCD (CTA-5004) describes the player and must not be part of the cache key. Keep _HLS_msn and
    # _HLS_part, which select the content.
    set req.url = querystring.regfilter(req.url, "^CMCD$");
}

sub vcl_backend_response {
    # If a background refresh fails, keep serving the stale response during its grace time. The next
    # request tries again.
    if (bereq.is_bgfetch && beresp.status >= 500) {
        return (abandon);
    }
    # Leave errors and responses for a single viewer to the built-in policy.
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
