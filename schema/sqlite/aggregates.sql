-- Aggregates in five-minute windows by record time. They are deleted after the retention time of
-- aggregates.
--
-- A sketch is a JSON object that maps buckets to counts (DDSketch, relative accuracy 1 %). With g =
-- 1.01 / 0.99, a value x > 0 is counted in bucket ceil(ln x / ln g), and bucket i represents the
-- value 2 g^i / (g + 1). Sketches are merged by adding their counts bucket by bucket. The
-- q-quantile of n values lies in the first bucket at which the cumulative count exceeds q (n - 1).

-- Socket samples.
CREATE TABLE sockets_5m (
    window INTEGER NOT NULL,                     -- start of the window, seconds since 1970, UTC
    pop TEXT NOT NULL,                           -- name of the site (PoP)
    prefix TEXT NOT NULL,                        -- client network: /24 or /56
    asn INTEGER NOT NULL,                        -- client autonomous system; 0 if unknown
    region TEXT NOT NULL,                        -- client region; empty if unknown
    congestion_control TEXT NOT NULL,            -- empty if unknown
    samples INTEGER NOT NULL,                    -- number of records, regardless of sampling
    bytes_acked INTEGER NOT NULL,                -- bytes acknowledged by clients
    bytes_retrans INTEGER NOT NULL,              -- content bytes retransmitted
    segs_out INTEGER NOT NULL,                   -- TCP segments sent
    retransmits INTEGER NOT NULL,                -- TCP segments retransmitted
    busy_us INTEGER NOT NULL,                    -- time with content in flight, microseconds
    rwnd_limited_us INTEGER NOT NULL,            -- part of busy_us limited by the client's receive window
    sndbuf_limited_us INTEGER NOT NULL,          -- part of busy_us limited by the send buffer
    delivery_rate TEXT NOT NULL,                 -- sketch, bytes per second: samples not limited by the application
    rtt TEXT NOT NULL,                           -- sketch, microseconds
    min_rtt TEXT NOT NULL,                       -- sketch, microseconds
    PRIMARY KEY (window, pop, prefix, asn, region, congestion_control)
) STRICT, WITHOUT ROWID;

-- Responses. If edges sample clients, each record counts as often as its sample_one_in says.
CREATE TABLE responses_5m (
    window INTEGER NOT NULL,                     -- start of the window, seconds since 1970, UTC
    pop TEXT NOT NULL,                           -- name of the site (PoP)
    prefix TEXT NOT NULL,                        -- client network: /24 or /56
    asn INTEGER NOT NULL,                        -- client autonomous system; 0 if unknown
    region TEXT NOT NULL,                        -- client region; empty if unknown
    congestion_control TEXT NOT NULL,            -- empty if unknown
    cache TEXT NOT NULL,                         -- hit, join, miss, validated, stale, pass, purge, synth, pipe, error
    request_host TEXT NOT NULL,                  -- the request's Host field: the first 1,000 per window and site; others are (other)
    responses INTEGER NOT NULL,                  -- number of responses
    errors INTEGER NOT NULL,                     -- responses with status 500 or above
    cut INTEGER NOT NULL,                        -- incomplete responses
    bytes INTEGER NOT NULL,                      -- content bytes
    ttfb TEXT NOT NULL,                          -- sketch, microseconds
    goodput TEXT NOT NULL,                       -- sketch, bytes per second: responses of which at least 100,000 bytes were acknowledged
    PRIMARY KEY (window, pop, prefix, asn, region, congestion_control, cache, request_host)
) STRICT, WITHOUT ROWID;
