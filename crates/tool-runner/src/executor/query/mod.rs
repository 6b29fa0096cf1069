//! `type: query`: queries about this platform itself, which an interface in this program answers.
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
//! To add an interface, add a file here and a variant of [`QueryInterface`], which lists the questions.

mod catalog;
mod memory;
mod metrics;
mod node;
mod results;
mod tools;

use std::sync::Arc;

use futures::future::BoxFuture;
use wardgate_catalogue::plan::{QueryInterface, QueryPlan};

use super::{Executor, Invocation, Output, Sources};
use crate::Error;
use crate::executor_error::ExecutorError;

/// An interface, which answers a fixed list of questions.
trait Interface: Send + Sync {
    /// Checks that the interface can work with the services that this process has.
    fn check(&self, _: &Sources) -> Result<(), Error> {
        Ok(())
    }

    /// Answers one of [`QueryInterface::questions`].
    fn answer<'a>(
        &'a self,
        question: &'a str,
        call: &'a Invocation<'a>,
        sources: &'a Sources,
        out: &'a mut Output<'_>,
    ) -> BoxFuture<'a, Result<(), ExecutorError>>;
}

fn interface(of: QueryInterface) -> &'static dyn Interface {
    match of {
        QueryInterface::Catalog => &catalog::Catalog,
        QueryInterface::Memory => &memory::Memory,
        QueryInterface::Metrics => &metrics::Metrics,
        QueryInterface::Node => &node::Node,
        QueryInterface::Results => &results::Results,
        QueryInterface::Tools => &tools::ToolsInterface,
    }
}

pub(super) fn open(plan: QueryPlan, sources: &Sources) -> Result<Arc<dyn Executor>, Error> {
    let interface = interface(plan.interface);
    interface.check(sources)?;
    Ok(Arc::new(QueryExecutor {
        interface,
        question: plan.question,
        sources: sources.clone(),
    }))
}

struct QueryExecutor {
    interface: &'static dyn Interface,
    question: &'static str,
    sources: Sources,
}

impl Executor for QueryExecutor {
    fn run<'a>(
        &'a self,
        call: &'a Invocation<'a>,
        out: &'a mut Output<'_>,
    ) -> BoxFuture<'a, Result<(), ExecutorError>> {
        self.interface
            .answer(self.question, call, &self.sources, out)
    }
}

/// Returns the error for a question that is listed but not implemented, which is a fault of the interface.
fn not_implemented_error(question: &str) -> ExecutorError {
    ExecutorError::BadResult(format!("the query type {question} is not implemented"))
}
