//! Codes of JSON-RPC errors (JSON-RPC 2.0, section 5.1) and of MCP errors. The reference documentation is
//! generated from the table.

/// An error code with its explanation in Markdown.
#[derive(Debug)]
pub struct ExplainedCode {
    /// The code.
    pub code: i64,
    /// The meaning of the code.
    pub meaning: &'static str,
    /// The HTTP status of a response with this code.
    pub http: &'static str,
    /// What the client can do about the error.
    pub remedy: &'static str,
}

macro_rules! codes {
    ($($name:ident = $code:literal, $meaning:literal, $http:literal, $remedy:literal;)+) => {
        $(
            #[doc = $meaning]
            pub const $name: i64 = $code;
        )+

        /// All error codes with their explanations.
        pub const EXPLAINED: &[ExplainedCode] = &[$(ExplainedCode {
            code: $name,
            meaning: $meaning,
            http: $http,
            remedy: $remedy,
        }),+];
    };
}

codes! {
    PARSE_ERROR = -32700,
        "The message is not valid JSON, or is ambiguous JSON.",
        "400",
        "send valid JSON without repeated keys";
    INVALID_REQUEST = -32600,
        "The message is not a JSON-RPC request, or was refused before it was read (see `data.reason`).",
        "400, or the status of the refusal",
        "see the message";
    METHOD_NOT_FOUND = -32601,
        "The method does not exist in this version, or is not available at this path.",
        "404 from 2026-07-28, else 200",
        "list the available objects; check the version";
    INVALID_PARAMS = -32602,
        "The parameters are invalid, or name a tool, prompt, task or `requestState` that is unknown or hidden; from 2026-07-28 also a resource.",
        "200; 400 for `_meta`; 403 for a tool called by its name",
        "see the message and `data.reason`";
    INTERNAL_ERROR = -32603,
        "The receiver failed, or rejected the request.",
        "200, 429, 503",
        "see `data.reason`";
    RESOURCE_NOT_FOUND = -32002,
        "The resource does not exist (before 2026-07-28).",
        "200",
        "list the resources";
    HEADER_MISMATCH = -32020,
        "A header differs from the body (from 2026-07-28).",
        "400",
        "send each of `MCP-Protocol-Version`, `Mcp-Method`, `Mcp-Name` and `Mcp-Param-*` once, equal to the body";
    MISSING_CAPABILITY = -32021,
        "The request requires a capability that the client did not declare (from 2026-07-28).",
        "400",
        "declare `data.requiredCapabilities`, if the client has them";
    UNSUPPORTED_VERSION = -32022,
        "The receiver does not support the version of the request.",
        "400",
        "use one of `data.supported`";
    URL_ELICITATION_REQUIRED = -32042,
        "The user must visit a page first (2025-11-25).",
        "200",
        "open the page in `data`, then repeat the call";
}
