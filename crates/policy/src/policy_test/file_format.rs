//! The format of a file of policy tests.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use wardgate_domain::ColumnTier;

use crate::history::CallCounts;

/// A file of policy tests.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestFile {
    /// The tools that the tests use in addition to those of the catalogue, by name.
    #[serde(default)]
    pub tools: BTreeMap<String, ToolSample>,
    /// The time zone of `context.local` and of times without an offset; `UTC` if missing.
    #[serde(default)]
    pub time_zone: Option<String>,
    /// The callers, by a name that only the tests use.
    pub callers: BTreeMap<String, CallerSample>,
    /// The tests.
    pub tests: Vec<PolicyTest>,
}

/// The facts about a tool that policies see.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolSample {
    /// The tags.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Whether the tool is declared with `readOnlyHint: true`.
    #[serde(default)]
    pub read_only: bool,
    /// The entity type of the rows.
    #[serde(default)]
    pub entity: Option<String>,
    /// The classes of the columns.
    #[serde(default)]
    pub classes: Vec<String>,
}

/// A caller, as described by a token.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallerSample {
    /// The subject.
    pub subject: String,
    /// The roles.
    #[serde(default)]
    pub roles: Vec<String>,
    /// The tenant; empty if there are no tenants.
    #[serde(default)]
    pub tenant: String,
    /// The attributes by the names in the schema: strings, integers, booleans, lists of strings.
    #[serde(default)]
    pub attributes: Map<String, Value>,
}

/// The action that a caller asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TestedAction {
    /// Calls a tool.
    #[default]
    CallTool,
    /// Connects to a source through its own route.
    Connect,
    /// Reads a resource of a source.
    ReadResource,
    /// Gets a prompt of a source.
    GetPrompt,
    /// Reads the records of everybody.
    ReadRecord,
    /// Reads the records of the caller.
    ReadOwnRecord,
    /// Manages the record.
    ManageRecord,
    /// Revokes tokens, subjects and sign-ins.
    RevokeAccess,
    /// Disables and enables tools, and deletes connections.
    ManageTools,
    /// Reads a conversation of somebody else.
    Recall,
}

/// One test, which is run for each combination of its callers and its tools or sources.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyTest {
    /// The name of the test: a sentence that states what it checks.
    pub name: String,
    /// The action that the callers ask for; `call_tool` if missing.
    #[serde(default)]
    pub action: TestedAction,
    /// The names of callers.
    pub callers: Vec<String>,
    /// The names of tools or of sources, depending on the action.
    #[serde(default)]
    pub tools: Vec<String>,
    /// The owner of the conversation that is recalled: the name of a caller.
    #[serde(default)]
    pub owner: Option<String>,
    /// The arguments of the call.
    #[serde(default)]
    pub arguments: Map<String, Value>,
    /// The address of the client; unknown if missing.
    #[serde(default)]
    pub client_ip: String,
    /// The time of the decision, as `2026-01-07T12:00` in the time zone of the file or in RFC 3339 format. If missing,
    /// it is noon on a Wednesday, the time of this example.
    #[serde(default)]
    pub time: Option<String>,
    /// The values of the counters of `entity History`, by name; 0 for a counter that is missing.
    #[serde(default)]
    pub history: CallCounts,
    /// The expected result.
    pub expect: Expectation,
}

/// The expected result of a test.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// The expected decision. If missing, the expectation is that `approval` is needed.
    #[serde(default)]
    pub decision: Option<ExpectedAccess>,
    /// The approver whose approval must be sufficient: a role, or `caller`.
    #[serde(default)]
    pub approval: Option<String>,
    /// The ids of all policies that determine the decision.
    #[serde(default)]
    pub decided_by: Option<Vec<String>>,
    /// The rows of the result, and whether each is released.
    #[serde(default)]
    pub rows: Vec<ExpectedRow>,
    /// The column classes, and the tier of each.
    #[serde(default)]
    pub columns: BTreeMap<String, ExpectedTier>,
}

/// The expected decision about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedAccess {
    /// The call may be made.
    Allowed,
    /// The call may be made once it is approved.
    NeedsApproval,
    /// The call may not be made, but it might be with other arguments, at another time or from another address.
    Refused,
    /// The caller does not see the tool.
    Hidden,
}

/// A row, and the expected decision about it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedRow {
    /// The columns of the row. A column that is missing is NULL.
    pub row: Map<String, Value>,
    /// Whether the row is expected to be released.
    pub decision: ExpectedRelease,
    /// The ids of all policies that determine the decision.
    #[serde(default)]
    pub decided_by: Option<Vec<String>>,
}

/// The expected decision about a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedRelease {
    /// The row is released.
    Released,
    /// The row is withheld.
    Withheld,
}

/// The expected tier of a column class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedTier {
    /// The value is released as stored.
    Clear,
    /// The value is shortened so that it can be recognised but not used.
    Partial,
    /// The value is replaced by a token.
    Pseudonym,
    /// The value is made less precise.
    Generalised,
    /// The value is left out.
    Dropped,
}

impl ExpectedTier {
    pub(super) fn tier(self) -> ColumnTier {
        match self {
            Self::Clear => ColumnTier::Clear,
            Self::Partial => ColumnTier::Partial,
            Self::Pseudonym => ColumnTier::Pseudonym,
            Self::Generalised => ColumnTier::Generalised,
            Self::Dropped => ColumnTier::Dropped,
        }
    }
}
