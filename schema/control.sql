-- What the controller keeps: what it knows of each PoP, the ledger of its rounds, the bundles that came of them and what became of these.
-- What happens together is written in one transaction.

-- Chance goes by it: drawn once.
CREATE TABLE seed (seed INTEGER NOT NULL);
INSERT INTO seed VALUES (random());

CREATE TABLE pops (
    pop TEXT PRIMARY KEY,
    -- How far its bundles have come: JSON of the control crate.
    rollout BLOB NOT NULL
) WITHOUT ROWID;

-- A tenant is named by its first host; the rows of hosts that no tenant has are those without a name.
CREATE TABLE states (
    pop TEXT NOT NULL,
    tenant TEXT NOT NULL,
    -- What control knows: JSON of the control crate.
    state BLOB NOT NULL,
    PRIMARY KEY (pop, tenant)
) WITHOUT ROWID;

CREATE TABLE rounds (
    pop TEXT NOT NULL,
    tenant TEXT NOT NULL,
    -- The end of its window.
    unix_s INTEGER NOT NULL,
    -- What was decided: JSON as the controller tells it.
    told TEXT NOT NULL,
    PRIMARY KEY (pop, tenant, unix_s)
) WITHOUT ROWID;

-- The rounds of a prefix in which something changed.
CREATE TABLE changes (
    pop TEXT NOT NULL,
    tenant TEXT NOT NULL,
    prefix TEXT NOT NULL,
    -- The window's number: its start in seconds since the Unix epoch, divided by its length.
    window INTEGER NOT NULL,
    unix_s INTEGER NOT NULL,
    -- entered, left, proved
    what TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (pop, tenant, prefix, unix_s, what)
) WITHOUT ROWID;
CREATE INDEX changes_by_time ON changes (pop, tenant, unix_s);

CREATE TABLE bundles (
    pop TEXT NOT NULL,
    number INTEGER NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (pop, number)
) WITHOUT ROWID;

-- What became of bundles and edges, in words.
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    pop TEXT NOT NULL,
    unix_s INTEGER NOT NULL,
    told TEXT NOT NULL
);
CREATE INDEX events_by_pop ON events (pop, id);
