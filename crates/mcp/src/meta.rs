//! Keys of `_meta` that the protocol reserves (from 2026-07-28, where nothing else is said).

/// The version of the request.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// What the client is called.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";

/// What the client can do.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// From which level on the client wants the server's log messages.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// What the server is called.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// The request to listen that a notification belongs to.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// The task that a message belongs to (2025-11-25).
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// The prefix of the members of `_meta` and `data` that clients say to the gateway, and that only the gateway writes.
pub const GATEWAY_PREFIX: &str = "dev.wardgate/";
