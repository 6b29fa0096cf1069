//! `type: query`: questions about this platform itself, answered by an interface in this program.
//!
//! ```text
//!   interface: catalog   the databases of the configured sources, their tables and columns
//!   interface: node      health, version and load of this process
//!   interface: memory    the caller's remembered conversations
//!   interface: metrics   figures of the process and of the tools it ran
//!   interface: results   the caller's results that were too large for an answer
//!   interface: tools     the tools of the catalogue in force
//! ```
//!
//! A new interface is a file here and a line in [`INTERFACES`]; a new question to one is YAML.

mod catalog;
mod memory;
mod metrics;
mod node;
mod results;
mod tools;

use std::fmt;
use std::sync::Arc;

use super::{Executor, ExecutorError, Invocation, Kind, Output, Plan, Sources};
use crate::Error;
use crate::catalogue::{Fields, Scope, Shape};
use futures::future::BoxFuture;

pub(super) const KIND: Kind = Kind {
    name: "query",
    read,
};

/// Every interface by its name, with what makes one.
const INTERFACES: [(&str, &dyn Interface); 6] = [
    ("catalog", &catalog::Catalog),
    ("memory", &memory::Memory),
    ("metrics", &metrics::Metrics),
    ("node", &node::Node),
    ("results", &results::Results),
    ("tools", &tools::Tools),
];

/// Answers questions by name.
trait Interface: Send + Sync {
    /// The questions, each with the arguments it must have.
    fn questions(&self) -> &'static [(&'static str, &'static [&'static str])];

    /// It answers from results that were too large for an answer.
    fn reads_kept_results(&self) -> bool {
        false
    }

    /// It asks a service that verifies the caller's token itself.
    fn needs_caller_token(&self) -> bool {
        false
    }

    /// Whether it could answer, with what this process was given.
    fn check(&self, _: &Sources) -> Result<(), Error> {
        Ok(())
    }

    /// The answer to one of [`Self::questions`].
    fn answer<'a>(
        &'a self,
        question: &'a str,
        call: &'a Invocation<'a>,
        sources: &'a Sources,
        out: &'a mut Output<'_>,
    ) -> BoxFuture<'a, Result<(), ExecutorError>>;
}

#[derive(Clone)]
struct QueryPlan {
    interface: &'static dyn Interface,
    question: &'static str,
}

impl fmt::Debug for QueryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QueryPlan").field(&self.question).finish()
    }
}

fn read(fields: &mut Fields<'_>, scope: &mut Scope<'_, '_>) -> Option<Box<dyn Plan>> {
    let known = INTERFACES.map(|(name, _)| name).join(", ");
    let fix = format!("name one of {known}");
    let interface = fields.required("interface", &fix, scope.faults);
    let question = fields.required("query_type", "say what to ask it", scope.faults);
    let node = interface?;
    let name = scope.faults.text(node, "interface")?;
    let Some((_, interface)) = INTERFACES.iter().find(|(known, _)| *known == name) else {
        scope
            .faults
            .add(node.at, format!("there is no interface `{name}`"), fix);
        return None;
    };
    let node = question?;
    let asked = scope.faults.text(node, "query_type")?;
    let questions = interface.questions();
    let Some((question, needed)) = questions.iter().find(|(known, _)| *known == asked) else {
        let known: Vec<_> = questions.iter().map(|(known, _)| *known).collect();
        scope.faults.add(
            node.at,
            format!("the interface `{name}` does not know `{asked}`"),
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
                format!("`{asked}` needs an argument `{needed}`"),
                "add it to `input_schema`, or to `derive`",
            );
        }
    }
    Some(Box::new(QueryPlan {
        interface: *interface,
        question,
    }))
}

impl Plan for QueryPlan {
    fn shape(&self) -> Shape {
        Shape::Value
    }

    fn reads_kept_results(&self) -> bool {
        self.interface.reads_kept_results()
    }

    fn needs_caller_token(&self) -> bool {
        self.interface.needs_caller_token()
    }

    fn open(&self, sources: &Sources) -> Result<Arc<dyn Executor>, Error> {
        self.interface.check(sources)?;
        Ok(Arc::new(QueryExecutor {
            plan: self.clone(),
            sources: sources.clone(),
        }))
    }
}

struct QueryExecutor {
    plan: QueryPlan,
    sources: Sources,
}

impl Executor for QueryExecutor {
    fn run<'a>(
        &'a self,
        call: &'a Invocation<'a>,
        out: &'a mut Output<'_>,
    ) -> BoxFuture<'a, Result<(), ExecutorError>> {
        let QueryPlan {
            interface,
            question,
        } = self.plan;
        interface.answer(question, call, &self.sources, out)
    }
}

/// A question that is in the list but has no answer is a fault of the interface.
fn unanswered(question: &str) -> ExecutorError {
    ExecutorError::BadResult(format!("the question {question} has no answer"))
}
