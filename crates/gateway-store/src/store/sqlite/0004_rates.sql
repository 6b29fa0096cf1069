-- Rates that replicas share: when each bucket is full again, and what was taken last.
CREATE TABLE rate (
    bucket  BLOB    NOT NULL PRIMARY KEY,
    full_at INTEGER NOT NULL,            -- microseconds since 1970, by the clock of the database
    taken   INTEGER NOT NULL
) STRICT;
CREATE INDEX rate_full_at ON rate (full_at);

-- The replicas that share them.
CREATE TABLE rate_replica (
    id      BLOB    NOT NULL PRIMARY KEY,
    seen_at INTEGER NOT NULL
) STRICT;
