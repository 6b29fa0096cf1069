-- Ids that may be used once.
CREATE TABLE gateway.used (
    id         bytea PRIMARY KEY,
    expires_at bigint NOT NULL          -- all times: microseconds since 1970
);
CREATE INDEX used_expires_at ON gateway.used (expires_at);

-- Sessions of clients before 2026-07-28. Without a row, a session has ended.
CREATE TABLE gateway.session (
    id         bytea PRIMARY KEY,
    owner      bytea  NOT NULL,         -- digest of tenant, issuer and subject
    touched_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    log_level  text,                     -- null: the client never set one
    listener   bytea                     -- its newest stream of GET
);
CREATE INDEX session_owner ON gateway.session (owner, touched_at);
CREATE INDEX session_expires_at ON gateway.session (expires_at);

-- Gateways that write streams, each by a number of its own for as long as it runs.
CREATE TABLE gateway.replica (
    id          bytea PRIMARY KEY,
    alive_until bigint NOT NULL
);

-- Answers that came as streams of events.
CREATE TABLE gateway.stream (
    number     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id         bytea  NOT NULL UNIQUE,
    session    bytea  NOT NULL REFERENCES gateway.session (id) ON DELETE CASCADE,
    replica    bytea  NOT NULL,         -- that writes it
    request    bytea  NOT NULL,         -- sealed: what it answers
    ended      bigint NOT NULL,         -- 0: goes on, 1: its last event is there, 2: what followed is not kept
    waiting    bytea,                   -- sealed: what goes on when the client answers
    bytes      bigint NOT NULL,         -- of its events as stored
    expires_at bigint NOT NULL
);
CREATE INDEX stream_session ON gateway.stream (session, number);
CREATE INDEX stream_expires_at ON gateway.stream (expires_at);
CREATE TABLE gateway.event (
    stream   bytea  NOT NULL REFERENCES gateway.stream (id) ON DELETE CASCADE,
    position bigint NOT NULL,           -- from 1
    sealed   bytea  NOT NULL,
    PRIMARY KEY (stream, position)
);

-- What one gateway learnt that another may wait for.
CREATE TABLE gateway.letter (
    id         bytea PRIMARY KEY,
    sealed     bytea  NOT NULL,
    posted_at  bigint NOT NULL,
    expires_at bigint NOT NULL
);
CREATE INDEX letter_posted_at ON gateway.letter (posted_at);
CREATE INDEX letter_expires_at ON gateway.letter (expires_at);
