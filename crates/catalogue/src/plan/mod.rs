//! `execute`, checked: what a tool does, connected to nothing. One module a type.
//!
//! A new type is a module here with its line in [`KINDS`], and an executor of the tool-runner.

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
pub use mcp::{McpPlan, McpTarget};
pub use query::{QueryInterface, QueryPlan};
pub use sql::SqlPlan;

/// A checked `execute`.
#[derive(Debug)]
pub enum Plan {
    /// A program, run without a shell.
    Command(CommandPlan),
    /// One message to a method of a gRPC server.
    Grpc(GrpcPlan),
    /// One request to an HTTP service.
    Http(HttpPlan),
    /// One call to a JSON-RPC service by HTTP.
    JsonRpc(JsonRpcPlan),
    /// A tool, resource or prompt of an MCP server.
    Mcp(McpPlan),
    /// A question about Wardgate itself.
    Query(QueryPlan),
    /// One statement on a database.
    Sql(SqlPlan),
}

/// Reads what stands in `execute` besides `type` and `derive`.
type PlanReader = fn(&mut FieldReader<'_>, &mut Scope<'_, '_>) -> Option<Plan>;

/// Every word for `execute.type`.
pub(crate) const KINDS: [(&str, PlanReader); 7] = [
    ("command", command::read),
    ("grpc", grpc::read),
    ("http", http::read),
    ("jsonrpc", jsonrpc::read),
    ("mcp", mcp::read),
    ("query", query::read),
    ("sql", sql::read),
];

/// The source that a plan works on, and how it is asked on behalf of callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanSource {
    /// Its name.
    pub name: String,
    /// It exchanges the caller's token for one of its own.
    pub exchanges_token: bool,
    /// It is called with credentials that stand for the caller.
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
    /// The source it works on, where it has one.
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

    /// Where a row rule can be pushed down to.
    #[must_use]
    pub fn statement(&self) -> Option<&Statement> {
        match self {
            Self::Sql(plan) => Some(&plan.statement),
            _ => None,
        }
    }

    /// The columns of its rows, as far as they are known before it runs.
    #[must_use]
    pub fn columns(&self) -> Option<Vec<String>> {
        match self {
            Self::Command(plan) => plan.format.column().map(|column| vec![column.to_owned()]),
            _ => self.statement()?.columns().map(<[String]>::to_vec),
        }
    }

    /// How results are shown where the tool does not say.
    #[must_use]
    pub fn shape(&self) -> Shape {
        match self {
            Self::Mcp(_) => Shape::Content,
            Self::Query(_) => Shape::Value,
            _ => Shape::Rows,
        }
    }

    /// It reads results that were too large for an answer, so such results are worth keeping.
    #[must_use]
    pub fn reads_kept_results(&self) -> bool {
        matches!(self, Self::Query(plan) if plan.interface == QueryInterface::Results)
    }

    /// Whoever answers it is given the caller's own token.
    #[must_use]
    pub fn needs_caller_token(&self) -> bool {
        match self {
            Self::Query(plan) => plan.interface.needs_caller_token(),
            _ => self.source().is_some_and(|it| it.exchanges_token),
        }
    }

    /// Whoever answers it is called with credentials that stand for the caller.
    #[must_use]
    pub fn stands_for_caller(&self) -> bool {
        self.needs_caller_token() || self.source().is_some_and(|it| it.stands_for_caller)
    }

    /// Its source may talk to the client while it runs.
    #[must_use]
    pub fn talks(&self) -> bool {
        matches!(self, Self::Mcp(_))
    }
}
