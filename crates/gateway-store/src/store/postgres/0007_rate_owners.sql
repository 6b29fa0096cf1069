-- Whose requests the buckets of rates count, for operators who look.
CREATE TABLE gateway.rate_owner (
    bucket  bytea  PRIMARY KEY,
    tenant  text,                       -- the one whose requests alone it counts
    owner   text   NOT NULL,            -- JSON
    seen_at bigint NOT NULL             -- microseconds since 1970, by the clock of a replica
);
CREATE INDEX rate_owner_seen_at ON gateway.rate_owner (seen_at);
