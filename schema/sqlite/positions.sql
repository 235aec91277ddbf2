-- How far the records of each numbering are in this file.
CREATE TABLE positions (
    host TEXT NOT NULL,                          -- the machine
    epoch INTEGER NOT NULL,                      -- which numbering of its records
    position INTEGER NOT NULL,                   -- all with a lower number are here, or are counted as lost
    PRIMARY KEY (host, epoch)
) STRICT, WITHOUT ROWID;
