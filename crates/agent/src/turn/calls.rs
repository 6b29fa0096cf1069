//! Executes the calls of one round: checks them, requests approvals, runs the tools and sends the results.
//!
//! ```text
//!   known name? ─▶ arguments valid? ─▶ repeated? ─▶ approval needed? ─▶ gateway ─▶ journal ─▶ event
//!        │               │                 │                │
//!        └───────────────┴─────────────────┴── refused      └── waits, together with the calls after it
//! ```
//!
//! Read-only calls run concurrently up to the limit. A call that may write runs alone and in order. Results are sent in the
//! order of the calls.

use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;
use wardgate_domain::{AgentRefusal, Digest};
use wardgate_telemetry::names;

use crate::approval::{Approval, InvalidApproval, Person};
use crate::clients::{GatewayFailure, GatewayTool, ToolAnswer};
use crate::event::{ErrorKind, EventBody};
use crate::functions::read_arguments;
use crate::model::FunctionCall;

use super::context::{WITHHELD, not_run};
use super::failure::TurnFailure;
use super::journal::{CallPosition, Journal};
use super::offered_tools::OfferedTools;
use super::quoted_calls;
use super::sink::{EventSink, approval_id};
use super::{TurnBudget, TurnSetup, unreadable};

/// Part of the platform's error text for a call whose idempotency key is in use. Only this text distinguishes the error from a
/// failure of the tool.
const STILL_RUNNING: &str = "idempotency key is still running";
/// Interval between two attempts at a call whose idempotency key is in use.
const PAUSE: Duration = Duration::from_millis(500);

/// The outcome of the calls of one round.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallsOutcome {
    /// All calls have results.
    Answered,
    /// A call needs the user's or an approver's approval.
    AwaitingApproval,
}

/// How a call ended.
enum CallEnd {
    /// The call has an answer. The flag is whether the journal stores it.
    Answered(ToolAnswer, bool),
    /// A policy requires an approval first.
    Pending(EventBody),
}

/// The plan for a call.
enum CallPlan<'t> {
    /// The call was answered earlier, in this stream or a previous one.
    Known(ToolAnswer),
    Refused(RefusedCall),
    /// The call needs the user's approval first.
    NeedsApproval(RunnableCall<'t>),
    Run(RunnableCall<'t>),
}

/// A call that is refused before it reaches its tool.
struct RefusedCall {
    /// The gateway's name of the tool, or the model's name if the tool was not offered.
    tool: String,
    refusal: AgentRefusal,
    /// The message for the model.
    text: String,
}

impl RefusedCall {
    /// Returns the kind of the error event for the user, or `None` if only the model is told.
    fn error_kind(&self) -> Option<ErrorKind> {
        match self.refusal {
            AgentRefusal::NotAvailable => Some(ErrorKind::ToolNotAvailable),
            AgentRefusal::InData => Some(ErrorKind::CallInData),
            AgentRefusal::ApprovalChanged => Some(ErrorKind::InvalidApproval),
            AgentRefusal::Unreadable
            | AgentRefusal::Arguments
            | AgentRefusal::Repeated
            | AgentRefusal::Declined => None,
        }
    }

    /// Counts and records the refusal. If it cannot be recorded, the turn continues, because nothing ran.
    async fn record(&self, setup: &TurnSetup, key: &str, deadline: Instant) {
        let reason = self.refusal.as_str();
        metrics::counter!(names::AGENT_REFUSED_CALLS, "reason" => reason).increment(1);
        tracing::warn!(
            assistant = setup.assistant.name,
            { names::CALLER } = setup.caller.subject(),
            reason,
            "a call of the model was refused; no tool was called"
        );
        let recorded = setup.gateway.record_refused(&self.tool, self.refusal, key);
        let recorded = timeout_at(deadline, recorded).await;
        if let Err(error) = recorded.unwrap_or(Err(GatewayFailure::Late)) {
            tracing::error!(%error, reason, "a refused call could not be recorded");
        }
    }
}

/// A call of an offered tool with valid arguments.
struct RunnableCall<'t> {
    tool: &'t GatewayTool,
    arguments: Map<String, Value>,
    terms: Digest,
}

impl CallPlan<'_> {
    /// Returns whether the call may run together with other calls.
    fn is_concurrent(&self) -> bool {
        match self {
            Self::Known(_) | Self::Refused(_) => true,
            Self::Run(ready) => ready.tool.read_only,
            Self::NeedsApproval(_) => false,
        }
    }
}

