//! Validated `execute` sections of tools, with one module for each type. A plan has no connections.
//!
//! A new type needs a module here with an entry in [`KINDS`], and an executor in the tool-runner.

mod arguments;
mod command;
mod grpc;
mod http;
mod jsonrpc;
mod mcp;
mod query;
mod sql;

use wardgate_egress::AuthSettings;

use crate::fault::FieldReader;
use crate::result_shape::Shape;
use crate::scope::Scope;
use crate::statement::Statement;

pub use arguments::SentArguments;
pub use command::{Argv, CommandPlan, OutputFormat};
pub use grpc::GrpcPlan;
pub use http::{BodyTemplate, HeaderTemplates, HttpPlan, PairTemplates, PathTemplate};
pub use jsonrpc::{JsonRpcDialect, JsonRpcPlan};
pub use mcp::{ApprovedTool, McpPlan, McpTarget};
pub use query::{QueryInterface, QueryPlan};
pub use sql::SqlPlan;

/// A validated `execute` section.
#[derive(Debug)]
pub enum Plan {
    /// Runs a program without a shell.
    Command(CommandPlan),
    /// Sends one message to a method of a gRPC server.
    Grpc(GrpcPlan),
    /// Sends one request to an HTTP service.
    Http(HttpPlan),
    /// Makes one call to a JSON-RPC service over HTTP.
    JsonRpc(JsonRpcPlan),
    /// Uses a tool, resource or prompt of an MCP server.
    Mcp(McpPlan),
    /// Queries Wardgate itself.
    Query(QueryPlan),
    /// Runs one statement on a database.
    Sql(SqlPlan),
}

/// A function that reads the fields of `execute` other than `type` and `derive`.
type PlanReader = fn(&mut FieldReader<'_>, &mut Scope<'_, '_>) -> Option<Plan>;

/// All values of `execute.type`, with their readers.
pub(crate) const KINDS: [(&str, PlanReader); 7] = [
    ("command", command::read_plan),
    ("grpc", grpc::read_plan),
    ("http", http::read_plan),
    ("jsonrpc", jsonrpc::read_plan),
    ("mcp", mcp::read_plan),
    ("query", query::read_plan),
    ("sql", sql::read_plan),
];

/// The source that a plan uses, and how callers are represented there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanSource {
    /// The name of the source.
    pub name: String,
    /// Whether the source exchanges the caller's token for another token.
    pub exchanges_token: bool,
    /// Whether the source is called with credentials that stand for the caller.
    pub stands_for_caller: bool,
}

impl PlanSource {
    fn new(name: &str, auth: Option<&AuthSettings>) -> Self {
        Self {
            name: name.to_owned(),
            exchanges_token: auth.is_some_and(AuthSettings::exchange_token),
            stands_for_caller: auth.is_some_and(AuthSettings::stand_for_caller),
        }
    }
}

impl Plan {
    /// Returns the source of the plan, or `None` if it has none.
    #[must_use]
    pub fn source(&self) -> Option<&PlanSource> {
        match self {
            Self::Command(_) | Self::Query(_) => None,
            Self::Grpc(plan) => Some(&plan.source),
            Self::Http(plan) => Some(&plan.source),
            Self::JsonRpc(plan) => Some(&plan.source),
            Self::Mcp(plan) => Some(&plan.source),
            Self::Sql(plan) => Some(&plan.source),
        }
    }

    /// Returns the MCP server's own name of the tool that the plan calls, or `None` if it calls no tool of an MCP server.
    #[must_use]
    pub fn upstream_tool(&self) -> Option<&str> {
        match self {
            Self::Mcp(McpPlan {
                target: McpTarget::Tool { name, .. },
                ..
            }) => Some(name),
            _ => None,
        }
    }

    /// Returns the statement to which a row rule can be pushed down, or `None` if there is none.
    #[must_use]
    pub fn statement(&self) -> Option<&Statement> {
        match self {
            Self::Sql(plan) => Some(&plan.statement),
            _ => None,
        }
    }

    /// Returns whether a returned row may depend on several rows of the source, or on how many there are, so that a row rule
    /// which is applied to the returned rows comes too late.
    #[must_use]
    pub fn combines_rows(&self) -> bool {
        self.statement().is_some_and(Statement::combines_rows)
    }

    /// Returns the columns of the rows, or `None` if they are unknown before the plan runs.
    #[must_use]
    pub fn columns(&self) -> Option<Vec<String>> {
        match self {
            Self::Command(plan) => plan.format.column().map(|column| vec![column.to_owned()]),
            _ => self.statement()?.columns().map(<[String]>::to_vec),
        }
    }

    /// Returns the default shape of results.
    #[must_use]
    pub fn shape(&self) -> Shape {
        match self {
            Self::Mcp(_) => Shape::Content,
            Self::Query(_) => Shape::Value,
            _ => Shape::Rows,
        }
    }

    /// Returns whether the plan reads results that were too large for a response. If any plan does, such results are worth
    /// keeping.
    #[must_use]
    pub fn reads_kept_results(&self) -> bool {
        matches!(self, Self::Query(plan) if plan.interface == QueryInterface::Results)
    }

    /// Returns whether the caller's token is passed on.
    #[must_use]
    pub fn needs_caller_token(&self) -> bool {
        match self {
            Self::Query(plan) => plan.interface.needs_caller_token(),
            _ => self.source().is_some_and(|it| it.exchanges_token),
        }
    }

    /// Returns whether the plan runs with credentials that stand for the caller.
    #[must_use]
    pub fn stands_for_caller(&self) -> bool {
        self.needs_caller_token() || self.source().is_some_and(|it| it.stands_for_caller)
    }

    /// Returns whether the source may send requests to the client while the plan runs.
    #[must_use]
    pub fn may_request_input(&self) -> bool {
        matches!(self, Self::Mcp(_))
    }
}
