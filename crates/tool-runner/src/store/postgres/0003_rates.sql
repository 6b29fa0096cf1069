-- Rates that replicas share: when each bucket is full again, and what was taken last.
CREATE TABLE tool_runner.rate (
    bucket  bytea  PRIMARY KEY,
    full_at bigint NOT NULL,            -- microseconds since 1970, by the clock of the database
    taken   bigint NOT NULL
);
CREATE INDEX rate_full_at ON tool_runner.rate (full_at);

-- The replicas that share them.
CREATE TABLE tool_runner.rate_replica (
    id      bytea  PRIMARY KEY,
    seen_at bigint NOT NULL
);
