-- What people granted sources to do in their name.
CREATE TABLE tool_runner.connection (
    id               bytea  PRIMARY KEY,   -- digest of person and source
    source           text   NOT NULL,
    tenant           text   NOT NULL,
    issuer           text   NOT NULL,
    subject          text   NOT NULL,
    sealed           bytea  NOT NULL,      -- the tokens
    version          bigint NOT NULL,      -- grows with every change of the tokens
    refreshing_until bigint NOT NULL,      -- until then one replica alone refreshes them
    connected_at     bigint NOT NULL,
    changed_at       bigint NOT NULL
);
CREATE INDEX connection_person ON tool_runner.connection (subject, source);

-- Clients that authorization servers registered for us.
CREATE TABLE tool_runner.registered_client (
    id         bytea  PRIMARY KEY,         -- digest of source, authorization server and redirect URI
    sealed     bytea  NOT NULL,
    expires_at bigint NOT NULL
);
