-- Conversations. What an erased one leaves is a skeleton without its id, its key and every text.
CREATE TABLE conversation (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    key        TEXT    NOT NULL UNIQUE, -- a UUID that sorts by time
    owner      BLOB    NOT NULL,        -- digest of tenant, issuer and subject
    tenant     TEXT    NOT NULL,
    issuer     TEXT    NOT NULL,
    subject    TEXT    NOT NULL,
    id         TEXT,                    -- what its owner calls it; null once erased
    data_key   BLOB,                    -- wrapped; null once erased
    created_at INTEGER NOT NULL,        -- all times: microseconds since 1970
    updated_at INTEGER NOT NULL,
    positions  INTEGER NOT NULL,        -- the last one given
    messages   INTEGER NOT NULL,        -- complete ones that are not erased
    cleared_to INTEGER NOT NULL,        -- up to this position everything is erased
    emptied_to INTEGER NOT NULL,        -- and up to this one it is gone from the tables below
    erased_at  INTEGER
) STRICT;
CREATE UNIQUE INDEX conversation_of_owner ON conversation (owner, id);
CREATE INDEX conversation_recent ON conversation (owner, updated_at, key) WHERE erased_at IS NULL;
CREATE INDEX conversation_expiry ON conversation (tenant, updated_at) WHERE erased_at IS NULL;
CREATE INDEX conversation_of_subject ON conversation (subject, key);
CREATE INDEX conversation_to_empty ON conversation (number) WHERE emptied_to < cleared_to;

CREATE TABLE message (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL REFERENCES conversation (number),
    position     INTEGER NOT NULL,      -- dense, from 1
    id           TEXT,                  -- null once erased
    turn         TEXT,                  -- null: a turn of its own, or erased
    state        INTEGER NOT NULL,      -- of its turn: 0 open, 1 complete, 2 abandoned
    role         INTEGER NOT NULL,      -- as in memory.proto
    source       INTEGER NOT NULL,      -- as in memory.proto
    covers_to    INTEGER NOT NULL,      -- of a summary; else 0
    characters   INTEGER NOT NULL,      -- of the text and the calls asked for
    size         INTEGER NOT NULL,      -- bytes of all its texts
    at           INTEGER NOT NULL,
    policy_hash  BLOB,                  -- of a tool's result
    rights       BLOB,                  -- of a tool's result: digest of the rights it was given under
    grounds      BLOB,                  -- of a tool's result: keyed digest of call and rights
    call         BLOB,                  -- sealed: the call it answers
    body         BLOB                   -- sealed; null once erased
) STRICT;
CREATE UNIQUE INDEX message_position ON message (conversation, position);
CREATE UNIQUE INDEX message_id ON message (conversation, id);
CREATE INDEX message_said ON message (conversation, position) WHERE state = 1 AND covers_to = 0;
CREATE INDEX message_summary ON message (conversation, position) WHERE state = 1 AND covers_to > 0;
CREATE INDEX message_turn ON message (conversation, turn, position) WHERE turn IS NOT NULL;
CREATE INDEX message_grounds ON message (conversation, grounds, position) WHERE grounds IS NOT NULL;
CREATE INDEX message_open ON message (at) WHERE state = 0;

-- The words of messages, each a keyed digest; the row of a message has its number.
CREATE VIRTUAL TABLE message_words USING fts5 (words, detail = none, columnsize = 0, tokenize = 'ascii');
-- What is removed is overwritten.
INSERT INTO message_words (message_words, rank) VALUES ('secure-delete', 1);

-- Legal holds: ('conversation', '', key), ('person', tenant, subject) or ('tenant', tenant, '').
CREATE TABLE hold (
    kind   TEXT    NOT NULL,
    tenant TEXT    NOT NULL,
    name   TEXT    NOT NULL,
    set_by TEXT    NOT NULL,
    set_at INTEGER NOT NULL,
    PRIMARY KEY (kind, tenant, name)
) STRICT;

-- The master key that everything is under, by a digest of it.
CREATE TABLE master_key (
    number   INTEGER PRIMARY KEY CHECK (number = 1), -- there is one
    known_by BLOB NOT NULL
) STRICT;
