-- Whose tokens are refused although their issuer vouches for them.
CREATE TABLE gateway.revocation (
    kind       text   NOT NULL,           -- token, subject or session
    name       text   NOT NULL,
    issuer     text   NOT NULL,           -- empty: whichever names it
    tenant     text   NOT NULL,           -- empty: of every tenant
    reason     text   NOT NULL,
    revoked_by text   NOT NULL,
    revoked_at bigint NOT NULL,
    PRIMARY KEY (kind, name, issuer, tenant)
);

-- Raised with every change, so that replicas see that there is one.
CREATE TABLE gateway.revocation_version (
    version bigint NOT NULL
);
INSERT INTO gateway.revocation_version (version) VALUES (0);
