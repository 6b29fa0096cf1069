//! The story of one `tools/call`: authorize → intent → run → outcome → release.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use bytes::Bytes;
use futures::StreamExt;
use metrics::{counter, histogram};
use serde_json::value::RawValue;
use wardgate_domain::{
    CallFacts, CallId, Caller, DecisionId, DenialReason, Digest, Event, Outcome, Receipt, Status,
};
use wardgate_edge::CallerToken;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::{
    CallError, CallEvent, CallTool, InputRequired, Interaction, ResultFacts, Resumption, ToolResult,
};
use wardgate_telemetry::names;

use crate::Gateway;
use crate::authority::{Authorization, Grant};
use crate::catalogue::{self, Tool};
use crate::dialogue::{self, Dialogue, Interrupted, Terms, Unanswered};
use crate::mcp::{Version, check_repeated};
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
    /// The headers that repeat arguments; none where there are no such.
    pub(crate) repeated: Option<HeaderMap>,
    /// The name the client asked for.
    pub(crate) name: String,
    /// The arguments, byte for byte as they came.
    pub(crate) arguments: Bytes,
    /// How the client wants the result.
    pub(crate) dialect: Dialect,
}

/// How a call, or a leg of it, ends at the tool-runner.
#[derive(Debug)]
enum End {
    Result(ToolResult),
    InputRequired(InputRequired),
}

impl End {
    fn facts(&self) -> &ResultFacts {
        match self {
            Self::Result(result) => &result.facts,
            Self::InputRequired(waits) => &waits.facts,
        }
    }
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
    /// The headers say something else than the arguments.
    Misrepeated(RpcError),
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
    /// What had to be on record first is not.
    NotRecorded,
    /// The tool waits for the client, and will go on waiting.
    Unanswered(Unanswered),
}

/// Runs one call to its recorded end.
pub(crate) async fn call_tool(gateway: &Arc<Gateway>, call: ToolCall, terms: Terms) -> Answer {
    let (id, call_id) = (call.id.clone(), CallId::new(gateway.ambient()));
    let span = tracing::info_span!(
        "tools/call",
        { names::CALL_ID } = %call_id,
        { names::CALLER } = call.caller.subject(),
        { names::TOOL } = tracing::field::Empty,
    );
    let story = |gateway, dialogue| async move {
        let facts = CallFacts::arriving(
            call_id,
            &call.caller,
            call.client_ip.clone(),
            call.protocol,
            &call.name,
            &call.arguments,
        );
        let mut story = Story {
            gateway,
            call,
            dialogue,
            facts,
            intended: false,
        };
        let answer = story.tell().await;
        story.dialogue.answer(answer).await;
    };
    dialogue::tell(gateway, (&id, call_id), terms, span, story).await
}

/// A call on its way.
struct Story {
    gateway: Arc<Gateway>,
    call: ToolCall,
    dialogue: Dialogue,
    /// What the record is to hear of.
    facts: CallFacts,
    /// The record knows that it may have begun.
    intended: bool,
}

impl Story {
    /// The story, top to bottom.
    async fn tell(&mut self) -> Answer {
        let started = Instant::now();
        // What cannot be recorded is not even begun.
        if !self.gateway.trail().is_ready() {
            return self.not_recorded(NOT_RELEASED);
        }
        let decided = self.decide().await;
        let may_write = matches!(&decided, Ok((tool, _)) if !tool.facts.read_only);
        // The intent of what may write is on record before it runs.
        let intended = if may_write {
            self.intend().await
        } else {
            Ok(())
        };
        let ending = match (intended, decided) {
            (Ok(()), Ok((tool, grant))) => self.run_permitted(&tool, &grant).await,
            (Ok(()), Err(stop)) | (Err(stop), _) => Err(stop),
        };
        // A record that did not take the intent would not take the outcome either.
        if let Err(Stop::NotRecorded) = &ending {
            return self.not_recorded(NOT_RELEASED);
        }
        let outcome = outcome(self.facts.clone(), &ending, started.elapsed());
        report(&outcome);
        match self.gateway.trail().append(Event::Outcome(outcome)).await {
            Ok(receipt) => release(&self.call, self.facts.call_id, receipt, &ending),
            Err(_) if may_write => self.not_recorded(POSSIBLY_RAN),
            Err(_) => self.not_recorded(NOT_RELEASED),
        }
    }

