-- Controller state: the state of each PoP, the ledger of its rounds, its bundles, and the events of
-- its bundles and edges. Related changes are written in one transaction.

-- Seed of all random choices, drawn once.
CREATE TABLE seed (seed INTEGER NOT NULL);
INSERT INTO seed VALUES (random());

CREATE TABLE pops (
    pop TEXT PRIMARY KEY,
    -- State of the bundle rollout, in the control crate's JSON form.
    rollout BLOB NOT NULL
) WITHOUT ROWID;

-- Decision state of each tenant. A tenant is named after its first host; hosts without a tenant
-- share the empty name.
CREATE TABLE states (
    pop TEXT NOT NULL,
    tenant TEXT NOT NULL,
    -- Decision state, in the control crate's JSON form.
    state BLOB NOT NULL,
    PRIMARY KEY (pop, tenant)
) WITHOUT ROWID;

CREATE TABLE rounds (
    pop TEXT NOT NULL,
    tenant TEXT NOT NULL,
    -- End of the round's window, in seconds since the Unix epoch.
    unix_s INTEGER NOT NULL,
    -- The decision, in the JSON form that the controller reports.
    told TEXT NOT NULL,
    PRIMARY KEY (pop, tenant, unix_s)
) WITHOUT ROWID;

-- Changes of prefixes, by round.
CREATE TABLE changes (
    pop TEXT NOT NULL,
    tenant TEXT NOT NULL,
    prefix TEXT NOT NULL,
    -- Window number: the window's start in seconds since the Unix epoch, divided by its length.
    window INTEGER NOT NULL,
    unix_s INTEGER NOT NULL,
    -- entered, left or proved
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

-- Outcomes of bundles and edges, as text.
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    pop TEXT NOT NULL,
    unix_s INTEGER NOT NULL,
    told TEXT NOT NULL
);
CREATE INDEX events_by_pop ON events (pop, id);
