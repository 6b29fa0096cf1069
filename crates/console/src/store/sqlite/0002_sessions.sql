-- Sessions of people whom a provider signed in.
CREATE TABLE session (
    id            BLOB    NOT NULL PRIMARY KEY, -- digest of what the cookie has
    sealed        BLOB    NOT NULL,      -- the tokens
    renewed_until INTEGER NOT NULL,      -- until when one replica alone renews them
    expires_at    INTEGER NOT NULL
) STRICT;
CREATE INDEX session_expires_at ON session (expires_at);
