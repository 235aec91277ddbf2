-- Position of each record numbering in this file.
CREATE TABLE positions (
    host TEXT NOT NULL,                          -- the machine
    epoch INTEGER NOT NULL,                      -- epoch of the record numbering
    position INTEGER NOT NULL,                   -- every record with a lower number is in this file or counted as lost
    PRIMARY KEY (host, epoch)
) STRICT, WITHOUT ROWID;
