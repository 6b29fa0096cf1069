//! The story of one call, read from top to bottom.
//!
//! ```text
//!   admit:  tool ─▶ permit ─▶ AdmittedCall          refused: nothing ran
//!   run:    arguments ─▶ execute ⇄ row rule ─▶ redact ─▶ result
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::timeout;
use tracing::{info, warn};
use wardgate_domain::{CallId, CallToRun, Caller, Permit, SignedPermit, Timestamp};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_redact::Row;
use wardgate_telemetry::names;

use crate::Error;
use crate::arguments::Arguments;
use crate::compiled::CompiledPermit;
use crate::loaded::{Loaded, RunnableTool};
use crate::result::{self, Stopwatch};
use crate::row_rule::{Undecided, Verdict};
use crate::sql::{Flow, SourceError};

/// A call as it comes over the wire, its fields checked.
pub(crate) struct Call {
    pub(crate) id: CallId,
    pub(crate) caller: Caller,
    /// Canonical name.
    pub(crate) tool: String,
    /// One JSON object, byte for byte what the policy decided on.
    pub(crate) arguments: Bytes,
    pub(crate) permit: Option<SignedPermit>,
}

/// A call that may run. Only [`admit`] makes one.
pub(crate) struct AdmittedCall {
    id: CallId,
    tool: Arc<RunnableTool>,
    arguments: Bytes,
    permit: Permit,
    compiled: Arc<CompiledPermit>,
    stopwatch: Stopwatch,
}

/// What came out of the source.
#[derive(Default)]
struct Fetched {
    rows: Vec<Row>,
    bytes: usize,
    withheld: u64,
    /// Why some row could not be decided, and was withheld.
    undecided: Option<Undecided>,
    /// Time spent on the row rule.
    ruling: Duration,
    truncated: bool,
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
    let (permit, compiled) = loaded.compiled().admit(signed, to_run, &tool.tool, now)?;
    stopwatch.lap("permit");
    Ok(AdmittedCall {
        id: call.id,
        tool: Arc::clone(tool),
        arguments: call.arguments,
        permit,
        compiled,
        stopwatch,
    })
}

impl AdmittedCall {
    /// Runs the tool. Dropping the future stops the work in the source.
    pub(crate) async fn run(mut self) -> pb::ToolResult {
        let tool = Arc::clone(&self.tool);
        info!(
            { names::CALL_ID } = %self.id,
            { names::TOOL } = tool.tool.facts().name.as_str(),
            "Executing MCP tool"
        );

        let arguments = match Arguments::read(
            tool.tool.input(),
            &self.arguments,
            self.permit.terms().arguments_digest.is_some(),
        ) {
            Ok(arguments) => arguments,
            Err(invalid) => {
                self.stopwatch.lap("validate");
                let status = pb::OutcomeStatus::InvalidArguments;
                return self.fail(&invalid.to_string(), status, "invalid_arguments", 0);
            }
        };
        self.stopwatch.lap("validate");

        let mut fetched = Fetched::default();
        let outcome = timeout(tool.time_limit, self.fetch(&arguments, &mut fetched)).await;
        self.stopwatch
            .lap_with("execute", fetched.ruling, Some("row_rule"));
        if let Some(why) = &fetched.undecided {
            warn!({ names::CALL_ID } = %self.id, %why, "rows were withheld because the row rule cannot decide on them");
        }
        let failure = match outcome {
            Ok(Ok(())) if fetched.truncated && fetched.rows.is_empty() => Failure::too_large(),
            Ok(Ok(())) if fetched.rows.is_empty() && fetched.is_misfit() => Failure::undecided(),
            Ok(Ok(())) => return self.release(fetched, &arguments),
            Ok(Err(error)) => Failure::of(&error, tool.time_limit, self.id),
            Err(_elapsed) => Failure::timeout(tool.time_limit),
        };
        self.fail(
            &failure.text,
            failure.status,
            failure.kind,
            fetched.withheld,
        )
    }

    /// Reads rows until there are enough; what the row rule does not admit is forgotten at once.
    async fn fetch(&self, arguments: &Arguments, fetched: &mut Fetched) -> Result<(), SourceError> {
        let tool = &self.tool;
        let statement = tool.tool.statement();
        let params = arguments.bind(tool.tool.input(), statement);
        let values = statement.arrange(params, &self.compiled.rule_values);
        let read_only = tool.tool.facts().read_only;
        let mut sink = |row: Row| {
            if let Some(gate) = &self.compiled.gate {
                let began = Instant::now();
                let verdict = gate.verdict(&row);
                fetched.ruling += began.elapsed();
                match verdict {
                    Verdict::Admitted => {}
                    Verdict::Withheld => {
                        fetched.withheld += 1;
                        return Flow::More;
                    }
                    Verdict::Undecided(why) => {
                        fetched.withheld += 1;
                        fetched.undecided = Some(why);
                        return Flow::More;
                    }
                }
            }
            match fetched.take(row, tool) {
                // To stop a statement that writes in the middle would leave open whether it did.
                Flow::Enough if !read_only => Flow::More,
                flow => flow,
            }
        };
        tool.source
            .query(
                read_only,
                Arc::clone(&self.compiled.sql),
                &values,
                &mut sink,
            )
            .await
    }

