# PURGE of a URL or of tags, from some addresses.
#
# Use:    thalweg edge --backend http://ORIGIN:8081 --policy purge.vcl
#         curl -X PURGE http://EDGE:8080/path                        # a URL, with all its variants
#         curl -X PURGE -H 'xkey: film-7 series-2' http://EDGE:8080/   # all that has one of these tags in xkey or Surrogate-Key
#         curl -X PURGE -H 'xkey-softpurge: film-7' http://EDGE:8080/  # softly: stale from now on
# Change: the list. Behind a proxy on this machine all clients come from 127.0.0.1: take that out.
#
# What is purged is gone when the answer comes. Without such a policy the setting purge_from says who may; under a policy it
# does not count, and PURGE means what the policy says. No backend is declared, so requests go to those of --backend.

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