/// Sends the events of a completed round again and returns the answers of its calls.
pub(super) async fn replay(
    journal: &Journal,
    round: usize,
    calls: &[FunctionCall],
    sink: &mut EventSink,
) -> Vec<ToolAnswer> {
    send_calls(round, calls, sink).await;
    let mut answers = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        let answer = journal.answer(call).cloned().unwrap_or_else(not_run);
        send_result(round, index, call, &answer, sink).await;
        answers.push(answer);
    }
    answers
}

async fn send_calls(round: usize, calls: &[FunctionCall], sink: &mut EventSink) {
    for (index, call) in calls.iter().enumerate() {
        let body = EventBody::ToolCall {
            call_id: call.id.clone(),
            tool_name: call.name.clone(),
            arguments: arguments_shown(&call.arguments),
        };
        sink.call(round, index, body).await;
    }
}

/// Runs the calls of a round until all are answered or one needs an approval.
pub(super) async fn run_calls(
    setup: &TurnSetup,
    offered_tools: &OfferedTools,
    journal: &mut Journal,
    budget: &TurnBudget,
    round: usize,
    calls: &[(FunctionCall, bool)],
    sink: &mut EventSink,
) -> Result<(CallsOutcome, Vec<ToolAnswer>), TurnFailure> {
    let requested: Vec<FunctionCall> = calls.iter().map(|(call, _)| call.clone()).collect();
    send_calls(round, &requested, sink).await;
    let plans: Vec<CallPlan<'_>> = calls
        .iter()
        .map(|(call, may)| plan_call(setup, offered_tools, journal, call, *may))
        .collect();
    let mut answers = Vec::new();
    let mut at = 0;
    while at < plans.len() {
        if let CallPlan::NeedsApproval(ready) = &plans[at] {
            request_approval(setup, journal, round, at, &requested[at], ready, sink).await?;
            return Ok((CallsOutcome::AwaitingApproval, answers));
        }
        let concurrent = plans[at..].iter().take_while(|plan| plan.is_concurrent());
        let end = at + concurrent.count().max(1);
        let mut running = stream::iter(at..end)
            .map(|index| {
                let (plan, call) = (&plans[index], &requested[index]);
                run_call(
                    setup,
                    journal,
                    budget.deadline(),
                    CallPosition { round, index },
                    call,
                    plan,
                )
            })
            .buffered(setup.assistant.limits.parallel);
        let mut fresh = Vec::new();
        while let Some(ran) = running.next().await {
            let index = at + fresh.len();
            let (answer, is_kept) = match ran? {
                CallEnd::Answered(answer, is_kept) => (answer, is_kept),
                // The calls after this one are abandoned, which is safe because none of them may write.
                CallEnd::Pending(event) => {
                    sink.approval(round, index, event).await;
                    return Ok((CallsOutcome::AwaitingApproval, answers));
                }
            };
            if let CallPlan::Refused(refused) = &plans[index]
                && let Some(kind) = refused.error_kind()
            {
                sink.call_error(round, index, kind, &refused.text).await;
            }
            send_result(round, index, &requested[index], &answer, sink).await;
            fresh.push((answer, is_kept));
        }
        drop(running);
        for (offset, (answer, is_kept)) in fresh.into_iter().enumerate() {
            if is_kept {
                journal.keep_answer(&requested[at + offset], answer.clone());
            }
            answers.push(answer);
        }
        at = end;
    }
    Ok((CallsOutcome::Answered, answers))
}

