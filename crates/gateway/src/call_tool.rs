//! The story of one `tools/call`: authorize → intent → run → outcome → release.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use metrics::{counter, histogram};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use wardgate_domain::{
    CallFacts, CallId, Caller, DecisionId, DenialReason, Digest, Event, Outcome, Receipt, Status,
};
use wardgate_edge::CallerToken;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::{CallError, CallEvent, CallTool, Interaction, ToolResult};
use wardgate_telemetry::names;

use crate::Gateway;
use crate::authority::{Authorization, Grant};
use crate::catalogue::{self, Tool};
use crate::mcp::Version;
use crate::reply::{Answer, Dialect, RpcError};
use crate::stages::stage;
use crate::view::View;

/// One call, read but undecided.
#[derive(Debug)]
pub(crate) struct ToolCall {
    /// The JSON-RPC id, as written.
    pub(crate) id: Box<RawValue>,
    pub(crate) version: Version,
    /// The version, or the name of the plain endpoint, for the record.
    pub(crate) protocol: &'static str,
    pub(crate) caller: Arc<Caller>,
    pub(crate) token: CallerToken,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) client_ip: String,
    pub(crate) view: View,
    /// The name the client asked for.
    pub(crate) name: String,
    /// The arguments, byte for byte as they came.
    pub(crate) arguments: Bytes,
    /// How the client wants the result.
    pub(crate) dialect: Dialect,
    /// The client wants no result any more.
    pub(crate) cancel: CancellationToken,
}

/// Why a call gave no result.
#[derive(Debug)]
enum Stop {
    /// Nobody configured such a tool.
    UnknownTool,
    /// There is one, but it is switched off for the caller.
    Disabled,
    /// There is one, but the caller may not know.
    Hidden(DenialReason),
    /// The caller knows the tool; these arguments are refused.
    Denied(DenialReason, DecisionId),
    /// The policy service, the tool-runner or the record failed.
    Failed {
        kind: &'static str,
        message: &'static str,
    },
    /// The tool-runner failed while a tool that may write was perhaps running.
    Unknown,
    /// The time limit passed.
    Late(Duration),
    /// The client went away.
    Cancelled,
}

/// Runs one call to its recorded end.
pub(crate) async fn call_tool(gateway: &Arc<Gateway>, call: ToolCall) -> Answer {
    // Only modern clients cancel by hanging up; the calls of older ones go on.
    let _hang_up = call
        .version
        .cancels_on_disconnect()
        .then(|| call.cancel.clone().drop_guard());
    let (id, call_id) = (call.id.clone(), CallId::new(gateway.ambient()));
    let span = tracing::info_span!(
        "tools/call",
        { names::CALL_ID } = %call_id,
        { names::CALLER } = call.caller.subject(),
        { names::TOOL } = tracing::field::Empty,
    );
    let gateway = Arc::clone(gateway);
    let stories = gateway.stories.clone();
    let story = async move { tell(&gateway, &call, call_id).await };
    // Its own task: whoever hangs up, the record is written.
    let story = stories.spawn(story.instrument(span));
    story.await.unwrap_or_else(|_| {
        let error = RpcError::internal("panic", "Internal error.").of_call(call_id, None);
        Answer::error(Some(&id), &error)
    })
}

/// The story, top to bottom.
async fn tell(gateway: &Gateway, call: &ToolCall, call_id: CallId) -> Answer {
    let started = Instant::now();
    // What cannot be recorded is not even begun.
    if !gateway.trail().is_ready() {
        return not_recorded(call, call_id, NOT_RELEASED);
    }
    let mut facts = CallFacts::arriving(
        call_id,
        &call.caller,
        call.client_ip.clone(),
        call.protocol,
        &call.name,
        &call.arguments,
    );
    let decided = decide(gateway, call, &mut facts).await;
    // The intent of what may write is on record before it runs. A record that did not take it would
    // not take the outcome either.
    let may_write = matches!(&decided, Ok((tool, _)) if !tool.facts.read_only);
    if may_write
        && gateway
            .trail()
            .append(Event::Intent(facts.clone()))
            .await
            .is_err()
    {
        return not_recorded(call, call_id, NOT_RELEASED);
    }
    let ending = match decided {
        Ok((tool, grant)) => run_permitted(gateway, call, &tool, &grant, &mut facts).await,
        Err(stop) => Err(stop),
    };
    let outcome = outcome(facts, &ending, started.elapsed());
    report(&outcome);
    let Ok(receipt) = gateway.trail().append(Event::Outcome(outcome)).await else {
        let message = if may_write {
            POSSIBLY_RAN
        } else {
            NOT_RELEASED
        };
        return not_recorded(call, call_id, message);
    };
    release(call, call_id, receipt, &ending)
}

