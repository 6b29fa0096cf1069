//! `interface: node`: the health, version and load of this process.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{Interface, not_implemented_error};
use crate::executor::{Invocation, Output, Sources};
use crate::executor_error::ExecutorError;
use wardgate_resilience::{BreakerState, SourceGuard};

/// The interface to the health, version and load of this process.
pub(super) struct Node;

impl Interface for Node {
    fn answer<'a>(
        &'a self,
        question: &'a str,
        _: &'a Invocation<'a>,
        sources: &'a Sources,
        out: &'a mut Output<'_>,
    ) -> BoxFuture<'a, Result<(), ExecutorError>> {
        Box::pin(async move {
            let answer = async {
                let platform = sources.platform();
                match question {
                    "get_status" => Ok(json!({
                        "status": "running",
                        "version": env!("CARGO_PKG_VERSION"),
                        "uptime_seconds": platform.uptime().as_secs(),
                        "sources": sources.guards().map(source).collect::<Vec<_>>(),
                        "tools": platform.overview().tools.len(),
                    })),
                    "get_load" => {
                        let load = platform.load();
                        Ok(json!({
                            "calls_in_flight": load.in_flight,
                            "calls_total": load.total,
                            "calls_failed": load.failed,
                        }))
                    }
                    other => Err(not_implemented_error(other)),
                }
            };
            out.document(answer.await?).map(drop)
        })
    }
}

fn source((name, guard): (&str, &SourceGuard)) -> Value {
    let (state, since) = match guard.breaker_state() {
        BreakerState::Closed => ("up", None),
        BreakerState::Open { since } => ("down", Some(since)),
        BreakerState::HalfOpen { since } => ("probing", Some(since)),
    };
    let since = since.map(|since| since.to_string());
    json!({ "name": name, "state": state, "since": since })
}
