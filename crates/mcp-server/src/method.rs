//! The JSON-RPC methods that the gateway answers.

use wardgate_mcp::Version;

/// A JSON-RPC method.
#[derive(Debug)]
pub struct McpMethod {
    /// The name of the method as in requests.
    pub name: &'static str,
    /// The versions that define the method.
    pub versions: MethodVersions,
    /// Whether requests of this method count against the concurrency limit. The other methods are cheap or only listen.
    pub needs_slot: bool,
    /// The paths on which the method is available, as Markdown for the reference.
    pub paths: &'static str,
}

/// The versions of MCP that have a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MethodVersions {
    /// All versions.
    All,
    /// Versions before 2026-07-28.
    Legacy,
    /// Version 2026-07-28 and later.
    Modern,
}

impl MethodVersions {
    /// Returns whether `version` is among these versions.
    pub fn include(self, version: Version) -> bool {
        match self {
            Self::All => true,
            Self::Legacy => !version.is_modern(),
            Self::Modern => version.is_modern(),
        }
    }

    /// Returns a description of these versions.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Legacy => "before 2026-07-28",
            Self::Modern => "2026-07-28",
        }
    }
}

/// Descriptions of the paths on which methods are available.
const EVERYWHERE: &str = "everywhere";
const WHERE_ANY: &str = "where the path has any; lists have pages of 100";
const WITH_SKILLS: &str = "where the path has [skills](../connect-an-mcp-server.md#skills)";
const ON_MCP: &str = "`/mcp`, toolsets, routes";
const WITH_STREAM: &str = "not on `/message`";
const OFF_ROUTES: &str = "not on routes; see [Conversations](../conversations.md)";
const FOR_APPROVERS: &str = "everywhere; see [Approvals](../write-a-policy.md#approvals)";
const FOR_OPERATORS: &str =
    "everywhere, for whom the policy lets revoke access; see [Operate](../operate.md)";

/// Every method.
pub const METHODS: &[McpMethod] = &[
    light("initialize", MethodVersions::Legacy, EVERYWHERE),
    light("ping", MethodVersions::Legacy, EVERYWHERE),
    work("server/discover", MethodVersions::Modern, EVERYWHERE),
    work("tools/list", MethodVersions::All, EVERYWHERE),
    work("tools/call", MethodVersions::All, EVERYWHERE),
    work("prompts/list", MethodVersions::All, WHERE_ANY),
    work("prompts/get", MethodVersions::All, WHERE_ANY),
    work("resources/list", MethodVersions::All, WHERE_ANY),
    work("resources/templates/list", MethodVersions::All, WHERE_ANY),
    work("resources/read", MethodVersions::All, WHERE_ANY),
    work("completion/complete", MethodVersions::All, WHERE_ANY),
    work("skills/list", MethodVersions::Modern, WITH_SKILLS),
    work("skills/get", MethodVersions::Modern, WITH_SKILLS),
    work(
        "resources/directory/read",
        MethodVersions::Modern,
        WITH_SKILLS,
    ),
    light("subscriptions/listen", MethodVersions::Modern, ON_MCP),
    light("resources/subscribe", MethodVersions::Legacy, WITH_STREAM),
    light("resources/unsubscribe", MethodVersions::Legacy, WITH_STREAM),
    light("logging/setLevel", MethodVersions::Legacy, WITH_STREAM),
    work("tasks/get", MethodVersions::Modern, EVERYWHERE),
    work("tasks/update", MethodVersions::Modern, EVERYWHERE),
    work("tasks/cancel", MethodVersions::Modern, EVERYWHERE),
    work("memory/get_or_create", MethodVersions::All, OFF_ROUTES),
    work("memory/get_context", MethodVersions::All, OFF_ROUTES),
    work("memory/add_message", MethodVersions::All, OFF_ROUTES),
    work("memory/get_turn", MethodVersions::All, OFF_ROUTES),
    work("memory/search", MethodVersions::All, OFF_ROUTES),
    work("memory/clear", MethodVersions::All, OFF_ROUTES),
    work("memory/delete", MethodVersions::All, OFF_ROUTES),
    work("approvals/list", MethodVersions::All, FOR_APPROVERS),
    work("approvals/get", MethodVersions::All, FOR_APPROVERS),
    work("approvals/approve", MethodVersions::All, FOR_APPROVERS),
    work("approvals/refuse", MethodVersions::All, FOR_APPROVERS),
    work("revocations/list", MethodVersions::All, FOR_OPERATORS),
    work("revocations/add", MethodVersions::All, FOR_OPERATORS),
    work("revocations/remove", MethodVersions::All, FOR_OPERATORS),
    work(
        "limits/list",
        MethodVersions::All,
        "everywhere; see [Operate](../operate.md)",
    ),
];

/// Creates a method whose requests count against the concurrency limit.
const fn work(name: &'static str, versions: MethodVersions, paths: &'static str) -> McpMethod {
    McpMethod {
        name,
        versions,
        needs_slot: true,
        paths,
    }
}

/// Creates a method whose requests do not count against the concurrency limit.
const fn light(name: &'static str, versions: MethodVersions, paths: &'static str) -> McpMethod {
    McpMethod {
        needs_slot: false,
        ..work(name, versions, paths)
    }
}

/// Returns the method called `name`.
pub fn find_method(name: &str) -> Option<&'static McpMethod> {
    METHODS.iter().find(|method| method.name == name)
}