/// Finds the tool, and what the policy says of calling it so.
async fn decide(
    gateway: &Gateway,
    call: &ToolCall,
    facts: &mut CallFacts,
) -> Result<(Arc<Tool>, Arc<Grant>), Stop> {
    let (kind, message) = catalogue::NOT_KNOWN;
    let tools = gateway.catalogue().current();
    let tools = tools.ok_or(Stop::Failed { kind, message })?;
    let tool = call.view.tool(&tools, &call.name);
    let tool = tool.cloned().ok_or(Stop::UnknownTool)?;
    facts.tool = Some(tool.facts.name.clone());
    facts.definition_digest = Some(tool.facts.definition_digest);
    tracing::Span::current().record(names::TOOL, tool.facts.name.as_str());
    if !tool.switches.allow(&call.caller) {
        return Err(Stop::Disabled);
    }
    let grant = authorize(gateway, call, &tool, facts).await?;
    Ok((tool, grant))
}

async fn run_permitted(
    gateway: &Gateway,
    call: &ToolCall,
    tool: &Tool,
    grant: &Grant,
    facts: &mut CallFacts,
) -> Result<ToolResult, Stop> {
    match run(gateway, call, tool, grant, facts.call_id).await {
        // The tool or the keys changed since the permit was kept: decide anew, once.
        Err(Ran::PermitRefused) => {
            gateway.authority().forget(&call.caller, &tool.facts);
            let grant = authorize(gateway, call, tool, facts).await?;
            run(gateway, call, tool, &grant, facts.call_id)
                .await
                .map_err(Stop::from)
        }
        ran => ran.map_err(Stop::from),
    }
}

async fn authorize(
    gateway: &Gateway,
    call: &ToolCall,
    tool: &Tool,
    facts: &mut CallFacts,
) -> Result<Arc<Grant>, Stop> {
    let started = Instant::now();
    let answer = gateway
        .authority()
        .authorize(&call.caller, &tool.facts, &call.arguments, &call.client_ip)
        .await;
    stage("authorize", started.elapsed());
    match answer {
        Ok(Authorization::Allowed(grant)) => {
            facts.decided(&grant.decision);
            facts.permit_id = Some(grant.permit_id);
            Ok(grant)
        }
        Ok(Authorization::Denied {
            decision,
            reason,
            visible,
        }) => {
            facts.decided(&decision);
            Err(if visible {
                Stop::Denied(reason, decision.id)
            } else {
                Stop::Hidden(reason)
            })
        }
        Err(error) => {
            tracing::warn!(%error, "the policy service did not decide");
            Err(Stop::Failed {
                kind: "policy_unavailable",
                message: "The call could not be decided. Try again later.",
            })
        }
    }
}

/// Why a run gave nothing.
enum Ran {
    PermitRefused,
    Stopped(Stop),
}

impl From<Ran> for Stop {
    fn from(ran: Ran) -> Self {
        match ran {
            Ran::PermitRefused => Self::Failed {
                kind: "permit_refused",
                message: "The tool-runner refused the call's permit. Try again.",
            },
            Ran::Stopped(stop) => stop,
        }
    }
}

async fn run(
    gateway: &Gateway,
    call: &ToolCall,
    tool: &Tool,
    grant: &Grant,
    call_id: CallId,
) -> Result<ToolResult, Ran> {
    let started = Instant::now();
    let called = gateway.runner().call_tool(CallTool {
        call_id,
        caller: &call.caller,
        tool: &tool.facts.name,
        arguments: call.arguments.clone(),
        permit: &grant.permit,
        idempotency_key: call.idempotency_key.as_deref(),
        interaction: Interaction::default(),
        caller_token: call.token.expose().filter(|_| tool.needs_caller_token),
        // The tool-runner ends the work at the limit itself; this catches one that does not answer.
        limit: tool.time_limit + Duration::from_secs(1),
    });
    let running = Box::pin(async {
        let mut events = pin!(called.await?);
        let mut end = None;
        while let Some(event) = events.next().await {
            end = Some(event?);
        }
        Ok(end)
    });
    // A tool-runner in this process that panics while it streams ends the call, not its record.
    let running = AssertUnwindSafe(running).catch_unwind();
    let result = tokio::select! {
        // First, so that nothing is started for a client that is already gone.
        biased;
        () = call.cancel.cancelled() => return Err(Ran::Stopped(Stop::Cancelled)),
        result = running => result,
    };
    stage("run", started.elapsed());
    let result = result.map_err(|_| {
        Ran::Stopped(Stop::Failed {
            kind: "panic",
            message: "Internal error.",
        })
    })?;
    let end = result.map_err(|error| refused(&error, tool))?;
    let Some(CallEvent::Result(mut result)) = end else {
        return Err(Ran::Stopped(Stop::Failed {
            kind: "input_required",
            message: "The tool asks for input in the middle of a call, which is not supported.",
        }));
    };
    result.content = call.view.content(result.content);
    for (name, spent) in &result.facts.stages {
        stage(&format!("run.{name}"), *spent);
    }
    Ok(result)
}

