-- What came of calls, for the pages that show it.
CREATE TABLE result (
    id         TEXT    NOT NULL PRIMARY KEY,
    owner      BLOB    NOT NULL,         -- digest of the caller with the rights of then
    sealed     BLOB    NOT NULL,         -- the call, and what came of it
    is_over    INTEGER NOT NULL,         -- 0 while it runs
    started_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX result_owner ON result (owner, started_at);
CREATE INDEX result_expires_at ON result (expires_at);