    /// Redacts what was fetched and makes the result of it.
    fn release(mut self, fetched: Fetched, arguments: &Arguments) -> pb::ToolResult {
        let tool = Arc::clone(&self.tool);
        if fetched.rows.is_empty()
            && let Some(template) = &tool.tool.result().empty_error
        {
            let text = template.fill(arguments.values());
            return self.fail(
                &text,
                pb::OutcomeStatus::ToolError,
                "no_rows",
                fetched.withheld,
            );
        }
        let shape = tool.tool.result();
        let rows = fetched.rows.into_iter().map(|row| {
            row.into_fields()
                .into_iter()
                .filter(|(name, _)| !shape.internal.contains(&**name))
                .collect::<Row>()
        });
        let (rows, counts) = self.compiled.redactor.rows(rows, |column| {
            let class = shape.classes.get(column).unwrap_or(&tool.unclassified);
            (class, self.permit.tier(class))
        });
        self.stopwatch.lap("redact");
        let facts = pb::ResultFacts {
            status: pb::OutcomeStatus::Ok.into(),
            rows: rows.get().len() as u64,
            rows_withheld: fetched.withheld,
            fields_redacted: counts.fields_redacted,
            phi: counts.phi,
            error_kind: String::new(),
            stages: self.stopwatch.into_stages(),
        };
        result::rows(&rows, fetched.truncated, facts)
    }

    fn fail(
        self,
        text: &str,
        status: pb::OutcomeStatus,
        kind: &str,
        withheld: u64,
    ) -> pb::ToolResult {
        let facts = pb::ResultFacts {
            status: status.into(),
            rows_withheld: withheld,
            error_kind: kind.to_owned(),
            stages: self.stopwatch.into_stages(),
            ..pb::ResultFacts::default()
        };
        result::error(text, facts)
    }
}

impl Fetched {
    /// Some row could not be decided, and not because of its own values.
    fn is_misfit(&self) -> bool {
        self.undecided.as_ref().is_some_and(Undecided::is_misfit)
    }

    /// Keeps an admitted row unless the result is full.
    fn take(&mut self, row: Row, tool: &RunnableTool) -> Flow {
        let bytes = self.bytes + result::json_size(&row);
        if self.truncated || self.rows.len() == tool.max_rows || bytes > tool.max_result_bytes {
            self.truncated = true;
            return Flow::Enough;
        }
        self.bytes = bytes;
        self.rows.push(row);
        Flow::More
    }
}

/// A failure as the client may know it.
struct Failure {
    text: String,
    status: pb::OutcomeStatus,
    kind: &'static str,
}

impl Failure {
    /// Every row was withheld for want of a decision: that is a fault of the configuration, not an empty result.
    fn undecided() -> Self {
        Self {
            text: "Tool execution failed: its rows do not fit the policies".to_owned(),
            status: pb::OutcomeStatus::ToolError,
            kind: "bad_result",
        }
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

    fn tool(kind: &'static str, text: &str) -> Self {
        Self {
            text: format!("Tool execution failed: {text}"),
            status: pb::OutcomeStatus::ToolError,
            kind,
        }
    }

    /// The cause goes to the log; it holds no value of a row or an argument.
    fn of(error: &SourceError, limit: Duration, call_id: CallId) -> Self {
        warn!({ names::CALL_ID } = %call_id, error = %error, "a tool failed in its source");
        match error {
            SourceError::Timeout => Self::timeout(limit),
            SourceError::Unreachable(_) => {
                Self::tool("source_unavailable", "the data source cannot be reached")
            }
            SourceError::Busy(_) => Self::tool("source_unavailable", "the data source is busy"),
            SourceError::Broken(_) => Self::tool(
                "source_unavailable",
                "the connection to the data source broke",
            ),
            SourceError::Refused(_) => Self::tool("sql_error", "the data source refused the query"),
            SourceError::ColumnType { .. }
            | SourceError::Value { .. }
            | SourceError::DuplicateColumn(_) => Self::tool(
                "bad_result",
                "the data source gave a result that cannot be shown",
            ),
        }
    }
}
