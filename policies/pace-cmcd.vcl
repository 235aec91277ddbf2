# Media no faster than the player can use it, by what it says of itself (CMCD, CTA-5004).
#
# Use:    thalweg edge --backend http://ORIGIN:8081 --policy pace-cmcd.vcl
#         and CMCD switched on in the player, as a query argument or as fields of the request.
# Change: nothing to begin with; else set client.socket.pace, in KiB/s, by thalweg.cmcd_rtp(), cmcd_br() and cmcd_bl().
#
# A short queue at the bottleneck has fewer losses and a lower delay, for the player and for who shares its line. The kernel
# holds the pace (SO_MAX_PACING_RATE), whatever the congestion control. No backend is declared, so requests go to those of
# --backend.

vcl 4.1;

import querystring;
import thalweg;

sub vcl_recv {
    # A restart has the URL without the argument.
    if (req.restarts == 0) {
        # rtp, the rate that the player asks for, and a tenth; else, with 10 s and more in its buffer (bl), three times its
        # bitrate (br). 0, as fast as it goes, for a player that says neither, starts, seeks (su), has starved (bs), or
        # asks for something else than media. Never less than 128 KiB/s.
        set client.socket.pace = thalweg.cmcd_pace();
    }
    # What a player says of itself is not part of what it asks for.
    set req.url = querystring.regfilter(req.url, "^CMCD$");
}
