-- Sessions of people whom a provider signed in.
CREATE TABLE console.session (
    id            bytea  PRIMARY KEY,    -- digest of what the cookie has
    sealed        bytea  NOT NULL,       -- the tokens
    renewed_until bigint NOT NULL,       -- until when one replica alone renews them
    expires_at    bigint NOT NULL
);
CREATE INDEX session_expires_at ON console.session (expires_at);