    /// Finds the tool, and what the policy says of calling it so.
    async fn decide(&mut self) -> Result<(Arc<Tool>, Arc<Grant>), Stop> {
        let (kind, message) = catalogue::NOT_KNOWN;
        let tools = self.gateway.catalogue().current();
        let tools = tools.ok_or(Stop::Failed { kind, message })?;
        let tool = self.call.view.tool(&tools, &self.call.name);
        let tool = tool.cloned().ok_or(Stop::UnknownTool)?;
        self.facts.tool = Some(tool.facts.name.clone());
        self.facts.definition_digest = Some(tool.facts.definition_digest);
        tracing::Span::current().record(names::TOOL, tool.facts.name.as_str());
        if !tool.switches.allow(&self.call.caller) {
            return Err(Stop::Disabled);
        }
        let grant = self.authorize(&tool).await?;
        // Whoever may not call it learns nothing of its schema by this either.
        if let Some(headers) = &self.call.repeated {
            let repeated = &tool.definition.repeated;
            let checked = check_repeated(repeated, &self.call.arguments, headers);
            checked.map_err(Stop::Misrepeated)?;
        }
        Ok((tool, grant))
    }

    /// Puts on record, once, that the call is about to do what cannot be taken back: to run what may write, or to let
    /// out a word before its outcome.
    async fn intend(&mut self) -> Result<(), Stop> {
        if !self.intended {
            let intent = Event::Intent(self.facts.clone());
            let appended = self.gateway.trail().append(intent).await;
            appended.map_err(|_| Stop::NotRecorded)?;
            self.intended = true;
        }
        Ok(())
    }

    /// Runs leg after leg: one ends where the tool waits for the client. A modern client is asked by the answer, and comes
    /// back with another call; an older one is asked here.
    async fn run_permitted(&mut self, tool: &Tool, grant: &Grant) -> Result<End, Stop> {
        let mut resumption = None;
        for _ in 0..MOST_LEGS {
            let end = self.run_leg(tool, grant, resumption.take()).await?;
            let End::InputRequired(waits) = end else {
                return Ok(end);
            };
            if self.call.version.is_modern() {
                return Ok(End::InputRequired(waits));
            }
            // What it is asked leaves before the outcome.
            self.intend().await?;
            let responses = self.dialogue.ask(&waits.requests).await;
            resumption = Some(Resumption {
                state: waits.state,
                responses: responses.map_err(Stop::Unanswered)?,
            });
        }
        Err(Stop::Failed {
            kind: "too_many_rounds",
            message: "The tool asks for input again and again.",
        })
    }

    async fn run_leg(
        &mut self,
        tool: &Tool,
        grant: &Grant,
        resumption: Option<Resumption>,
    ) -> Result<End, Stop> {
        match self.run(tool, grant, resumption.clone()).await {
            // The tool or the keys changed since the permit was kept: decide anew, once.
            Err(Ran::PermitRefused) => {
                let authority = self.gateway.authority();
                authority.forget(&self.call.caller, &tool.facts);
                let grant = self.authorize(tool).await?;
                let run = self.run(tool, &grant, resumption);
                run.await.map_err(Stop::from)
            }
            ran => ran.map_err(Stop::from),
        }
    }

