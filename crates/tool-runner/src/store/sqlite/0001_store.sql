-- Switches as they stand; without a row, what is less specific decides.
CREATE TABLE switch (
    target_kind TEXT    NOT NULL,       -- tool, toolset, upstream
    target      TEXT    NOT NULL,
    scope_kind  TEXT    NOT NULL,       -- everyone, role, user
    scope       TEXT    NOT NULL,       -- role or subject; empty for everyone
    issuer      TEXT    NOT NULL,       -- of a user; empty: whichever
    enabled     INTEGER NOT NULL,       -- 0, 1
    set_by      TEXT    NOT NULL,
    set_at      INTEGER NOT NULL,       -- all times: microseconds since 1970
    PRIMARY KEY (target_kind, target, scope_kind, scope, issuer)
) STRICT;
-- Grows with every change of a switch, so that a look at one number tells whether to read them again.
CREATE TABLE switch_version (version INTEGER NOT NULL) STRICT;
INSERT INTO switch_version VALUES (0);

-- One row for each idempotency key in use.
CREATE TABLE keyed_call (
    id            BLOB    NOT NULL PRIMARY KEY, -- digest of caller, tool and key
    arguments     BLOB    NOT NULL,      -- their digest
    terms         BLOB    NOT NULL,      -- digest of what the result was released under
    started_at    INTEGER NOT NULL,
    running_until INTEGER NOT NULL,      -- afterwards it cannot be running any more
    expires_at    INTEGER NOT NULL,
    result        BLOB                  -- sealed; null until it is there
) STRICT;
CREATE INDEX keyed_call_expires_at ON keyed_call (expires_at);

-- Large results, each of one caller, in sealed chunks.
CREATE TABLE kept_result (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    handle      TEXT    NOT NULL UNIQUE,
    caller      BLOB    NOT NULL,       -- digest of issuer, subject and tenant
    tool        TEXT    NOT NULL,
    definition  BLOB    NOT NULL,
    policy_hash BLOB    NOT NULL,
    terms       BLOB    NOT NULL,       -- sealed
    chunks      INTEGER NOT NULL,       -- how many
    bytes       INTEGER NOT NULL,       -- of all chunks as stored
    expires_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX kept_result_caller ON kept_result (caller);
CREATE INDEX kept_result_expires_at ON kept_result (expires_at);
CREATE TABLE kept_chunk (
    handle   TEXT    NOT NULL REFERENCES kept_result (handle) ON DELETE CASCADE,
    position INTEGER NOT NULL,           -- from 0
    sealed   BLOB    NOT NULL,
    PRIMARY KEY (handle, position)
) STRICT;