fn plan_call<'t>(
    setup: &TurnSetup,
    offered_tools: &'t OfferedTools,
    journal: &Journal,
    call: &FunctionCall,
    may_repeat: bool,
) -> CallPlan<'t> {
    if let Some(answer) = journal.answer(call) {
        return CallPlan::Known(answer.clone());
    }
    // Use the gateway's name of the tool in the record where the tool is known.
    let tool = offered_tools.find(&call.name);
    let refused = |refusal, text: String| {
        CallPlan::Refused(RefusedCall {
            tool: tool.map_or(&call.name, |tool| &tool.name).clone(),
            refusal,
            text,
        })
    };
    if quoted_calls::is_id(&call.id) {
        return refused(
            AgentRefusal::InData,
            quoted_calls::STANDS_IN_DATA.to_owned(),
        );
    }
    // A name that was not offered is never sent to the gateway, because the caller may have rights that the assistant is not
    // meant to use.
    let Some(tool) = tool else {
        let roles = setup.caller.roles().join(", ");
        let text = format!("Tool '{}' not available for role '{roles}'", call.name);
        return refused(AgentRefusal::NotAvailable, text);
    };
    if unreadable::is_id(&call.id) {
        let text = unreadable::CANNOT_BE_READ.to_owned();
        return refused(AgentRefusal::Unreadable, text);
    }
    if !may_repeat {
        let text = "This call was made already with the same arguments. Use the result you have.";
        return refused(AgentRefusal::Repeated, text.to_owned());
    }
    let arguments = match read_arguments(&tool.schema, &call.arguments) {
        Ok(arguments) => arguments,
        Err(invalid) => return refused(AgentRefusal::Arguments, invalid.to_string()),
    };
    let terms = terms(&tool.name, &arguments);
    let ready = RunnableCall {
        tool,
        arguments,
        terms,
    };
    let listed = |name: &String| *name == tool.name || *name == call.name;
    if !tool.needs_approval && !setup.assistant.approval.tools.iter().any(listed) {
        return CallPlan::Run(ready);
    }
    match journal.decision(call) {
        None => CallPlan::NeedsApproval(ready),
        Some(decision) if !decision.approved => {
            let text = "The person refused this call. Do not try it again.";
            refused(AgentRefusal::Declined, text.to_owned())
        }
        Some(decision) if decision.terms == ready.terms.to_string() => CallPlan::Run(ready),
        Some(_) => {
            let text = InvalidApproval::Changed.to_string();
            refused(AgentRefusal::ApprovalChanged, text)
        }
    }
}

/// Returns a digest of the tool and the exact arguments of a call.
fn terms(tool: &str, arguments: &Map<String, Value>) -> Digest {
    Digest::compute(
        Value::from(vec![Value::from(tool), arguments.clone().into()])
            .to_string()
            .as_bytes(),
    )
}

/// Sends the event that asks for the user's decision.
async fn request_approval(
    setup: &TurnSetup,
    journal: &Journal,
    round: usize,
    index: usize,
    call: &FunctionCall,
    ready: &RunnableCall<'_>,
    sink: &mut EventSink,
) -> Result<(), TurnFailure> {
    let expires_at = sink.now().plus(setup.assistant.approval.expires);
    let approval = Approval {
        person: Person::from_caller(&setup.caller),
        assistant: setup.assistant.name.clone(),
        conversation: journal.conversation().id().to_owned(),
        turn: journal.turn().to_owned(),
        call_id: call.id.clone(),
        terms: ready.terms.to_string(),
        event: approval_id(round, index),
        expires_at_micros: expires_at.as_micros(),
    };
    let approval_id = setup
        .key
        .seal(&approval, &setup.ambient)
        .ok_or(InvalidApproval::Unknown)?;
    let body = EventBody::ApprovalRequired {
        approval_id,
        call_id: call.id.clone(),
        tool_name: call.name.clone(),
        arguments: ready.arguments.clone().into(),
        expires_at,
    };
    sink.approval(round, index, body).await;
    Ok(())
}

