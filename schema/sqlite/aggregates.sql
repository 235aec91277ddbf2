-- Aggregates in windows of five minutes, by the records' own time, as long as aggregates are kept.
--
-- A sketch is a JSON object from bucket to count (DDSketch, relative accuracy 1 %). With g = 1.01 / 0.99, value x > 0 is
-- counted in bucket ceil(ln x / ln g), and bucket i stands for 2 g^i / (g + 1). Sketches are added bucket by bucket; the
-- q-quantile of n values lies in the first bucket up to which there are more than q (n - 1) of them.

-- Samples of sockets.
CREATE TABLE sockets_5m (
    window INTEGER NOT NULL,                     -- its start, seconds since 1970, UTC
    pop TEXT NOT NULL,                           -- the site
    prefix TEXT NOT NULL,                        -- the client's network: /24 or /56
    asn INTEGER NOT NULL,                        -- the client's autonomous system; 0 where unknown
    region TEXT NOT NULL,                        -- the client's region; empty where unknown
    congestion_control TEXT NOT NULL,            -- empty where unknown
    samples INTEGER NOT NULL,                    -- records, however many sockets each stands for
    bytes_acked INTEGER NOT NULL,                -- bytes that clients acknowledged
    bytes_retrans INTEGER NOT NULL,              -- content bytes sent again
    segs_out INTEGER NOT NULL,                   -- TCP segments sent
    retransmits INTEGER NOT NULL,                -- TCP segments sent again
    busy_us INTEGER NOT NULL,                    -- time with content in flight
    rwnd_limited_us INTEGER NOT NULL,            -- of that, held back by the client's receive window
    sndbuf_limited_us INTEGER NOT NULL,          -- of that, held back by the send buffer
    delivery_rate TEXT NOT NULL,                 -- sketch, bytes per second: samples that the application did not limit
    rtt TEXT NOT NULL,                           -- sketch, microseconds
    min_rtt TEXT NOT NULL,                       -- sketch, microseconds
    PRIMARY KEY (window, pop, prefix, asn, region, congestion_control)
) STRICT, WITHOUT ROWID;

-- Responses.
CREATE TABLE responses_5m (
    window INTEGER NOT NULL,                     -- its start, seconds since 1970, UTC
    pop TEXT NOT NULL,                           -- the site
    prefix TEXT NOT NULL,                        -- the client's network: /24 or /56
    asn INTEGER NOT NULL,                        -- the client's autonomous system; 0 where unknown
    region TEXT NOT NULL,                        -- the client's region; empty where unknown
    congestion_control TEXT NOT NULL,            -- empty where unknown
    cache TEXT NOT NULL,                         -- hit, join, miss, validated, stale, pass, purge, synth, pipe, error
    request_host TEXT NOT NULL,                  -- the request's Host field: the first 1,000 of a window and site; else (other)
    responses INTEGER NOT NULL,                  -- records
    errors INTEGER NOT NULL,                     -- of those, with status 500 and above
    cut INTEGER NOT NULL,                        -- of those, not sent whole
    bytes INTEGER NOT NULL,                      -- content bytes
    ttfb TEXT NOT NULL,                          -- sketch, microseconds
    goodput TEXT NOT NULL,                       -- sketch, bytes per second: responses of 100,000 bytes and more, sent whole
    PRIMARY KEY (window, pop, prefix, asn, region, congestion_control, cache, request_host)
) STRICT, WITHOUT ROWID;
