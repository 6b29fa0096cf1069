-- Requests for approvals that policies demand.
CREATE TABLE gateway.approval (
    call       bytea  PRIMARY KEY,       -- digest of caller, tool, definition, arguments and policies
    id         text   NOT NULL UNIQUE,
    owner      bytea  NOT NULL,          -- digest of tenant, issuer and subject
    approvers  text   NOT NULL,          -- digests of roles and callers, each after a space
    sealed     bytea  NOT NULL,          -- the call
    approval   bytea,                    -- sealed; NULL until it is approved
    state      bigint NOT NULL,          -- 0 pending, 1 approved, 2 refused, 3 used
    expires_at bigint NOT NULL
);
CREATE INDEX approval_owner ON gateway.approval (owner);
CREATE INDEX approval_expires_at ON gateway.approval (expires_at);
