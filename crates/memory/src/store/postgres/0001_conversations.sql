-- Conversations. What an erased one leaves is a skeleton without its id, its key and every text.
CREATE TABLE memory.conversation (
    number     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key        text   COLLATE "C" NOT NULL UNIQUE, -- a UUID that sorts by time
    owner      bytea  NOT NULL,        -- digest of tenant, issuer and subject
    tenant     text   COLLATE "C" NOT NULL,
    issuer     text   NOT NULL,
    subject    text   NOT NULL,
    id         text,                    -- what its owner calls it; null once erased
    data_key   bytea,                   -- wrapped; null once erased
    created_at bigint NOT NULL,         -- all times: microseconds since 1970
    updated_at bigint NOT NULL,
    positions  bigint NOT NULL,         -- the last one given
    messages   bigint NOT NULL,         -- complete ones that are not erased
    cleared_to bigint NOT NULL,         -- up to this position everything is erased
    emptied_to bigint NOT NULL,         -- and up to this one it is gone from the tables below
    erased_at  bigint
);
CREATE UNIQUE INDEX conversation_of_owner ON memory.conversation (owner, id);
CREATE INDEX conversation_recent ON memory.conversation (owner, updated_at, key) WHERE erased_at IS NULL;
CREATE INDEX conversation_expiry ON memory.conversation (tenant, updated_at) WHERE erased_at IS NULL;
CREATE INDEX conversation_of_subject ON memory.conversation (subject, key);
CREATE INDEX conversation_to_empty ON memory.conversation (number) WHERE emptied_to < cleared_to;

CREATE TABLE memory.message (
    number       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    conversation bigint NOT NULL REFERENCES memory.conversation (number),
    position     bigint NOT NULL,         -- dense, from 1
    id           text,                    -- null once erased
    turn         text,                    -- null: a turn of its own, or erased
    state        bigint NOT NULL,         -- of its turn: 0 open, 1 complete, 2 abandoned
    role         bigint NOT NULL,         -- as in memory.proto
    source       bigint NOT NULL,         -- as in memory.proto
    covers_to    bigint NOT NULL,         -- of a summary; else 0
    characters   bigint NOT NULL,         -- of the text and the calls asked for
    size         bigint NOT NULL,         -- bytes of all its texts
    at           bigint NOT NULL,
    policy_hash  bytea,                   -- of a tool's result
    rights       bytea,                   -- of a tool's result: digest of the rights it was given under
    grounds      bytea,                   -- of a tool's result: keyed digest of call and rights
    call         bytea,                   -- sealed: the call it answers
    body         bytea                    -- sealed; null once erased
);
-- Sealed texts do not get smaller.
ALTER TABLE memory.message ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE memory.message ALTER COLUMN call SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX message_position ON memory.message (conversation, position);
CREATE UNIQUE INDEX message_id ON memory.message (conversation, id);
CREATE INDEX message_said ON memory.message (conversation, position) WHERE state = 1 AND covers_to = 0;
CREATE INDEX message_summary ON memory.message (conversation, position) WHERE state = 1 AND covers_to > 0;
CREATE INDEX message_turn ON memory.message (conversation, turn, position) WHERE turn IS NOT NULL;
CREATE INDEX message_grounds ON memory.message (conversation, grounds, position) WHERE grounds IS NOT NULL;
CREATE INDEX message_open ON memory.message (at) WHERE state = 0;

-- The words of messages, each a keyed digest.
CREATE TABLE memory.message_words (
    message bigint PRIMARY KEY REFERENCES memory.message (number) ON DELETE CASCADE,
    words   tsvector NOT NULL
);
-- Without a list of entries yet to be sorted in, a search takes as long after many additions as after few.
CREATE INDEX message_words_words ON memory.message_words USING gin (words) WITH (fastupdate = off);

-- Legal holds: ('conversation', '', key), ('person', tenant, subject) or ('tenant', tenant, '').
CREATE TABLE memory.hold (
    kind   text   NOT NULL,
    tenant text   NOT NULL,
    name   text   NOT NULL,
    set_by text   NOT NULL,
    set_at bigint NOT NULL,
    PRIMARY KEY (kind, tenant, name)
);

-- The master key that everything is under, by a digest of it.
CREATE TABLE memory.master_key (
    number   bigint PRIMARY KEY CHECK (number = 1), -- there is one
    known_by bytea NOT NULL
);
