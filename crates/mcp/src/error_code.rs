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
        "The message is not JSON, or JSON that parsers read differently.",
        "400",
        "send valid JSON without repeated keys";
    INVALID_REQUEST = -32600,
        "The message is no JSON-RPC request, or it was refused before it was read (see `data.reason`).",
        "400, or the status of the refusal",
        "see the message";
    METHOD_NOT_FOUND = -32601,
        "There is no such method in this version, or nothing on this path that it is for.",
        "404 from 2026-07-28, else 200",
        "list what there is; check the version";
    INVALID_PARAMS = -32602,
        "The parameters do not fit the method, or name a tool, prompt, task or `requestState` that is unknown or hidden; from 2026-07-28 a resource too.",
        "200; 400 for `_meta`; 403 for a tool called by its name",
        "see the message and `data.reason`";
    INTERNAL_ERROR = -32603,
        "The receiver failed, or turned the request away.",
        "200, 429, 503",
        "see `data.reason`";
    RESOURCE_NOT_FOUND = -32002,
        "There is no such resource (before 2026-07-28).",
        "200",
        "list the resources";
    HEADER_MISMATCH = -32020,
        "A header does not repeat what the body says (from 2026-07-28).",
        "400",
        "send each of `MCP-Protocol-Version`, `Mcp-Method`, `Mcp-Name` and `Mcp-Param-*` once, equal to the body";
    MISSING_CAPABILITY = -32021,
        "The request needs a capability that its client did not declare (from 2026-07-28).",
        "400",
        "declare `data.requiredCapabilities`, where the client has it";
    UNSUPPORTED_VERSION = -32022,
        "The receiver does not speak the version of the request.",
        "400",
        "use one of `data.supported`";
    URL_ELICITATION_REQUIRED = -32042,
        "A person has to visit a page first (2025-11-25).",
        "200",
        "open the page that `data` names, then call again";
}
