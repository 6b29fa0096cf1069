-- Ids that may be used once.
CREATE TABLE used (
    id         BLOB    NOT NULL PRIMARY KEY,
    expires_at INTEGER NOT NULL          -- all times: microseconds since 1970
) STRICT;
CREATE INDEX used_expires_at ON used (expires_at);

-- Sessions of clients before 2026-07-28. Without a row, a session has ended.
CREATE TABLE session (
    id         BLOB    NOT NULL PRIMARY KEY,
    owner      BLOB    NOT NULL,         -- digest of tenant, issuer and subject
    touched_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    log_level  TEXT,                     -- null: the client never set one
    listener   BLOB                      -- its newest stream of GET
) STRICT;
CREATE INDEX session_owner ON session (owner, touched_at);
CREATE INDEX session_expires_at ON session (expires_at);

-- Gateways that write streams, each by a number of its own for as long as it runs.
CREATE TABLE replica (
    id          BLOB    NOT NULL PRIMARY KEY,
    alive_until INTEGER NOT NULL
) STRICT;

-- Answers that came as streams of events.
CREATE TABLE stream (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    id         BLOB    NOT NULL UNIQUE,
    session    BLOB    NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    replica    BLOB    NOT NULL,         -- that writes it
    request    BLOB    NOT NULL,         -- sealed: what it answers
    ended      INTEGER NOT NULL,         -- 0: goes on, 1: its last event is there, 2: what followed is not kept
    waiting    BLOB,                    -- sealed: what goes on when the client answers
    bytes      INTEGER NOT NULL,         -- of its events as stored
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX stream_session ON stream (session, number);
CREATE INDEX stream_expires_at ON stream (expires_at);
CREATE TABLE event (
    stream   BLOB    NOT NULL REFERENCES stream (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,           -- from 1
    sealed   BLOB    NOT NULL,
    PRIMARY KEY (stream, position)
) STRICT;

-- What one gateway learnt that another may wait for.
CREATE TABLE letter (
    id         BLOB    NOT NULL PRIMARY KEY,
    sealed     BLOB    NOT NULL,
    posted_at  INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX letter_posted_at ON letter (posted_at);
CREATE INDEX letter_expires_at ON letter (expires_at);
