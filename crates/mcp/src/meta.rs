//! Reserved keys of `_meta` (from 2026-07-28 unless stated otherwise).

/// Key of the protocol version of the request.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// Key of the name and version of the client.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";

/// Key of the capabilities of the client.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// Key of the lowest level of the log messages that the client asks for.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// Key of the name and version of the server.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// Key of the id of the subscription request that a notification belongs to.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// Key of the task that a message belongs to (2025-11-25).
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// Prefix of members of `_meta` and `data` that are specific to the gateway. Only clients and the gateway itself write them.
pub const GATEWAY_PREFIX: &str = "dev.wardgate/";

/// Key of the id of a call, in `_meta` of its result and in `data` of an error.
pub const CALL_ID: &str = "dev.wardgate/callId";

/// Key of the receipt of the audit record of a call, in the same objects.
pub const RECEIPT: &str = "dev.wardgate/receipt";

/// Key of the id of the decision by which a policy refused a call, in the same objects.
pub const DECISION_ID: &str = "dev.wardgate/decisionId";

/// Key of the idempotency key of a call: under one key, a call runs, or is recorded as refused, at most once.
pub const IDEMPOTENCY_KEY: &str = "dev.wardgate/idempotencyKey";

/// Key of the id of the conversation that a call belongs to.
pub const CONVERSATION: &str = "dev.wardgate/conversation";

/// Key of a tool that counts as one that may write although its `readOnlyHint` is true. The gateway sets it to `true`; any value
/// counts, because an upstream server may send the key as well.
pub const MAY_WRITE: &str = "dev.wardgate/mayWrite";
