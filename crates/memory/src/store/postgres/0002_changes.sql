-- What changed, for whoever watches. A row goes after a minute or two.
CREATE TABLE memory.change (
    number       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner        bytea  NOT NULL,       -- as of a conversation
    kind         bigint NOT NULL,       -- 0 a conversation, 1 their list, 2 the owner's subscriptions
    conversation bigint                 -- its number, of kind 0
);

-- What the sessions of older clients want to hear of.
CREATE TABLE memory.subscription (
    owner      bytea  NOT NULL,
    id         text   NOT NULL,         -- of a conversation, which need not exist
    session    bytea  NOT NULL,         -- a digest; empty: the owner has none
    expires_at bigint NOT NULL,
    PRIMARY KEY (owner, id, session)
);
CREATE INDEX subscription_of_session ON memory.subscription (owner, session, id);
CREATE INDEX subscription_expiry ON memory.subscription (expires_at);
