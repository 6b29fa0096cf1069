//! One look after a task: which call it is of, what is done, and what the client gets of it. How it is told, `story` says.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use serde_json::Value;
use tracing::Span;
use wardgate_domain::{CallFacts, CallId, Digest, Outcome, Status, ToolFacts};
use wardgate_rpc::client::{
    Besides, CallEvent, CallTool, Interaction, ResultFacts, Resumption, Task, TaskStep, ToolResult,
};
use wardgate_telemetry::names;

use super::held::Held;
use super::{Method, unknown};
use crate::authority::Grant;
use crate::call_tool::{self, ToolCall};
use crate::catalogue::{Index, Tool};
use crate::dialogue::{Audience, Questions};
use crate::mcp::Version;
use crate::measures;
use crate::reply::{Answer, RpcError, call_meta, task_result_members, write_dropped};
use crate::story::{Asker, End, Given, Packed, Ran, Stop, Story, Target, Work};
use crate::trail::Recorded;
use crate::view::View;

/// How records say that there is no such task.
pub(super) const UNKNOWN: &str = "unknown_task";

/// How the tool-runner says so.
const NOT_WAITING: &str = "not_waiting";

/// One look, read but undecided.
#[derive(Clone)]
pub(super) struct Look {
    pub(super) method: Method,
    pub(super) held: Held,
    /// Of the call that became the task.
    pub(super) arguments: Bytes,
    /// What the client answered; empty where it was not asked.
    pub(super) responses: Bytes,
    pub(super) protocol: &'static str,
}

/// What came of it: members of the result, or why there is none, in words.
pub(super) struct Looked {
    given: Result<String, String>,
    facts: ResultFacts,
}

impl Given for Looked {
    fn facts(&self) -> &ResultFacts {
        &self.facts
    }

    fn digest(&self) -> Option<Digest> {
        let given = self.given.as_ref().ok()?;
        Some(Digest::of(given.as_bytes()))
    }
}

impl Work for Look {
    type Target = <ToolCall as Work>::Target;
    type Given = Looked;

    const UNKNOWN: &'static str = UNKNOWN;