fn refused(error: &CallError, tool: &Tool) -> Ran {
    match error.reason() {
        ErrorReason::PermitRefused => Ran::PermitRefused,
        ErrorReason::DeadlineExceeded => Ran::Stopped(Stop::Late(tool.time_limit)),
        // Removed or switched off since the catalogue was listed.
        ErrorReason::UnknownTool => Ran::Stopped(Stop::UnknownTool),
        // It may have been asked before it failed, and a write must not be repeated on a guess.
        _ if !tool.facts.read_only => {
            tracing::warn!(%error, "the tool-runner did not say whether the call ran");
            Ran::Stopped(Stop::Unknown)
        }
        _ => {
            tracing::warn!(%error, "the tool-runner did not run the call");
            Ran::Stopped(Stop::Failed {
                kind: "tool_runner_unavailable",
                message: "The tool could not be run. Try again later.",
            })
        }
    }
}

/// What the record says of an ending.
fn outcome(call: CallFacts, ending: &Result<ToolResult, Stop>, duration: Duration) -> Outcome {
    let (status, reason) = match ending {
        Ok(result) => (result.facts.status, result.facts.error_kind.as_str()),
        Err(Stop::UnknownTool) => (Status::UnknownTool, "unknown_tool"),
        Err(Stop::Disabled) => (Status::Denied, "disabled"),
        Err(Stop::Hidden(reason) | Stop::Denied(reason, _)) => (Status::Denied, reason.as_str()),
        Err(Stop::Failed { kind, .. }) => (Status::Error, *kind),
        Err(Stop::Unknown) => (Status::Unknown, "tool_runner_unavailable"),
        Err(Stop::Late(_)) => (Status::Timeout, "timeout"),
        Err(Stop::Cancelled) => (Status::Cancelled, "cancelled"),
    };
    let result = ending.as_ref().ok();
    let facts = result.map(|result| &result.facts);
    Outcome {
        call,
        status,
        reason: reason.to_owned(),
        rows: facts.map_or(0, |facts| facts.rows),
        rows_withheld: facts.map_or(0, |facts| facts.rows_withheld),
        fields_redacted: facts.map_or(0, |facts| facts.fields_redacted),
        phi: facts.is_some_and(|facts| facts.phi),
        result_digest: result.map(|result| {
            Digest::of_parts([result.content.as_ref(), result.structured_content.as_ref()])
        }),
        duration,
    }
}

/// Lets the ending out. It needs the receipt.
fn release(
    call: &ToolCall,
    call_id: CallId,
    receipt: Receipt,
    ending: &Result<ToolResult, Stop>,
) -> Answer {
    let is_direct = call.dialect == Dialect::Direct;
    let error = match ending {
        Ok(result) if result.facts.error_kind == RATE_LIMITED => {
            RpcError::rate_limited(result.facts.retry_after.unwrap_or_default())
        }
        Ok(result) if is_direct => return Answer::direct(&call.id, call_id, receipt, result),
        Err(Stop::UnknownTool | Stop::Disabled | Stop::Hidden(_) | Stop::Denied(..))
            if is_direct =>
        {
            RpcError::forbidden(&call.name)
        }
        Ok(result) => return Answer::released(&call.id, call.version, call_id, receipt, result),
        Err(Stop::Denied(reason, decision)) => {
            let denial = (reason.as_str(), *decision);
            return Answer::denied(&call.id, call.version, call_id, receipt, denial);
        }
        // The same words for all: what you may not call you do not see.
        Err(Stop::UnknownTool | Stop::Disabled | Stop::Hidden(_)) => {
            RpcError::unknown_tool(&call.name)
        }
        Err(Stop::Failed { kind, message }) => RpcError::internal(kind, *message),
        Err(Stop::Unknown) => RpcError::internal("unknown", POSSIBLY_RAN),
        Err(Stop::Late(limit)) => {
            RpcError::internal("timeout", format!("Timeout after {}s", limit.as_secs_f64()))
        }
        Err(Stop::Cancelled) => RpcError::internal("cancelled", "The call was cancelled."),
    };
    Answer::error(Some(&call.id), &error.of_call(call_id, Some(receipt)))
}

/// How the tool-runner says that a caller used a tool too often.
const RATE_LIMITED: &str = "rate_limited";

/// For a call that changed nothing.
const NOT_RELEASED: &str =
    "The call cannot be recorded durably, so nothing is released. Try again later.";
/// For a call that may have changed something.
const POSSIBLY_RAN: &str =
    "It is not known whether the tool ran; check before you repeat the call.";

fn not_recorded(call: &ToolCall, call_id: CallId, message: &str) -> Answer {
    counter!(names::TOOL_CALLS, "status" => "not_recorded").increment(1);
    let error = RpcError::internal("not_durable", message);
    Answer::error(Some(&call.id), &error.of_call(call_id, None))
}

fn report(outcome: &Outcome) {
    counter!(names::TOOL_CALLS, "status" => outcome.status.as_str()).increment(1);
    histogram!(names::TOOL_CALL_SECONDS).record(outcome.duration);
    tracing::info!(
        status = outcome.status.as_str(),
        reason = outcome.reason,
        rows = outcome.rows,
        rows_withheld = outcome.rows_withheld,
        "tool call ended"
    );
}
