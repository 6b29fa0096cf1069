//! The story of one call, read from top to bottom.
//!
//! ```text
//!   admit:  tool ─▶ permit ─▶ AdmittedCall          refused: nothing ran
//!   run:    arguments ─▶ execute ⇄ row rule ─▶ redact ─▶ result
//! ```

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::timeout_at;
use tracing::{info, warn};
use wardgate_domain::{CallId, CallToRun, Caller, Permit, SignedPermit, Timestamp};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_redact::Row;
use wardgate_telemetry::names;

use crate::Error;
use crate::arguments::{Arguments, InvalidArguments};
use crate::compiled::CompiledPermit;
use crate::executor::{ExecutorError, Invocation, Kept, Output, Progress};
use crate::loaded::{Loaded, RunnableTool};
use crate::result::{self, Stopwatch, Whole};

/// The column whose class governs the words an upstream fails in.
const ERROR: &str = "error";

/// A call as it comes over the wire, its fields checked.
pub(crate) struct Call {
    pub(crate) id: CallId,
    pub(crate) caller: Caller,
    /// Canonical name.
    pub(crate) tool: String,
    /// One JSON object, byte for byte what the policy decided on.
    pub(crate) arguments: Bytes,
    pub(crate) permit: Option<SignedPermit>,
    /// The caller's bearer token, where the tool needs it. It is never logged.
    pub(crate) caller_token: Option<String>,
}

/// A call that may run. Only [`admit`] makes one.
pub(crate) struct AdmittedCall {
    id: CallId,
    caller: Caller,
    caller_token: Option<String>,
    tool: Arc<RunnableTool>,
    arguments: Bytes,
    permit: Permit,
    compiled: Arc<CompiledPermit>,
    stopwatch: Stopwatch,
}

/// Finds the tool and turns the signed permit into the right to run it once.
pub(crate) fn admit(call: Call, loaded: &Loaded, now: Timestamp) -> Result<AdmittedCall, Error> {
    let mut stopwatch = Stopwatch::start();
    let tool = loaded.tool(&call.tool).ok_or(Error::UnknownTool)?;
    let signed = call.permit.ok_or(Error::NoPermit)?;
    let facts = tool.tool.facts();
    let to_run = CallToRun {
        caller: &call.caller,
        tool: &facts.name,
        definition_digest: facts.definition_digest,
        arguments: &call.arguments,
    };
    let (permit, compiled) = loaded.compiled().admit(signed, to_run, tool, now)?;
    stopwatch.lap("permit");
    Ok(AdmittedCall {
        id: call.id,
        caller: call.caller,
        caller_token: call.caller_token,
        tool: Arc::clone(tool),
        arguments: call.arguments,
        permit,
        compiled,
        stopwatch,
    })
}

impl AdmittedCall {
    /// Runs the tool and tells `progress` how far it is. Dropping the future stops the work in the source.
    pub(crate) async fn run(mut self, progress: &mpsc::Sender<Progress>) -> pb::ToolResult {
        let tool = Arc::clone(&self.tool);
        info!(
            { names::CALL_ID } = %self.id,
            { names::TOOL } = tool.tool.facts().name.as_str(),
            "Executing MCP tool"
        );

        let arguments = match self.arguments() {
            Ok(arguments) => arguments,
            Err(invalid) => {
                self.stopwatch.lap("validate");
                return self.fail(Failure::invalid(invalid.to_string()), 0);
            }
        };
        self.stopwatch.lap("validate");

        let compiled = Arc::clone(&self.compiled);
        let gate = compiled.gate.as_ref();
        let mut output = Output::new(tool.tool.result(), gate, tool.caps(), Some(progress));
        let outcome = self.execute(&arguments, &mut output).await;
        let kept = output.into_kept();
        self.stopwatch
            .lap_with("execute", kept.ruling, Some("row_rule"));
        if let Some(why) = &kept.undecided {
            warn!({ names::CALL_ID } = %self.id, %why, "rows were withheld because the row rule cannot decide on them");
        }
        let failure = match outcome {
            Ok(()) if kept.truncated && kept.rows.is_empty() => Failure::too_large(),
            Ok(()) if kept.rows.is_empty() && kept.is_misfit() => Failure::undecided(),
            Ok(()) => return self.release(kept, &arguments),
            Err(ExecutorError::Reported(words)) => self.reported(words),
            Err(error) => Failure::of(&error, tool.time_limit, self.id),
        };
        self.fail(failure, kept.withheld)
    }

    fn arguments(&self) -> Result<Arguments, InvalidArguments> {
        let tool = &self.tool.tool;
        let is_decided_on = self.permit.terms().arguments_digest.is_some();
        let mut arguments = Arguments::read(tool.input(), &self.arguments, is_decided_on)?;
        arguments.derive(tool.derive())?;
        Ok(arguments)
    }

    /// Runs it within its time limit.
    async fn execute(
        &self,
        arguments: &Arguments,
        output: &mut Output<'_>,
    ) -> Result<(), ExecutorError> {
        let deadline = tokio::time::Instant::now() + self.tool.time_limit;
        let invocation = Invocation {
            call_id: self.id,
            caller: &self.caller,
            caller_token: self.caller_token.as_deref(),
            arguments: arguments.values(),
            raw_arguments: &self.arguments,
            deadline,
            read_only: self.tool.tool.facts().read_only,
            pushed: self.compiled.pushed.as_ref(),
        };
        timeout_at(deadline, self.tool.executor.run(&invocation, output))
            .await
            .unwrap_or(Err(ExecutorError::Timeout))
    }

