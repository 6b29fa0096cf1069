-- What sessions of clients before 2026-07-28 are subscribed to, and callers without a session.
CREATE TABLE subscriptions (
    id         BLOB    NOT NULL PRIMARY KEY,
    owner      BLOB    NOT NULL,         -- digest of tenant, issuer and subject
    sealed     BLOB    NOT NULL,         -- the URIs
    written_at INTEGER NOT NULL,         -- the revision too: it grows with each change
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX subscriptions_owner ON subscriptions (owner, written_at);
CREATE INDEX subscriptions_written_at ON subscriptions (written_at);
CREATE INDEX subscriptions_expires_at ON subscriptions (expires_at);
