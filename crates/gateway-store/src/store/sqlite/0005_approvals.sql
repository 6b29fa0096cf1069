-- Requests for approvals that policies demand.
CREATE TABLE approval (
    call       BLOB    NOT NULL PRIMARY KEY, -- digest of caller, tool, definition, arguments and policies
    id         TEXT    NOT NULL UNIQUE,
    owner      BLOB    NOT NULL,         -- digest of tenant, issuer and subject
    approvers  TEXT    NOT NULL,         -- digests of roles and callers, each after a space
    sealed     BLOB    NOT NULL,         -- the call
    approval   BLOB,                     -- sealed; NULL until it is approved
    state      INTEGER NOT NULL,         -- 0 pending, 1 approved, 2 refused, 3 used
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX approval_owner ON approval (owner);
CREATE INDEX approval_expires_at ON approval (expires_at);
