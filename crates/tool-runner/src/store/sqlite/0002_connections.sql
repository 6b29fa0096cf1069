-- What people granted sources to do in their name.
CREATE TABLE connection (
    id               BLOB    NOT NULL PRIMARY KEY, -- digest of person and source
    source           TEXT    NOT NULL,
    tenant           TEXT    NOT NULL,
    issuer           TEXT    NOT NULL,
    subject          TEXT    NOT NULL,
    sealed           BLOB    NOT NULL,     -- the tokens
    version          INTEGER NOT NULL,     -- grows with every change of the tokens
    refreshing_until INTEGER NOT NULL,     -- until then one replica alone refreshes them
    connected_at     INTEGER NOT NULL,
    changed_at       INTEGER NOT NULL
) STRICT;
CREATE INDEX connection_person ON connection (subject, source);

-- Clients that authorization servers registered for us.
CREATE TABLE registered_client (
    id         BLOB    NOT NULL PRIMARY KEY, -- digest of source, authorization server and redirect URI
    sealed     BLOB    NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
