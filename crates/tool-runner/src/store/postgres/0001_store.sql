-- Switches as they stand; without a row, what is less specific decides.
CREATE TABLE tool_runner.switch (
    target_kind text   NOT NULL,        -- tool, toolset, upstream
    target      text   NOT NULL,
    scope_kind  text   NOT NULL,        -- everyone, role, user
    scope       text   NOT NULL,        -- role or subject; empty for everyone
    issuer      text   NOT NULL,        -- of a user; empty: whichever
    enabled     bigint NOT NULL,        -- 0, 1
    set_by      text   NOT NULL,
    set_at      bigint NOT NULL,        -- all times: microseconds since 1970
    PRIMARY KEY (target_kind, target, scope_kind, scope, issuer)
);
-- Grows with every change of a switch, so that a look at one number tells whether to read them again.
CREATE TABLE tool_runner.switch_version (version bigint NOT NULL);
INSERT INTO tool_runner.switch_version VALUES (0);

-- One row for each idempotency key in use.
CREATE TABLE tool_runner.keyed_call (
    id            bytea  PRIMARY KEY,   -- digest of caller, tool and key
    arguments     bytea  NOT NULL,      -- their digest
    terms         bytea  NOT NULL,      -- digest of what the result was released under
    started_at    bigint NOT NULL,
    running_until bigint NOT NULL,      -- afterwards it cannot be running any more
    expires_at    bigint NOT NULL,
    result        bytea                 -- sealed; null until it is there
);
CREATE INDEX keyed_call_expires_at ON tool_runner.keyed_call (expires_at);

-- Large results, each of one caller, in sealed chunks.
CREATE TABLE tool_runner.kept_result (
    number      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    handle      text   NOT NULL UNIQUE,
    caller      bytea  NOT NULL,        -- digest of issuer, subject and tenant
    tool        text   NOT NULL,
    definition  bytea  NOT NULL,
    policy_hash bytea  NOT NULL,
    terms       bytea  NOT NULL,        -- sealed
    chunks      bigint NOT NULL,        -- how many
    bytes       bigint NOT NULL,        -- of all chunks as stored
    expires_at  bigint NOT NULL
);
CREATE INDEX kept_result_caller ON tool_runner.kept_result (caller);
CREATE INDEX kept_result_expires_at ON tool_runner.kept_result (expires_at);
CREATE TABLE tool_runner.kept_chunk (
    handle   text   NOT NULL REFERENCES tool_runner.kept_result (handle) ON DELETE CASCADE,
    position bigint NOT NULL,           -- from 0
    sealed   bytea  NOT NULL,
    PRIMARY KEY (handle, position)
);
