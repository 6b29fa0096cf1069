//! `type: query`: a query about Wardgate itself, answered by an interface of the tool-runner.

use super::Plan;
use crate::fault::FieldReader;
use crate::scope::Scope;

/// A query to an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryPlan {
    /// The interface that answers the query.
    pub interface: QueryInterface,
    /// The name of the query, one of [`QueryInterface::questions`].
    pub question: &'static str,
}

/// An interface that answers queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryInterface {
    /// The databases of the configured sources, their tables and columns.
    Catalog,
    /// The caller's remembered conversations.
    Memory,
    /// Metrics of the process and of the tools that it ran.
    Metrics,
    /// Health, version and load of the process.
    Node,
    /// The caller's results that were too large for a response.
    Results,
    /// The tools of the current catalogue.
    Tools,
}

/// All interfaces, by name.
const INTERFACES: [(&str, QueryInterface); 6] = [
    ("catalog", QueryInterface::Catalog),
    ("memory", QueryInterface::Memory),
    ("metrics", QueryInterface::Metrics),
    ("node", QueryInterface::Node),
    ("results", QueryInterface::Results),
    ("tools", QueryInterface::Tools),
];

impl QueryInterface {
    /// Returns the queries of the interface, each with its required arguments.
    #[must_use]
    pub fn questions(self) -> &'static [(&'static str, &'static [&'static str])] {
        match self {
            Self::Catalog => &[
                ("get_all_databases", &[]),
                ("get_tables", &["database"]),
                ("get_columns", &["database", "table"]),
            ],
            Self::Memory => &[
                ("search", &["query"]),
                ("get_context", &["conversation_id"]),
                ("list_conversations", &[]),
                ("add_message", &["conversation_id", "content"]),
            ],
            Self::Metrics => &[("get_system_metrics", &[]), ("get_tool_metrics", &[])],
            Self::Node => &[("get_status", &[]), ("get_load", &[])],
            Self::Results => &[("read", &["handle"])],
            Self::Tools => &[("list_tools", &[]), ("list_toolsets", &[])],
        }
    }

    /// Returns whether the interface calls a service that verifies the caller's token itself.
    #[must_use]
    pub fn needs_caller_token(self) -> bool {
        self == Self::Memory
    }
}

pub(super) fn read_plan(fields: &mut FieldReader<'_>, scope: &mut Scope<'_, '_>) -> Option<Plan> {
    let known = INTERFACES.map(|(name, _)| name).join(", ");
    let fix = format!("use one of {known}");
    let interface = fields.take_required("interface", &fix, scope.faults);
    let question = fields.take_required("query_type", "specify the query", scope.faults);
    let node = interface?;
    let name = scope.faults.text(node, "interface")?;
    let Some((_, interface)) = INTERFACES.into_iter().find(|(known, _)| *known == name) else {
        scope.faults.add(
            node.at,
            format!("the interface `{name}` does not exist"),
            fix,
        );
        return None;
    };
    let node = question?;
    let asked = scope.faults.text(node, "query_type")?;
    let questions = interface.questions();
    let Some((question, needed)) = questions.iter().find(|(known, _)| *known == asked) else {
        let known: Vec<_> = questions.iter().map(|(known, _)| *known).collect();
        scope.faults.add(
            node.at,
            format!("the interface `{name}` does not support `{asked}`"),
            format!("use one of {}", known.join(", ")),
        );
        return None;
    };
    for needed in *needed {
        let is_there = scope.derive.get(needed).is_some()
            || scope
                .input
                .is_none_or(|input| input.property(needed).is_some());
        if !is_there {
            scope.faults.add(
                node.at,
                format!("`{asked}` requires an argument `{needed}`"),
                "add it to `input_schema`, or to `derive`",
            );
        }
    }
    Some(Plan::Query(QueryPlan {
        interface,
        question,
    }))
}
