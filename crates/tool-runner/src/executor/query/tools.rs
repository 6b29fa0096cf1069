//! `interface: tools`: the tools of the catalogue in force. The policy decides who may call the tool; the answer is not
//! filtered by caller.

use futures::future::BoxFuture;
use serde_json::json;

use super::{Interface, not_implemented_error};
use crate::executor::{Invocation, Output, Sources};
use crate::executor_error::ExecutorError;

/// The interface to the catalogue in force.
pub(super) struct ToolsInterface;

impl Interface for ToolsInterface {
    fn answer<'a>(
        &'a self,
        question: &'a str,
        _: &'a Invocation<'a>,
        sources: &'a Sources,
        out: &'a mut Output<'_>,
    ) -> BoxFuture<'a, Result<(), ExecutorError>> {
        Box::pin(async move {
            let answer = async {
                let overview = sources.platform().overview();
                match question {
                "list_tools" => Ok(overview
                    .tools
                    .iter()
                    .map(|tool| {
                        json!({
                            "name": tool.facts.name.as_str(),
                            "read_only": tool.facts.read_only,
                            "tags": &*tool.facts.tags,
                            "source": tool.source,
                        })
                    })
                    .collect()),
                "list_toolsets" => Ok(overview
                    .toolsets
                    .iter()
                    .map(|toolset| {
                        let tools = overview.tools.iter();
                        let tools = tools.filter(|tool| toolset.holds(&tool.facts));
                        json!({
                            "name": toolset.name,
                            "description": toolset.description,
                            "tools": tools.map(|tool| tool.facts.name.as_str()).collect::<Vec<_>>(),
                        })
                    })
                    .collect()),
                other => Err(not_implemented_error(other)),
            }
            };
            out.document(answer.await?).map(drop)
        })
    }
}
