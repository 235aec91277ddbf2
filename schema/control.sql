-- Controller state: the state of each PoP, the ledger of its rounds, and its bundles with their
-- outcomes. Related changes are written in one transaction.

-- Seed of all random choices, drawn once.
CREATE TABLE seed (seed INTEGER NOT NULL);
INSERT INTO seed VALUES (random());

CREATE TABLE pops (
    pop TEXT PRIMARY KEY,
    -- Progress of the PoP's bundles: JSON of the control crate.
    rollout BLOB NOT NULL
) WITHOUT ROWID;

-- A tenant is named by its first host; rows with an empty name are for hosts without a tenant.
CREATE TABLE states (
    pop TEXT NOT NULL,
    tenant TEXT NOT NULL,
    -- Decision state: JSON of the control crate.
    state BLOB NOT NULL,
    PRIMARY KEY (pop, tenant)
) WITHOUT ROWID;

CREATE TABLE rounds (
    pop TEXT NOT NULL,
    tenant TEXT NOT NULL,
    -- End of the round's window.
    unix_s INTEGER NOT NULL,
    -- The decision: JSON as the controller reports it.
    told TEXT NOT NULL,
    PRIMARY KEY (pop, tenant, unix_s)
) WITHOUT ROWID;

-- Rounds in which a prefix changed.
CREATE TABLE changes (
    pop TEXT NOT NULL,
    tenant TEXT NOT NULL,
    prefix TEXT NOT NULL,
    -- Number of the window: its start in seconds since the Unix epoch, divided by its length.
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

-- Outcomes of bundles and edges, in words.
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    pop TEXT NOT NULL,
    unix_s INTEGER NOT NULL,
    told TEXT NOT NULL
);
CREATE INDEX events_by_pop ON events (pop, id);
