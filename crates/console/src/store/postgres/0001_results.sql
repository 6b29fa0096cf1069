-- What came of calls, for the pages that show it.
CREATE TABLE console.result (
    id         text   PRIMARY KEY,
    owner      bytea  NOT NULL,          -- digest of the caller with the rights of then
    sealed     bytea  NOT NULL,          -- the call, and what came of it
    is_over    bigint NOT NULL,          -- 0 while it runs
    started_at bigint NOT NULL,
    expires_at bigint NOT NULL
);
CREATE INDEX result_owner ON console.result (owner, started_at);
CREATE INDEX result_expires_at ON console.result (expires_at);
