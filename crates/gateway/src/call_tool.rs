//! One `tools/call`: which tool it is of, how it runs, and what the client gets of it. How it is told, `story` says.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use bytes::Bytes;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use tracing::Span;
use wardgate_domain::{
    AgentRefusal, CallFacts, CallId, Caller, Digest, Outcome, RequiredCapabilities, Status,
    ToolFacts,
};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::{
    CallError, CallEvent, CallTool, DroppedColumns, InputRequired, Interaction, ResultFacts,
    Resumption, ToolResult,
};
use wardgate_telemetry::names;

use crate::Gateway;
use crate::authority::Grant;
use crate::catalogue::{Index, Tool};
use crate::connect::{self, Asked};
use crate::dialogue::Dialogue;
use crate::mcp::{Version, check_repeated};
use crate::measures;
use crate::reply::{Answer, Dialect, RpcError};
use crate::story::{Asker, End, Given, Packed, Ran, Stop, Story, Target, Work};
use crate::tasks::{self, Begun};
use crate::trail::Recorded;
use crate::view::View;

/// One call, read but undecided.
#[derive(Debug)]
pub(crate) struct ToolCall {
    /// The version, or the name of the plain endpoint, for the record.
    pub(crate) protocol: &'static str,
    pub(crate) idempotency_key: Option<String>,
    /// Why the agent that sends it does not make it. Such a call is put on record and never runs.
    pub(crate) agent_refusal: Option<AgentRefusal>,
    /// The headers that repeat arguments; none where there are no such.
    pub(crate) repeated: Option<HeaderMap>,
    /// The name the client asked for.
    pub(crate) name: String,
    /// The arguments, byte for byte as they came.
    pub(crate) arguments: Bytes,
    /// How the client wants the result.
    pub(crate) dialect: Dialect,
}

/// A call, so written that any gateway can read it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PackedCall {
    name: String,
    arguments: String,
    idempotency_key: Option<String>,
}

impl PackedCall {
    /// The call.
    pub(crate) fn unpack(self, version: Version) -> ToolCall {
        ToolCall {
            protocol: version.as_str(),
            idempotency_key: self.idempotency_key,
            // A call that waits for its client was to run.
            agent_refusal: None,
            repeated: None,
            name: self.name,
            arguments: self.arguments.into(),
            dialect: Dialect::Mcp,
        }
    }
}

impl Target for Arc<Tool> {
    fn facts(&self) -> &ToolFacts {
        &self.facts
    }

    fn is_on(&self, caller: &Caller) -> bool {
        self.switches.allow(caller)
    }

    fn label(&self) -> &str {
        let mut tags = self.facts.tags.iter();
        let upstream = tags.find_map(|tag| tag.strip_prefix("upstream:"));
        upstream.unwrap_or(self.facts.name.as_str())
    }
}

/// What a call comes to.
pub(crate) enum Called {
    Result(Box<ToolResult>),
    /// It goes on as a task.
    Task(Begun),
}

impl Given for Called {
    fn facts(&self) -> &ResultFacts {
        match self {
            Self::Result(result) => &result.facts,
            Self::Task(begun) => &begun.facts,
        }
    }

    fn digest(&self) -> Option<Digest> {
        Some(match self {
            Self::Result(result) => {
                let parts = [&result.content, &result.structured_content, &result.error];
                Digest::of_parts(parts.map(AsRef::as_ref))
            }
            Self::Task(begun) => begun.digest(),
        })
    }
}

impl Work for ToolCall {
    type Target = Arc<Tool>;
    type Given = Called;

    const UNKNOWN: &'static str = "unknown_tool";

