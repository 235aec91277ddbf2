-- Position in each sequence of record numbers: a host and epoch.
CREATE TABLE positions (
    host TEXT NOT NULL,                          -- host name
    epoch INTEGER NOT NULL,                      -- epoch of the record numbers
    position INTEGER NOT NULL,                   -- every record with a lower number is in this file or counted as lost
    PRIMARY KEY (host, epoch)
) STRICT, WITHOUT ROWID;