    /// Redacts what was kept and makes the result of it.
    fn release(mut self, kept: Kept, arguments: &Arguments) -> pb::ToolResult {
        let tool = Arc::clone(&self.tool);
        let shape = tool.tool.result();
        if kept.rows.is_empty()
            && let Some(template) = &shape.empty_error
        {
            // A text placeholder of a message takes any value.
            let text = template.fill_plain(arguments.values()).unwrap_or_default();
            return self.fail(Failure::new("no_rows", text), kept.withheld);
        }
        let rows = kept.rows.into_iter().map(|row| {
            row.into_fields()
                .into_iter()
                .filter(|(name, _)| !shape.internal.contains(&**name))
                .collect::<Row>()
        });
        let (rows, counts) = self.compiled.redactor.rows(rows, |column| {
            let class = tool.class(column);
            (class, self.permit.tier(class))
        });
        self.stopwatch.lap("redact");
        let (status, kind) = if kept.is_error {
            (pb::OutcomeStatus::ToolError, "tool_error")
        } else {
            (pb::OutcomeStatus::Ok, "")
        };
        let facts = pb::ResultFacts {
            status: status.into(),
            rows: rows.get().len() as u64,
            rows_withheld: kept.withheld,
            fields_redacted: counts.fields_redacted,
            phi: counts.phi,
            error_kind: kind.to_owned(),
            stages: self.stopwatch.into_stages(),
        };
        let whole = Whole {
            truncated: kept.truncated,
            single: kept.single,
            is_error: kept.is_error,
        };
        result::released(shape, &rows, whole, facts)
    }

    /// The upstream's own words, as far as the permit lets them out.
    fn reported(&self, words: String) -> Failure {
        let class = self.tool.class(ERROR);
        let tier = self.permit.tier(class);
        let words = self.compiled.redactor.field(class, tier, words.into());
        warn!({ names::CALL_ID } = %self.id, "a tool reported an error");
        match words {
            Some(Value::String(words)) => Failure::new("tool_error", words),
            _ => Failure::tool(
                "tool_error",
                "the tool reported an error, which is withheld",
            ),
        }
    }

    fn fail(self, failure: Failure, withheld: u64) -> pb::ToolResult {
        let facts = pb::ResultFacts {
            status: failure.status.into(),
            rows_withheld: withheld,
            error_kind: failure.kind.to_owned(),
            stages: self.stopwatch.into_stages(),
            ..pb::ResultFacts::default()
        };
        result::error(&failure.text, facts)
    }
}

/// A failure as the client may know it.
struct Failure {
    text: String,
    status: pb::OutcomeStatus,
    kind: &'static str,
}

impl Failure {
    fn new(kind: &'static str, text: String) -> Self {
        Self {
            text,
            status: pb::OutcomeStatus::ToolError,
            kind,
        }
    }

    fn tool(kind: &'static str, text: &str) -> Self {
        Self::new(kind, format!("Tool execution failed: {text}"))
    }

    fn invalid(text: String) -> Self {
        Self {
            text,
            status: pb::OutcomeStatus::InvalidArguments,
            kind: "invalid_arguments",
        }
    }

    /// Every row was withheld for want of a decision: that is a fault of the configuration, not an empty result.
    fn undecided() -> Self {
        Self::tool("bad_result", "its rows do not fit the policies")
    }

    fn timeout(limit: Duration) -> Self {
        Self {
            text: result::timeout_text(limit),
            status: pb::OutcomeStatus::Timeout,
            kind: "timeout",
        }
    }

    fn too_large() -> Self {
        Self::tool(
            "result_too_large",
            "a single row is larger than a result may be",
        )
    }

    /// The cause goes to the log; it holds no value of a row or an argument.
    fn of(error: &ExecutorError, limit: Duration, call_id: CallId) -> Self {
        warn!({ names::CALL_ID } = %call_id, %error, "a tool failed in its source");
        let unavailable = |text| Self::tool("source_unavailable", text);
        match error {
            ExecutorError::Timeout => Self::timeout(limit),
            ExecutorError::Unreachable(_) => unavailable("the data source cannot be reached"),
            ExecutorError::Busy(_) => unavailable("the data source is busy"),
            ExecutorError::Broken(_) => unavailable("the connection to the data source broke"),
            ExecutorError::Refused { kind, text, .. } => Self::tool(kind, text),
            ExecutorError::BadArgument { text } => {
                Self::invalid(format!("Invalid arguments: {text}"))
            }
            ExecutorError::BadResult(_) => Self::tool(
                "bad_result",
                "the data source gave a result that cannot be shown",
            ),
            ExecutorError::TooLarge => {
                Self::tool("result_too_large", "the result is larger than it may be")
            }
            // Its words are released by [`AdmittedCall::reported`].
            ExecutorError::Reported(_) => Self::tool("tool_error", "the tool reported an error"),
        }
    }
}