    async fn authorize(&mut self, tool: &Tool) -> Result<Arc<Grant>, Stop> {
        let started = Instant::now();
        let call = &self.call;
        let answer = self
            .gateway
            .authority()
            .authorize(&call.caller, &tool.facts, &call.arguments, &call.client_ip)
            .await;
        stage("authorize", started.elapsed());
        match answer {
            Ok(Authorization::Allowed(grant)) => {
                self.facts.decided(&grant.decision);
                self.facts.permit_id = Some(grant.permit_id);
                Ok(grant)
            }
            Ok(Authorization::Denied {
                decision,
                reason,
                visible,
            }) => {
                self.facts.decided(&decision);
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

    /// Runs the tool, and passes on what it says meanwhile.
    async fn run(
        &mut self,
        tool: &Tool,
        grant: &Grant,
        resumption: Option<Resumption>,
    ) -> Result<End, Ran> {
        let started = Instant::now();
        let capabilities = self.dialogue.capabilities();
        let called = self.gateway.runner().call_tool(CallTool {
            call_id: self.facts.call_id,
            caller: &self.call.caller,
            tool: &tool.facts.name,
            arguments: self.call.arguments.clone(),
            permit: &grant.permit,
            idempotency_key: self.call.idempotency_key.as_deref(),
            interaction: Interaction {
                capabilities: capabilities.as_deref(),
                log_level: self.dialogue.log_level(),
                resumption,
            },
            caller_token: self.call.token.expose().filter(|_| tool.needs_caller_token),
            // The tool-runner ends the work at the limit itself; this catches one that does not answer.
            limit: tool.time_limit + Duration::from_secs(1),
        });
        let events = self.dialogue.unless_cancelled(Box::pin(called)).await?;
        let mut events = pin!(events.map_err(|error| refused(&error, tool))?);
        let end = loop {
            let event = self.dialogue.unless_cancelled(events.next()).await?;
            let event = event
                .transpose()
                .map_err(|error| refused(&error, tool))?
                .ok_or_else(|| lost(tool))?;
            match event {
                CallEvent::Result(mut result) => {
                    result.content = self.call.view.content(result.content);
                    break End::Result(result);
                }
                CallEvent::InputRequired(waits) => break End::InputRequired(waits),
                CallEvent::Progress(_) | CallEvent::Log(_) => {
                    if let Some(notice) = self.dialogue.notice(&event) {
                        self.intend().await?;
                        self.dialogue.say(&notice).await;
                    }
                }
            }
        };
        stage("run", started.elapsed());
        for (name, spent) in &end.facts().stages {
            stage(&format!("run.{name}"), *spent);
        }
        Ok(end)
    }

    fn not_recorded(&self, message: &str) -> Answer {
        counter!(names::TOOL_CALLS, "status" => "not_recorded").increment(1);
        let error = RpcError::internal(NOT_DURABLE, message);
        Answer::error(
            Some(&self.call.id),
            &error.of_call(self.facts.call_id, None),
        )
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

impl From<Stop> for Ran {
    fn from(stop: Stop) -> Self {
        Self::Stopped(stop)
    }
}

impl From<Interrupted> for Ran {
    fn from(interrupted: Interrupted) -> Self {
        Self::Stopped(match interrupted {
            Interrupted::Cancelled => Stop::Cancelled,
            Interrupted::Panicked => Stop::Failed {
                kind: "panic",
                message: "Internal error.",
            },
        })
    }
}

fn refused(error: &CallError, tool: &Tool) -> Ran {
    match error.reason() {
        ErrorReason::PermitRefused => Ran::PermitRefused,
        ErrorReason::DeadlineExceeded => Stop::Late(tool.time_limit).into(),
        // Removed or switched off since the catalogue was listed.
        ErrorReason::UnknownTool => Stop::UnknownTool.into(),
        _ => {
            tracing::warn!(%error, "the tool-runner did not say how the call ended");
            lost(tool).into()
        }
    }
}

/// Of a call whose end is not known.
fn lost(tool: &Tool) -> Stop {
    // It may have been asked before it failed, and a write must not be repeated on a guess.
    if !tool.facts.read_only {
        return Stop::Unknown;
    }
    Stop::Failed {
        kind: "tool_runner_unavailable",
        message: "The tool could not be run. Try again later.",
    }
}

/// What the record says of an ending.
fn outcome(call: CallFacts, ending: &Result<End, Stop>, duration: Duration) -> Outcome {
    let (status, reason) = match ending {
        Ok(End::Result(result)) => (result.facts.status, result.facts.error_kind.as_str()),
        Ok(End::InputRequired(_)) => (Status::Ok, "input_required"),
        Err(Stop::UnknownTool) => (Status::UnknownTool, "unknown_tool"),
        Err(Stop::Disabled) => (Status::Denied, "disabled"),
        Err(Stop::Hidden(reason) | Stop::Denied(reason, _)) => (Status::Denied, reason.as_str()),
        Err(Stop::Misrepeated(_)) => (Status::InvalidArguments, "header_mismatch"),
        Err(Stop::Failed { kind, .. }) => (Status::Error, *kind),
        Err(Stop::Unknown) => (Status::Unknown, "tool_runner_unavailable"),
        Err(Stop::Late(_)) => (Status::Timeout, "timeout"),
        Err(Stop::Cancelled) => (Status::Cancelled, "cancelled"),
        Err(Stop::NotRecorded) => (Status::Error, NOT_DURABLE),
        Err(Stop::Unanswered(unanswered)) => (Status::Error, unanswered.as_str()),
    };
    let end = ending.as_ref().ok();
    let facts = end.map(End::facts);
    Outcome {
        call,
        status,
        reason: reason.to_owned(),
        rows: facts.map_or(0, |facts| facts.rows),
        rows_withheld: facts.map_or(0, |facts| facts.rows_withheld),
        fields_redacted: facts.map_or(0, |facts| facts.fields_redacted),
        phi: facts.is_some_and(|facts| facts.phi),
        result_digest: end.map(|end| match end {
            End::Result(result) => {
                Digest::of_parts([result.content.as_ref(), result.structured_content.as_ref()])
            }
            End::InputRequired(waits) => Digest::of(waits.requests.as_bytes()),
        }),
        duration,
    }
}

/// Lets the ending out. It needs the receipt.
fn release(
    call: &ToolCall,
    call_id: CallId,
    receipt: Receipt,
    ending: &Result<End, Stop>,
) -> Answer {
    let is_direct = call.dialect == Dialect::Direct;
    let error = match ending {
        Ok(End::Result(result)) if result.facts.error_kind == RATE_LIMITED => {
            RpcError::rate_limited(result.facts.retry_after.unwrap_or_default())
        }
        Ok(End::Result(result)) if is_direct => {
            return Answer::direct(&call.id, call_id, receipt, result);
        }
        Err(Stop::UnknownTool | Stop::Disabled | Stop::Hidden(_) | Stop::Denied(..))
            if is_direct =>
        {
            RpcError::forbidden(&call.name)
        }
        Ok(End::Result(result)) => {
            return Answer::released(&call.id, call.version, call_id, receipt, result);
        }
        Err(Stop::Denied(reason, decision)) => {
            let denial = (reason.as_str(), *decision);
            return Answer::denied(&call.id, call.version, call_id, receipt, denial);
        }
        Ok(End::InputRequired(_)) | Err(Stop::Unanswered(_)) => RpcError::internal(
            "input_required",
            "The tool asks for input in the middle of a call, which is not supported.",
        ),
        // The same words for all: what you may not call you do not see.
        Err(Stop::UnknownTool | Stop::Disabled | Stop::Hidden(_)) => {
            RpcError::unknown_tool(&call.name)
        }
        Err(Stop::Misrepeated(error)) => error.clone(),
        Err(Stop::Failed { kind, message }) => RpcError::internal(kind, *message),
        Err(Stop::Unknown) => RpcError::internal("unknown", POSSIBLY_RAN),
        Err(Stop::Late(limit)) => {
            RpcError::internal("timeout", format!("Timeout after {}s", limit.as_secs_f64()))
        }
        Err(Stop::Cancelled) => RpcError::internal("cancelled", "The call was cancelled."),
        Err(Stop::NotRecorded) => RpcError::internal(NOT_DURABLE, NOT_RELEASED),
    };
    Answer::error(Some(&call.id), &error.of_call(call_id, Some(receipt)))
}

/// Legs of one call of an older client.
const MOST_LEGS: usize = 8;

/// How the tool-runner says that a caller used a tool too often.
const RATE_LIMITED: &str = "rate_limited";

/// Why a call ends of which nothing is on record.
const NOT_DURABLE: &str = "not_durable";

/// For a call that changed nothing.
const NOT_RELEASED: &str =
    "The call cannot be recorded durably, so nothing is released. Try again later.";
/// For a call that may have changed something.
const POSSIBLY_RAN: &str =
    "It is not known whether the tool ran; check before you repeat the call.";

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
