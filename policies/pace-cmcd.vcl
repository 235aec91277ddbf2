# Pacing by CMCD (CTA-5004): sends media no faster than the player can use it.
#
# Use:    thalweg edge --backend http://ORIGIN:8081 --policy pace-cmcd.vcl
#         Enable CMCD in the player, as a query argument or as request headers.
# Change: nothing at first. For another rule, compute client.socket.pace, in KiB/s, from
#         thalweg.cmcd_rtp(), thalweg.cmcd_br() and thalweg.cmcd_bl().
#
# A shorter queue at the bottleneck reduces loss and delay, both for the player and for others on
# the same link. The kernel enforces the pace (SO_MAX_PACING_RATE) with any congestion control. The
# policy declares no backend, so requests are sent to the backend set by --backend.

vcl 4.1;

import querystring;
import thalweg;

sub vcl_recv {
    # After a restart, the URL no longer has the CMCD argument.
    if (req.restarts == 0) {
        # The pace is the maximum rate requested by the player (rtp). Without it, if the buffer (bl)
        # is at least 10 s, the pace is three times the bitrate (the larger of br and tb). Both
        # rates are increased by 10% for packet overhead, and the minimum is 128 KiB/s. The pace is
        # 0, which means unlimited, at startup and after seeks (su), after the buffer ran dry (bs),
        # for requests other than media, and if CMCD has too little data.
        set client.socket.pace = thalweg.cmcd_pace();
    }
    # CMCD describes the player and must not be part of the cache key.
    set req.url = querystring.regfilter(req.url, "^CMCD$");
}
