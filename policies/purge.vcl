# PURGE requests for a URL or for tags, allowed from listed addresses.
#
# Use:    thalweg edge --backend http://ORIGIN:8081 --policy purge.vcl
#         # Purge a URL with all its variants:
#         curl -X PURGE http://EDGE:8080/path
#         # Purge responses with any of these tags in xkey or Surrogate-Key:
#         curl -X PURGE -H 'xkey: film-7 series-2' http://EDGE:8080/
#         # Soft purge: mark the responses as stale:
#         curl -X PURGE -H 'xkey-softpurge: film-7' http://EDGE:8080/
# Change: the address list. Behind a proxy on the same machine, all clients appear to come from
#         127.0.0.1: remove that entry.
#
# The purge is complete when the response arrives. Without a policy, the setting purge_from lists
# the allowed clients. With a policy, purge_from is ignored, and the policy defines what PURGE does.
# This policy declares no backend, so requests are sent to the backend set by --backend.

vcl 4.1;

import xkey;

acl purgers {
    "127.0.0.1";
    "::1";
}

sub vcl_recv {
    if (req.method == "PURGE") {
        if (client.ip !~ purgers) {
            return (synth(403, "This address may not purge"));
        }
        if (req.http.xkey) {
            return (synth(200, "Tags purged: " + xkey.purge(req.http.xkey)));
        }
        if (req.http.xkey-softpurge) {
            return (synth(200, "Tags purged softly: " + xkey.softpurge(req.http.xkey-softpurge)));
        }
        return (purge);
    }
}

sub vcl_synth {
    if (req.method == "PURGE") {
        set resp.http.Content-Type = "text/plain; charset=utf-8";
        set resp.body = resp.reason + {"
"};
        return (deliver);
    }
}