    fn method(&self) -> &'static str {
        self.method.as_str()
    }

    fn arrives(&self, call_id: CallId, asker: &Asker) -> (CallFacts, Span) {
        let method = self.method.as_str();
        let span = tracing::info_span!(
            "tasks",
            method,
            { names::CALL_ID } = %call_id,
            { names::CALLER } = asker.caller.subject(),
            { names::TOOL } = tracing::field::Empty,
        );
        let (caller, ip) = (&asker.caller, asker.client_ip.clone());
        let (tool, arguments) = (&self.held.tool, &self.arguments);
        let facts = CallFacts::arriving(call_id, caller, ip, self.protocol, tool, arguments);
        (facts.by_method(method), span)
    }

    fn find(&self, catalogue: &Index, view: &View) -> Option<Self::Target> {
        view.tool(catalogue, &self.held.tool).cloned()
    }

    fn arguments(&self, _tool: &Self::Target) -> Bytes {
        self.arguments.clone()
    }

    fn may_write(&self, facts: &ToolFacts) -> bool {
        self.method.0 != TaskStep::Get && !facts.read_only
    }

    /// It asks by its result, and takes answers as what they are.
    fn matter(&self) -> Option<(&'static str, &str, &[u8])> {
        None
    }

    async fn run(
        story: &mut Story<Self>,
        tool: &Self::Target,
        grant: &Grant,
        _resumption: Option<Resumption>,
    ) -> Result<End<Looked>, Ran> {
        let (look, gateway) = (&story.work, &story.gateway);
        let capabilities = story.dialogue.capabilities();
        let looked = gateway.runner().call_tool(CallTool {
            call_id: story.facts.call_id,
            caller: &story.asker.caller,
            tool: &tool.facts.name,
            arguments: look.arguments.clone(),
            permit: &grant.permit,
            idempotency_key: None,
            interaction: Interaction {
                capabilities: capabilities.as_deref(),
                log_level: None,
                resumption: Some(Resumption {
                    state: look.held.state(),
                    responses: look.responses.clone(),
                    task_step: Some(look.method.0),
                }),
                besides: Besides {
                    unasked: Bytes::new(),
                    ..story.dialogue.besides()
                },
                is_legacy: story.dialogue.is_legacy(),
            },
            caller_token: story.asker.caller.token_for_source(tool.needs_caller_token),
            limit: tool.time_limit + Duration::from_secs(1),
        });
        let events = story.dialogue.unless_cancelled(Box::pin(looked)).await?;
        let refused = |error| call_tool::refused(&story.gateway, &error, tool);
        let mut events = pin!(events.map_err(refused)?);
        while let Some(event) = story.dialogue.unless_cancelled(events.next()).await? {
            match event.map_err(refused)? {
                CallEvent::Task(task) => return Ok(End::Given(told(story, tool, *task)?)),
                CallEvent::Result(result) => return failed(&result).map(End::Given),
                CallEvent::InputRequired(waits) => {
                    let words = "The source acts in your name, and you have not allowed that. Call the tool again.";
                    let facts = ResultFacts {
                        status: Status::Error,
                        error_kind: "not_connected".to_owned(),
                        ..waits.facts
                    };
                    return Ok(End::Given(Looked {
                        given: Err(words.to_owned()),
                        facts,
                    }));
                }
                // A task says nothing but how it stands.
                CallEvent::Progress(_) | CallEvent::Log(_) | CallEvent::Completed(_) => {}
            }
        }
        Err(call_tool::lost(tool).into())
    }

    fn pack(&self) -> Option<Packed> {
        None
    }

    fn report(&self, outcome: &Outcome, is_hidden: bool) {
        measures::ended(outcome, is_hidden);
        tracing::info!(
            status = outcome.status.as_str(),
            reason = outcome.reason,
            "look after a task ended"
        );
    }

    fn release(story: &Story<Self>, recorded: Recorded, looked: &Looked) -> Answer {
        let Asker { id, version, .. } = &story.asker;
        let call_id = story.facts.call_id;
        match &looked.given {
            Ok(members) => {
                let mut meta = call_meta(call_id, recorded);
                write_dropped(&mut meta, looked.facts.dropped_columns);
                Answer::result_with_meta(id, *version, members, &meta)
            }
            Err(words) => {
                let error = RpcError::internal("task_failed", words);
                Answer::error(Some(id), &error.of_call(call_id, recorded.receipt()))
            }
        }
    }

    fn not_there(&self, _version: Version) -> RpcError {
        unknown()
    }
}

/// How the task stands, as the client may have it.
fn told(story: &Story<Look>, tool: &Arc<Tool>, task: Task) -> Result<Looked, Stop> {
    let Asker { version, view, .. } = &story.asker;
    if task.about.is_empty() {
        return Ok(Looked {
            given: Ok(String::new()),
            facts: task.facts,
        });
    }
    let mut members = story.work.held.members(&task.about);
    if !task.requests.is_empty() {
        let capabilities = story.dialogue.capabilities();
        let audience = Audience {
            version: *version,
            capabilities: capabilities.as_deref(),
            label: Some(tool.label()).filter(|_| !view.has_own_names()),
            ambient: story.gateway.ambient(),
        };
        let questions = Questions::read(&task.requests, audience)?;
        members += r#","inputRequests":"#;
        members += questions.as_json();
    }
    if let Some(mut result) = task.result {
        result.content = view.content(result.content);
        members += r#","result":{"#;
        members += &task_result_members(*version, &result);
        members.push('}');
    }
    if !task.error.is_empty() {
        members += r#","error":"#;
        members += &task.error;
    }
    Ok(Looked {
        given: Ok(members),
        facts: task.facts,
    })
}

/// Nobody could say how it stands.
fn failed(result: &ToolResult) -> Result<Looked, Ran> {
    if result.facts.error_kind == NOT_WAITING {
        return Err(Stop::Unknown.into());
    }
    let content: Vec<Value> = serde_json::from_slice(&result.content).unwrap_or_default();
    let words = content.first().and_then(|block| block["text"].as_str());
    Ok(Looked {
        given: Err(words
            .unwrap_or("The task cannot be looked after.")
            .to_owned()),
        facts: result.facts.clone(),
    })
}
