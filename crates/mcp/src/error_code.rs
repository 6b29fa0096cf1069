//! Codes of JSON-RPC errors (JSON-RPC 2.0, section 5.1) and of the protocol's own.

/// The message is not JSON.
pub const PARSE_ERROR: i64 = -32700;

/// The message is no JSON-RPC request.
pub const INVALID_REQUEST: i64 = -32600;

/// There is no such method.
pub const METHOD_NOT_FOUND: i64 = -32601;

/// The parameters do not fit the method, or name something that there is not.
pub const INVALID_PARAMS: i64 = -32602;

/// The receiver failed.
pub const INTERNAL_ERROR: i64 = -32603;

/// There is no such resource (before 2026-07-28).
pub const RESOURCE_NOT_FOUND: i64 = -32002;

/// A header does not repeat what the body says (from 2026-07-28).
pub const HEADER_MISMATCH: i64 = -32020;

/// The request needs a capability that its client did not declare (from 2026-07-28).
pub const MISSING_CAPABILITY: i64 = -32021;

/// The receiver does not speak the version of the request (from 2026-07-28).
pub const UNSUPPORTED_VERSION: i64 = -32022;

/// A person has to visit a page first (2025-11-25).
pub const URL_ELICITATION_REQUIRED: i64 = -32042;
