# Video on demand: long TTLs, a cache key that ignores the order of query arguments, and consistent
# byte ranges.
#
# Use:    thalweg edge --backend http://ORIGIN:8081 --policy vod.vcl
# Change: the TTLs and grace times, the arguments that do not affect the content, and the file name
#         extensions.
#
# Range requests need no configuration: they are served from stored responses, from fills in
# progress or from slices. The policy declares no backend, so requests are sent to the backend set
# by --backend.

vcl 4.1;

import querystring;

sub vcl_recv {
    unset req.http.Cookie;
    # Remove arguments used only for analytics. Do not list an argument that the origin checks, such
    # as a token: on a hit, the origin would not check it.
    set req.url = querystring.regfilter(req.url, "^(CMCD|utm_.*|fbclid|gclid|_)$");
    # Sort the remaining arguments, so that their order does not affect the cache key.
    set req.url = querystring.sort(querystring.clean(req.url));
    # Compression does not make media smaller, and byte ranges of a compressed file would select
    # other bytes.
    if (req.url ~ "\.(m4s|mp4|m4a|m4v|cmfa|cmfv|cmft|aac|ts)(\?|$)") {
        unset req.http.Accept-Encoding;
    }
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
