-- Whose tokens are refused although their issuer vouches for them.
CREATE TABLE revocation (
    kind       TEXT   NOT NULL,           -- token, subject or session
    name       TEXT   NOT NULL,
    issuer     TEXT   NOT NULL,           -- empty: whichever names it
    tenant     TEXT   NOT NULL,           -- empty: of every tenant
    reason     TEXT   NOT NULL,
    revoked_by TEXT   NOT NULL,
    revoked_at INTEGER NOT NULL,
    PRIMARY KEY (kind, name, issuer, tenant)
) STRICT;

-- Raised with every change, so that replicas see that there is one.
CREATE TABLE revocation_version (
    version INTEGER NOT NULL
) STRICT;
INSERT INTO revocation_version (version) VALUES (0);
