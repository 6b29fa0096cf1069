-- What changed, for whoever watches. A row goes after a minute or two.
CREATE TABLE change (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    owner        BLOB    NOT NULL,      -- as of a conversation
    kind         INTEGER NOT NULL,      -- 0 a conversation, 1 their list, 2 the owner's subscriptions
    conversation INTEGER                -- its number, of kind 0
) STRICT;

-- What the sessions of older clients want to hear of.
CREATE TABLE subscription (
    owner      BLOB    NOT NULL,
    id         TEXT    NOT NULL,        -- of a conversation, which need not exist
    session    BLOB    NOT NULL,        -- a digest; empty: the owner has none
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (owner, id, session)
) STRICT, WITHOUT ROWID;
CREATE INDEX subscription_of_session ON subscription (owner, session, id);
CREATE INDEX subscription_expiry ON subscription (expires_at);
