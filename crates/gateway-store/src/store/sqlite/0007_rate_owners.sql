-- Whose requests the buckets of rates count, for operators who look.
CREATE TABLE rate_owner (
    bucket  BLOB    NOT NULL PRIMARY KEY,
    tenant  TEXT,                        -- the one whose requests alone it counts
    owner   TEXT    NOT NULL,            -- JSON
    seen_at INTEGER NOT NULL             -- microseconds since 1970, by the clock of a replica
) STRICT;
CREATE INDEX rate_owner_seen_at ON rate_owner (seen_at);