    fn method(&self) -> &'static str {
        "tools/call"
    }

    fn arrives(&self, call_id: CallId, asker: &Asker) -> (CallFacts, Span) {
        let span = tracing::info_span!(
            "tools/call",
            { names::CALL_ID } = %call_id,
            { names::CALLER } = asker.caller.subject(),
            { names::TOOL } = tracing::field::Empty,
        );
        let (ip, name, arguments) = (asker.client_ip.clone(), &self.name, &self.arguments);
        let facts = CallFacts::arriving(call_id, &asker.caller, ip, self.protocol, name, arguments);
        (facts, span)
    }

    fn agent_refusal(&self) -> Option<AgentRefusal> {
        self.agent_refusal
    }

    fn find(&self, catalogue: &Index, view: &View) -> Option<Arc<Tool>> {
        view.tool(catalogue, &self.name).cloned()
    }

    fn check(&self, tool: &Arc<Tool>, client: &Dialogue) -> Result<(), Stop> {
        if !tool.is_for_client(client.capabilities().as_deref()) {
            return Err(if client.is_legacy() {
                Stop::NotForClient
            } else {
                Stop::Undeclared(tool.required_capabilities.to_json().into())
            });
        }
        let Some(headers) = &self.repeated else {
            return Ok(());
        };
        check_repeated(&tool.repeated, &self.arguments, headers).map_err(Stop::Misrepeated)
    }

    fn arguments(&self, _target: &Arc<Tool>) -> Bytes {
        self.arguments.clone()
    }

    fn matter(&self) -> Option<(&'static str, &str, &[u8])> {
        (self.dialect == Dialect::Mcp).then_some((self.method(), &self.name, &self.arguments))
    }

    async fn run(
        story: &mut Story<Self>,
        tool: &Arc<Tool>,
        grant: &Grant,
        resumption: Option<Resumption>,
    ) -> Result<End<Called>, Ran> {
        // Where it waited for its user alone, it begins anew.
        let resumption = match resumption {
            Some(Resumption {
                state, responses, ..
            }) if state.is_empty() => {
                if let Some(words) = connect::declined(&responses) {
                    return Ok(End::Given(not_connected(words)));
                }
                None
            }
            resumption => resumption,
        };
        let (call, gateway) = (&story.work, &story.gateway);
        let capabilities = story.dialogue.capabilities();
        let called = gateway.runner().call_tool(CallTool {
            call_id: story.facts.call_id,
            caller: &story.asker.caller,
            tool: &tool.facts.name,
            arguments: call.arguments.clone(),
            permit: &grant.permit,
            idempotency_key: call.idempotency_key.as_deref(),
            interaction: Interaction {
                capabilities: capabilities.as_deref(),
                log_level: story.dialogue.log_level(),
                resumption,
                besides: story.dialogue.besides(),
                is_legacy: story.dialogue.is_legacy(),
            },
            caller_token: story.asker.caller.token_for_source(tool.needs_caller_token),
            // The tool-runner ends the work at the limit itself; this catches one that does not answer.
            limit: tool.time_limit + Duration::from_secs(1),
        });
        let events = story.dialogue.unless_cancelled(Box::pin(called)).await?;
        let mut events = pin!(events.map_err(|error| refused(&story.gateway, &error, tool))?);
        while let Some(event) = story.dialogue.unless_cancelled(events.next()).await? {
            let event = event.map_err(|error| refused(&story.gateway, &error, tool))?;
            if let Some(notice) = story.dialogue.notice(&event) {
                story.say(&notice).await?;
            }
            match event {
                CallEvent::Result(mut result) => {
                    result.content = story.asker.view.content(result.content);
                    return Ok(End::Given(Called::Result(result)));
                }
                CallEvent::Task(task) => {
                    let begun = Begun::of(story, *task).await;
                    let begun = begun.ok_or_else(|| not_handed_out(tool))?;
                    return Ok(End::Given(Called::Task(begun)));
                }
                CallEvent::InputRequired(waits) => return Ok(asked(story, waits)),
                CallEvent::Progress(_) | CallEvent::Log(_) | CallEvent::Completed(_) => {}
            }
        }
        Err(lost(tool).into())
    }

    fn pack(&self) -> Option<Packed> {
        Some(Packed::Call(PackedCall {
            name: self.name.clone(),
            arguments: String::from_utf8(self.arguments.to_vec()).ok()?,
            idempotency_key: self.idempotency_key.clone(),
        }))
    }

    fn report(&self, outcome: &Outcome, is_hidden: bool) {
        measures::ended(outcome, is_hidden);
        tracing::info!(
            status = outcome.status.as_str(),
            reason = outcome.reason,
            rows = outcome.rows,
            rows_withheld = outcome.rows_withheld,
            "tool call ended"
        );
    }

    fn release(story: &Story<Self>, recorded: Recorded, called: &Called) -> Answer {
        let (id, call_id) = (&story.asker.id, story.facts.call_id);
        let result = match called {
            Called::Result(result) => result,
            Called::Task(begun) => return begun.release(story, recorded),
        };
        if result.facts.error_kind == RATE_LIMITED {
            let wait = result.facts.retry_after.unwrap_or_default();
            let error = RpcError::rate_limited(wait).of_call(call_id, recorded.receipt());
            return Answer::error(Some(id), &error);
        }
        let capabilities = story.dialogue.capabilities();
        let is_declared = |required: &str| {
            let required = RequiredCapabilities::read(required.as_bytes());
            required.is_some_and(|required| required.are_declared(capabilities.as_deref()))
        };
        if story.asker.version.is_modern()
            && let Some(required) = undeclared(&result.facts.error_kind)
            // For another reason they were not offered.
            && !is_declared(required)
        {
            let error = RpcError::missing_capability(required);
            return Answer::error(Some(id), &error.of_call(call_id, recorded.receipt()));
        }
        let version = story.asker.version;
        match story.work.dialect {
            Dialect::Mcp if !result.error.is_empty() => {
                Answer::protocol_error(id, version, call_id, recorded, &result.error)
            }
            Dialect::Direct => Answer::direct(id, call_id, recorded, result),
            Dialect::Mcp => Answer::released(id, version, call_id, recorded, result),
        }
    }

    fn stopped(story: &Story<Self>, recorded: Recorded, stop: &Stop) -> Option<Answer> {
        let Asker { id, version, .. } = &story.asker;
        let (version, call_id) = (*version, story.facts.call_id);
        match stop {
            _ if story.work.dialect == Dialect::Direct => None,
            Stop::Denied {
                reason,
                decision,
                visible: true,
            } => {
                let denial = (reason.as_str(), *decision);
                Some(Answer::denied(id, version, call_id, recorded, denial))
            }
            // Older versions have no error for it, and the model may know another way.
            Stop::Undeclared(_) | Stop::Unanswered(_) if !version.is_modern() => {
                let words = "The tool asks for input that it cannot get here.";
                Some(Answer::failed(id, version, call_id, recorded, words))
            }
            _ => None,
        }
    }

    fn not_there(&self, _version: Version) -> RpcError {
        match self.dialect {
            Dialect::Direct => RpcError::forbidden(&self.name),
            Dialect::Mcp => RpcError::unknown_tool(&self.name),
        }
    }
}