/// Executes the plan for a call.
async fn run_call(
    setup: &TurnSetup,
    journal: &Journal,
    deadline: Instant,
    position: CallPosition,
    call: &FunctionCall,
    plan: &CallPlan<'_>,
) -> Result<CallEnd, TurnFailure> {
    let ready = match plan {
        CallPlan::Known(answer) => return Ok(CallEnd::Answered(answer.clone(), true)),
        CallPlan::Refused(refused) => {
            let key = refusal_key(journal, position, refused);
            refused.record(setup, &key, deadline).await;
            return Ok(CallEnd::Answered(error_answer(refused.text.clone()), false));
        }
        CallPlan::Run(ready) | CallPlan::NeedsApproval(ready) => ready,
    };
    let tool = ready.tool.name.as_str();
    let span = tracing::info_span!(
        "execute_tool",
        otel.name = format!("execute_tool {tool}"),
        { names::GENAI_OPERATION } = "execute_tool",
        { names::TOOL } = tool,
        { names::GENAI_TOOL_CALL } = call.id,
    );
    let answered = async {
        tracing::info!("Executing MCP tool");
        let key = idempotency_key(journal, position, tool, ready);
        let conversation = journal.conversation().id();
        let called = call_tool(setup, ready.tool, &ready.arguments, &key, conversation);
        match timeout_at(deadline, called).await {
            Ok(answered) => answered,
            Err(_) => Err(GatewayFailure::Late),
        }
    };
    match answered.instrument(span).await {
        Ok(answer) => {
            let arguments = &ready.arguments;
            let stored = journal.store_answer(position, call, tool, arguments, &answer);
            if stored.await? {
                Ok(CallEnd::Answered(answer, true))
            } else {
                // The caller lost the right to use the tool in the meantime.
                Ok(CallEnd::Answered(error_answer(WITHHELD.to_owned()), false))
            }
        }
        Err(GatewayFailure::NeedsApproval {
            request_id,
            expires_at,
            message,
        }) => Ok(CallEnd::Pending(EventBody::ApprovalPending {
            request_id,
            call_id: call.id.clone(),
            tool_name: call.name.clone(),
            arguments: ready.arguments.clone().into(),
            expires_at,
            message,
        })),
        // The tool may have run. If the model were told of a failure, it might repeat the call under another key. The turn stays
        // open instead, and when it is resumed, the same key reveals the result.
        Err(failure) if !ready.tool.read_only && failure.leaves_open() => Err(failure.into()),
        Err(
            GatewayFailure::Refused { message, .. }
            | GatewayFailure::Busy { message, .. }
            | GatewayFailure::Unavailable { message },
        ) => Ok(CallEnd::Answered(error_answer(message), false)),
        Err(failure) => {
            let text = format!("Tool execution failed: {failure}");
            Ok(CallEnd::Answered(error_answer(text), false))
        }
    }
}

/// Calls a tool. If the same call of an interrupted turn is still running under the key, waits for its result. A read-only tool
/// keeps no key; retrying it because of its text would let the tool control how often it is called.
async fn call_tool(
    setup: &TurnSetup,
    tool: &GatewayTool,
    arguments: &Map<String, Value>,
    key: &str,
    conversation: &str,
) -> Result<ToolAnswer, GatewayFailure> {
    loop {
        let called = (setup.gateway).call(&tool.name, arguments, key, conversation);
        let answer = called.await?;
        if tool.read_only || !answer.is_error || !answer.text.contains(STILL_RUNNING) {
            return Ok(answer);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns the idempotency key of a call: the same whenever and wherever this call is made, and different for every other call.
fn idempotency_key(
    journal: &Journal,
    position: CallPosition,
    tool: &str,
    ready: &RunnableCall<'_>,
) -> String {
    let parts = Value::from(vec![
        Value::from(journal.conversation().id()),
        Value::from(journal.turn()),
        Value::from(position.round),
        Value::from(position.index),
        Value::from(tool),
        Value::from(ready.terms.to_string()),
    ]);
    Digest::compute(parts.to_string().as_bytes()).to_string()
}

/// Returns the idempotency key of a refusal: the same if the round is processed again.
fn refusal_key(journal: &Journal, position: CallPosition, refused: &RefusedCall) -> String {
    let parts = Value::from(vec![
        Value::from("refused"),
        Value::from(journal.conversation().id()),
        Value::from(journal.turn()),
        Value::from(position.round),
        Value::from(position.index),
        Value::from(refused.tool.as_str()),
        Value::from(refused.refusal.as_str()),
    ]);
    Digest::compute(parts.to_string().as_bytes()).to_string()
}

fn error_answer(text: String) -> ToolAnswer {
    ToolAnswer {
        text,
        is_error: true,
    }
}

async fn send_result(
    round: usize,
    index: usize,
    call: &FunctionCall,
    answer: &ToolAnswer,
    sink: &mut EventSink,
) {
    let body = EventBody::ToolResult {
        call_id: call.id.clone(),
        tool_name: call.name.clone(),
        success: !answer.is_error,
        data: if answer.is_error {
            Value::Null
        } else {
            data(&answer.text)
        },
        error: answer.is_error.then(|| answer.text.clone()),
    };
    sink.result(round, index, body).await;
}

/// Returns the data of a result's text: the member `data` of a JSON object if it exists, otherwise everything.
fn data(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(Value::Object(mut members)) => match members.shift_remove("data") {
            Some(data) => data,
            None => Value::Object(members),
        },
        Ok(value) => value,
        Err(_) => Value::from(text),
    }
}

fn arguments_shown(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}
