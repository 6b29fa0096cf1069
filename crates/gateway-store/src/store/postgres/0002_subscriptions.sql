-- What sessions of clients before 2026-07-28 are subscribed to, and callers without a session.
CREATE TABLE gateway.subscriptions (
    id         bytea  PRIMARY KEY,
    owner      bytea  NOT NULL,          -- digest of tenant, issuer and subject
    sealed     bytea  NOT NULL,          -- the URIs
    written_at bigint NOT NULL,          -- the revision too: it grows with each change
    expires_at bigint NOT NULL
);
CREATE INDEX subscriptions_owner ON gateway.subscriptions (owner, written_at);
CREATE INDEX subscriptions_written_at ON gateway.subscriptions (written_at);
CREATE INDEX subscriptions_expires_at ON gateway.subscriptions (expires_at);