/// What waits for the client; what waits for its user has the question put here.
fn asked(story: &Story<ToolCall>, mut waits: Box<InputRequired>) -> End<Called> {
    let Some(connect) = &waits.connect else {
        return End::InputRequired(waits);
    };
    let capabilities = story.dialogue.capabilities();
    let caller = &story.asker.caller;
    match connect::ask(&story.gateway, caller, connect, capabilities.as_deref()) {
        Asked::Requests(requests) if story.work.matter().is_some() => {
            waits.requests = requests;
            End::InputRequired(waits)
        }
        Asked::Requests(_) => End::Given(not_connected(
            "The source acts in your name, and you have not allowed that yet.",
        )),
        Asked::Words(words) => End::Given(not_connected(&words)),
    }
}

/// Nothing ran for want of the user's word.
fn not_connected(words: &str) -> Called {
    let content = serde_json::json!([{ "type": "text", "text": words }]);
    Called::Result(Box::new(ToolResult {
        content: content.to_string().into(),
        structured_content: Bytes::new(),
        is_error: true,
        other_members: Bytes::new(),
        meta: Bytes::new(),
        error: Bytes::new(),
        facts: ResultFacts {
            status: Status::Error,
            error_kind: "not_connected".to_owned(),
            rows: 0,
            rows_withheld: 0,
            fields_redacted: 0,
            dropped_columns: DroppedColumns::default(),
            phi: false,
            retry_after: None,
            stages: Vec::new(),
        },
    }))
}

/// It became a task that its client cannot be given.
fn not_handed_out(tool: &Tool) -> Stop {
    if !tool.facts.read_only {
        return Stop::Lost;
    }
    Stop::Failed {
        kind: "store_unavailable",
        message: "The task that it became cannot be handed out now. Try again later.",
    }
}

pub(crate) fn refused(gateway: &Gateway, error: &CallError, tool: &Tool) -> Ran {
    match error.reason() {
        ErrorReason::PermitRefused => Ran::PermitRefused,
        ErrorReason::Overloaded => Stop::NotTaken(gateway.neighbour_is_overloaded()).into(),
        ErrorReason::DeadlineExceeded => Stop::Late(tool.time_limit).into(),
        ErrorReason::NotDurable => Stop::NotRecorded.into(),
        // Removed or switched off since the catalogue was listed.
        ErrorReason::UnknownTool => Stop::Unknown.into(),
        _ => {
            tracing::warn!(%error, "the tool-runner did not say how the call ended");
            lost(tool).into()
        }
    }
}

/// Of a call whose end is not known.
pub(crate) fn lost(tool: &Tool) -> Stop {
    // It may have been asked before it failed, and a write must not be repeated on a guess.
    if !tool.facts.read_only {
        return Stop::Lost;
    }
    Stop::Failed {
        kind: "tool_runner_unavailable",
        message: "The tool could not be run. Try again later.",
    }
}

/// What a server needs its client to declare, a JSON object, where the tool-runner says that this is why it refused.
fn undeclared(error_kind: &str) -> Option<&'static str> {
    match error_kind {
        "needs_sampling" => Some(r#"{"sampling":{}}"#),
        "needs_elicitation" => Some(r#"{"elicitation":{}}"#),
        "needs_roots" => Some(r#"{"roots":{}}"#),
        "needs_tasks" => Some(tasks::NEEDED),
        _ => None,
    }
}

/// How the tool-runner says that a caller used a tool too often.
pub(crate) const RATE_LIMITED: &str = "rate_limited";
